"""A launch as the driver takes it: geometry, stream, and whether it may begin before the one ahead of it has ended."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from autotile.devices.cuda.driver import libcuda
from autotile.types import Dim3

_PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""Of CUlaunchAttributeID of cuda.h: the kernel may begin once all blocks of the one ahead of it have let it or ended,
and waits itself, with `griddepcontrol.wait`, for that one's memory (CUDA C++ Programming Guide, "Programmatic Dependent
Launch and Synchronization")."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h, whose value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


_EARLY = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", 1, b"")


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )

    @classmethod
    def of(cls, grid: Dim3, block: Dim3, shared_bytes: int, early: bool = False, stream: int = 0) -> LaunchConfig:
        """`early`: the kernel may begin before the one ahead of it has ended."""
        attributes = (ctypes.addressof(_EARLY), 1) if early else (None, 0)
        return cls(grid, block, shared_bytes, stream, *attributes)


Run = Callable[[Any, ctypes.c_void_p, Any, None], int]
"""(config by reference, function, parameters, None) → the driver's status."""


def launcher() -> Run:
    """cuLaunchKernelEx; on a driver before CUDA 11.8, which has none, cuLaunchKernel with the same arguments.

    A structure that is ready costs a third of eight numbers.
    """
    library = libcuda()
    try:
        extended: Run = library["cuLaunchKernelEx"]
    except AttributeError:
        pass
    else:
        return extended

    def launch(config: Any, function: ctypes.c_void_p, parameters: Any, extra: None) -> int:
        given = config._obj
        return int(
            library.cuLaunchKernel(
                function, *given.grid, *given.block, given.shared_bytes, given.stream, parameters, extra
            )
        )

    return launch
