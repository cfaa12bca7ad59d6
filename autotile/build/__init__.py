"""From CUDA text to machine code: nvcc or NVRTC for GPUs, a C++ compiler for the emulator, one cache for all."""

from autotile.build.builder import Builder, compiler_at_hand, find_built, flags_at_hand
from autotile.build.cache import BuildCacheWarning

__all__ = ["BuildCacheWarning", "Builder", "compiler_at_hand", "find_built", "flags_at_hand"]
