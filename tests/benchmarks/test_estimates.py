"""benchmarks/estimates.py: what it tells of pairs of times, and its table."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def estimates() -> Any:
    return importlib.import_module("estimates")


@pytest.mark.parametrize(
    ("one", "other", "correlation"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 2, 3], [1, 5, 5, 9], 1.0),  # equal ones share a rank
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),
        ([1, 2, 3, 4], [1, 1, 3, 4], 0.9486832980505138),
    ],
)
def test_ranks_are_compared(estimates: Any, one: list[float], other: list[float], correlation: float) -> None:
    assert estimates.rank_correlation(np.array(one), np.array(other)) == pytest.approx(correlation)


def test_the_first_by_estimate_are_held_against_the_best(estimates: Any) -> None:
    measured = [1.0 + 0.01 * i for i in range(100)]
    found = estimates.told(measured, measured)
    assert found["correlation"] == pytest.approx(1.0)
    assert (found["best_behind"], found["within"], found["met"]) == (0.0, 1.0, True)
    turned = estimates.told(measured, measured[::-1])
    assert turned["best_behind"] == pytest.approx(0.8)  # the first 20 by estimate are the 20 slowest
    assert not turned["met"]
    late = [*measured[1:], 0.5]  # the best of all is estimated to be the slowest
    assert not estimates.told(late, [*measured[1:], 9.0])["met"]


def test_the_table_says_what_was_missed(estimates: Any) -> None:
    measured = [1.0 + 0.01 * i for i in range(100)]
    cases = [
        {"kernel": "walk", "problem": name, **estimates.told(measured, estimated)}
        for name, estimated in (("right", measured), ("wrong", measured[::-1]))
    ]
    document = {"first": 20, "asked": {"correlation": 0.8, "behind": 0.1}, "cases": cases}
    *_, right, wrong = estimates.estimates_table(document)
    assert right == "| walk right | 100 | 1.000, 1.495, 1.990 | 1.00 | 0.0% | 100% |"
    assert "| -1.00: missed |" in wrong
