"""What every form of recording is read into: one row an evaluation, in the order of the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotile.types import Problem, Value

LARGEST_INTEGER = 2**31
"""Integers of autotile's parameters are 0 to this, without it (kernels/declarations.py); others are kept as text."""


@dataclass(frozen=True)
class Row:
    """One evaluation. `values` are the file's own, in the order of the table's names; times in milliseconds.

    `time_ms` is NaN unless `outcome` is `ok`. `other_ms` is all that the evaluation cost beside compiling.
    """

    values: tuple[Any, ...]
    time_ms: float
    outcome: str
    compile_ms: float
    other_ms: float
    message: str = ""


@dataclass(frozen=True)
class Table:
    """A recording as it was found. `declared` are the domains that the file states, which may be none.

    `sizes` are the problem's extents where the file has them; `own`, `arch` and `estimated` (a model's
    times, not a GPU's) are those of autotile's own records.
    """

    kernel: str
    device: str
    problem: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    rows: Sequence[Row]
    declared: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    own: Problem | None = None
    arch: str = ""
    estimated: bool = False


def domain_of(declared: Iterable[Any], occurring: Iterable[Any]) -> dict[str, Value]:
    """Value as in the file (see `spelled`) → the parameter's value, in order: those declared, then the others.

    Where nothing is declared, numbers go up. A parameter's values are of one type: fractions that are whole are
    integers, and where anything is no boolean, name, or integer that autotile can hold, all are kept as text.
    """
    stated = {spelled(value): _whole(value) for value in declared}
    found = {spelled(value): _whole(value) for value in occurring}
    if not stated and all(type(value) in (bool, int, float) for value in found.values()):
        found = dict(sorted(found.items(), key=lambda item: item[1]))
    every = stated | found
    kinds = {type(value) for value in every.values()}
    fits = all(type(value) is not int or 0 <= value < LARGEST_INTEGER for value in every.values())
    if len(kinds) == 1 and kinds <= {bool, int, str} and fits:
        return every
    return {key: value if isinstance(value, str) else key for key, value in every.items()}


def spelled(value: Any) -> str:
    """One spelling for one value: 16 and 16.0 are the same, 1, true and "1" are not. A number as JSON has it."""
    if type(value) is int:
        return str(value)
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
