"""The footprint of a lowered program on the device: flash, memory, cycles, and its kernels on the CPU."""
