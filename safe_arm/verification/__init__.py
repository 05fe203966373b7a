"""Run delegates in the TOSA reference model and compare with the quantised graph, in codes."""
