"""Where an array's elements lie: its shape, and the distances between neighbours along each axis."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Row-major, perhaps a part of a larger array. Strides are in elements, the last is 1."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements from the first to the last, gaps between rows included, and nothing behind the last."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def dense(self) -> bool:
        """Whether there are no gaps."""
        return self.extent == math.prod(self.shape)

    def place(self, element: int) -> tuple[int, ...] | None:
        """The index of what lies `element` elements behind the first; None for one in a gap."""
        index = []
        for size, stride in zip(self.shape, self.strides, strict=True):
            along = min(element // stride, size - 1) if size > 1 else 0
            index.append(along)
            element -= along * stride
        return tuple(index) if element == 0 else None


def layout_of(shape: tuple[int, ...], pitch: int, step: int) -> Layout:
    """The layout of rows `pitch` elements apart, in matrices `step` rows apart; further axes follow without gaps."""
    strides = [1] if shape else []
    for axis in range(len(shape) - 1, 0, -1):
        factor = {len(shape) - 1: pitch, len(shape) - 2: step}.get(axis, shape[axis])
        strides.insert(0, strides[0] * factor)
    return Layout(shape, tuple(strides))
