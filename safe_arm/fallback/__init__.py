"""Operators left on the CPU: decompose them, give them float biases for XNNPACK, and load XNNPACK's delegates once."""
