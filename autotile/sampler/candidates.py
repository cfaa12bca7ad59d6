"""A space's table seen as a graph: which feasible rows differ from one in a parameter or two."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.space import Space

Rows = np.ndarray[Any, Any]


class Neighbourhood:
    """Rows that differ little from a row. Each look-up is a binary search: a table may have millions of rows."""

    def __init__(self, space: Space) -> None:
        self._space = space
        sizes = [len(domain) for domain in space.domains]
        self._owners = np.repeat(np.arange(len(sizes)), sizes)
        """Of every value of every parameter: the parameter; `_codes` has its code."""
        self._codes = np.concatenate([np.arange(size) for size in sizes])
        self._near: dict[int, Rows] = {}

    def of(self, row: int) -> Rows:
        """The feasible rows that differ from it in one parameter, ascending."""
        if row not in self._near:
            near = np.unique(self.around(np.asarray([row])))
            self._near[row] = near[near != row]
        return self._near[row]

    def around(self, rows: Rows) -> Rows:
        """The rows themselves, and the feasible ones that differ from any in one parameter; some more than once."""
        moved = np.repeat(self._space.codes[rows], len(self._owners), axis=0)
        moved[np.arange(len(moved)), np.tile(self._owners, len(rows))] = np.tile(self._codes, len(rows))
        return self._feasible(moved)

    def within_two(self, row: int) -> Rows:
        """The row itself, and the feasible ones that differ from it in one parameter or two; some more than once."""
        first, second = np.nonzero(self._owners[:, None] < self._owners)
        moved = np.repeat(self._space.codes[[row]], len(first), axis=0)
        moved[np.arange(len(moved)), self._owners[first]] = self._codes[first]
        moved[np.arange(len(moved)), self._owners[second]] = self._codes[second]
        return np.concatenate([self.around(np.asarray([row])), self._feasible(moved)])

    def _feasible(self, codes: Rows) -> Rows:
        rows = self._space.rows_of(codes)
        return np.asarray(rows[rows >= 0])
