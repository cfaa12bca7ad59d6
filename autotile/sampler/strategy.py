"""The ask and tell of one search, over an Optuna study that holds exactly what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import optuna
from optuna.trial import Trial, TrialState

from autotile.errors import UsageError
from autotile.sampler.feasible import FeasibleSampler
from autotile.sampler.nearest import LEARNS_ROWS, NearestSampler, optuna_sampler
from autotile.sampler.rows import BUILD_S, RUN_S, OrderedSampler, RowSampler, UniformSampler
from autotile.space import Space
from autotile.types import Record

optuna.logging.set_verbosity(optuna.logging.ERROR)  # progress is the command line's to show


class Strategy:
    """Chooses among the feasible rows of a space those not yet tried, by the sampler of a name.

    `first` is asked before all else. `goal`, the number of trials at which the search ends, `derived`, more columns to
    compare rows by (see features.py), and `built`, rows of which nothing is left to build, help the default sampler.
    Builders work `jobs` at a time: so much less does a compile count in what a trial costs. Without `costs`, choices do
    not depend on how long trials took, so that a seed gives the same ones again. The study is kept in
    `storage`, an address of Optuna's such as sqlite:///tuning.db, under `title`, or in memory.
    """

    def __init__(
        self,
        space: Space,
        sampler: str,
        seed: int,
        first: Sequence[int] = (),
        goal: int | None = None,
        derived: np.ndarray[Any, Any] | None = None,
        *,
        built: Sequence[int] = (),
        jobs: int = 1,
        costs: bool = True,
        storage: str | None = None,
        title: str | None = None,
    ) -> None:
        self._sampler: RowSampler
        if sampler == "model":
            self._sampler = FeasibleSampler(space, seed, first=first, goal=goal, derived=derived, built=built)
        elif sampler == "grid":
            self._sampler = OrderedSampler(space, first)
        elif sampler == "random":
            self._sampler = UniformSampler(space, seed, first)
        else:
            self._sampler = NearestSampler(
                space, optuna_sampler(sampler, seed), seed, first=first, learns_rows=sampler in LEARNS_ROWS
            )
        self._space, self._jobs, self._costs = space, jobs, costs
        self._storage = storage
        with self._stored():
            self._study = optuna.create_study(
                direction="minimize", sampler=self._sampler, storage=storage, study_name=title
            )

    @property
    def exhausted(self) -> bool:
        """True when every feasible configuration has been asked for or replayed."""
        return self._sampler.exhausted

    @property
    def expected_gain(self) -> float | None:
        """By how much of its time the best should still fall with the next trial; None where nobody can say."""
        if isinstance(self._sampler, FeasibleSampler):
            self._sampler.catch_up(self._study)
            return self._sampler.model.expected_gain()
        return None

    def ask(self) -> tuple[Trial, int]:
        """The next trial and its row. Only while not exhausted."""
        with self._stored():
            trial = self._study.ask(self._sampler.distributions)
        row = self._space.row_of(trial.params)
        assert row is not None, "the sampler chose outside the space"
        self._sampler.take(row)  # Optuna asks no sampler where every parameter has one value
        return trial, row

    def tell(self, trial: Trial, record: Record) -> None:
        """What came of a trial that was asked for."""
        with self._stored():
            for name, value in self._attributes(record).items():
                trial.set_user_attr(name, value)
            if record.ok:
                self._study.tell(trial, record.time_ms)
            else:
                self._study.tell(trial, state=TrialState.FAIL)

    def replay(self, row: int, record: Record) -> None:
        """Learns from a record of an earlier search; its row is not asked for again."""
        self._sampler.take(row)
        trial = optuna.trial.create_trial(
            params=dict(self._space.configuration(row)),
            distributions=self._sampler.distributions,
            value=record.time_ms if record.ok else None,
            state=TrialState.COMPLETE if record.ok else TrialState.FAIL,
            user_attrs=self._attributes(record),
        )
        with self._stored():
            self._study.add_trial(trial)

    @contextmanager
    def _stored(self) -> Iterator[None]:
        """Raises UsageError for whatever Optuna, SQLAlchemy or the database make of the storage."""
        try:
            yield
        except Exception as error:
            if self._storage is None:
                raise
            why = " ".join(str(error).split())
            raise UsageError(
                f"search.storage {self._storage!r} cannot be used: {type(error).__name__}: {why}"
            ) from error

    def _attributes(self, record: Record) -> dict[str, Any]:
        """What Optuna's dashboard shows beside the time."""
        facts: dict[str, Any] = {"outcome": record.outcome}
        if record.message:
            facts["message"] = record.message
        for name in ("registers", "spill_bytes", "static_shared_bytes"):
            if getattr(record, name) is not None:
                facts[name] = getattr(record, name)
        if record.launch is not None:
            facts["shared_bytes"], facts["threads"] = record.launch.shared_bytes, record.launch.threads
        if self._costs:
            facts[BUILD_S], facts[RUN_S] = record.build_s / self._jobs, record.check_s + record.measure_s
        return facts
