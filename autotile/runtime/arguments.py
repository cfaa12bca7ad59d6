"""Whether the arrays of a call fit the kernel and each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotile.devices.base import Device
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Kernel, Output
from autotile.runtime.arrays import CUDA, View, view_of


class ArgumentChecker:
    """Checks the arrays of calls of one kernel, in one dtype, on one device."""

    def __init__(self, kernel: Kernel, dtype: str, device: Device) -> None:
        self._kernel, self._dtype, self._device = kernel, dtype, device
        self._empty_gpuarray = getattr(device, "empty_gpuarray", None)

    def check(self, arrays: Sequence[Any], out: Any) -> tuple[list[View], list[View], dict[str, int]]:
        """Inputs, outputs (given or made) and the problem's sizes. Raises ArgumentTypeError or ArgumentValueError."""
        views = self._views(arrays)
        sizes = self._sizes(views)
        return views, self._outputs(views, sizes, out), sizes

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
        if view.contiguous and view.aligned:
            return view
        if view.place == CUDA:
            raise ArgumentValueError(f"{name} is not C-contiguous; pass a contiguous copy of it")
        return view_of(view.contiguous_copy(), name)

    def _require_here(self, view: View, name: str) -> None:
        """Raises ArgumentValueError for an array on another GPU than the kernel's."""
        index = getattr(self._device, "index", None)
        if view.device is not None and index is not None and view.device != index:
            raise ArgumentValueError(f"{name} lies on cuda:{view.device}, the kernel was loaded for cuda:{index}")

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
        return [
            self._output(argument, views, tuple(sizes[name] for name in argument.shape), array)
            for argument, array in zip(self._kernel.outputs, given, strict=True)
        ]

    def _output(self, argument: Output, views: Sequence[View], shape: tuple[int, ...], array: Any) -> View:
        if array is None:
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
            raise ArgumentValueError("out begins inside an element: its address is not aligned to its dtype")
        if not view.writeable:
            raise ArgumentValueError("out is read-only")
        for other, name in zip(views, self._kernel.inputs, strict=True):
            if view.address < other.address + other.nbytes and other.address < view.address + view.nbytes:
                raise ArgumentValueError(
                    f"out shares memory with {name.name}; the kernel would overwrite what it reads"
                )
        return view
