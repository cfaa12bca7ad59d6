"""Where kernels run: CUDA devices, the emulator, and what is known of each GPU."""
