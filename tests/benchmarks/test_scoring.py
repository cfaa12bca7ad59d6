"""The score of a search: values worked out by hand, and what random, knowing and hopeless searches get."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from autotile.devices.replay.recording import Recording
from autotile.errors import UsageError

Made = Callable[..., Recording]


def test_the_budget_by_hand(made: Made) -> None:
    """Median 5.5: the budget ends at 1 + 4.5 × 0.05, which 1 of 10 reaches (10 / 1), and begins at 5.455 (6 / 5)."""
    from scoring import scale_of

    scale = scale_of(made([7, 3, 10, 1, 5.4, 9, 1.3, 8, 5.6, 5.3]))
    assert (scale.opt_ms, scale.median_ms, scale.evaluations, scale.budget_s) == (1, 5.5, 10, 10)
    assert (len(scale.times_s), scale.times_s[0], scale.times_s[-1]) == (50, 2, 10)
    assert np.ptp(np.diff(scale.times_s)) < 1e-9


def test_failures_cost_but_have_no_times(made: Made) -> None:
    """Five times with median 6, at costs whose median is 3 only with those of the failures."""
    from scoring import scale_of

    scale = scale_of(made([10, None, 8, None, 6, 4, None, 2], [1, 9, 1, 9, 1, 3, 9, 3]))
    assert (scale.opt_ms, scale.median_ms, scale.evaluations, scale.budget_s) == (2, 6, 5, 15)
    assert scale.times_s[0] == 2 * 3  # 4 of 5 come before the first at or under 5.96, which two are


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([0, 1, 2, 3], [9, 9, 9, 4, 4, 2, 2]),
        ([0, 1, 1, 1, 3], [9, 9, 9, 4, 2, 2, 2]),  # again costs nothing
        ([0], [9, 9, 9, 9, 9, 9, 9]),
        ([], [9, 9, 9, 9, 9, 9, 9]),
    ],
)
def test_a_curve_by_hand(made: Made, rows: list[int], found: list[float]) -> None:
    from scoring import curve

    recording = made([None, 4, 6, 2], [1, 2, 1, 1])
    times_s = np.asarray([0, 1, 2.9, 3, 4.5, 5, 99])
    assert curve(recording, rows, times_s, 9.0).tolist() == found


def test_the_baseline_is_what_random_search_finds(made: Made) -> None:
    """The least of k among 1 … 10 is 11 / (k + 1) in the mean."""
    from scoring import scale_of

    scale = scale_of(made([7, 3, 10, 1, 5, 9, 2, 8, 6, 4]))
    expected = 11 / (np.floor(scale.times_s + 1e-9) + 1)
    assert np.abs(scale.baseline_ms - expected).max() < 0.5
    assert np.abs(scale.baseline_ms - expected).mean() < 0.1


def test_a_score_by_hand(made: Made) -> None:
    """Found 4, 4, 2, 2: (5 − 4) / 4 and (3 − 4) / 2, and 0 / 1; the last time is left out, since all have it then."""
    from scoring import Scale, run_score

    scale = Scale(1.0, 5.0, 4, 4.0, np.asarray([1.0, 2, 3, 4]), np.asarray([5.0, 3, 2, 1]))
    assert run_score(made([4, 6, 2, 1]), scale, [0, 1, 2]) == pytest.approx((1 / 4 - 1 / 2 + 0) / 3)


def space_of(count: int) -> list[float | None]:
    """Times as kernels have them, of which every seventh fails."""
    times = np.random.default_rng(5).lognormal(0.0, 0.8, count)
    return [None if row % 7 == 3 else float(time) for row, time in enumerate(times)]


def test_random_search_scores_nothing_and_knowing_the_optimum_everything(made: Made) -> None:
    from scoring import run_score, scale_of

    recording = made(space_of(400))
    scale = scale_of(recording)

    def score(rows: Any) -> float:
        return run_score(recording, scale, rows)

    random = np.random.default_rng(1)
    scores = [score(random.permutation(len(recording))) for _ in range(400)]
    assert abs(np.mean(scores)) < 0.1  # the baseline's own error is some 0.03, this one's 0.02
    order = np.argsort(recording.time_ms)  # failures last
    assert score(order) == pytest.approx(1.0)
    assert score(order[::-1]) < -0.5
    good = [np.concatenate([random.permutation(order[:40]), order[40:]]) for _ in range(50)]
    assert 0.4 < np.mean([score(rows) for rows in good]) < 0.95


@pytest.mark.parametrize(
    ("times", "cost_s", "why"),
    [
        ([2.0, None, None], 1.0, "1 valid times"),
        ([2.0, 2.0, 2.0, 2.0], 1.0, "none better than their median"),
        ([1.0, 2.0, 3.0, 4.0], 0.0, "what evaluations cost"),
        ([1.0, 2.0, 3.0], 1.0, "the optimum at once"),
    ],
)
def test_spaces_that_tell_nothing_are_refused(made: Made, times: Sequence[Any], cost_s: float, why: str) -> None:
    from scoring import scale_of

    with pytest.raises(UsageError, match=why):
        scale_of(made(times, cost_s))


def test_how_many_evaluations_it_took(made: Made) -> None:
    from scoring import evaluations_within

    recording = made([5, None, 1.04, 1.01, 1])
    assert evaluations_within(recording, [0, 1, 0, 2, 3], 0.05) == 3
    assert evaluations_within(recording, [0, 1, 0, 2, 3], 0.02) == 4
    assert evaluations_within(recording, [0, 1, 2], 0.02) == math.inf
