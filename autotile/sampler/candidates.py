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
        self._sizes = [len(domain) for domain in space.domains]
        self._near: dict[int, Rows] = {}

    def of(self, row: int) -> Rows:
        """The feasible rows that differ from it in one parameter, ascending."""
        if row not in self._near:
            self._near[row] = self._feasible(self._one_changed(row, *self._changes(row)))
        return self._near[row]

    def within_two(self, row: int) -> Rows:
        """The feasible rows that differ from it in one parameter or two, ascending."""
        owners, codes = self._changes(row)
        one = self._one_changed(row, owners, codes)
        first, second = np.nonzero(owners[:, None] < owners)
        two = one[first]
        two[np.arange(len(two)), owners[second]] = codes[second]
        return self._feasible(np.concatenate([one, two]))

    def _changes(self, row: int) -> tuple[Rows, Rows]:
        """Every change of one parameter: which, and its new code."""
        here = self._space.codes[row].tolist()
        changes = [(p, code) for p, size in enumerate(self._sizes) for code in range(size) if code != here[p]]
        owners, codes = np.asarray(changes, np.int64).reshape(-1, 2).T
        return owners, codes

    def _one_changed(self, row: int, owners: Rows, codes: Rows) -> Rows:
        moved = np.repeat(self._space.codes[[row]], len(owners), axis=0)
        moved[np.arange(len(owners)), owners] = codes
        return moved

    def _feasible(self, codes: Rows) -> Rows:
        rows = self._space.rows_of(codes)
        return np.asarray(np.unique(rows[rows >= 0]))
