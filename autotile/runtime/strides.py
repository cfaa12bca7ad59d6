"""Arrays that are parts of larger ones: how far apart their rows and matrices lie, and whether two share an element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.kernels import Input, Output
from autotile.kernels.layout import Layout
from autotile.runtime.arrays import View

MOST = 2**31 - 1
"""The longest pitch and step: a kernel takes them as 32-bit integers."""

_BOUNDED: dict[str, Any] = {"max_work": 10_000}
"""Steps of numpy's exact search for an element in common, which may take forever. (Its type hints know no number.)"""

SHARES = "shares"
MAY_SHARE = "may share"


@dataclass(frozen=True)
class Gaps:
    """The names of an argument's pitch and step, empty where it has none; `shared`: another argument has them too."""

    pitch: str
    step: str
    shared: bool


def gaps_of(arrays: Sequence[Input | Output], source: str, target: str) -> dict[str, Gaps]:
    """By argument. The two arguments of a kernel in place have a pitch, or a step, only where both do."""
    pair = [argument for argument in arrays if argument.name in (source, target)]
    names = [name for a in arrays for name in (a.pitch, a.step) if name]
    found = {}
    for argument in arrays:
        pitch, step = argument.pitch, argument.step
        if argument in pair:
            pitch = pitch if all(a.pitch for a in pair) else ""
            step = step if all(a.step for a in pair) else ""
        shared = any(names.count(name) > 1 for name in (pitch, step) if name)
        found[argument.name] = Gaps(pitch, step, shared)
    return found


def pitch_and_step(view: View) -> tuple[int, int] | None:
    """Elements from row to row and rows from matrix to matrix of a row-major array; None where it is none.

    Row-major: neighbours in a row lie side by side, rows and matrices do not overlap, matrices lie a whole number of
    rows apart, and all further axes follow without gaps. The stride of an axis of one element says nothing.
    """
    shape, strides = view.shape, view.strides
    if strides is None or len(shape) < 2 or (shape[-1] > 1 and strides[-1] != 1):
        return None
    (rows, cols), outer = shape[-2:], len(shape) > 2 and shape[-3] > 1
    # With a row a matrix the pitch is free: the one is taken that makes the step whole.
    pitch = strides[-2] if rows > 1 else strides[-3] if outer else cols
    if not cols <= pitch <= MOST:
        return None
    step, rest = divmod(strides[-3], pitch) if outer else (rows, 0)
    if rest or not rows <= step <= MOST:
        return None
    next_stride = pitch * step
    for axis in range(len(shape) - 4, -1, -1):
        next_stride *= shape[axis + 1]
        if shape[axis] > 1 and strides[axis] != next_stride:
            return None
    return pitch, step


def meets_itself(array: np.ndarray[Any, Any]) -> bool:
    """Whether two places of an array may be one element: so says a stride that does not clear the axes within it."""
    reach = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach += (size - 1) * stride
    return False


def same_place(one: View, other: View) -> bool:
    return (
        (one.kind, one.place, one.address, one.dtype, one.shape) ==
        (other.kind, other.place, other.address, other.dtype, other.shape)
        and one.strides == other.strides
    )  # fmt: skip


def common(one: View, other: View) -> str:
    """SHARES where two arrays have a byte of an element in common, MAY_SHARE where that is not known, else empty.

    Exact for dense arrays and for arrays whose strides are equal. Where only the distance of their rows is, arrays that
    lie in other columns are still told apart; beyond that, memory that interleaves counts as perhaps common. An array
    that is copied back to its home counts as that.
    """
    if one.home is None and other.home is None:
        return _common(one, other)
    first, second = ((view.home or view).numpy() for view in (one, other))
    try:
        return SHARES if np.shares_memory(first, second, **_BOUNDED) else ""
    except RuntimeError:  # numpy's TooHardError, which has moved between its versions
        return MAY_SHARE


def _common(one: View, other: View) -> str:
    """For row-major arrays: by their addresses and strides alone."""
    sizes = one.nbytes, other.nbytes
    if not all(sizes):
        return ""
    if one.contiguous and other.contiguous:
        return SHARES if -sizes[1] < other.address - one.address < sizes[0] else ""
    itemsize = min(one.element.itemsize, other.element.itemsize)
    apart, rest = divmod(other.address - one.address, itemsize)
    first, second = (_in_pieces(view.layout, view.element.itemsize // itemsize) for view in (one, other))
    if apart >= first.extent or -apart - bool(rest) >= second.extent:
        return ""
    if rest:
        return MAY_SHARE
    if not apart:
        return SHARES
    rank = max(len(first.shape), len(second.shape))
    first, second = _of_rank(first, rank), _of_rank(second, rank)
    strides = _one_strides(first, second)
    if strides is not None:
        return SHARES if _meet(first.shape, second.shape, strides, apart) else ""
    first, second = _as_rows(first), _as_rows(second)
    strides = _one_strides(first, second)
    return MAY_SHARE if strides is None or _meet(first.shape, second.shape, strides, apart) else ""


def _in_pieces(layout: Layout, pieces: int) -> Layout:
    """The layout of a row-major array's elements, each as so many that lie side by side."""
    if pieces == 1:
        return layout
    *shape, cols = layout.shape or (1,)
    return Layout((*shape, cols * pieces), (*(stride * pieces for stride in layout.strides[:-1]), 1))


def _of_rank(layout: Layout, rank: int) -> Layout:
    missing = rank - len(layout.shape)
    return Layout((1,) * missing + layout.shape, (1,) * missing + layout.strides)


def _as_rows(layout: Layout) -> Layout:
    """All rows from the first to the last, those between matrices included: more than the array, and of two axes."""
    if len(layout.shape) < 3 or layout.shape[-2] == 1:
        return layout
    cols, pitch = layout.shape[-1], layout.strides[-2]
    return Layout(((layout.extent - cols) // pitch + 1, cols), (pitch, 1))


def _one_strides(one: Layout, other: Layout) -> tuple[int, ...] | None:
    """The strides by which both go; None where they differ, or where an axis does not clear the axes within it."""
    if len(one.shape) != len(other.shape):
        return None
    strides: list[int] = []
    within = 1, 1
    for axis in range(len(one.shape) - 1, -1, -1):
        sizes = one.shape[axis], other.shape[axis]
        used = {layout.strides[axis] for layout in (one, other) if layout.shape[axis] > 1}
        if len(used) > 1:
            return None
        stride = used.pop() if used else max(within)  # of one element each: any that clears what is within
        if stride < max(within):
            return None
        within = within[0] + (sizes[0] - 1) * stride, within[1] + (sizes[1] - 1) * stride
        strides.insert(0, stride)
    return tuple(strides)


def _meet(one: Sequence[int], other: Sequence[int], strides: Sequence[int], apart: int) -> bool:
    """Whether two arrays of these shapes and common strides, the second `apart` elements behind, share an element.

    What lies within an axis is no longer than its stride. So where index i of one and j of the other meet, i − j is the
    distance in strides, rounded down or up; the remainder is for the axes within.
    """
    if not strides:
        return apart == 0
    steps, rest = divmod(apart, strides[0])
    return any(
        -other[0] < by < one[0] and _meet(one[1:], other[1:], strides[1:], left)
        for by, left in ((steps, rest), (steps + 1, rest - strides[0]))
    )
