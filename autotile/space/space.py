"""A search space as a table of its feasible rows.

Enumeration goes one parameter at a time: the rows so far times the next domain, as numpy columns, with each rule
applied as soon as all that it needs is there. A rule that rejects a partial row thereby rejects every completion of
it, and is credited with exactly that many; so counts are exact although few rows are ever made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autotile.devices.info import DeviceInfo
from autotile.errors import ConfigurationError
from autotile.kernels import Kernel, Rule
from autotile.kernels.declarations import Parameter
from autotile.kernels.expressions import Expression
from autotile.space.rules import BoundRule, bind_rules
from autotile.types import Configuration, Problem, Value

Column = np.ndarray[Any, Any]

MOST_ROWS = 20_000_000
"""Rows that are held at once, some 200 bytes each."""

MOST_CONFIGURATIONS = 2**62
"""Combinations are numbered in 64-bit integers."""


@dataclass(frozen=True)
class Rejection:
    """How many configurations a rule rejects that no rule tried before it did, and its message for one of them."""

    rule: str
    where: str
    count: int
    example: str


@dataclass(frozen=True, eq=False)
class Space:
    """Feasible configurations. `codes[row, p]` is the index of parameter p's value in its domain (shape rows × p)."""

    names: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    codes: Column
    total: int
    rejections: tuple[Rejection, ...]

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    def configuration(self, row: int) -> Configuration:
        codes = self.codes[row]
        return Configuration(tuple((name, self.domains[p][int(codes[p])]) for p, name in enumerate(self.names)))

    def row_of(self, configuration: Mapping[str, Value]) -> int | None:
        """The row of a configuration; None when it is infeasible or outside the domains."""
        try:
            codes = [self._code[p][_key(configuration[name])] for p, name in enumerate(self.names)]
        except KeyError:
            return None
        number = int(np.dot(self._strides, np.asarray(codes, np.int64)))
        row = int(np.searchsorted(self._numbers, number))
        return row if row < len(self) and self._numbers[row] == number else None

    @cached_property
    def _code(self) -> tuple[dict[tuple[type, Value], int], ...]:
        return tuple({_key(value): code for code, value in enumerate(domain)} for domain in self.domains)

    @cached_property
    def _strides(self) -> Column:
        """Weights that number all configurations of the product from 0, the last parameter running fastest."""
        sizes = [len(domain) for domain in self.domains]
        return np.asarray([math.prod(sizes[p + 1 :]) for p in range(len(sizes))], np.int64)

    @cached_property
    def _numbers(self) -> Column:
        """The number of each row: ascending, since rows are in the order of the domains."""
        return np.asarray(self.codes.astype(np.int64) @ self._strides)


def _key(value: Value) -> tuple[type, Value]:
    return type(value), value  # True and 1 are different values


def build_space(
    kernel: Kernel,
    problem: Problem,
    device: DeviceInfo,
    domains: Mapping[str, Sequence[Value]] | None = None,
    rules: Sequence[Rule] = (),
) -> Space:
    """Every configuration of the domains (the kernel's own where `domains` has none) that breaks no rule.

    Raises ExpressionError for a rule that cannot be worked out.
    """
    parameters = kernel.parameters
    chosen = tuple(tuple((domains or {}).get(p.name, p.values)) for p in parameters)
    builder = _Builder(kernel, problem, device, parameters, chosen, bind_rules(kernel, problem, device, rules))
    return builder.build()


class _Builder:
    """State of one enumeration: the partial rows, as codes and as columns of values."""

    def __init__(
        self,
        kernel: Kernel,
        problem: Problem,
        device: DeviceInfo,
        parameters: tuple[Parameter, ...],
        domains: tuple[tuple[Value, ...], ...],
        rules: tuple[BoundRule, ...],
    ) -> None:
        self.constants = kernel.problem_scope(problem) | device.scope()
        self.parameters, self.domains = parameters, domains
        self.steps = list(kernel.steps)
        self.rules = list(rules)
        self.order = list(rules)
        self.values: dict[str, Column] = {}
        self.codes: dict[str, Column] = {}
        self.rows = 1
        self.rejected: dict[BoundRule, int] = {}
        self.examples: dict[BoundRule, str] = {}

    def build(self) -> Space:
        sizes = [len(domain) for domain in self.domains]
        total = math.prod(sizes)
        if total >= MOST_CONFIGURATIONS:
            raise ConfigurationError(
                f"the domains have {total} combinations, more than the {MOST_CONFIGURATIONS} that can be numbered: "
                "narrow some"
            )
        remaining = total
        self._settle(remaining)
        for p in self._parameter_order():
            remaining //= max(1, sizes[p])
            self._expand(self.parameters[p].name, self.domains[p])
            self._settle(remaining)
        names = tuple(parameter.name for parameter in self.parameters)
        code_type = np.int16 if max(sizes, default=0) < 2**15 else np.int32
        codes = np.stack([self.codes[name] for name in names], axis=1).astype(code_type)
        lexical = np.lexsort(codes.T[::-1])  # rows in the order of the domains, whatever the order of enumeration
        rejections = tuple(
            Rejection(rule.text, rule.rule.where, self.rejected[rule], self.examples[rule])
            for rule in self.order
            if self.rejected.get(rule)
        )
        return Space(names, self.domains, codes[lexical], total, rejections)

    def _parameter_order(self) -> list[int]:
        """Parameters that complete a rule soonest come first, so that rows die early."""
        expressions = dict(self.steps)
        names = {parameter.name: p for p, parameter in enumerate(self.parameters)}

        def needs(expression: Expression) -> frozenset[int]:
            found: set[int] = set()
            for name in expression.names:
                if name in names:
                    found.add(names[name])
                elif name in expressions:
                    found |= needs(expressions[name])
            return frozenset(found)

        pending = [needs(rule.expression) for rule in self.rules]
        order: list[int] = []
        while len(order) < len(self.parameters):
            placed = set(order)
            open_ = [rest for need in pending if (rest := need - placed)]
            if not open_:
                return order + [p for p in range(len(self.parameters)) if p not in placed]
            easiest = min(open_, key=lambda rest: (float(np.prod([len(self.domains[p]) for p in rest])), sorted(rest)))
            order += sorted(easiest)
        return order

    def _expand(self, name: str, domain: tuple[Value, ...]) -> None:
        """All rows so far, times the values of one more parameter."""
        size = len(domain)
        if self.rows * size > MOST_ROWS:
            raise ConfigurationError(
                f"the space has more than {MOST_ROWS} configurations, counted up to {name!r}; narrow some domains, or "
                "add rules that reject early"
            )
        self.values = {key: np.repeat(column, size) for key, column in self.values.items()}
        self.codes = {key: np.repeat(column, size) for key, column in self.codes.items()}
        self.codes[name] = np.tile(np.arange(size, dtype=np.int32), self.rows)
        self.values[name] = np.tile(np.asarray(domain), self.rows)
        self.rows *= size

    def _settle(self, completions: int) -> None:
        """Works out what can be worked out now; `completions` full rows hang on each partial one."""
        progress = True
        while progress:
            progress = False
            known = self.constants.keys() | self.values.keys()
            for step in [s for s in self.steps if s[1].names <= known]:
                value = step[1].evaluate(self.constants | self.values)
                self.values[step[0]] = np.broadcast_to(np.asarray(value), (self.rows,))
                self.steps.remove(step)
                progress = True
        known = self.constants.keys() | self.values.keys()
        for rule in [r for r in self.rules if r.expression.names <= known]:
            self.rules.remove(rule)
            self._apply(rule, completions)

    def _apply(self, rule: BoundRule, completions: int) -> None:
        scope = self.constants | self.values
        keep = np.broadcast_to(np.asarray(rule.expression.holds(scope)), (self.rows,))
        dropped = self.rows - int(np.count_nonzero(keep))
        if not dropped:
            return
        worst = int(np.argmin(keep))
        self.examples[rule] = rule.message({**self.constants, **{k: v[worst] for k, v in self.values.items()}})
        self.rejected[rule] = self.rejected.get(rule, 0) + dropped * completions
        self.values = {key: column[keep] for key, column in self.values.items()}
        self.codes = {key: column[keep] for key, column in self.codes.items()}
        self.rows -= dropped
