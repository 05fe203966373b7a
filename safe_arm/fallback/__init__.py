"""What stays off the accelerator: operators decomposed, biases made float for XNNPACK, its delegates loaded once."""
