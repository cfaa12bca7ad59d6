"""Whether the arrays of a call fit the kernel and each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import Any

from autotile.devices.base import Device
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Kernel, Output
from autotile.runtime.arrays import CUDA, HOST, View, view_of


class ArgumentChecker:
    """Checks the arrays of calls of one kernel, in one dtype, on one device."""

    def __init__(self, kernel: Kernel, dtype: str, device: Device) -> None:
        self._kernel, self._dtype, self._device = kernel, dtype, device
        self._empty_gpuarray = getattr(device, "empty_gpuarray", None)
        self._owns = getattr(device, "owns", lambda address: True)
        # PyTorch and CuPy allocate in whichever context is current, and the caller may have pushed one of his own.
        self._current = getattr(device, "active", nullcontext)

    def check(self, arrays: Sequence[Any], out: Any) -> tuple[list[View], list[View], dict[str, int]]:
        """Inputs, outputs (given or made) and the problem's sizes. Raises ArgumentTypeError or ArgumentValueError.

        Nothing is copied or made before all shapes are known to fit.
        """
        views = self._views(arrays)
        sizes = self._sizes(views)
        names = (argument.name for argument in self._kernel.inputs)
        ready = [self._ready(view, name) for view, name in zip(views, names, strict=True)]
        return ready, self._outputs(ready, sizes, out), sizes

    def _views(self, arrays: Sequence[Any]) -> list[View]:
        wanted = self._kernel.inputs
        if len(arrays) != len(wanted):
            names = ", ".join(argument.name for argument in wanted)
            raise ArgumentTypeError(f"{self._kernel.name} takes {len(wanted)} array(s) ({names}), not {len(arrays)}")
        views = [self._view(array, argument.name) for array, argument in zip(arrays, wanted, strict=True)]
        if len({view.kind for view in views}) > 1 or len({view.place for view in views}) > 1:
            kinds = ", ".join(f"{a.name}: {v.kind} on {v.place}" for a, v in zip(wanted, views, strict=True))
            raise ArgumentTypeError(f"the arrays must be of one kind and in one place; got {kinds}")
        return views

    def _view(self, array: Any, name: str) -> View:
        view = view_of(array, name, self._empty_gpuarray)
        if view.dtype != self._dtype:
            raise ArgumentTypeError(
                f"{name} has dtype {view.dtype}, the kernel was loaded for {self._dtype}: convert the array, "
                f'or load with dtype="{view.dtype}"'
            )
        if view.place == CUDA and self._device.info.kind != "cuda":
            raise ArgumentTypeError(f"{name} lies on a GPU, but the kernel was loaded for the emulator")
        self._require_here(view, name)
        return view

    def _ready(self, view: View, name: str) -> View:
        """As a kernel can read it: a host array is copied where it must be; one on a GPU is refused."""
        if view.contiguous and view.aligned:
            return view
        if view.place == HOST:
            return view_of(view.contiguous_copy(), name)
        if not view.contiguous:
            raise ArgumentValueError(f"{name} is not C-contiguous; pass a contiguous copy of it")
        raise ArgumentValueError(
            f"{name} begins inside an element: its address is no multiple of the {view.element.itemsize} bytes of "
            f"{view.dtype}; pass a copy of it"
        )

    def _require_here(self, view: View, name: str) -> None:
        """Raises ArgumentValueError for an array on another GPU than the kernel's, or in another CUDA context."""
        if view.place != CUDA:
            return
        index = getattr(self._device, "index", None)
        if view.device is not None and index is not None and view.device != index:
            raise ArgumentValueError(f"{name} lies on cuda:{view.device}, the kernel was loaded for cuda:{index}")
        if view.nbytes and not self._owns(view.address):
            raise ArgumentValueError(
                f"{name} was allocated in another CUDA context than the GPU's primary one, where the kernel runs and "
                "where PyTorch and CuPy allocate by themselves; make it there (pycuda: Device.retain_primary_context)"
            )

    def _sizes(self, views: Sequence[View]) -> dict[str, int]:
        """The problem's sizes, from the shapes. Raises ArgumentValueError when these do not fit together."""
        sizes: dict[str, int] = {}
        for argument, view in zip(self._kernel.inputs, views, strict=True):
            if len(view.shape) != len(argument.shape):
                raise ArgumentValueError(
                    f"{argument.name} must have {len(argument.shape)} dimensions ({' × '.join(argument.shape)}), "
                    f"not shape {view.shape}"
                )
            for dimension, size in zip(argument.shape, view.shape, strict=True):
                if sizes.setdefault(dimension, size) != size:
                    raise ArgumentValueError(
                        f"{argument.name} has shape {view.shape}, so {dimension} = {size}, but another array says "
                        f"{dimension} = {sizes[dimension]}"
                    )
                if size >= 2**31:
                    raise ArgumentValueError(f"{argument.name}: {dimension} = {size} is more than 2147483647")
        return sizes

    def _outputs(self, views: Sequence[View], sizes: Mapping[str, int], out: Any) -> list[View]:
        given = out if isinstance(out, tuple) else (out,) if out is not None else (None,) * len(self._kernel.outputs)
        if len(given) != len(self._kernel.outputs):
            raise ArgumentTypeError(
                f"{self._kernel.name} has {len(self._kernel.outputs)} output(s), out has {len(given)}"
            )
        outputs = [
            self._output(argument, views, tuple(sizes[name] for name in argument.shape), array)
            for argument, array in zip(self._kernel.outputs, given, strict=True)
        ]
        for first, second in combinations(range(len(outputs)), 2):
            if _overlap(outputs[first], outputs[second]):
                raise ArgumentValueError(
                    f"out[{first}] and out[{second}] share memory; the kernel would write one over the other"
                )
        return outputs

    def _output(self, argument: Output, views: Sequence[View], shape: tuple[int, ...], array: Any) -> View:
        if array is None:
            with self._current() if views[0].place == CUDA else nullcontext():
                return view_of(views[0].empty(shape), argument.name, self._empty_gpuarray)
        view = view_of(array, "out", self._empty_gpuarray)
        self._require_here(view, "out")
        if (view.kind, view.place) != (views[0].kind, views[0].place):
            raise ArgumentTypeError(
                f"out is {view.kind} on {view.place}, the inputs {views[0].kind} on {views[0].place}"
            )
        if view.dtype != self._dtype:
            raise ArgumentTypeError(f"out has dtype {view.dtype}, it must be {self._dtype}")
        if view.shape != shape:
            raise ArgumentValueError(f"out has shape {view.shape}, it must be {shape}")
        if not view.contiguous:
            raise ArgumentValueError("out is not C-contiguous; the kernel writes rows without gaps")
        if not view.aligned:
            raise ArgumentValueError(
                f"out begins inside an element: its address is no multiple of the {view.element.itemsize} bytes of "
                f"{view.dtype}"
            )
        if not view.writeable:
            raise ArgumentValueError("out is read-only")
        for other, name in zip(views, self._kernel.inputs, strict=True):
            if _overlap(view, other):
                raise ArgumentValueError(
                    f"out shares memory with {name.name}; the kernel would overwrite what it reads"
                )
        return view


def _overlap(one: View, other: View) -> bool:
    """Whether two contiguous arrays have a byte in common."""
    return (
        one.nbytes > 0
        and other.nbytes > 0
        and one.address < other.address + other.nbytes
        and other.address < one.address + one.nbytes
    )
