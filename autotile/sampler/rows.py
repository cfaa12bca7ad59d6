"""Optuna samplers of a table's rows: what all of them share. One that chooses is a subclass with a `choose`."""

from __future__ import annotations

import contextlib
import math
import threading
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from autotile.errors import ArgumentValueError
from autotile.sampler.told import Cost
from autotile.space import Space

BUILD_S, RUN_S = "autotile:build_s", "autotile:run_s"
"""User attributes of a trial: what it cost. A study made elsewhere may do without."""


class RowSampler(BaseSampler):
    """Proposes rows of a space that no trial of the study has taken.

    What has been tried it learns from the study alone, before each proposal: from trials of other processes in a shared
    storage too, from ones that were added by hand, and from those still running, which count as taken. A trial of
    parameters outside the space is passed over. Rows in `first` come before all others. A trial that was enqueued with
    values for some parameters gets the first free row that has them. When every row has been taken, `study.optimize` is
    stopped; who asks on gets the first row again. Several threads may ask (`n_jobs`), one at a time.

    Asking raises ArgumentValueError for a study that maximises, and for values that are no times: they are more than 0.
    """

    def __init__(self, space: Space, first: Sequence[int] = ()) -> None:
        self.space = space
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(domain) for name, domain in zip(space.names, space.domains, strict=True)
        }
        self.free = np.ones(len(space), bool)
        self._first = list(first)
        self._heard = 0
        """Trials of the study that were looked at, by number: all below are known but for the `_unheard`."""
        self._unheard: set[int] = set()
        self._asking = threading.Lock()

    # ---- for subclasses ------------------------------------------------------------------------------------------

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """A free row. There is one."""

    def take(self, row: int) -> None:
        """A row has been asked for, here or elsewhere."""
        self.free[row] = False

    def learn(self, row: int, time_ms: float | None, cost: Cost | None) -> None:
        """What came of a row that was taken: its time, None for a failure."""

    # ---- Optuna's side -------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """True when every row has been taken."""
        return not self.free.any()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if study.direction != StudyDirection.MINIMIZE:
            raise ArgumentValueError("the study maximises; times are minimised: create_study(direction='minimize')")
        with self._asking:
            self.catch_up(study, trial.number)
            row = 0 if self.exhausted else self._next(study, trial)
            self.take(row)
            return dict(self.space.configuration(row))

    def sample_independent(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
        raise ValueError(
            f"the parameter {name!r} with {distribution} is not one of the space: suggest_categorical with the domains "
            "of the sampler's `distributions`"
        )

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        if self.exhausted:
            with contextlib.suppress(RuntimeError):  # it is being asked and told, by someone who can see for himself
                study.stop()

    def catch_up(self, study: Study, current: int = -1) -> None:
        """Hears of every trial but the current one that has not been heard of, or was running when it was."""
        trials = study.get_trials(deepcopy=False)
        numbers = sorted(self._unheard | set(range(self._heard, len(trials))))
        self._heard = len(trials)
        self._unheard = {number for number in numbers if not self._hears(trials[number], number == current)}

    def _hears(self, trial: FrozenTrial, current: bool) -> bool:
        """Whether there is nothing more to hear of a trial."""
        row = None if current else self._row_of(trial)
        if row is not None and self.free[row]:
            self.take(row)
        if not trial.state.is_finished():
            return False
        if row is not None:
            self.learn(row, _time_of(trial), _cost_of(trial))
        return True

    def _row_of(self, trial: FrozenTrial) -> int | None:
        try:
            return self.space.row_of(trial.params)
        except TypeError:  # a value that is no parameter's: a list, say
            return None

    def _next(self, study: Study, trial: FrozenTrial) -> int:
        if fixed := trial.system_attrs.get("fixed_params"):  # Optuna's own key of what a trial was enqueued with
            row = self._free_with(fixed)
            if row is not None:
                return row
        while self._first:
            row = self._first.pop(0)
            if self.free[row]:
                return row
        return self.choose(study, trial)

    def _free_with(self, fixed: Mapping[str, Any]) -> int | None:
        """The first free row with these values; None where there is none."""
        agrees = self.free.copy()
        for p, name in enumerate(self.space.names):
            if name in fixed:
                same = np.asarray([value == fixed[name] for value in self.space.domains[p]])
                agrees &= same[self.space.codes[:, p]]
        return int(np.argmax(agrees)) if agrees.any() else None


def _time_of(trial: FrozenTrial) -> float | None:
    """None for a failure, such as a value that is infinite."""
    if trial.state != TrialState.COMPLETE or not trial.values or not math.isfinite(trial.values[0]):
        return None
    if trial.values[0] <= 0:
        raise ArgumentValueError(
            f"trial {trial.number} has the value {trial.values[0]}; the sampler learns times, which are more than 0"
        )
    return float(trial.values[0])


def _cost_of(trial: FrozenTrial) -> Cost | None:
    build_s, run_s = trial.user_attrs.get(BUILD_S), trial.user_attrs.get(RUN_S)
    return None if build_s is None or run_s is None else Cost(float(build_s), float(run_s))


class OrderedSampler(RowSampler):
    """The rows in their order: all combinations of a grid, if the trials suffice."""

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        return int(np.argmax(self.free))


class UniformSampler(RowSampler):
    """Any free row, each equally likely."""

    def __init__(self, space: Space, seed: int = 0, first: Iterable[int] = ()) -> None:
        super().__init__(space, tuple(first))
        self._random = np.random.default_rng(seed)

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        return int(self._random.choice(np.flatnonzero(self.free)))
