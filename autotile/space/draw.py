"""A uniform sample, without repeats, of a product of groups that is too large to hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotile.space.numbering import MOST_NUMBERS, Column, code_type, in_order
from autotile.space.walk import Walk


def draw_together(walks: Sequence[Walk], sizes: Sequence[int], count: int, seed: int) -> Column:
    """`count` distinct rows of the product of the groups (rows × parameters), in the order of the domains.

    Distinct combinations of the groups' row numbers are drawn. A group that was too large to hold has a sample of
    `count` rows in random order: its k-th row stands for the k-th number that was drawn of it, which is as random as
    any other row's standing for it would be.
    """
    random = np.random.default_rng([seed, len(walks)])
    batches = _batches([walk.rows.count for walk in walks])
    drawn = _distinct([math.prod(walks[g].rows.count for g in batch) for batch in batches], count, random)
    codes = np.zeros((len(sizes), count), code_type(sizes))
    for batch, numbers in zip(batches, drawn, strict=True):
        rest = numbers
        for g in batch:
            walk = walks[g]
            rest, row = np.divmod(rest, walk.rows.count)
            if walk.rows.sampled:
                row = np.unique(row, return_inverse=True)[1].reshape(-1)
            for p, column in zip(walk.parameters, walk.rows.table(), strict=True):
                codes[p] = column[row]
    return in_order(codes.T, sizes)


def _batches(counts: Sequence[int]) -> list[list[int]]:
    """Groups in batches whose products are numbered in 64 bits."""
    batches: list[list[int]] = [[]]
    product = 1
    for g, count in enumerate(counts):
        if product * count > MOST_NUMBERS and batches[-1]:
            batches.append([])
            product = 1
        product *= count
        batches[-1].append(g)
    return batches


def _distinct(bounds: Sequence[int], count: int, random: np.random.Generator) -> list[Column]:
    """`count` distinct tuples below `bounds`, uniform among all such sets, a column for each bound.

    Independent draws without their repeats are uniform given how many they are, and so is a random part of them.
    """
    columns: list[Column] = [np.zeros(0, np.int64) for _ in bounds]
    while (missing := count - len(columns[0])) > 0:
        fresh = [random.integers(bound, size=missing + missing // 8 + 16) for bound in bounds]
        columns = [np.concatenate(pair) for pair in zip(columns, fresh, strict=True)]
        order = np.lexsort(columns)
        columns = [column[order] for column in columns]
        repeats = np.all([column[1:] == column[:-1] for column in columns], axis=0)
        columns = [column[np.concatenate([[True], ~repeats])] for column in columns]
    part = random.choice(len(columns[0]), count, replace=False)
    return [column[part] for column in columns]
