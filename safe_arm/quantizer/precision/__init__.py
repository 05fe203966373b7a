"""Values that keep more than 8 bits: sums in 32, functions in two steps."""
