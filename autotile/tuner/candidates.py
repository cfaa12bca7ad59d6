"""A space's table seen as a graph: which feasible rows differ from one in a parameter or two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotile.space import Space

Rows = np.ndarray[Any, Any]


class Neighbourhood:
    """Rows that differ little from a row. Each look-up is a binary search, so that a table may have millions of rows.

    Every combination of values has a number, and rows are in the order of their numbers; a change of one value moves
    the number by a known step.
    """

    def __init__(self, space: Space) -> None:
        self._codes = space.codes
        sizes = [len(domain) for domain in space.domains]
        self._strides = [math.prod(sizes[p + 1 :]) for p in range(len(sizes))]
        self._sizes = sizes
        self._numbers = space.codes.astype(np.int64) @ np.asarray(self._strides, np.int64)
        self._near: dict[int, Rows] = {}

    def of(self, row: int) -> Rows:
        """The feasible rows that differ from it in one parameter, ascending."""
        if row not in self._near:
            _, steps = self._steps(row)
            self._near[row] = self._feasible(self._numbers[row] + steps)
        return self._near[row]

    def within_two(self, row: int) -> Rows:
        """The feasible rows that differ from it in one parameter or two, ascending."""
        owners, steps = self._steps(row)
        pairs = (steps[:, None] + steps)[owners[:, None] < owners]
        return self._feasible(self._numbers[row] + np.concatenate([steps, pairs]))

    def _steps(self, row: int) -> tuple[Rows, Rows]:
        """What each change of one parameter adds to the row's number, and which parameter it changes."""
        owners: list[int] = []
        steps: list[int] = []
        for p, size in enumerate(self._sizes):
            here = int(self._codes[row, p])
            steps += [(code - here) * self._strides[p] for code in range(size) if code != here]
            owners += [p] * (size - 1)
        return np.asarray(owners, np.int64), np.asarray(steps, np.int64)

    def _feasible(self, numbers: Rows) -> Rows:
        at = np.searchsorted(self._numbers, numbers)
        at[at == len(self._numbers)] = 0
        return np.unique(at[self._numbers[at] == numbers])
