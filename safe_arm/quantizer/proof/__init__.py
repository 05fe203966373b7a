"""The quantised graph beside the float net."""
