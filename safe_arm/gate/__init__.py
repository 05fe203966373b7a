"""A gate for CI: the figures that are worse than a committed baseline's, and the operators that explain it."""
