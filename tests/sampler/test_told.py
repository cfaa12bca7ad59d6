"""What a model is to learn from times and failures."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from autotile.sampler.acquisition import log_chance
from autotile.sampler.told import Cost, Told, normal_quantiles


def told(*times_ms: float | None) -> Told:
    """Row 0 took the first, row 1 the second, and so on."""
    made = Told()
    for row, time_ms in enumerate(times_ms):
        made.tell(row, time_ms)
    return made


@pytest.mark.parametrize("times", [(3.0, 1.0, 2.0), (1.0, 1.0, 5.0), (1e-9, 1.0, 1e9, 2.0), (None, 2.0, 1.0, None)])
def test_targets_have_mean_0_and_deviation_1(times: tuple[float | None, ...]) -> None:
    targets = told(*times).targets(range(len(times)))
    assert targets.mean() == pytest.approx(0, abs=1e-12)
    assert targets.std() == pytest.approx(1)


def test_targets_keep_the_order_of_times() -> None:
    times = np.random.default_rng(0).lognormal(0, 2, 50)
    targets = told(*times).targets(range(50))
    assert np.argsort(targets).tolist() == np.argsort(times).tolist()
    equal = told(2.0, 1.0, 2.0, 3.0).targets(range(4))
    assert equal[0] == equal[2]


def test_targets_are_of_the_rows_that_are_asked_about() -> None:
    """In their order; their ranks are among all that was told."""
    some = told(*map(float, range(1, 21))).targets([17, 3, 9])
    assert some.mean() == pytest.approx(0, abs=1e-12)
    assert np.argsort(some).tolist() == [1, 2, 0]


def test_a_few_slow_rows_do_not_decide_the_scale() -> None:
    """Logarithms alone would put the first two 0.05 apart beside the million; ranks keep them further apart."""
    targets = told(1.0, 2.0, 4.0, 8.0, 1e6).targets(range(5))
    logs = np.log([1.0, 2.0, 4.0, 8.0, 1e6])
    assert targets[1] - targets[0] > 1.5 * (logs[1] - logs[0]) / logs.std()


def test_equal_times_are_no_fault() -> None:
    assert told(2.0, 2.0, 2.0).targets(range(3)).tolist() == [0.0, 0.0, 0.0]
    assert told(None, 2.0, 2.0).targets(range(3)) == pytest.approx([0.0, 0.0, 0.0])


def test_what_is_told_later_counts() -> None:
    made = told(4.0, 2.0, None)
    before = made.targets(range(3))
    made.tell(3, 1.0)
    assert made.targets(range(3)).tolist() == told(4.0, 2.0, None, 1.0).targets(range(3)).tolist() != before.tolist()


def test_a_failure_counts_as_the_median() -> None:
    """It is neither promising nor poor: that it fails is learnt apart."""
    made = told(1.0, 9.0, None, 3.0, None)
    targets = made.targets(range(5))
    assert targets[2] == targets[4] == pytest.approx(targets[3])
    assert made.log_times(range(5)) == pytest.approx(np.log([1.0, 9.0, 3.0, 3.0, 3.0]))
    assert made.successes(range(5)).tolist() == [1, 1, 0, 1, 0]
    assert made.failures == 2


def test_the_best_and_since_when() -> None:
    made = told(None, 4.0, 2.0, 2.0, 3.0)
    assert (made.best, made.best_at, len(made)) == (2, 2, 5)
    assert made.order() == [2, 3, 4, 1, 0]
    assert 3 in made
    assert 5 not in made


@pytest.mark.parametrize(
    ("times", "apart"), [((), False), ((1.0,), False), ((1.0, None), False), ((1.0, 1.0), False), ((1.0, 2.0), True)]
)
def test_two_times_tell_rows_apart(times: tuple[float | None, ...], apart: bool) -> None:
    assert told(*times).tells_apart == apart


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 1000, 5001])
def test_quantiles_are_near_exact(count: int) -> None:
    """Beyond 64 they are read off those of a number near by: the ends are off most, by as much as their ranks are."""
    exact = np.asarray([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])
    found = normal_quantiles(count)
    inner = slice(count // 20, count - count // 20)
    assert found[inner] == pytest.approx(exact[inner], abs=0.02)
    assert found == pytest.approx(exact, abs=0.2)
    assert (np.diff(found) >= 0).all()


# ---- costs and chances ----------------------------------------------------------------------------------------------


def test_what_is_saved_by_having_been_built() -> None:
    made = Told()
    assert made.log_saving == 0.0
    assert made.log_costs([0]) is None
    for row, cost in enumerate((Cost(3.0, 1.0), Cost(5.0, 1.0), None, Cost(0.0, 0.0))):
        made.tell(row, 1.0, cost)
    assert made.log_saving == pytest.approx(math.log(2 / 10))
    assert made.log_costs(range(4)) == pytest.approx(np.log([4, 6, 5, 5]))  # where it is not known, the median


def test_what_is_saved_has_a_floor() -> None:
    made = Told()
    made.tell(0, 1.0, Cost(1e6, 0.0))
    assert made.log_saving == pytest.approx(math.log(0.01))


def test_only_what_will_likely_fail_is_held_against_a_row() -> None:
    means, deviations = np.asarray([1.0, 0.5, 0.3, 0.0, 0.0]), np.asarray([0.1, 0.3, 0.3, 0.25, 0.07])
    chances = [
        NormalDist(mean, s).cdf(1e9) - NormalDist(mean, s).cdf(0.5) for mean, s in zip(means, deviations, strict=True)
    ]
    held = log_chance(means, deviations)
    assert held[:2] == pytest.approx([0.0, 0.0])
    assert held[2:4] == pytest.approx(np.log(np.asarray(chances[2:4]) * 3), abs=1e-2)
    far = log_chance(np.zeros(3), np.asarray([0.5 / 11.9, 0.5 / 12.1, 0.5 / 100]))
    assert held[4] > far[0] > far[1] > far[2] > -6000
    assert far[0] - far[1] < 3  # no jump where the table ends
