"""The default sampler by itself, in a study that is Optuna's: what a user of it alone may rely on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import Trial, TrialState, create_trial
from toy_spaces import SMALL, rows_of, small, space_where, study_of, suggested

from autotile.errors import ArgumentValueError
from autotile.sampler import FeasibleSampler
from autotile.sampler.rows import BUILD_S, RUN_S
from autotile.sampler.told import Cost
from autotile.space import Space


class Hearing(FeasibleSampler):
    """Keeps what it was told."""

    def __init__(self, space: Space, **options: Any) -> None:
        super().__init__(space, **options)
        self.heard: dict[int, float | None] = {}
        self.costs: list[Cost | None] = []

    def learn(self, row: int, time_ms: float | None, cost: Cost | None) -> None:
        assert row not in self.heard, "heard of twice"
        self.heard[row] = time_ms
        self.costs.append(cost)
        super().learn(row, time_ms, cost)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


def test_an_objective_gets_each_feasible_row_once_and_then_it_ends() -> None:
    space = small()
    study = study_of(FeasibleSampler(space))
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert sorted(rows_of(space, study.trials)) == list(range(11))  # type: ignore[type-var]
    assert study.best_value == 1.0


def test_no_warning_and_no_word(capfd: pytest.CaptureFixture[str]) -> None:
    space = small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study_of(FeasibleSampler(space)).optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=11)
    assert capfd.readouterr() == ("", "")


def test_threads_share_a_sampler() -> None:
    space = space_where({"a": tuple(range(1, 9)), "b": tuple(range(1, 9))})
    study = study_of(FeasibleSampler(space))
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=40, n_jobs=4)
    assert len(set(rows_of(space, study.trials))) == 40
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}


# ---- a storage that others share -----------------------------------------------------------------------------------


def tiny() -> Space:
    """6 rows: a database takes its time for each step of a trial."""
    return space_where({"a": (1, 2, 4), "b": (1, 2)})


def test_a_later_sampler_goes_on_from_what_is_stored(storage: str) -> None:
    space = tiny()
    study_of(FeasibleSampler(space, seed=1), storage).optimize(lambda t: 1.0 + suggested(space, t), n_trials=2)
    second = Hearing(space)
    study = study_of(second, storage)
    first = rows_of(space, study.trials)
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert sorted(rows_of(space, study.trials)) == list(range(6))  # type: ignore[type-var]
    assert {row: second.heard[row] for row in second.heard if row in first} == {row: 1.0 + row for row in first}  # type: ignore[operator]


def test_what_another_one_is_at_is_taken_and_heard_of_when_it_ends(storage: str) -> None:
    space = tiny()
    ours, theirs = Hearing(space, seed=1), Hearing(space, seed=2)
    our_study, their_study = study_of(ours, storage), study_of(theirs, storage)
    running = their_study.ask(theirs.distributions)
    their_row = space.row_of(running.params)
    our_study.optimize(lambda trial: 2.0 + suggested(space, trial), n_trials=3)
    assert their_row not in rows_of(space, [t for t in our_study.trials if t.number != running.number])
    assert their_row not in ours.heard
    their_study.tell(running, 0.5)
    our_study.optimize(lambda trial: 2.0 + suggested(space, trial), n_trials=50)
    assert sorted(rows_of(space, our_study.trials)) == list(range(6))  # type: ignore[type-var]
    assert ours.heard[their_row] == 0.5  # type: ignore[index]


def test_a_study_that_is_used_up_already_ends_after_a_trial() -> None:
    space, storage = tiny(), optuna.storages.InMemoryStorage()
    for _ in range(2):
        study = study_of(FeasibleSampler(space), storage)
        study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=30)
    assert len(study.trials) == 7
    assert space.row_of(study.trials[-1].params) == 0


# ---- what else may be in a study ------------------------------------------------------------------------------------


def test_what_lies_outside_the_space_is_passed_over() -> None:
    """Another value, an infeasible combination, another set of names, a value that cannot be looked up."""
    space = small()
    sampler = Hearing(space)
    study = study_of(sampler)
    for params in (
        {"tile": 128, "mode": "row", "pad": False, "settled": 7},
        {"tile": 64, "mode": "column", "pad": True, "settled": 7},
        {"tile": 8},
        {"other": 1},
    ):
        distributions = {name: CategoricalDistribution((value,)) for name, value in params.items()}
        study.add_trial(create_trial(params=params, distributions=distributions, value=1.0))
    study.add_trial(create_trial(params={}, distributions={}, state=TrialState.FAIL))
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert len(study.trials) == 5 + 11
    assert set(sampler.heard) < set(range(11))  # all but the last, which nobody asked after


def test_true_is_not_one() -> None:
    """A row of another type is another row, though Python's == would have it."""
    space = space_where({"count": (1, 0), "flag": (False, True)})
    study = study_of(FeasibleSampler(space))
    distributions = {"count": CategoricalDistribution((True, False)), "flag": CategoricalDistribution((1, 0))}
    study.add_trial(create_trial(params={"count": True, "flag": 1}, distributions=distributions, value=1.0))
    study = study_of(FeasibleSampler(space))
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert len(study.trials) == 4


def test_an_enqueued_trial_is_run_and_counts() -> None:
    space = small()
    sampler = Hearing(space)
    study = study_of(sampler)
    study.enqueue_trial(dict(space.configuration(7)))
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert space.row_of(study.trials[0].params) == 7
    assert sorted(rows_of(space, study.trials)) == list(range(11))  # type: ignore[type-var]


def test_one_that_is_enqueued_in_part_is_completed_by_a_free_row() -> None:
    space = small()
    study = study_of(FeasibleSampler(space, first=(3,)))
    for _ in range(3):
        study.enqueue_trial({"mode": "column"})
    study.optimize(lambda trial: 1.0 + suggested(space, trial), n_trials=50)
    assert [trial.params["mode"] for trial in study.trials[:3]] == ["column"] * 3
    assert rows_of(space, study.trials)[3] == 3
    assert sorted(rows_of(space, study.trials)) == list(range(11))  # type: ignore[type-var]


def test_a_parameter_that_is_not_of_the_space() -> None:
    space = small()

    def objective(trial: Trial) -> float:
        suggested(space, trial)
        return trial.suggest_float("extra", 0, 1)

    with pytest.raises(ValueError, match=r"'extra' with FloatDistribution.* is not one of the space: suggest_categ"):
        study_of(FeasibleSampler(space)).optimize(objective, n_trials=1)


def test_costs_are_heard_where_they_are_told() -> None:
    space = small()
    sampler = Hearing(space)
    study = study_of(sampler)
    for attributes in ({BUILD_S: 2.0, RUN_S: 0.5}, {BUILD_S: 2.0}, {}):
        trial = study.ask(sampler.distributions)
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        study.tell(trial, 1.0)
    study.ask(sampler.distributions)
    assert sampler.costs == [Cost(2.0, 0.5), None, None]


# ---- values ----------------------------------------------------------------------------------------------------------


def test_what_fails_is_heard_as_a_failure() -> None:
    """By its state, or because its value is no time."""
    space = small()
    sampler = Hearing(space)
    study = study_of(sampler)
    for state, value in (
        (TrialState.FAIL, None),
        (TrialState.PRUNED, None),
        (TrialState.COMPLETE, float("inf")),
        (TrialState.COMPLETE, 3.0),
    ):
        study.tell(study.ask(sampler.distributions), value, state=state)
    study.ask(sampler.distributions)
    assert list(sampler.heard.values()) == [None, None, None, 3.0]


@pytest.mark.parametrize("value", [0.0, -1.5])
def test_a_value_that_is_no_time_is_an_error(value: float) -> None:
    space = small()
    with pytest.raises(ArgumentValueError, match=f"trial 0 has the value {value}; the sampler learns times"):
        study_of(FeasibleSampler(space)).optimize(lambda trial: value + 0 * suggested(space, trial), n_trials=2)


def test_a_study_that_maximises_is_refused() -> None:
    sampler = FeasibleSampler(small())
    study = optuna.create_study(sampler=sampler, direction="maximize")
    with pytest.raises(ArgumentValueError, match="the study maximises; times are minimised"):
        study.ask(sampler.distributions)


def failing(seed: int, flags: tuple[bool, ...]) -> float:
    """The share of failures in the second half of 60 trials, where all with a flag in `flags` fail.

    The flag has no say in the time: only the failures tell. Times are rough, so that there always is something to be
    gained among those that are right.
    """
    numbers = (1, 2, 4, 8, 16, 32)
    space = space_where({"a": numbers, "b": numbers, "c": numbers, "d": numbers, "flag": (False, True)})
    rough = np.random.default_rng(7).lognormal(0, 0.4, len(space))
    study = study_of(FeasibleSampler(space, seed))

    def objective(trial: Trial) -> float:
        row = suggested(space, trial)
        values = space.configuration(row)
        if values["flag"] in flags:
            raise RuntimeError
        return float(rough[row] * (1 + sum(abs(numbers.index(int(values[name])) - 3) for name in "abcd")))

    study.optimize(objective, n_trials=60, catch=RuntimeError)
    return float(np.mean([trial.params["flag"] in flags for trial in study.trials[30:]]))


@pytest.mark.parametrize("seed", range(3))
def test_a_region_that_always_fails_is_left(seed: int) -> None:
    """Where failures are no matter, a third to two thirds of them fail."""
    assert failing(seed, (True,)) <= 0.2


def test_where_all_fails_the_search_goes_on() -> None:
    assert failing(0, (False, True)) == 1.0


# ---- beside Optuna's own tools --------------------------------------------------------------------------------------


def test_importances_of_a_study() -> None:
    """By the evaluator that is Optuna's default, which needs no package more: the tile decides, the rest does not."""
    space = space_where({**SMALL, "tile": (8, 16, 32, 64, 128, 256), "depth": (1, 2, 3, 4)})
    sampler = FeasibleSampler(space)
    study = study_of(sampler)
    study.optimize(lambda trial: 1.0 + int(space.configuration(suggested(space, trial))["tile"]), n_trials=60)
    importances = optuna.importance.get_param_importances(study)
    assert next(iter(importances)) == "tile"
    assert set(importances) >= {"mode", "pad", "depth"}


def test_what_it_proposes_is_what_its_strategy_proposes() -> None:
    """A seed gives the same through study.optimize and through ask and tell."""
    space = space_where({"a": tuple(range(1, 17)), "b": tuple(range(1, 17))})

    def time_of(row: int) -> float:
        return 1.0 + abs(row - 100) % 17

    study = study_of(FeasibleSampler(space, seed=3))
    study.optimize(lambda trial: time_of(suggested(space, trial)), n_trials=15)
    asked = FeasibleSampler(space, seed=3)
    other = study_of(asked)
    for _ in range(15):
        trial = other.ask(asked.distributions)
        other.tell(trial, time_of(space.row_of(trial.params)))  # type: ignore[arg-type]
    assert rows_of(space, study.trials) == rows_of(space, other.trials)
