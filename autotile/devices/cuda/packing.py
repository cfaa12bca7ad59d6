"""What a launch's arguments are to CUDA: addresses, sizes of 32 bits, and floating-point numbers of their own width."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.types import SCRATCH

_SCALARS = {np.float32: "f", np.float64: "d"}
"""By type, the letter of `struct`."""


@dataclass(frozen=True)
class Pointer:
    """An address in the device's memory, as an argument of `CudaDevice.call`: a plain int would be a size."""

    address: int


class Address(int):
    """A device address among the packed values: tells pointers from sizes where ctypes packs them."""


def letter_of(argument: Any) -> str:
    """How an argument is packed, as a letter of `struct`: P, i, f or d. Numpy's integers are sizes, None is null."""
    return _SCALARS.get(type(argument)) or ("i" if is_size(argument) else "P")


def is_size(argument: Any) -> bool:
    """Whether an argument is passed as a 32-bit int, if at all."""
    return type(argument) is int or (type(argument) not in _SCALARS and _address_of(argument) is None)


def as_value(argument: Any) -> Any:
    """The number that is packed: an int, an `Address`, or a numpy float.

    Raises ArgumentTypeError for what is neither a size, nor a numpy float, nor on a device, ArgumentValueError for a
    size beyond 32 bits.
    """
    kind = type(argument)
    if kind is not int:
        if kind in _SCALARS:
            return argument
        address = _address_of(argument)
        if address is not None:
            return Address(address)
    try:
        if kind is bool or argument is SCRATCH:
            raise TypeError
        size = operator.index(argument)
    except TypeError:
        raise ArgumentTypeError(
            f"an argument of type {kind.__name__} is neither a size (int) nor an array on the device, nor a scalar "
            "(numpy's float32 or float64)"
        ) from None
    if not -(2**31) <= size < 2**31:
        raise ArgumentValueError(f"the size {size} does not fit the kernel's 32-bit int")
    return size


def _address_of(argument: Any) -> int | None:
    kind = type(argument)
    if kind is int:
        return None
    if kind is Pointer:
        return int(argument.address)
    if argument is None:
        return 0
    if kind.__module__.startswith("pycuda") and hasattr(argument, "__int__"):  # an allocation of pycuda's
        return int(argument)
    if hasattr(argument, "gpudata"):  # pycuda.gpuarray
        return int(argument.gpudata) if argument.gpudata is not None else 0
    if hasattr(argument, "data_ptr"):  # torch
        return int(argument.data_ptr())
    interface = getattr(argument, "__cuda_array_interface__", None)
    return None if interface is None else int(interface["data"][0])
