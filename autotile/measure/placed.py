"""Arrays as they lie in memory: rows with gaps between them, or an output in the place of an input.

What has gaps is one flat array, from its first element to its last, and nothing behind: a read beyond is out of bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.devices.base import is_exact, require_comparable
from autotile.dtypes import element_type
from autotile.kernels import Kernel
from autotile.kernels.layout import Layout
from autotile.types import Problem

Array = np.ndarray[Any, Any]


def held_bytes(kernel: Kernel, problem: Problem) -> int:
    """Bytes that the arrays of a problem take, gaps included: few that move may lie far apart."""
    elements = sum(kernel.layout_of(argument, problem).extent for argument in kernel.arrays)
    return elements * element_type(problem.dtype).itemsize


def logical(array: Array, layout: Layout | None) -> Array:
    """The elements of a flat array by their indices, to be read and written there; a dense array as it is."""
    if layout is None:
        return array
    strides = [stride * array.itemsize for stride in layout.strides]
    return np.lib.stride_tricks.as_strided(array, layout.shape, strides)


def with_gaps(name: str, layout: Layout, reference: Array, bound: Array | float, gaps: Array) -> Array:
    """What the memory of an output must hold: `reference` where its elements are, and `gaps`, which are flat, between.

    `gaps` become the result. Raises ValueError for a reference of another shape or dtype, and for a bound other than 0:
    what lies in the gaps is not to be touched, and only the comparison to the last bit can tell.
    """
    if not is_exact(bound):
        raise ValueError(
            f"output {name!r} has gaps between its rows, which the kernel must leave as they are, and which are "
            "compared with its elements: its error bound must be the number 0, or its rows without a pitch and a step"
        )
    require_comparable(name, layout.shape, gaps.dtype, reference, bound)
    logical(gaps, layout)[...] = reference
    return gaps


def unwritten(reference: Array, layout: Layout) -> Array:
    """What the memory of an output holds before a launch: the gaps of `reference`, which is flat, and in each element
    the complement of its bits, so that one that is never written differs, and one of which a part is not."""
    before: Array = reference.copy()
    bits = np.dtype(f"u{min(before.itemsize, 8)}")  # complex numbers of 16 bytes are two words
    elements = logical(before, layout).view(bits)
    np.invert(elements, out=elements)
    return before
