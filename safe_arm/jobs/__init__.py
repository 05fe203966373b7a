"""Many command lines at once, each in a process of its own and with a row of its own."""
