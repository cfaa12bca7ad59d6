"""What a rule says about many rows at once.

Where a rule's parameters have few combinations, it is worked out on all of them once, as a table with an axis a
parameter, and rows look theirs up; a part of the rule that involves few of the parameters is worked out on their axes
alone. A table is made when as many rows have been judged one by one as it has entries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.errors import ExpressionError
from autotile.kernels.expressions import Expression
from autotile.space.numbering import Column
from autotile.space.plan import Plan, Question, Steps
from autotile.space.rules import MESSAGE_FIELD

MOST_ENTRIES = 2**22
"""Entries of a table; working it out takes some 100 bytes for each."""


class Verdicts:
    """Judges rows of codes by the rules of a question, and remembers the tables."""

    def __init__(self, question: Question, plan: Plan) -> None:
        self._question, self._plan = question, plan
        self._sizes = question.sizes
        self._names = tuple(question.domains)
        single = {name: domain[0] for name, domain in question.domains.items() if len(domain) == 1}
        self._constants = {**question.constants, **single}
        self._values = [np.asarray(domain) for domain in question.domains.values()]
        self._tables: dict[int, Column | None] = {}
        self._judged: dict[int, int] = {}

    def constant(self, rule: int) -> bool:
        """The verdict of a rule that needs no parameter of more than one value."""
        return bool(self._holds(rule, {}))

    def judge(
        self, rule: int, codes: Mapping[int, Column], placed: int | None, rows: int, keep: Column | None
    ) -> Column:
        """Booleans, rows × values of the parameter `placed` (one column where it is None), or fewer that broadcast.

        `codes` are the codes of as many `rows`, by parameter; what `keep` (rows × values) has dropped may be judged
        either way.
        """
        size = 1 if placed is None else self._sizes[placed]
        judged = self._judged[rule] = self._judged.get(rule, 0) + rows * size
        needs = self._plan.needs[rule]
        if judged >= math.prod(self._sizes[p] for p in needs) and (table := self._table(rule)) is not None:
            return self._look_up(table, needs, codes, placed)
        if keep is None or placed is None:
            values = {p: self._values[p][codes[p]] for p in needs if p != placed}
            if placed is not None:  # rows along the last axis, where numpy is fastest; there are more of them
                values[placed] = self._values[placed][:, None]
            verdict = np.asarray(self._holds(rule, values))
            return np.ascontiguousarray(verdict.T) if verdict.ndim == 2 else verdict.reshape(-1, 1)
        return self._one_by_one(rule, codes, placed, keep)

    def _one_by_one(self, rule: int, codes: Mapping[int, Column], placed: int, keep: Column) -> Column:
        """Only what the rules before have kept, so that a rule may count on those."""
        flat = np.flatnonzero(keep)
        row, code = np.divmod(flat, keep.shape[1])
        needs = self._plan.needs[rule]
        values = {p: self._values[p][code if p == placed else codes[p][row]] for p in needs}
        verdict = np.zeros(keep.size, bool)
        verdict[flat] = self._holds(rule, values)
        return np.asarray(verdict.reshape(keep.shape))

    def _look_up(
        self, table: Column, needs: tuple[int, ...], codes: Mapping[int, Column], placed: int | None
    ) -> Column:
        if placed is not None:
            table = np.moveaxis(table, needs.index(placed), -1)
        index: Column | None = None
        for p in needs:
            if p != placed:
                index = codes[p].astype(np.intp) if index is None else index * self._sizes[p] + codes[p]
        size = 1 if placed is None else self._sizes[placed]
        lines = table.reshape(-1, size)
        return lines if index is None else np.take(lines, index, axis=0)

    def _table(self, rule: int) -> Column | None:
        """The rule on all combinations of its parameters, in their order; None where that cannot be had."""
        if rule not in self._tables:
            needs = self._plan.needs[rule]
            shape = tuple(self._sizes[p] for p in needs)
            self._tables[rule] = None
            if math.prod(shape) <= MOST_ENTRIES:
                axes = [tuple(-1 if a == axis else 1 for a in range(len(needs))) for axis in range(len(needs))]
                try:
                    verdict = self._holds(rule, {p: self._values[p].reshape(axes[a]) for a, p in enumerate(needs)})
                except ExpressionError:
                    return None  # some of the combinations may never come up
                self._tables[rule] = np.ascontiguousarray(np.broadcast_to(verdict, shape))
        return self._tables[rule]

    def _holds(self, rule: int, values: Mapping[int, Column]) -> Any:
        scope = {**self._constants, **{self._names[p]: column for p, column in values.items()}}
        _work_out(self._plan.steps[rule], scope)
        return self._question.rules[rule].expression.holds(scope)

    def example(self, rule: int, codes: Mapping[int, int]) -> str:
        """The rule's message for a configuration with these codes, and the first value of every other parameter."""
        bound = self._question.rules[rule]
        wanted = {
            name
            for text in MESSAGE_FIELD.findall(bound.rule.message)
            for name in Expression(text, bound.rule.where).names
        }
        columns = {name: self._values[p][[codes.get(p, 0)]] for p, name in enumerate(self._names)}
        scope: dict[str, Any] = {**self._question.constants, **columns}
        steps = dict(self._question.steps)
        for name in reversed(steps):
            wanted |= steps[name].names if name in wanted else set()
        _work_out([(name, expression) for name, expression in steps.items() if name in wanted], scope)
        return bound.message({name: value[0] if np.ndim(value) else value for name, value in scope.items()})


def _work_out(steps: Steps, scope: dict[str, Any]) -> None:
    for name, expression in steps:
        scope[name] = expression.evaluate(scope)
