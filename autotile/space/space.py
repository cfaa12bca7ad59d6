"""A search space as a table of feasible rows: what it holds, and which row a configuration is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotile.errors import ConfigurationError
from autotile.space.numbering import Column, Numbering, code_type, in_order
from autotile.types import Configuration, Value


@dataclass(frozen=True)
class Rejection:
    """How many configurations a rule rejects that no rule tried before it did, and its message for one of them."""

    rule: str
    where: str
    count: int
    example: str


@dataclass(frozen=True, eq=False)
class Space:
    """Feasible configurations. `codes[row, p]` is the index of parameter p's value in its domain (shape rows × p).

    Rows are in the order of the domains, the last parameter running fastest, each once. They are all that is feasible,
    or, where that is too much to hold, a uniform sample of `drawn_from` feasible configurations.
    """

    names: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    codes: Column
    total: int
    rejections: tuple[Rejection, ...]
    drawn_from: int | None = None

    def __len__(self) -> int:
        """Rows in the table."""
        return int(self.codes.shape[0])

    @property
    def feasible(self) -> int:
        """The exact number of feasible configurations, in the table or not."""
        return len(self) if self.drawn_from is None else self.drawn_from

    @property
    def sampled(self) -> bool:
        """Whether the rows are a sample of what is feasible."""
        return self.drawn_from is not None

    def configuration(self, row: int) -> Configuration:
        codes = self.codes[row].tolist()
        return Configuration(tuple((name, self.domains[p][codes[p]]) for p, name in enumerate(self.names)))

    def row_of(self, configuration: Mapping[str, Value]) -> int | None:
        """The row of a configuration; None when it is infeasible, outside the domains, or not in the sample."""
        try:
            codes = [self._code[p][_key(configuration[name])] for p, name in enumerate(self.names)]
        except KeyError:
            return None
        row = int(self.rows_of(np.asarray([codes], np.int64))[0])
        return None if row < 0 else row

    def rows_of(self, codes: Column) -> Column:
        """The row of each of `codes` (any number × parameters, each within its domain); −1 where there is none."""
        return self._numbering.find(codes)

    @cached_property
    def _code(self) -> tuple[dict[tuple[type, Value], int], ...]:
        return tuple({_key(value): code for code, value in enumerate(domain)} for domain in self.domains)

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(self.codes, [len(domain) for domain in self.domains])


def _key(value: Value) -> tuple[type, Value]:
    return type(value), value  # True and 1 are different values


def space_of_rows(names: Sequence[str], domains: Sequence[Sequence[Value]], codes: Column) -> Space:
    """A space that is just these rows, as of a recorded search: `codes` is rows × parameters, as in Space.

    Rows come in any order, also repeatedly; the space has each once, in the order of the domains. Raises
    ConfigurationError for codes that are no table of the domains.
    """
    sizes = [len(domain) for domain in domains]
    codes = np.asarray(codes)
    if codes.ndim != 2 or codes.shape[1] != len(names) or len(sizes) != len(names) or codes.dtype.kind not in "iu":
        raise ConfigurationError(
            f"the rows of a space are a table of integers with a column for each parameter and its domain; here are "
            f"{codes.dtype} codes of shape {codes.shape}, {len(names)} parameters and {len(sizes)} domains"
        )
    for p, name in enumerate(names):
        if len(codes) and not 0 <= codes[:, p].min() <= codes[:, p].max() < sizes[p]:
            raise ConfigurationError(
                f"the rows have codes {codes[:, p].min()} to {codes[:, p].max()} for {name!r}, whose domain has "
                f"{sizes[p]} values: a code is the index of a value in its domain"
            )
    table = in_order(codes.astype(code_type(sizes)), sizes)
    return Space(tuple(names), tuple(tuple(domain) for domain in domains), table, math.prod(sizes), ())
