"""Turns the arguments of a launch into what the kernel takes: pointers, and values of exactly the right width."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autotile.devices.emulator import abi
from autotile.errors import LaunchError

_KIND_NAMES = {abi.SIGNED_KIND: "signed integer", abi.UNSIGNED_KIND: "unsigned integer", abi.FLOATING_KIND: "float"}
_NUMPY_KINDS = {"i": abi.SIGNED_KIND, "u": abi.UNSIGNED_KIND, "b": abi.UNSIGNED_KIND, "f": abi.FLOATING_KIND}


@dataclass(frozen=True)
class PackedArguments:
    """`pointers`, `buffers` are ctypes arrays; `arrays` are (argument, array); `values` keeps the pointed-to alive."""

    pointers: Any
    buffers: Any
    arrays: tuple[tuple[int, npt.NDArray[Any]], ...]
    values: tuple[bytes, ...]


def pack_arguments(arguments: Sequence[Any], parameters: Sequence[tuple[int, int]]) -> PackedArguments:
    """`parameters` are (kind, bytes) in the kernel's order. Raises LaunchError where an argument does not fit."""
    if len(arguments) != len(parameters):
        raise LaunchError(f"{len(arguments)} arguments were given to a kernel that takes {len(parameters)}")
    values: list[bytes] = []
    arrays: list[tuple[int, npt.NDArray[Any]]] = []
    for index, (argument, (kind, size)) in enumerate(zip(arguments, parameters, strict=False)):
        if isinstance(argument, np.ndarray):
            values.append(_address(index, argument, kind))
            if argument.nbytes:
                arrays.append((index, argument))
        else:
            values.append(_value(index, argument, kind, size))
    seen: dict[tuple[int, int], abi.LaunchBuffer] = {}
    for _, array in arrays:
        # Two accesses to one place must meet in one shadow: the same array twice is one buffer.
        key = (array.ctypes.data, array.nbytes)
        writable = int(array.flags.writeable) | (seen[key].writable if key in seen else 0)
        shift = {1: 0, 2: 1}.get(array.dtype.itemsize, 2)
        seen[key] = abi.LaunchBuffer(key[0], key[1], min(shift, seen[key].unit_shift if key in seen else 2), writable)
    pointers = (ctypes.c_void_p * max(1, len(values)))()
    for index, value in enumerate(values):
        pointers[index] = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
    return PackedArguments(pointers, (abi.LaunchBuffer * len(seen))(*seen.values()), tuple(arrays), tuple(values))


def _address(index: int, array: npt.NDArray[Any], kind: int) -> bytes:
    if kind != abi.POINTER_KIND:
        raise LaunchError(
            f"argument {index} is an array, but the kernel takes a {_KIND_NAMES.get(kind, 'structure')} there"
        )
    if not array.flags.c_contiguous:
        raise LaunchError(f"argument {index} is not C-contiguous; pass np.ascontiguousarray of it")
    return ctypes.c_uint64(array.ctypes.data).value.to_bytes(8, "little")


def _value(index: int, argument: Any, kind: int, size: int) -> bytes:
    if kind == abi.POINTER_KIND:
        if argument is None:
            return bytes(size)
        raise LaunchError(f"argument {index} is {argument!r}, but the kernel takes a pointer there: pass an array")
    if isinstance(argument, np.generic):
        given = _NUMPY_KINDS.get(argument.dtype.kind, abi.OPAQUE_KIND)
        fits = (
            given == kind or abi.OPAQUE_KIND in (given, kind) or {given, kind} <= {abi.SIGNED_KIND, abi.UNSIGNED_KIND}
        )
        if argument.nbytes != size or not fits:
            wanted = _KIND_NAMES.get(kind, "structure")
            raise LaunchError(
                f"argument {index} is {argument.dtype}, but the kernel takes a {size}-byte {wanted} there"
            )
        return argument.tobytes()
    try:
        if kind == abi.FLOATING_KIND:
            return np.array(float(argument), dtype=f"f{size}").tobytes()
        if kind in (abi.SIGNED_KIND, abi.UNSIGNED_KIND) and not isinstance(argument, float):
            return int(argument).to_bytes(size, "little", signed=kind == abi.SIGNED_KIND)
    except (TypeError, ValueError, OverflowError):
        pass
    raise LaunchError(
        f"argument {index} is {argument!r}, which is no {size}-byte {_KIND_NAMES.get(kind, 'structure')}: "
        "pass a numpy scalar of the kernel's type"
    )
