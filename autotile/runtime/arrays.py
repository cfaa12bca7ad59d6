"""Arrays of numpy, PyTorch, CuPy and pycuda, seen alike: an address, a shape, a dtype, and how to make one more.

Neither PyTorch nor CuPy is imported unless an array of theirs comes in.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.dtypes import ElementType, element_type, name_of
from autotile.errors import ArgumentTypeError, UsageError
from autotile.kernels.layout import Layout, layout_of

HOST = "host"
CUDA = "cuda"


@dataclass(frozen=True)
class View:
    """One array. `place` is host or cuda, `device` the GPU's index (None if unknown), `owner` keeps the memory alive.

    `empty(shape, dtype)` makes an uninitialised array of the same kind and place; `stream()` gives the handle of the
    stream on which the array's library would work now (None: the default stream). `strides`, in elements, are those of
    an array that is not contiguous; None for one that is, and where a stride is no whole number of elements. `home` is
    the caller's array where this one is a copy in which the kernel writes: what it wrote goes there afterwards.
    """

    owner: Any
    kind: str
    place: str
    device: int | None
    address: int
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool
    empty: Callable[[tuple[int, ...], str], Any]
    stream: Callable[[], int | None]
    writeable: bool = True
    strides: tuple[int, ...] | None = None
    home: View | None = None

    @property
    def element(self) -> ElementType:
        return element_type(self.dtype)

    @property
    def aligned(self) -> bool:
        """Whether the address is a multiple of the element's size. A kernel moves a whole element at once, complex ones
        too, which numpy counts as aligned at half of that."""
        return self.address % self.element.itemsize == 0

    @property
    def layout(self) -> Layout:
        """Where the elements lie; of arrays that are contiguous, or whose strides are known."""
        if self.strides is not None:
            return Layout(self.shape, self.strides)
        rows, cols = (1, 1, *self.shape)[-2:]
        return layout_of(self.shape, cols, rows)

    def flat(self) -> np.ndarray[Any, Any]:
        """The memory of a row-major host array from its first element to its last, gaps between rows included."""
        array = self.numpy()
        if self.contiguous:
            return array
        words = array.view(np.uint8) if array.itemsize == 1 else array  # as in measure/placed.py
        memory = np.lib.stride_tricks.as_strided(words, (self.layout.extent,), (self.element.itemsize,))
        return memory.view(array.dtype)

    def stretches(self) -> Iterator[tuple[int, Any]]:
        """Address and index of what lies in one piece: the whole of a dense array, or each row of a row-major one."""
        if self.contiguous:
            yield self.address, ...
            return
        outer = self.layout.strides[:-1]
        for index in np.ndindex(self.shape[:-1]):
            places = sum(i * stride for i, stride in zip(index, outer, strict=True))
            yield self.address + places * self.element.itemsize, (*index, ...)

    def send_home(self) -> None:
        """Copies what the kernel wrote to where the caller wants it."""
        if self.home is not None:
            self.home.numpy()[...] = self.numpy()

    def contiguous_copy(self) -> Any:
        """A fresh C-contiguous array of the same kind with the same values; host arrays alone."""
        return self.owner.contiguous().clone() if self.kind == "torch" else np.array(self.owner, order="C")

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous array of this shape."""
        return math.prod(self.shape) * self.element.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The memory of a host array, as numpy; shared, not copied."""
        if self.kind == "torch":
            words = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}.get(self.element.itemsize)
            raw = self.owner.detach()
            raw = raw if words is None else raw.view(getattr(sys.modules["torch"], words))
            return np.asarray(raw.numpy()).view(self.element.numpy)
        return np.asarray(self.owner)


def view_of(array: Any, argument: str, empty_gpuarray: Callable[..., Any] | None = None) -> View:
    """Sees an array. Raises ArgumentTypeError for what is none, or has a dtype that autotile does not know."""
    library = type(array).__module__.partition(".")[0]
    try:
        if isinstance(array, np.ndarray):
            return _numpy_view(array)
        if library == "torch" and hasattr(array, "data_ptr"):
            return _torch_view(array)
        if library == "cupy" and hasattr(array, "__cuda_array_interface__"):
            return _cupy_view(array)
        if library == "pycuda" and hasattr(array, "gpudata") and empty_gpuarray is not None:
            return _gpuarray_view(array, empty_gpuarray)
    except UsageError as error:
        raise ArgumentTypeError(f"{argument}: {error}") from None
    raise ArgumentTypeError(
        f"{argument} is a {type(array).__module__}.{type(array).__qualname__}; give a numpy array, a PyTorch tensor, a "
        "CuPy array or a pycuda GPUArray"
    )


def _none() -> None:
    return None


def _in_elements(strides: Sequence[int], itemsize: int) -> tuple[int, ...] | None:
    """From bytes; None where one is no whole number of elements."""
    return None if any(stride % itemsize for stride in strides) else tuple(stride // itemsize for stride in strides)


def _numpy_view(array: np.ndarray[Any, Any]) -> View:
    if isinstance(array, np.ma.MaskedArray):
        raise ArgumentTypeError("a masked array; its mask would be ignored: pass array.filled(…)")
    dense = array.flags.c_contiguous
    return View(
        array, "numpy", HOST, None, array.ctypes.data, array.shape, name_of(array.dtype), dense,
        lambda shape, dtype: np.empty(shape, element_type(dtype).numpy), _none, array.flags.writeable,
        None if dense else _in_elements(array.strides, array.itemsize),
    )  # fmt: skip


def _torch_view(tensor: Any) -> View:
    torch = sys.modules["torch"]
    on_gpu = bool(tensor.is_cuda)
    if tensor.layout is not torch.strided:
        raise ArgumentTypeError(f"a tensor of layout {tensor.layout}; give a dense one: tensor.to_dense()")
    if tensor.is_conj() or tensor.is_neg():
        raise ArgumentTypeError(
            "a view that PyTorch conjugates or negates as it is read, over memory that holds other values; pass "
            "tensor.resolve_conj().resolve_neg()"
        )
    if not on_gpu and tensor.device.type != "cpu":
        raise ArgumentTypeError(f"a tensor on {tensor.device}; CPU and CUDA tensors are supported")
    dense = bool(tensor.is_contiguous())
    own = element_type(str(tensor.dtype).removeprefix("torch.")).name

    def empty(shape: tuple[int, ...], dtype: str) -> Any:
        return torch.empty(shape, dtype=tensor.dtype if dtype == own else getattr(torch, dtype), device=tensor.device)

    return View(
        tensor, "torch", CUDA if on_gpu else HOST, tensor.device.index if on_gpu else None, int(tensor.data_ptr()),
        tuple(tensor.shape), own, dense, empty,
        lambda: int(torch.cuda.current_stream(tensor.device).cuda_stream) if on_gpu else None,
        strides=None if dense else tuple(tensor.stride()),
    )  # fmt: skip


def _cupy_view(array: Any) -> View:
    cupy = sys.modules["cupy"]

    def empty(shape: tuple[int, ...], dtype: str) -> Any:
        with array.device:
            return cupy.empty(shape, element_type(dtype).numpy)

    dense = bool(array.flags.c_contiguous)
    return View(
        array, "cupy", CUDA, int(array.device.id), int(array.data.ptr), tuple(array.shape), name_of(array.dtype),
        dense, empty, lambda: int(cupy.cuda.get_current_stream().ptr),
        strides=None if dense else _in_elements(array.strides, array.dtype.itemsize),
    )  # fmt: skip


def _gpuarray_view(array: Any, empty_gpuarray: Callable[..., Any]) -> View:
    dense = bool(array.flags.c_contiguous)
    return View(
        array, "pycuda", CUDA, None, int(array.gpudata) if array.gpudata is not None else 0, tuple(array.shape),
        name_of(array.dtype), dense, lambda shape, dtype: empty_gpuarray(shape, element_type(dtype).numpy), _none,
        strides=None if dense else _in_elements(array.strides, array.dtype.itemsize),
    )  # fmt: skip
