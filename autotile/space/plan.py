"""In which order parameters are placed, when each rule can be settled, and which parameters have nothing to do with
which.

Parameters that no rule ties together, directly or through others, form groups: each group is enumerated apart, and the
space is the product of the groups. A parameter with a single value is a constant and in no group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.errors import ExpressionError
from autotile.kernels.expressions import Expression
from autotile.space.rules import BoundRule
from autotile.types import Value

Steps = Sequence[tuple[str, Expression]]


@dataclass(frozen=True)
class Question:
    """What a search space is asked for: values by name, numbers that follow from them in order, and the rules."""

    domains: Mapping[str, tuple[Value, ...]]
    constants: Mapping[str, Any]
    steps: Steps
    rules: tuple[BoundRule, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(domain) for domain in self.domains.values())


@dataclass(frozen=True)
class Stage:
    """A parameter that is placed (None: none is), and the rules that can be settled then, as indices."""

    parameter: int | None
    rules: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """`groups` holds each group's stages; `constant` the rules that hold for all configurations or for none.

    `order` is the order of the rules over all groups: each is credited with what none before it rejects.
    `needs` and `steps` hold, by rule, its parameters of more than one value, and the steps that it goes through.
    """

    groups: tuple[tuple[Stage, ...], ...]
    constant: tuple[int, ...]
    order: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    steps: tuple[Steps, ...]


def make_plan(question: Question) -> Plan:
    """Raises ExpressionError for a rule that names what is not there, itself or through a step."""
    names = {name: p for p, name in enumerate(question.domains)}
    steps = dict(question.steps)
    through: dict[str, tuple[frozenset[int], frozenset[str]]] = {}
    for name, expression in question.steps:
        through[name] = _reach(expression, names, through)
    known = names.keys() | through.keys() | question.constants.keys()
    for expression in (*steps.values(), *(rule.expression for rule in question.rules)):
        for name in sorted(expression.names - known):
            raise ExpressionError(f"unknown name {name!r} in {expression.text!r}; known: {', '.join(sorted(known))}")
    reached = [_reach(rule.expression, names, through) for rule in question.rules]
    sizes = question.sizes
    needs = [need for need, _ in reached]
    varying = [tuple(sorted(p for p in need if sizes[p] > 1)) for need in needs]
    group_of = _groups(varying, sizes)
    groups: dict[int, list[Stage]] = {}
    constant: list[int] = []
    settled: list[int] = []
    placed: set[int] = set()
    pending = list(range(len(needs)))
    for p in (None, *placing_order(needs, sizes)):
        placed |= set() if p is None else {p}
        ready = [rule for rule in pending if needs[rule] <= placed]
        pending = [rule for rule in pending if rule not in ready]
        settled += ready
        constant += [rule for rule in ready if not varying[rule]]
        tied = [rule for rule in ready if varying[rule]]
        if p is not None and sizes[p] > 1:
            groups.setdefault(group_of[p], []).append(Stage(p, tuple(tied)))
            continue
        for rule in tied:  # all that was missing was a parameter of one value
            groups[group_of[varying[rule][0]]].append(Stage(None, (rule,)))
    return Plan(
        tuple(tuple(stages) for _, stages in sorted(groups.items())),
        tuple(constant),
        tuple(settled),
        tuple(varying),
        tuple([(name, steps[name]) for name in steps if name in used] for _, used in reached),
    )


def _reach(
    expression: Expression, names: Mapping[str, int], through: Mapping[str, tuple[frozenset[int], frozenset[str]]]
) -> tuple[frozenset[int], frozenset[str]]:
    """The parameters and the steps that an expression depends on."""
    parameters = frozenset(names[name] for name in expression.names if name in names)
    used = frozenset(name for name in expression.names if name in through)
    for name in used:
        parameters |= through[name][0]
        used |= through[name][1]
    return parameters, used


def placing_order(needs: Sequence[frozenset[int]], sizes: Sequence[int]) -> list[int]:
    """Parameters that complete a rule soonest come first, so that rows die early."""
    order: list[int] = []
    while len(order) < len(sizes):
        open_ = {rest for need in needs if (rest := need.difference(order))}
        if not open_:
            return order + [p for p in range(len(sizes)) if p not in order]
        order += sorted(min(open_, key=lambda rest: (math.prod(sizes[p] for p in rest), sorted(rest))))
    return order


def _groups(needs: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """By parameter, the first parameter of its group."""
    group = list(range(len(sizes)))
    for need in needs:
        if len(tied := {group[p] for p in need}) > 1:
            first = min(tied)
            group = [first if g in tied else g for g in group]
    return group
