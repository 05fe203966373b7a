"""Run many command lines, each in a process of its own and with a row of its own."""
