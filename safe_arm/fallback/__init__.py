"""Operators that stay off the accelerator: decomposed, given float biases for XNNPACK, its delegates loaded once."""
