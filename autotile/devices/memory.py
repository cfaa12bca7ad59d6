"""How every NVIDIA GPU from sm_60 on hands out memory: the units in which requests of a warp are counted.

Sources: CUDA C++ Programming Guide, "Compute Capability 5.x" and later (banks of shared memory), and CUDA C++ Best
Practices Guide, "Coalesced Access to Global Memory" (sectors of 32 bytes); a line of the first cache is four sectors
(Nsight Compute, "Memory Tables").
"""

WARP_LANES = 32

SECTOR_BYTES = 32
"""The least that global memory moves."""

LINE_BYTES = 128
"""Of the first cache; a global request takes a pass for each that it touches."""

BANKS, WORD_BYTES = 32, 4
"""Of shared memory: in a wavefront each bank gives one word."""

WAVEFRONT_BYTES = BANKS * WORD_BYTES
