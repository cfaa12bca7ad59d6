"""Expressions: Python's meaning on numbers and on columns alike, and nothing beyond the whitelist."""

from __future__ import annotations

import ast
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotile.errors import ExpressionError
from autotile.kernels.expressions import Expression

SAMPLES = [
    "a + b * 2 - 3",
    "a // b",
    "a % b",
    "a % b == 0 and a // b <= 8",
    "not a > b",
    "1 <= a < b",
    "a in (1, 2, 3)",
    "a not in (1, 2, 3)",
    "a if a > b else b * 2",
    "ceil_div(a, b)",
    "min(a, b) + max(a, b, 7)",
    "is_power_of_two(a)",
    "-a + abs(b - a)",
    "a == 2 or b == 2",
]

MEANING = {
    "ceil_div": lambda a, b: -(-a // b),
    "is_power_of_two": lambda a: a > 0 and a & (a - 1) == 0,
    "min": min,
    "max": max,
    "abs": abs,
}


@pytest.mark.parametrize("text", SAMPLES)
@given(pairs=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), min_size=1, max_size=20))
def test_agrees_with_python_on_columns_and_on_numbers(text: str, pairs: list[tuple[int, int]]) -> None:
    expression = Expression(text)
    a, b = (np.asarray(column, np.int64) for column in zip(*pairs, strict=True))
    column = np.broadcast_to(expression.evaluate({"a": a, "b": b}), a.shape)
    for i, (left, right) in enumerate(pairs):
        expected = eval(text, {"__builtins__": {}}, MEANING | {"a": left, "b": right})
        assert column[i] == expected
        assert expression.evaluate({"a": left, "b": right}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.__class__",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "a ** 99999999",
        "a << 62",
        "open('x')",
        "problem.m.real",
        "min(a, key=b)",
        "min(*a)",
        "f'{a}'",
        "(a := 3)",
        "a[0]",
        "{1: 2}",
        "a is b",
        "",
        "a +",
        "(" * 500 + "a" + ")" * 500,
        "1 " + "+ 1" * 1000,
    ],
)
def test_refuses_what_is_not_on_the_whitelist(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text).evaluate({"a": 1, "b": 2, "problem.m": 3})


def test_names_are_found_also_dotted_ones() -> None:
    assert Expression("a + problem.m <= device.sm_count").names == {"a", "problem.m", "device.sm_count"}


def test_an_unknown_name_is_named_with_its_place() -> None:
    with pytest.raises(ExpressionError, match=r"x\.yaml:3: unknown name 'blok_m'.*known: block_m"):
        Expression("blok_m > 1", "x.yaml:3").evaluate({"block_m": 2})


def test_division_by_zero_is_zero_so_that_a_rule_may_guard_itself() -> None:
    guard = Expression("b == 0 or a % b == 0")
    assert list(guard.evaluate({"a": np.array([4, 5, 6]), "b": np.array([0, 2, 3])})) == [True, False, True]
    assert guard.evaluate({"a": 4, "b": 0})


def test_names_and_booleans_compare_over_columns() -> None:
    scope = {"staging": np.array(["none", "tile"]), "swizzle": np.array([True, False])}
    assert list(Expression("staging == 'tile' and not swizzle").evaluate(scope)) == [False, True]
    assert list(Expression("4 if staging == 'tile' else 0").evaluate(scope)) == [0, 4]


def test_mixing_names_and_numbers_is_an_error_not_a_traceback() -> None:
    with pytest.raises(ExpressionError, match="cannot work out"):
        Expression("staging + 1").evaluate({"staging": "none"})


def test_threads_take_turns_in_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 3.12, CPython may raise SystemError from `ast.parse` when two threads meet in it."""
    inside, most, real = [], [], ast.parse

    def slow(*given: Any, **named: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return real(*given, **named)

    monkeypatch.setattr(ast, "parse", slow)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Expression(f"a > {n} + 0.5"), range(40)))
    assert len(most) == 40
    assert max(most) == 1


# ---- columns that are wide, or of booleans or text ------------------------------------------------------------------

WIDE = [
    "a * b",
    "a + b",
    "a - b",
    "-a",
    "abs(a)",
    "a * b // 2",
    "a * b % 7",
    "a * b * 9 > b",
    "ceil_div(a, b)",
    "max(a, b) + 1",
    "min(a, b) - 1",
    "(a < b) + (a == b)",
    "is_power_of_two(a * b)",
    "a // (b - b)",
    "a / (b - b)",
]
INTEGERS = st.one_of(st.integers(1, 300), st.integers(2**30, 2**33), st.integers(2**61, 2**63 - 1))


@pytest.mark.parametrize("text", WIDE)
@given(pairs=st.lists(st.tuples(INTEGERS, INTEGERS), min_size=1, max_size=4))
def test_a_column_has_the_numbers_that_python_has_or_says_that_they_do_not_fit(text: str, pairs: list[Any]) -> None:
    expression = Expression(text)
    expected = []
    for a, b in pairs:
        expected.append(0 if "b - b" in text else eval(text, {"__builtins__": {}}, MEANING | {"a": a, "b": b}))
        assert expression.evaluate({"a": a, "b": b}) == expected[-1]
    columns = {name: np.asarray(side, np.int64) for name, side in zip("ab", zip(*pairs, strict=True), strict=True)}
    found = _rows(expression, columns)
    assert found == expected or (found == "too wide" and max(map(max, pairs)) >= 2**30)


def _rows(expression: Expression, columns: dict[str, Any]) -> list[Any] | str:
    try:
        return np.broadcast_to(expression.evaluate(columns), len(columns["a"])).tolist()  # type: ignore[no-any-return]
    except ExpressionError as error:
        if "comes to a number beyond 64 bits" not in str(error):
            raise
    return "too wide"


def test_booleans_count_in_columns_as_in_numbers() -> None:
    column = np.array([True, False])
    for text, expected in (("x + x", [2, 0]), ("-x", [-1, 0]), ("x * 3", [3, 0]), ("max(x, 0)", [1, 0])):
        assert Expression(text).evaluate({"x": column}).tolist() == expected
        assert [Expression(text).evaluate({"x": value}) for value in (True, False)] == expected


@pytest.mark.parametrize("text", ["x + 1", "-x", "abs(x)", "min(x, 1)", "ceil_div(x, 2)", "x if y else 1"])
@pytest.mark.parametrize("x", ["a", np.array(["a", "b"])], ids=["a name", "a column"])
def test_text_is_no_number(text: str, x: Any) -> None:
    with pytest.raises(ExpressionError, match=r"cannot work out .*(is no number|one branch is text)"):
        Expression(text).evaluate({"x": x, "y": np.array([True, False])})
