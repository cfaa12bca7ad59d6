"""What a call reads of arrays that were seen before: no more than what may have changed, as cheaply as can be read.

A reader says of arrays of one library the `facts` that the checks of a first call looked at, and the `addresses`, of
which it has proven that they are the device's. It answers None for whatever it cannot vouch for; the checks of a first
call then say what is wrong, or take it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any

import numpy as np

MOST_PROVEN = 1024
"""Pieces of memory that are remembered as the device's own."""

Addresses = tuple[list[int], int]
"""The arrays' addresses, and all bits that are set in any of them."""


class _Proven:
    """Objects that hold memory of the device, each proven once: as long as one lives, so does its memory.

    By identity: an object that takes another's place in memory is asked about anew.
    """

    def __init__(self, device: Any) -> None:
        self._index, self._owns = device.index, device.quick_owns
        self.held: dict[int, weakref.ref[Any]] = {}

    def add(self, holder: Any, index: int, address: int) -> bool:
        """Whether the memory is of this device and its context; if so, the holder is remembered."""
        if index != self._index or not self._owns(address):
            return False
        if len(self.held) >= MOST_PROVEN:
            self.held.clear()
        self.held[id(holder)] = weakref.ref(holder)
        return True


class TorchReader:
    """PyTorch tensors, and parameters. A storage keeps its memory and its device for life; all else may change."""

    def __init__(self, device: Any, complex_elements: bool) -> None:
        torch = sys.modules["torch"]
        self.types: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
        self._index, self._complex = device.index, complex_elements
        self._proven = _Proven(device)
        self._held = self._proven.held
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.stream: Callable[[], int] = self._public_stream if raw is None else partial(raw, self._index)
        """Gives the handle of the stream that is current in PyTorch."""
        self._guards = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)

    def like(self, arrays: Sequence[Any]) -> Callable[..., bool] | None:
        """Whether others are like these in all that `facts` says, in one question; None where PyTorch cannot be asked.

        It is what PyTorch's own compiled functions ask of their arguments, written in C++.
        """
        if self._guards is None:
            return None
        return self._guards(*arrays, dynamic_dims_sizes=None, dynamic_dims_strides=None).check  # type: ignore[no-any-return]

    def facts(self, arrays: Sequence[Any]) -> list[Any] | None:
        tensor, parameter = self.types
        facts: list[Any] = []
        try:
            for array in arrays:
                kind = type(array)
                if kind is not tensor and kind is not parameter:
                    return None
                if array.is_neg() or (self._complex and array.is_conj()):
                    return None
                facts += array.shape, array.dtype, array.is_contiguous() or array.stride()
        except RuntimeError:  # of another layout, or inside a transformation: without strides
            return None
        return facts

    def addresses(self, arrays: Sequence[Any]) -> Addresses | None:
        held, addresses, bits = self._held, [], 0
        try:
            for array in arrays:
                address, storage = array.data_ptr(), array.untyped_storage()
                proof = held.get(id(storage))
                if (proof is None or proof() is not storage) and not self._prove(array, storage, address):
                    return None
                addresses.append(address)
                bits |= address
        except RuntimeError:  # without storage
            return None
        return addresses, bits

    def _prove(self, array: Any, storage: Any, address: int) -> bool:
        return self._proven.add(storage, array.get_device(), address)

    def _public_stream(self) -> int:
        return int(sys.modules["torch"].cuda.current_stream(self._index).cuda_stream)

    def maker(self, like: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
        empty, dtype, where = sys.modules["torch"].empty, like.dtype, like.device
        return lambda: empty(shape, dtype=dtype, device=where)

    def address(self, array: Any) -> int:
        return array.data_ptr()  # type: ignore[no-any-return]


class CupyReader:
    """CuPy arrays. One keeps its memory, and with it its device, for life; its shape may be set."""

    def __init__(self, device: Any, complex_elements: bool) -> None:
        cupy = sys.modules["cupy"]
        self.types: tuple[type, ...] = (cupy.ndarray,)
        self._proven = _Proven(device)
        self._held = self._proven.held
        self._current, self._empty = cupy.cuda.get_current_stream, cupy.empty

    def like(self, arrays: Sequence[Any]) -> None:
        return None

    def facts(self, arrays: Sequence[Any]) -> list[Any] | None:
        ndarray: Any = self.types[0]
        facts: list[Any] = []
        for array in arrays:
            if type(array) is not ndarray:
                return None
            facts += array.shape, array.strides, array.dtype
        return facts

    def addresses(self, arrays: Sequence[Any]) -> Addresses | None:
        held, addresses, bits = self._held, [], 0
        for array in arrays:
            memory = array.data
            address = memory.ptr
            proof = held.get(id(array))
            if (proof is None or proof() is not array) and not self._proven.add(array, memory.device_id, address):
                return None
            addresses.append(address)
            bits |= address
        return addresses, bits

    def stream(self) -> int:
        return self._current().ptr  # type: ignore[no-any-return]

    def maker(self, like: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
        empty, dtype = self._empty, like.dtype
        return lambda: empty(shape, dtype)

    def address(self, array: Any) -> int:
        return array.data.ptr  # type: ignore[no-any-return]


class PycudaReader:
    """pycuda's GPUArrays. Their memory may be given back while they live, so it is asked about in each call."""

    def __init__(self, device: Any, complex_elements: bool) -> None:
        self.types: tuple[type, ...] = (sys.modules["pycuda.gpuarray"].GPUArray,)
        self._owns, self._empty = device.quick_owns, device.empty_gpuarray

    def like(self, arrays: Sequence[Any]) -> None:
        return None

    def facts(self, arrays: Sequence[Any]) -> list[Any] | None:
        gpuarray: Any = self.types[0]
        facts: list[Any] = []
        for array in arrays:
            if type(array) is not gpuarray or array.gpudata is None:
                return None
            facts += array.shape, array.strides, array.dtype
        return facts

    def addresses(self, arrays: Sequence[Any]) -> Addresses | None:
        addresses = [int(array.gpudata) for array in arrays]
        return (addresses, reduce(or_, addresses)) if all(map(self._owns, addresses)) else None

    def stream(self) -> int:
        return 0

    def maker(self, like: Any, shape: tuple[int, ...]) -> Callable[[], Any]:
        empty, dtype = self._empty, np.dtype(like.dtype)
        return lambda: empty(shape, dtype)

    def address(self, array: Any) -> int:
        return int(array.gpudata)


Reader = TorchReader | CupyReader | PycudaReader

READERS: dict[str, type[TorchReader] | type[CupyReader] | type[PycudaReader]] = {
    "torch": TorchReader,
    "cupy": CupyReader,
    "pycuda": PycudaReader,
}
"""By the kind of a View."""
