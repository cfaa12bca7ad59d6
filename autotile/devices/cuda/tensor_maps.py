"""Tensor maps, made by the driver: what the Tensor Memory Accelerator reads of an array, in 128 opaque bytes."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from autotile.devices.cuda.driver import error_words, libcuda
from autotile.errors import LaunchError
from autotile.types import TensorMap

MAP_BYTES = 128
ALIGNMENT = 64
"""Of a map among a function's parameters, and where the driver writes one (CUDA Driver API, "Tensor Map Object
Management")."""

MOST_REMEMBERED = 4096

# Of cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion. A tf32 element is rounded as it comes.
_DATA_TYPES = {
    "int8": 0, "uint8": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "int32": 3, "float16": 6, "float32": 7,
    "float64": 8, "bfloat16": 9, "tf32": 11,
}  # fmt: skip
_SWIZZLE_128B, _PROMOTE_128B, _NO_INTERLEAVE, _ZEROS_OUTSIDE = 3, 2, 0, 0


def aligned_room() -> tuple[Any, int]:
    """Memory for one map, and the address in it where the map belongs."""
    room = (ctypes.c_ubyte * (MAP_BYTES + ALIGNMENT))()
    return room, -(-ctypes.addressof(room) // ALIGNMENT) * ALIGNMENT


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def encoded(plan: TensorMap, address: int) -> bytes:
    """The map for an argument of that address. Raises LaunchError where the driver refuses it: an array that does not
    begin on 16 bytes, say, or a driver before CUDA 12."""
    _room, place = aligned_room()
    rank = len(plan.sizes)
    try:
        encode = libcuda()["cuTensorMapEncodeTiled"]
    except AttributeError:
        raise LaunchError("this driver knows no tensor maps: they came with CUDA 12") from None
    status = encode(
        ctypes.c_void_p(place),
        ctypes.c_int(_DATA_TYPES[plan.dtype]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address + plan.offset_bytes),
        (ctypes.c_uint64 * rank)(*plan.sizes),
        (ctypes.c_uint64 * max(1, rank - 1))(*plan.strides_bytes),
        (ctypes.c_uint32 * rank)(*plan.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(_NO_INTERLEAVE),
        ctypes.c_int(_SWIZZLE_128B),
        ctypes.c_int(_PROMOTE_128B),
        ctypes.c_int(_ZEROS_OUTSIDE),
    )
    if status != 0:
        raise LaunchError(
            f"the driver makes no tensor map of {plan} at address {address + plan.offset_bytes:#x}: "
            f"{error_words(status)}"
        )
    return ctypes.string_at(place, MAP_BYTES)
