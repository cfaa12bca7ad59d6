"""Spaces without kernels, and the slow way to all that there is to know of one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from autotile.kernels import Rule
from autotile.kernels.expressions import Expression
from autotile.space import BoundRule
from autotile.space.plan import Question, make_plan

Steps = Sequence[tuple[str, Expression]]


def rules_of(*texts: str) -> list[BoundRule]:
    return [BoundRule(Rule(text, f"broken: {text}"), Expression(text)) for text in texts]


def steps_of(**texts: str) -> Steps:
    return [(name, Expression(text)) for name, text in texts.items()]


def one_by_one(
    domains: Mapping[str, Sequence[Any]], constants: Mapping[str, Any], steps: Steps, rules: Sequence[BoundRule]
) -> tuple[list[tuple[int, ...]], dict[str, int]]:
    """Codes of the feasible combinations, and how many each rule rejects, asked in the order of the plan."""
    order = make_plan(Question({n: tuple(d) for n, d in domains.items()}, constants, steps, tuple(rules))).order
    feasible: list[tuple[int, ...]] = []
    rejected: dict[str, int] = {}
    for codes in itertools.product(*(range(len(domain)) for domain in domains.values())):
        scope = {**constants, **{name: domains[name][code] for name, code in zip(domains, codes, strict=True)}}
        for name, expression in steps:
            scope[name] = expression.evaluate(scope)
        broken = next((rules[rule].text for rule in order if not rules[rule].expression.holds(scope)), None)
        if broken is None:
            feasible.append(codes)
        else:
            rejected[broken] = rejected.get(broken, 0) + 1
    return feasible, rejected
