"""Where to look first: what was the best elsewhere is seldom bad here, nor what the emulator's estimates put first."""

from __future__ import annotations

import warnings

from autotile.kernels import Kernel
from autotile.space import Space
from autotile.store import RecordStore, StoreWarning, distance
from autotile.types import Identity, Problem, Record

MOST_WARM = 6
"""Rows at most that are tried for having been the best elsewhere."""


def warm_rows(space: Space, problem: Problem, identity: Identity, store: RecordStore, kernel: Kernel) -> list[int]:
    """The rows of the space that are on record as a best of the kernel elsewhere, nearest first.

    A best whose configuration is not feasible here, or outside the domains, is left out; so is one of other dimensions,
    which the kernel had before it was edited. Optional sizes count in what is near.
    """
    with warnings.catch_warnings():  # a damaged file elsewhere is for the search of its problem to say
        warnings.simplefilter("ignore", StoreWarning)
        bests = [record for record in store.bests(problem.kernel) if record.ok]
    dimensions = {name for name, _ in problem.sizes}
    bests = [record for record in bests if {name for name, _ in record.problem.sizes} == dimensions]
    bests.sort(key=lambda record: _distance(record, problem, identity, kernel))
    rows = (space.row_of(record.configuration) for record in bests)
    return list(dict.fromkeys(row for row in rows if row is not None))[:MOST_WARM]


MOST_ESTIMATED = 6
"""Rows at most that are tried for their estimate."""


def estimated_rows(space: Space, problem: Problem, identity: Identity, store: RecordStore) -> list[int]:
    """The rows whose estimate is the best of those that the emulator has on record for this problem and this very GPU:
    a search on a laptop tells one on the GPU where to begin."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        records = store.records(problem.kernel, problem, f"emulated {identity.device}")
    records = sorted((record for record in records if record.ok), key=lambda record: record.time_ms)
    rows = (space.row_of(record.configuration) for record in records)
    return list(dict.fromkeys(row for row in rows if row is not None))[:MOST_ESTIMATED]


def _distance(
    record: Record, problem: Problem, identity: Identity, kernel: Kernel
) -> tuple[bool, bool, bool, bool, float]:
    """Measured before estimated, then the same device, arch and element type, then the sizes by their ratios."""
    there = record.identity
    return (
        there.estimated and not identity.estimated,
        there.device != identity.device,
        there.arch != identity.arch,
        record.problem.dtype != problem.dtype,
        distance(kernel, record.problem, problem),
    )
