"""Enumeration without a kernel: what is feasible, and each rule's share of the rest, against the slow way."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces import one_by_one, rules_of, steps_of

from autotile.errors import ExpressionError
from autotile.kernels import Rule
from autotile.kernels.expressions import Expression
from autotile.space import BoundRule, enumerate_space
from autotile.space.walk import Limits

DOMAINS: dict[str, tuple[Any, ...]] = {
    "a": (1, 2, 4, 16),
    "b": (0, 1, 2, 3),
    "one": (3,),
    "mode": ("none", "tile", "ring"),
    "c": (5, 3, 1),
    "flag": (False, True),
    "d": (0, 7),
}
STEPS = steps_of(area="a * (b + 1)", bytes="area * 4 if mode == 'tile' else area // c", spare="unused + a")
CONSTANTS = {"limit": 24, "unused": 1}
RULES = [
    "a * b <= limit",
    "b == 0 or a % b == 0",
    "bytes < 40",
    "bytes + d != 8",
    "mode != 'ring' or flag",
    "not flag or c in (1, 5)",
    "c + d > one",
    "one == 3",
    "limit > 100",
    "a > 1",
    "area * (2 if flag else 1) <= 2 * limit",
    "a + b + c + d + one < limit or flag",
]
TINY = [Limits(block_rows=block) for block in (1, 7, 2**18)]


@settings(max_examples=60)
@given(
    texts=st.lists(st.sampled_from(RULES), unique=True),
    names=st.permutations(list(DOMAINS)),
    limits=st.sampled_from(TINY),
)
def test_is_the_product_filtered_one_by_one(texts: list[str], names: list[str], limits: Limits) -> None:
    domains, rules = {name: DOMAINS[name] for name in names}, rules_of(*texts)
    feasible, rejected = one_by_one(domains, CONSTANTS, STEPS, rules)
    space = enumerate_space(domains, CONSTANTS, STEPS, rules, limits=limits)
    assert [tuple(codes) for codes in space.codes.tolist()] == feasible
    assert {rejection.rule: rejection.count for rejection in space.rejections} == rejected
    assert [rejection.rule for rejection in space.rejections] == [text for text in texts if text in rejected]
    assert (space.total, space.feasible, space.sampled) == (576, len(feasible), False)


def test_a_message_may_use_any_name_and_is_of_a_configuration_that_breaks_the_rule() -> None:
    rule = BoundRule(Rule("a > 2", "{a} is small; with {one}, {mode}, {d} and {bytes}"), Expression("a > 2"))
    space = enumerate_space(DOMAINS, CONSTANTS, STEPS, [rule])
    assert [(r.count, r.example) for r in space.rejections] == [(576 // 2, "1 is small; with 3, none, 0 and 0")]


def test_a_rule_may_count_on_those_before_it() -> None:
    domains = {"a": tuple(2**power for power in range(31)), "b": (1, 2)}
    fourth = "a * a * a * a * b < 5"
    with pytest.raises(ExpressionError, match="beyond 64 bits"):
        enumerate_space(domains, {}, (), rules_of(fourth))
    for guard in ("a < 100", "a * b < 100"):
        space = enumerate_space(domains, {}, (), rules_of(guard, fourth))
        assert [dict(space.configuration(row)) for row in range(len(space))] == [{"a": 1, "b": 1}, {"a": 1, "b": 2}]


@pytest.mark.parametrize("first", ["limit > 100", "one > 3", "a > 16", "a * b > 1000"])
@pytest.mark.parametrize("limits", TINY)
def test_a_rule_that_makes_no_sense_is_heard_also_where_nothing_is_left(first: str, limits: Limits) -> None:
    for text in ("mode + c > 2", "c + mode > d"):
        with pytest.raises(ExpressionError, match=r"cannot work out .* is no number"):
            enumerate_space(DOMAINS, CONSTANTS, STEPS, rules_of(first, text), limits=limits)


def test_an_unknown_name_is_an_error_in_rules_and_in_steps() -> None:
    with pytest.raises(ExpressionError, match=r"unknown name 'aa' in 'aa > 1'; known: .*area"):
        enumerate_space(DOMAINS, CONSTANTS, STEPS, rules_of("aa > 1"))
    with pytest.raises(ExpressionError, match="unknown name 'x'"):
        enumerate_space(DOMAINS, CONSTANTS, steps_of(half="x // 2"), rules_of("half > 1"))


def test_the_least_spaces() -> None:
    assert enumerate_space({}, {}, (), ()).codes.shape == (1, 0)
    assert enumerate_space({"a": (5,), "b": (True,)}, {}, (), rules_of("a > 4")).codes.tolist() == [[0, 0]]
    empty = enumerate_space({"a": (1, 2), "b": ()}, {}, (), rules_of("a > b"))
    assert (empty.total, empty.feasible, empty.codes.shape) == (0, 0, (0, 2))


def test_a_rule_on_few_parameters_is_worked_out_once_for_each_of_their_combinations() -> None:
    """On a million rows, the rule is asked for 64 combinations, so it takes next to no time."""
    domains = {name: tuple(range(8)) for name in "abcdefg"}
    asked: list[int] = []

    class Counting(Expression):
        def holds(self, scope: Any) -> Any:
            asked.append(math.prod(np.broadcast_shapes(*(np.shape(scope[name]) for name in self.names))))
            return super().holds(scope)

    rule = BoundRule(Rule("a + g < 9", ""), Counting("a + g < 9"))
    chain = rules_of(*(f"{x} <= {y} + 5" for x, y in zip("abcdef", "bcdefg", strict=True)))
    begin = time.process_time()
    space = enumerate_space(domains, {}, (), [*chain, rule])
    assert time.process_time() - begin < 10
    assert len(space) > 500_000
    assert sum(asked) == 64
