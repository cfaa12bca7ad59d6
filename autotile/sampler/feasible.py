"""The default sampler, for any Optuna study over a feasible, discrete space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotile.sampler.model import Model
from autotile.sampler.rows import RowSampler
from autotile.sampler.told import Cost
from autotile.space import Space


class FeasibleSampler(RowSampler):
    """An Optuna sampler that proposes feasible configurations only, none twice, and needs no scale set by hand.

        space = autotile.space.space_of_rows(names, domains, codes)  # or build_space(kernel, problem, device)
        study = optuna.create_study(sampler=FeasibleSampler(space, seed=0), storage="sqlite:///tuning.db")
        study.optimize(lambda trial: time_of({n: trial.suggest_categorical(n, d) for n, d in …}), n_trials=200)

    It is Bayesian optimisation over the rows of the space (model.py tells how a row is chosen and where the ideas come
    from): a Gaussian process over distances between the parameters' values (gaussian.py), whose scales are fitted as
    trials come in; the target is half the logarithm of the time, half its rank; a failed trial teaches the chance to
    fail; costs, where trials have the user attributes `autotile:build_s` and `autotile:run_s`, favour what is cheap to
    try. Trials that run in parallel count as known to be what the model expects of them.

    `goal` is the number of trials at which the study will end, `derived` more columns to compare rows by (features.py),
    `built` the rows of which nothing is left to build, `first` what is proposed before all else.
    Times must be minimised; a failure is a trial in the state FAIL (or PRUNED).
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        *,
        first: Sequence[int] = (),
        goal: int | None = None,
        derived: np.ndarray[Any, Any] | None = None,
        built: Sequence[int] = (),
    ) -> None:
        super().__init__(space, first)
        self.model = Model(space, seed, goal, derived)
        self.model.mark_built(list(built))

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        return self.model.choose()

    def take(self, row: int) -> None:
        super().take(row)
        self.model.take(row)

    def learn(self, row: int, time_ms: float | None, cost: Cost | None) -> None:
        self.model.tell(row, time_ms, cost)
