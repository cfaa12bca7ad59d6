"""Which configuration next? A sampler decides, among the feasible rows not yet tried. The only module to import optuna.

The default is the model of model.py, which chooses rows. Optuna's own samplers know nothing of constraints: on a real
space most of what they propose is infeasible or has been seen. So each proposal is moved to the nearest feasible,
untried row of the table before Optuna hears of it. Either way the study holds exactly what was measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from autotile.space import Space
from autotile.tuner.model import Model
from autotile.types import Record, Value

optuna.logging.set_verbosity(optuna.logging.ERROR)  # progress is the command line's to show


class FeasibleSampler(BaseSampler):
    """An Optuna sampler of the rows of a space that have not been taken.

    A `model` chooses a row itself. `inner`, another Optuna sampler, proposes; its proposal goes to the nearest free row
    (numbers by rank, names and booleans by equality; ties at random). Without either, or while the inner one has no
    opinion yet, a free row is drawn at random, each equally likely; with `in_order`, the first free row is taken. Rows
    in `first` come before all others.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        inner: BaseSampler | None = None,
        in_order: bool = False,
        first: Sequence[int] = (),
        model: Model | None = None,
    ) -> None:
        self._space, self._inner, self._in_order, self._model = space, inner, in_order, model
        self._first = list(first)
        self._random = np.random.default_rng(seed)
        self._free = np.ones(len(space), bool)
        self.distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(domain) for name, domain in zip(space.names, space.domains, strict=True)
        }
        self._open = {name: d for name, d in self.distributions.items() if not d.single()}
        self._columns = [_Column(space.codes[:, p], domain) for p, domain in enumerate(space.domains)]

    @property
    def exhausted(self) -> bool:
        return not self._free.any()

    def take(self, row: int) -> None:
        """Marks a row as tried."""
        self._free[row] = False
        if self._model is not None:
            self._model.take(row)

    def learn(self, row: int, record: Record) -> None:
        """What came of a row that was taken. Optuna's own samplers learn from the study instead."""
        if self._model is not None:
            self._model.tell(row, record.time_ms if record.ok else None)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._space.configuration(self._choose(study, trial)))

    def sample_independent(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> Any:
        raise AssertionError(f"{name} was asked for outside the space")

    def _choose(self, study: Study, trial: FrozenTrial) -> int:
        while self._first:
            row = self._first.pop(0)
            if self._free[row]:
                return row
        if self._model is not None:
            return self._model.choose()
        if self._in_order:
            return int(np.argmax(self._free))
        proposal = self._inner.sample_relative(study, trial, self._open) if self._inner is not None else {}
        if len(proposal) < len(self._open) or not proposal:
            return int(self._random.choice(np.flatnonzero(self._free)))
        return self._nearest(proposal)

    def _nearest(self, proposal: dict[str, Any]) -> int:
        distance = np.where(self._free, np.float32(0), np.float32(np.inf))
        for p, name in enumerate(self._space.names):
            if name in proposal:
                code = self._space.domains[p].index(proposal[name])
                distance += self._columns[p].distance_from(code)
        nearest = np.flatnonzero(distance <= distance.min() + np.float32(1e-6))
        return int(self._random.choice(nearest))


class _Column:
    """A parameter's codes over all rows, and how far two of its values are apart: 1 at most."""

    def __init__(self, codes: np.ndarray[Any, Any], domain: tuple[Value, ...]) -> None:
        self._codes = np.ascontiguousarray(codes)
        self._ordered = all(isinstance(value, int) and not isinstance(value, bool) for value in domain)
        ranks = np.argsort(np.argsort(np.asarray(domain))) if self._ordered else np.arange(len(domain))
        self._places = ranks.astype(np.float32) / max(1, len(domain) - 1)

    def distance_from(self, code: int) -> np.ndarray[Any, Any]:
        """By rank for numbers, equal or not for names and booleans."""
        if self._ordered:
            table = np.abs(self._places - self._places[code])
        else:
            table = (np.arange(len(self._places)) != code).astype(np.float32)
        return np.asarray(table[self._codes])


class Strategy:
    """The ask and tell of one search, over an in-memory study that starts from what is on record.

    `goal`, the number of trials at which the search ends, and `derived`, more columns to compare rows by (see
    features.py), help the model; the other samplers do without.
    """

    def __init__(
        self,
        space: Space,
        sampler: str,
        seed: int,
        first: Sequence[int] = (),
        goal: int | None = None,
        derived: np.ndarray[Any, Any] | None = None,
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            inner = TPESampler(seed=seed, multivariate=True, constant_liar=True) if sampler == "tpe" else None
        model = Model(space, seed, goal, derived) if sampler == "model" else None
        self._sampler = FeasibleSampler(space, seed, inner, in_order=sampler == "grid", first=first, model=model)
        self._space = space
        self._rows: dict[int, int] = {}  # of the trials not yet told
        self._study = optuna.create_study(direction="minimize", sampler=self._sampler)

    @property
    def exhausted(self) -> bool:
        """True when every feasible configuration has been asked for or replayed."""
        return self._sampler.exhausted

    def ask(self) -> tuple[Trial, int]:
        """The next trial and its row. Only while not exhausted."""
        trial = self._study.ask(self._sampler.distributions)
        row = self._space.row_of(trial.params)
        assert row is not None, "the sampler chose outside the space"
        self._sampler.take(row)  # Optuna asks no sampler where every parameter has one value
        self._rows[trial.number] = row
        return trial, row

    def tell(self, trial: Trial, record: Record) -> None:
        """What came of a trial that was asked for."""
        self._sampler.learn(self._rows.pop(trial.number), record)
        if record.ok:
            self._study.tell(trial, record.time_ms)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def replay(self, row: int, record: Record) -> None:
        """Learns from a record of an earlier search; its row is not asked for again."""
        self._sampler.take(row)
        self._sampler.learn(row, record)
        self._study.add_trial(
            optuna.trial.create_trial(
                params=dict(self._space.configuration(row)),
                distributions=self._sampler.distributions,
                value=record.time_ms if record.ok else None,
                state=TrialState.COMPLETE if record.ok else TrialState.FAIL,
            )
        )
