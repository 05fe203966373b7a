"""What a lowered program takes on the device: flash, memory, cycles, and the kernels it calls on the CPU."""
