"""Arrays as they lie in memory: rows with gaps between them, or an output in the place of an input.

What has gaps is one flat array, from its first element to its last, and nothing behind: a read beyond is out of bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.devices.base import is_exact, require_comparable, wide_dtype
from autotile.kernels import Kernel
from autotile.kernels.layout import Layout
from autotile.types import Problem

Array = np.ndarray[Any, Any]


def held_bytes(kernel: Kernel, problem: Problem) -> int:
    """Bytes that the arrays of a problem take, gaps included: few that move may lie far apart."""
    return sum(
        kernel.layout_of(argument, problem).extent * kernel.element_of(argument, problem).itemsize
        for argument in kernel.arrays_of(problem)
    )


def logical(array: Array, layout: Layout | None) -> Array:
    """The elements of a flat array by their indices, to be read and written there; a dense array as it is."""
    if layout is None:
        return array
    strides = [stride * array.itemsize for stride in layout.strides]
    words = array.view(np.uint8) if array.itemsize == 1 else array  # numpy cannot say of what kind an 8-bit float is
    return np.lib.stride_tricks.as_strided(words, layout.shape, strides).view(array.dtype)


def with_gaps(
    name: str, layout: Layout, reference: Array, bound: Array | float, gaps: Array
) -> tuple[Array, Array | float]:
    """What the memory of an output must hold: `reference` where its elements are, and `gaps`, which are flat, between;
    and its error bound, flat too, which is 0 in the gaps: what lies there is not to be touched.

    Raises ValueError for a reference or a bound of another shape or dtype.
    """
    require_comparable(name, layout.shape, gaps.dtype, reference, bound)
    if is_exact(bound):
        flat = gaps.copy()
        logical(flat, layout)[...] = reference
        return flat, 0.0
    flat, bounds = gaps.astype(wide_dtype(gaps.dtype)), np.zeros(gaps.shape)
    logical(flat, layout)[...] = reference
    logical(bounds, layout)[...] = bound
    return flat, bounds


def unwritten(reference: Array, layout: Layout, gaps: Array) -> Array:
    """What the memory of an output holds before a launch: `gaps`, and in each element what tells that it is not
    written, nor a part of it: the complement of the bits that it must have, or NaN where it is held to a bound."""
    if reference.dtype != gaps.dtype:
        poisoned: Array = gaps.copy()
        logical(poisoned, layout)[...] = np.nan
        return poisoned
    before: Array = reference.copy()
    bits = np.dtype(f"u{min(before.itemsize, 8)}")  # complex numbers of 16 bytes are two words
    elements = logical(before, layout).view(bits)
    np.invert(elements, out=elements)
    return before
