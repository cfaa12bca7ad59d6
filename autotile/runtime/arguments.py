"""Whether the arrays of a call fit the kernel and each other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations, takewhile
from typing import Any

from autotile.devices.base import Device
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Input, Kernel, Output
from autotile.runtime.arrays import CUDA, HOST, View, view_of
from autotile.runtime.elements import require_dtype
from autotile.runtime.strides import SHARES, common, gaps_of, meets_itself, pitch_and_step, same_place
from autotile.types import Problem


class ArgumentChecker:
    """Checks the arrays of calls of one kernel in one dtype, with these switches on, in place or not, on one device."""

    def __init__(
        self, kernel: Kernel, dtype: str, device: Device, in_place: bool = False, switches: tuple[str, ...] = ()
    ) -> None:
        self._kernel, self._device = kernel, device
        asked = self._asked = Problem(kernel.name, (), dtype, switches=switches)
        self._inputs, self._outputs = kernel.inputs_of(asked), kernel.outputs
        self._dims = {argument.name: kernel.stored_dims(argument, asked) for argument in kernel.arrays}
        self._source, self._target = kernel.in_place if in_place else ("", "")
        one = {size.name for size in kernel.optional if size.default.strip() == "1"}
        self._spare = {a.name: len(list(takewhile(one.__contains__, a.shape))) for a in kernel.arrays}
        self._gaps = gaps_of(kernel.arrays_of(asked), self._source, self._target)
        self._empty_gpuarray = getattr(device, "empty_gpuarray", None)
        self._owns = getattr(device, "owns", lambda address: True)
        # PyTorch and CuPy allocate in whichever context is current, and the caller may have pushed one of his own.
        self._current = getattr(device, "active", nullcontext)

    def check(self, arrays: Sequence[Any], out: Any) -> tuple[list[View], list[View], dict[str, int]]:
        """Inputs, outputs (given or made) and the call's sizes: those of the shapes, and of gaps between rows.

        An output in place is the input's own view. Raises ArgumentTypeError or ArgumentValueError. Nothing is copied
        or made before all shapes are known to fit.
        """
        views = self._views(arrays)
        sizes, missing = self._sizes(views)
        shapes = [tuple(sizes[name] for name in a.shape if name not in missing) for a in self._outputs]
        if self._source:
            self._require_in_place(views, shapes)
        ready = [self._ready(view, argument, sizes) for view, argument in zip(views, self._inputs, strict=True)]
        return ready, self._given_or_made(ready, shapes, sizes, out), sizes

    def _views(self, arrays: Sequence[Any]) -> list[View]:
        wanted = self._inputs
        if len(arrays) != len(wanted):
            names = ", ".join(argument.name for argument in wanted)
            raise ArgumentTypeError(f"{self._kernel.name} takes {len(wanted)} array(s) ({names}), not {len(arrays)}")
        views = [self._view(array, argument) for array, argument in zip(arrays, wanted, strict=True)]
        if len({view.kind for view in views}) > 1 or len({view.place for view in views}) > 1:
            kinds = ", ".join(f"{a.name}: {v.kind} on {v.place}" for a, v in zip(wanted, views, strict=True))
            raise ArgumentTypeError(f"the arrays must be of one kind and in one place; got {kinds}")
        return views

    def _view(self, array: Any, argument: Input) -> View:
        name = argument.name
        view = view_of(array, name, self._empty_gpuarray)
        require_dtype(self._kernel, self._asked, argument, view)
        if view.place == CUDA and self._device.info.kind != "cuda":
            raise ArgumentTypeError(f"{name} lies on a GPU, but the kernel was loaded for the emulator")
        self._require_here(view, name)
        return view

    def _ready(self, view: View, argument: Input, sizes: dict[str, int]) -> View:
        """As a kernel can read it: a host array is copied where it must be; one on a GPU is refused."""
        if view.aligned and self._fits(view, argument, sizes):
            return view
        if view.place == HOST:
            copied = view_of(view.contiguous_copy(), argument.name)
            self._fits(copied, argument, sizes)
            return replace(copied, home=view) if argument.name == self._source else copied
        if view.aligned:
            raise ArgumentValueError(self._wanted(argument, argument.name))
        raise ArgumentValueError(
            f"{argument.name} begins inside an element: its address is no multiple of the {view.element.itemsize} "
            f"bytes of {view.dtype}; pass a copy of it"
        )

    def _fits(self, view: View, argument: Input | Output, sizes: dict[str, int]) -> bool:
        """Whether the kernel can work in the view as it lies. Its pitch and step, where not usual, join the sizes.

        Raises ArgumentValueError where another array of the call has told the kernel otherwise.
        """
        gaps = self._gaps[argument.name]
        if view.contiguous and not gaps.shared:
            return True
        rows, cols = (1, 1, *view.shape)[-2:]
        found = (cols, rows) if view.contiguous else pitch_and_step(view) if gaps.pitch else None
        if found is None or (not gaps.step and found[1] != rows):
            return False
        for name, given in ((gaps.pitch, found[0]), (gaps.step, found[1])):
            if name and sizes.setdefault(name, given) != given:
                raise ArgumentValueError(
                    f"{argument.name} says {name} = {given}, but another array {name} = {sizes[name]}; "
                    f"{self._kernel.name} takes one for both"
                )
        return True

    def _wanted(self, argument: Input | Output, name: str) -> str:
        """What to say of an array whose elements lie otherwise than a kernel can take them."""
        gaps = self._gaps[argument.name]
        if not gaps.pitch:
            return f"{name} is not C-contiguous; pass a contiguous {'copy of it' if name != 'out' else 'array'}"
        *_, rows, cols = dims = self._dims[argument.name]
        matrices = ""
        if len(dims) > 2:
            least = f", {rows} at least" if gaps.step else f" ({rows})"
            matrices = f", matrices a whole number of rows apart{least}"
        return (
            f"rows of `{name}` must be dense: last stride 1, neighbours {cols} elements apart or more{matrices}, and "
            f"each distance below 2147483648; pass a contiguous {'copy' if name != 'out' else 'array'}"
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

    def _sizes(self, views: Sequence[View]) -> tuple[dict[str, int], set[str]]:
        """The problem's sizes, from the shapes, and those of them (all 1) that the shapes leave out.

        Raises ArgumentValueError when shapes do not fit together.
        """
        sizes: dict[str, int] = {}
        missing: set[str] = set()
        for argument, view in zip(self._inputs, views, strict=True):
            names = self._dims[argument.name]
            if len(view.shape) != len(names):
                spare = len(names) - len(view.shape)
                if not 0 < spare <= self._spare[argument.name]:
                    raise ArgumentValueError(self._wrong_rank(argument, view))
                missing.update(names[:spare])
                names = names[spare:]
            for dimension, size in zip(names, view.shape, strict=True):
                if sizes.setdefault(dimension, size) != size:
                    raise ArgumentValueError(
                        f"{argument.name} has shape {view.shape}, so {dimension} = {size}, but another array says "
                        f"{dimension} = {sizes[dimension]}"
                    )
                if size >= 2**31:
                    raise ArgumentValueError(f"{argument.name}: {dimension} = {size} is more than 2147483647")
        for name in missing:
            if name in sizes:
                raise ArgumentValueError(
                    f"one array has the dimension {name}, another leaves it out: give both or none"
                )
            sizes[name] = 1
        return sizes, missing

    def _wrong_rank(self, argument: Input, view: View) -> str:
        dims = self._dims[argument.name]
        spare = dims[: self._spare[argument.name]]
        left_out = f"; {', '.join(spare)} may be left out" if spare else ""
        rank = len(dims)
        return (
            f"{argument.name} must have {rank} dimension{'s' if rank > 1 else ''} "
            f"({' × '.join(dims)}{left_out}), not shape {view.shape}"
        )

    def _require_in_place(self, views: Sequence[View], shapes: Sequence[tuple[int, ...]]) -> None:
        """Raises ArgumentValueError where the output could not take the input's place."""
        view = views[[a.name for a in self._inputs].index(self._source)]
        shape = shapes[[a.name for a in self._outputs].index(self._target)]
        name = f"{self._kernel.name} in place"
        if view.shape != shape:
            raise ArgumentValueError(
                f"{name} needs an array whose shape stays: {self._source} has {view.shape}, {self._target} would have "
                f"{shape}; load the kernel without in_place"
            )
        if not view.writeable:
            raise ArgumentValueError(f"{self._source} is read-only, and {name} writes into it")
        if view.place == HOST and not view.contiguous and meets_itself(view.numpy()):
            raise ArgumentValueError(
                f"elements of {self._source} may share memory with each other; {name} writes into it"
            )

    def _given_or_made(
        self, views: Sequence[View], shapes: Sequence[tuple[int, ...]], sizes: dict[str, int], out: Any
    ) -> list[View]:
        given = out if isinstance(out, tuple) else (out,) if out is not None else (None,) * len(self._outputs)
        if len(given) != len(self._outputs):
            raise ArgumentTypeError(f"{self._kernel.name} has {len(self._outputs)} output(s), out has {len(given)}")
        outputs = [
            self._output(argument, views, shape, sizes, array)
            for argument, shape, array in zip(self._outputs, shapes, given, strict=True)
        ]
        for first, second in combinations(range(len(outputs)), 2):
            shared = common(outputs[first], outputs[second])
            if shared:
                shared = "share" if shared == SHARES else shared
                raise ArgumentValueError(
                    f"out[{first}] and out[{second}] {shared} memory; the kernel would write one over the other"
                )
        return outputs

    def _output(
        self, argument: Output, views: Sequence[View], shape: tuple[int, ...], sizes: dict[str, int], array: Any
    ) -> View:
        if argument.name == self._target:
            return self._in_place(argument, views, sizes, array)
        if array is None:
            return self._made(argument, views, shape, sizes)
        view = view_of(array, "out", self._empty_gpuarray)
        self._require_writable(argument, view, views[0], shape)
        if not self._fits(view, argument, sizes):
            if view.place != HOST or not argument.pitch:
                raise ArgumentValueError(self._wanted(argument, "out"))
            if meets_itself(view.numpy()):
                raise ArgumentValueError("elements of out may share memory with each other; pass a contiguous array")
            view = replace(self._made(argument, views, shape, sizes), home=view)
        for other, name in zip(views, self._inputs, strict=True):
            if name.may_be == argument.name and same_place(view.home or view, other):
                continue
            shared = common(view, other)
            if shared:
                raise ArgumentValueError(self._why_apart(f"out {shared} memory with {name.name}", shared, view, other))
        return view

    def _made(self, argument: Output, views: Sequence[View], shape: tuple[int, ...], sizes: dict[str, int]) -> View:
        with self._current() if views[0].place == CUDA else nullcontext():
            dtype = self._kernel.element_of(argument, self._asked).stored
            view = view_of(views[0].empty(shape, dtype), argument.name, self._empty_gpuarray)
        self._fits(view, argument, sizes)
        return view

    def _in_place(self, argument: Output, views: Sequence[View], sizes: dict[str, int], array: Any) -> View:
        """The input's view, as the array that was given for the output; pitch and step count for both."""
        view = views[[a.name for a in self._inputs].index(self._source)]
        for other, name in zip(views, self._inputs, strict=True):
            shared = common(view, other) if other is not view else ""
            if shared:
                raise ArgumentValueError(
                    f"{self._source} {shared} memory with {name.name}; the kernel would overwrite what it reads"
                )
        mine, its = self._gaps[argument.name], self._gaps[self._source]
        for name_of_mine, name_of_its in ((mine.pitch, its.pitch), (mine.step, its.step)):
            if name_of_its in sizes:
                sizes[name_of_mine] = sizes[name_of_its]
        theirs = view.home or view
        if array is None or array is theirs.owner:
            return view
        out = view_of(array, "out", self._empty_gpuarray)
        if not same_place(out, theirs):
            raise ArgumentValueError(
                f"out is another array than {self._source}, but {self._kernel.name} was loaded to work in place: leave "
                "out= away, or load it without in_place"
            )
        return replace(view, home=out) if view.home else replace(view, owner=array)

    def _require_writable(self, argument: Output, view: View, like: View, shape: tuple[int, ...]) -> None:
        self._require_here(view, "out")
        if (view.kind, view.place) != (like.kind, like.place):
            raise ArgumentTypeError(f"out is {view.kind} on {view.place}, the inputs {like.kind} on {like.place}")
        require_dtype(self._kernel, self._asked, argument, view)
        if view.shape != shape:
            raise ArgumentValueError(f"out has shape {view.shape}, it must be {shape}")
        if not view.aligned:
            raise ArgumentValueError(
                f"out begins inside an element: its address is no multiple of the {view.element.itemsize} bytes of "
                f"{view.dtype}"
            )
        if not view.writeable:
            raise ArgumentValueError("out is read-only")

    def _why_apart(self, what: str, shared: str, out: View, other: View) -> str:
        if shared != SHARES:
            return (
                f"{what}: they interleave, and whether an element is in both can only be told where their rows lie "
                "equally far apart; pass an out in memory of its own"
            )
        text = f"{what}; the kernel would overwrite what it reads"
        if self._kernel.in_place and out.shape == other.shape:
            text += f". {self._kernel.name} can work in place: load it with in_place=True"
        return text
