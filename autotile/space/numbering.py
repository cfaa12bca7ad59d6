"""Rows of codes as 64-bit numbers, in the order of the domains, however many combinations the domains have.

A row's number has one digit a parameter, the last parameter's running fastest. Where all digits fit into 62 bits that
is all; else the digits are taken in runs that fit, and after each run the numbers are replaced by their ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Column = np.ndarray[Any, Any]

MOST_NUMBERS = 2**62


def code_type(sizes: Sequence[int]) -> type[np.signedinteger[Any]]:
    """The type of codes of domains of these sizes."""
    return np.int16 if max(sizes, default=0) < 2**15 else np.int32


def _runs(sizes: Sequence[int], rows: int) -> Iterator[range]:
    """Parameters in runs: with a rank below `rows` in front, each run's number fits."""
    first, product = 0, max(1, rows)
    for p, size in enumerate(sizes):
        if product * size > MOST_NUMBERS and p > first:
            yield range(first, p)
            first, product = p, max(1, rows)
        product *= max(1, size)
    yield range(first, len(sizes))


def _number(ranks: Column | None, codes: Column, sizes: Sequence[int], run: range) -> Column:
    number = np.zeros(len(codes), np.int64) if ranks is None else ranks.astype(np.int64)
    for p in run:
        if sizes[p] > 1:
            number *= sizes[p]
            number += codes[:, p]
    return number


def in_order(codes: Column, sizes: Sequence[int]) -> Column:
    """The same rows in the order of the domains, each once. `codes` is rows × parameters."""
    ranks: Column | None = None
    runs = list(_runs(sizes, len(codes) if math.prod(sizes) > MOST_NUMBERS else 1))
    for run in runs[:-1]:
        ranks = np.unique(_number(ranks, codes, sizes, run), return_inverse=True)[1].reshape(-1)
    number = _number(ranks, codes, sizes, runs[-1])
    if len(codes) < 2 or bool((number[1:] > number[:-1]).all()):
        return codes
    order = np.argsort(number)
    number = number[order]
    fresh = np.concatenate([[True], number[1:] != number[:-1]])
    # column by column, as codes are stored where they come from an enumeration
    return np.asarray(np.take(codes.T, order if fresh.all() else order[fresh], axis=1).T)


class Numbering:
    """Finds rows by their codes in a table that is in order and holds each row once."""

    def __init__(self, codes: Column, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._runs: list[tuple[range, Column]] = []
        ranks: Column | None = None
        for run in _runs(sizes, len(codes) if math.prod(sizes) > MOST_NUMBERS else 1):
            number = _number(ranks, codes, sizes, run)
            fresh = np.ones(len(number), bool)  # rows in order have numbers in order
            np.not_equal(number[1:], number[:-1], out=fresh[1:])
            self._runs.append((run, number[fresh]))
            ranks = np.cumsum(fresh) - 1 if run.stop < len(sizes) else None

    def find(self, codes: Column) -> Column:
        """The row of each of `codes` (any number × parameters, each code within its domain); −1 where it is in none."""
        ranks: Column | None = None
        there = np.ones(len(codes), bool)
        for run, seen in self._runs:
            number = _number(ranks, codes, self._sizes, run)
            ranks = np.searchsorted(seen, number)
            ranks[ranks == len(seen)] = 0
            there &= seen[ranks] == number if len(seen) else False
        return np.where(there, ranks if ranks is not None else 0, -1)
