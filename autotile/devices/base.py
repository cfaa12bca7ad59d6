"""What every device offers to the stages above it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np

from autotile.devices.info import Clocks, DeviceInfo
from autotile.kernels.layout import Layout
from autotile.types import Binary, Launch, Sentinel, Source, Target

Array = np.ndarray[Any, Any]

WorkloadArgument: TypeAlias = "str | int | np.float32 | np.float64 | Sentinel | None"
"""The name of an array, a size, a scalar, the launch's scratch memory, or None for an array that there is not."""


@dataclass(frozen=True)
class Workload:
    """One problem's data on the host, ready for a device.

    `arguments` are the kernel's arguments in C order: the name of an input or an output, a size as an int (passed as a
    32-bit int), a scalar as a numpy float (passed in its own width), None for a null pointer, or `types.SCRATCH` for
    the launch's scratch memory, which the stage has. `reference` holds what each output must be, within `bound`
    (elementwise or one number; 0: equal to the last bit). A reference is float64 (complex128) where the bound is not 0,
    and of the output's own dtype where it is. Each array lies `offset` elements of its own behind the address of a
    fresh allocation.

    `layouts` are of the arrays with gaps between their rows: such are flat, gaps included, and nothing lies behind the
    last element. `before` is what an output's memory holds before each launch in place of a poison; one with gaps has
    it, and what it holds in the gaps stands in the reference too, within a bound of 0. `takes_place` names outputs that
    lie in the memory of an input, and the input: before each launch that holds the input's data.

    Raises ValueError for a reference of another shape or dtype (nothing is ever broadcast or rounded), for a bound
    that could accept anything (negative, infinite, NaN, or other than 0 for an integer type), and where the memory of
    an output is not as said above.
    """

    arguments: tuple[WorkloadArgument, ...]
    inputs: Mapping[str, Array]
    outputs: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    reference: Mapping[str, Array]
    bound: Mapping[str, Array | float]
    offset: int = 0
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    before: Mapping[str, Array] = field(default_factory=dict)
    takes_place: Mapping[str, str] = field(default_factory=dict)

    def offset_bytes(self, name: str) -> int:
        """Of an input or an output; those that lie in one place are of one type."""
        dtype = self.inputs[name].dtype if name in self.inputs else self.outputs[name][1]
        return self.offset * dtype.itemsize

    def __post_init__(self) -> None:
        for name, (shape, dtype) in self.outputs.items():
            require_comparable(name, shape, dtype, self.reference[name], self.bound[name])
            needed = name in self.takes_place or name in self.layouts
            held = self.before.get(name)
            if (held is None and needed) or (held is not None and (held.shape, held.dtype) != (shape, dtype)):
                raise ValueError(f"output {name!r}: what its memory holds before a launch must be {shape} of {dtype}")
            if name in self.layouts and not is_exact(self.bound[name]) and np.ndim(self.bound[name]) == 0:
                raise ValueError(f"output {name!r} has gaps, which are compared too: its bound must be 0 there")
        for name, layout in self.layouts.items():
            flat = self.inputs[name].shape if name in self.inputs else self.outputs[name][0]
            if flat != (layout.extent,):
                raise ValueError(f"array {name!r} has gaps: it must be flat, of {layout.extent} elements, not {flat}")
        for output, source in self.takes_place.items():
            given = self.inputs[source]
            if (given.shape, given.dtype) != self.outputs[output]:
                raise ValueError(f"output {output!r} takes the place of {source!r}, whose shape or dtype is another")


def require_comparable(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], reference: Array, bound: Array | float
) -> None:
    """Raises ValueError for a reference or a bound that an output of the shape and dtype cannot be compared with."""
    for what, array in (("reference", reference), ("error bound", bound)):
        if np.shape(array) != shape and not (what == "error bound" and np.ndim(array) == 0):
            raise ValueError(f"output {name!r} has shape {shape}, its {what} {np.shape(array)}")
    if np.asarray(bound).dtype.kind not in "iuf" or not (np.all(np.isfinite(bound)) and np.all(bound >= 0)):
        raise ValueError(f"the error bound of output {name!r} is negative or not finite somewhere")
    if dtype.kind in "iub" and not is_exact(bound):
        raise ValueError(
            f"output {name!r} is of integers, which are compared exactly: its error bound must be the number 0"
        )
    wanted = dtype if is_exact(bound) else wide_dtype(dtype)
    if reference.dtype != wanted:
        why = "with an error bound of 0" if is_exact(bound) else "so that its own rounding does not count"
        raise ValueError(f"the reference of output {name!r} is {reference.dtype}; it must be {wanted}, {why}")


def is_exact(bound: Array | float) -> bool:
    """Whether outputs must be equal to the last bit; an array of zeros still compares values: 0 is −0, NaN is NaN."""
    return np.ndim(bound) == 0 and float(np.asarray(bound)) == 0.0


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What an output that is not compared exactly is compared in."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


@dataclass(frozen=True)
class Check:
    """Outcome of one run on poisoned outputs.

    `max_error` is the largest |output − reference| over its bound (1.0 and below is right; for exact outputs 0 or
    infinity), `wrong` the number of elements beyond it, `detail` a sentence about the first of them, or what the
    device found wrong with the run itself (a race, an access out of bounds), with the source's line. `launch_ms` is
    what its last launch took, warm caches and lazy loading included; 0 where that is not known.
    """

    max_error: float
    wrong: int
    detail: str = ""
    launch_ms: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        return self.wrong == 0 and not self.detail


class Stage(Protocol):
    """A workload's data on the device. Leave the `with` block and the memory is free again."""

    def __enter__(self) -> Stage: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self, program: Any, launch: Launch, fillings: int = 2) -> Check:
        """Poisons the outputs, or puts there what the workload says, launches once, and compares with the reference;
        and again with another filling.

        One filling does where `check_timed` follows, whose launches find the other.

        Raises LaunchError when the launch is refused or the kernel faults.
        """
        ...

    def times_ms(self, program: Any, launch: Launch, runs: int) -> tuple[float, ...]:
        """Times of `runs` launches, each with a cold L2 and another set of inputs than the one before. No warm-up."""
        ...

    def check_timed(self) -> Check:
        """Compares with the reference what the launches of the last `times_ms` left in outputs poisoned before."""
        ...


class Device(Protocol):
    """A place where kernels run."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def target(self) -> Target: ...

    @property
    def poisoned(self) -> str | None:
        """What ended the device's context for this process (an illegal address, say); None while all is well."""
        ...

    @property
    def reopen(self) -> Callable[[], Device] | None:
        """What another process calls to open the same device; None for one that lives in this process alone."""
        ...

    @property
    def launch_limit_s(self) -> float:
        """Longest that a launch may take where the search file does not say."""
        ...

    def clocks(self) -> Clocks | None:
        """The clock now; None where it cannot be read."""
        ...

    @property
    def comparer(self) -> Source | None:
        """Source of the kernel with which this device compares outputs; None where the host does it."""
        ...

    def load(self, binary: Binary) -> Any:
        """The binary, ready to be launched; valid as long as the device.

        Raises LaunchError when the binary is not for this device.
        """
        ...

    def stage(self, workload: Workload, comparer: Binary | None = None) -> Stage: ...

    def call(self, program: Any, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        """Launches with arguments that are on the device already: arrays of its own kind, ints for sizes, numpy floats
        for scalars, None for a null pointer. What stands for SCRATCH is the device's own to say."""
        ...


def compare(
    output: Array, reference: Array, bound: Array | float, layout: Layout | None = None, name: str = ""
) -> Check:
    """Compares on the host; NaN and infinity must stand where the reference has them, in each part of a complex number.

    `layout` is that of an output with gaps, which is flat. Raises ValueError when shapes differ: nothing is broadcast.
    """
    if output.shape != reference.shape:
        raise ValueError(f"the output has shape {output.shape}, the reference {reference.shape}")
    if is_exact(bound):
        words = np.dtype((np.void, output.dtype.itemsize))
        differs = np.ascontiguousarray(output).view(words) != np.ascontiguousarray(reference, output.dtype).view(words)
        ratio = np.where(differs, np.inf, 0.0)
    else:
        wide = wide_dtype(output.dtype)
        ratio = _error_over_bound(output.astype(wide), np.asarray(reference, wide), bound)
    wrong = int(np.count_nonzero(~(ratio <= 1.0)))
    if not wrong:
        return Check(float(ratio.max(initial=0.0)), 0)
    first = int(np.argmax(~(ratio <= 1.0)))
    index = np.unravel_index(first, ratio.shape)
    return Check(
        float("inf") if np.isnan(ratio).any() else float(ratio.max()),
        wrong,
        wrong_words(name, ratio.shape, layout, wrong, first, f"{output[index]} instead of {reference[index]}"),
    )


def wrong_words(name: str, shape: tuple[int, ...], layout: Layout | None, wrong: int, first: int, values: str) -> str:
    """A sentence about the first of an output's wrong elements, which lies `first` elements behind its start."""
    index = np.unravel_index(first, shape) if layout is None else layout.place(first)
    size = math.prod(shape)
    if index is None:
        return (
            f"the kernel wrote between the rows of its output {name!r}: {wrong} of {size} elements and gaps are wrong; "
            f"the first, in a gap, {first} elements behind the start: {values}"
        )
    what = "elements" if layout is None else "elements and gaps"
    return f"{wrong} of {size} {what} are wrong; the first at {[int(i) for i in index]}: {values}"


def _error_over_bound(output: Array, reference: Array, bound: Array | float) -> Array:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = _error(output.real, reference.real)
        if output.dtype.kind == "c":
            error = np.hypot(error, _error(output.imag, reference.imag))
        ratio = np.where(error == 0, 0.0, error / bound)
    return np.asarray(np.where(np.isnan(ratio), np.inf, ratio))


def _error(output: Array, reference: Array) -> Array:
    """|output − reference|: 0 where both are the same, NaN and infinity included, infinity where one is not finite."""
    same = (output == reference) | (np.isnan(output) & np.isnan(reference))
    both = np.isfinite(output) & np.isfinite(reference)
    return np.where(same, 0.0, np.where(both, np.abs(output - reference), np.inf))
