"""What trying a row costs has a say in which is tried, and what is still to be gained in when to stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_strategy import record
from toy_spaces import space_where

from autotile.sampler.model import Model
from autotile.sampler.strategy import Strategy
from autotile.sampler.told import Cost
from autotile.space import Space

NUMBERS = (1, 2, 4, 8, 16, 32)


def flagged() -> Space:
    """6 × 6 × 6 numbers, twice: with a flag and without."""
    return space_where({"a": NUMBERS, "b": NUMBERS, "c": NUMBERS, "flag": (False, True)})


def time_of(space: Space, row: int) -> float:
    """The flag has no say in it."""
    return float(1 + 0.3 * np.abs(space.codes[row, :3].astype(int) - (4, 1, 2)).sum())


def informed(
    cost_of: Callable[[int], Cost | None], built: list[int] | None = None, pairs: int = 15, fails: bool = False
) -> tuple[Space, Model]:
    """A model that knows some pairs of rows, which differ in the flag alone; with `fails`, all with the flag do."""
    space = flagged()
    model = Model(space, 0)
    model.mark_built(built or [])
    for start in np.random.default_rng(1).choice(len(space) // 2, pairs, replace=False).tolist():
        for row in (2 * start, 2 * start + 1):
            model.take(row)
            model.tell(row, None if fails and row % 2 else time_of(space, row), cost_of(row))
    return space, model


def chosen(space: Space, model: Model, cost_of: Callable[[int], Cost | None], count: int = 10) -> list[int]:
    rows = []
    for _ in range(count):
        rows.append(model.choose())
        model.take(rows[-1])
        model.tell(rows[-1], time_of(space, rows[-1]), cost_of(rows[-1]))
    return rows


@pytest.mark.parametrize("cheap", [0, 1])
def test_of_two_that_promise_the_same_the_cheap_one_comes_first(cheap: int) -> None:
    def cost_of(row: int) -> Cost:
        return Cost(0.1, 0.1) if row % 2 == cheap else Cost(5.0, 5.0)

    rows = chosen(*informed(cost_of), cost_of)
    assert sum(row % 2 == cheap for row in rows) >= 8


def test_the_cost_is_not_all() -> None:
    """What is dear and much better is tried all the same: the best row of all is among them."""
    space = flagged()
    model = Model(space, 0, goal=120)
    times = []
    for _ in range(120):
        row = model.choose()
        model.take(row)
        times.append(time_of(space, row) + (0.0 if row % 2 else 2.0))
        model.tell(row, times[-1], Cost(5.0, 5.0) if row % 2 else Cost(0.1, 0.1))
    assert min(times) == 1.0


@pytest.mark.parametrize("built", [0, 1])
def test_what_is_built_already_comes_first(built: int) -> None:
    """All cost the same, and most of it is the compiler's work."""

    def cost_of(row: int) -> Cost:
        return Cost(2.0, 0.1)

    rows = chosen(*informed(cost_of, list(range(built, len(flagged()), 2))), cost_of)
    assert sum(row % 2 == built for row in rows) >= 8


def asks(costs: bool, seconds: Callable[[int], float], trials: int = 40) -> list[int]:
    space = flagged()
    strategy, rows = Strategy(space, "model", 3, costs=costs, jobs=2), []
    for i in range(trials):
        trial, row = strategy.ask()
        seen = record(space.configuration(row), time_of(space, row))
        strategy.tell(trial, replace(seen, build_s=seconds(i), check_s=seconds(i + 1), measure_s=0.1))
        rows.append(row)
    return rows


def test_a_seed_repeats_whatever_trials_took_unless_costs_count() -> None:
    def calm(i: int) -> float:
        return 1.0

    def busy(i: int) -> float:
        return 10.0 ** (i * 7 % 5)

    assert asks(False, calm) == asks(False, busy)
    assert asks(True, calm) != asks(True, busy)


# ---- what is still to be gained -------------------------------------------------------------------------------------


def test_what_is_to_be_gained_falls_to_nothing() -> None:
    space = space_where({"a": NUMBERS, "b": NUMBERS, "c": NUMBERS})
    strategy = Strategy(space, "model", 0)
    gains = []
    while not strategy.exhausted:
        trial, row = strategy.ask()
        gains.append(strategy.expected_gain)
        strategy.tell(trial, record(space.configuration(row), time_of(space, row)))
    assert gains[0] is None
    known = [gain for gain in gains if gain is not None]
    assert len(known) >= len(space) - 3
    assert min(known[:5]) > 0.01  # a gain of a per cent and more
    assert 1e-3 > max(known[100:150]) >= max(known[200:])
    assert known[-1] == 0.0  # the last row was taken


def test_what_is_to_be_gained_is_known_as_soon_as_two_times_are_told() -> None:
    """Not with the next ask: a search looks at it before."""
    space = flagged()
    strategy = Strategy(space, "model", 0)
    for time_ms in (2.0, 1.0):
        assert strategy.expected_gain is None
        trial, row = strategy.ask()
        strategy.tell(trial, record(space.configuration(row), time_ms))
    assert strategy.expected_gain is not None


def test_there_is_nothing_to_be_gained_where_all_the_rest_fails() -> None:
    """What would be gained counts by the chance that it is right: all that is free has the flag that fails."""
    gains = []
    for fails in (False, True):
        space, model = informed(lambda row: None, pairs=6, fails=fails)
        model.choose()
        for row in range(0, len(space), 2):
            model.take(row)
        gains.append(model.expected_gain())
    assert gains[0] > 0.01
    assert gains[1] < 2e-5  # by the times alone it would be 4e-4


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_who_has_no_model_expects_nothing(sampler: str) -> None:
    strategy = Strategy(flagged(), sampler, 0)
    trial, row = strategy.ask()
    strategy.tell(trial, record(flagged().configuration(row), 1.0))
    strategy.ask()
    assert strategy.expected_gain is None
