"""Enumeration of a search space: exact counts whatever its size, and all that is feasible as far as it can be held.

Groups of parameters that no rule ties together are enumerated apart (walk.py) and multiplied here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel, Rule
from autotile.space.draw import draw_together
from autotile.space.numbering import Column, code_type, in_order
from autotile.space.plan import Plan, Question, Steps, make_plan
from autotile.space.rules import BoundRule, bind_rules
from autotile.space.space import Rejection, Space
from autotile.space.verdicts import Verdicts
from autotile.space.walk import Limits, Rows, Walk
from autotile.types import Problem, Value

LIMITS = Limits()


def build_space(
    kernel: Kernel,
    problem: Problem,
    device: DeviceInfo,
    domains: Mapping[str, Sequence[Value]] | None = None,
    rules: Sequence[Rule] = (),
) -> Space:
    """Every configuration of the domains (the kernel's own where `domains` has none) that breaks no rule.

    Raises ExpressionError for a rule that cannot be worked out, ConfigurationError where a count would take too long.
    """
    chosen = {p.name: (domains or {}).get(p.name, p.domain) for p in kernel.parameters}
    constants = kernel.problem_scope(problem) | device.scope()
    return enumerate_space(chosen, constants, kernel.steps, bind_rules(kernel, problem, device, rules))


def enumerate_space(
    domains: Mapping[str, Sequence[Value]],
    constants: Mapping[str, Any],
    steps: Steps,
    rules: Sequence[BoundRule],
    seed: int = 0,
    limits: Limits = LIMITS,
) -> Space:
    """The combinations of the domains that break no rule, in the order of the domains; no kernel is needed.

    Rules may use the names of the domains, the constants (numbers and names), and the steps: numbers that follow from
    these, in an order in which each can be worked out. Counts are exact. Where more is feasible than
    `limits.held_rows`, the rows are a uniform sample, the same for the same seed.

    Raises ExpressionError for a rule that cannot be worked out or names what is not there, and ConfigurationError where
    more than `limits.looked_at` combinations would have to be looked at.
    """
    question = Question({name: tuple(domain) for name, domain in domains.items()}, constants, steps, tuple(rules))
    plan = make_plan(question)
    sizes = question.sizes
    names, values = tuple(question.domains), tuple(question.domains.values())
    if 0 in sizes:
        return Space(names, values, np.zeros((0, len(sizes)), code_type(sizes)), 0, ())
    verdicts = Verdicts(question, plan)
    broken = {rule for rule in plan.constant if not verdicts.constant(rule)}
    walks = [Walk(stages, sizes, verdicts, Rows(limits, (seed, g))) for g, stages in enumerate(plan.groups)]
    looked = 0
    for walk in walks:
        looked = walk.run(looked, nothing=_none_at_once(plan, broken))
    feasible = 0 if broken else math.prod(walk.rows.count for walk in walks)
    rejections = _rejections(question, plan, verdicts, walks, broken)
    if feasible > limits.held_rows:
        codes = draw_together(walks, sizes, limits.sample_rows, seed)
        return Space(names, values, codes, math.prod(sizes), rejections, drawn_from=feasible)
    codes = _crossed(walks, sizes) if feasible else np.zeros((0, len(sizes)), code_type(sizes))
    return Space(names, values, codes, math.prod(sizes), rejections)


def _none_at_once(plan: Plan, broken: set[int]) -> bool:
    """Whether a rule rejects everything before any rule has looked at a parameter."""
    first = next((rule for rule in plan.order if rule in broken or rule not in plan.constant), None)
    return first in broken


def _rejections(
    question: Question, plan: Plan, verdicts: Verdicts, walks: Sequence[Walk], broken: set[int]
) -> tuple[Rejection, ...]:
    """Each rule in the order of the rules, credited with what no rule settled before it rejects over all groups."""
    alive = [walk.total for walk in walks]
    group_of = {rule: g for g, stages in enumerate(plan.groups) for stage in stages for rule in stage.rules}
    counts: dict[int, int] = {}
    for rule in plan.order:
        if rule in broken:
            counts[rule] = math.prod(alive)
            break
        if rule in group_of and (dropped := walks[group_of[rule]].dropped.get(rule, 0)):
            g = group_of[rule]
            counts[rule] = dropped * math.prod(alive[:g] + alive[g + 1 :])
            alive[g] -= dropped
    return tuple(
        Rejection(
            bound.text,
            bound.rule.where,
            counts[rule],
            verdicts.example(rule, walks[group_of[rule]].first[rule] if rule in group_of else {}),
        )
        for rule, bound in enumerate(question.rules)
        if counts.get(rule)
    )


def _crossed(walks: Sequence[Walk], sizes: Sequence[int]) -> Column:
    """All rows of the product of the groups (rows × parameters), in the order of the domains."""
    rows = math.prod(walk.rows.count for walk in walks)
    codes = np.zeros((len(sizes), rows), code_type(sizes))
    before, after = 1, rows
    for walk in walks:
        after //= walk.rows.count
        for p, column in zip(walk.parameters, walk.rows.table(), strict=True):
            codes[p].reshape(before, walk.rows.count, after)[:] = column[None, :, None]
        before *= walk.rows.count
    return in_order(codes.T, sizes)
