"""Optuna's own samplers on a table of feasible rows: each proposal is moved to the nearest row that is free.

They know nothing of constraints: on a real space most of what they propose is infeasible, or has been tried.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import optuna
from optuna import samplers
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotile.errors import EnvironmentalError
from autotile.sampler.rows import RowSampler
from autotile.sampler.told import Cost
from autotile.space import Space
from autotile.types import Value

OPTUNA: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
    "gp": lambda seed: samplers.GPSampler(seed=seed),
    "cmaes": lambda seed: samplers.CmaEsSampler(seed=seed),
    "nsgaii": lambda seed: samplers.NSGAIISampler(seed=seed),
    "nsgaiii": lambda seed: samplers.NSGAIIISampler(seed=seed),
    "qmc": lambda seed: samplers.QMCSampler(seed=seed),
}
"""Those of Optuna that propose where to look, by the name on the command line. Its random, grid and brute-force
ones are `random` and `grid` here: over feasible rows there is nothing to add to these."""


def optuna_sampler(name: str, seed: int) -> BaseSampler:
    """The sampler of that name. Raises EnvironmentalError when a package that it needs is not installed."""
    missing = [package for package in NEEDS.get(name, ()) if find_spec(package) is None]
    if missing:
        raise EnvironmentalError(
            f"Optuna's sampler {name!r} needs {' and '.join(missing)}, which autotile does not: "
            f"`pip install {' '.join(missing)}`, or leave search.sampler out for the default"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return OPTUNA[name](seed)


NEEDS = {"gp": ("torch", "scipy"), "cmaes": ("cmaes",), "qmc": ("scipy",)}
"""Packages that Optuna itself imports for a sampler only when that is used."""

LEARNS_ROWS = ("tpe", "gp")
"""Those that learn from any trial of a study. The others know their own proposals only, by marks that they set."""


class NearestSampler(RowSampler):
    """Asks `inner` where to look, and takes the nearest free row.

    Numbers are as far apart as their ranks, names and booleans equal or not; ties are broken at random. The inner
    sampler works on a study of its own, in which numbers are integers from 0 (their ranks), so that a sampler of
    numbers alone can be used. With `learns_rows` that study holds the rows that were taken; else it holds the sampler's
    own proposals, each with the result of the row that was taken in its stead.
    """

    def __init__(
        self, space: Space, inner: BaseSampler, seed: int = 0, *, first: Sequence[int] = (), learns_rows: bool = True
    ) -> None:
        super().__init__(space, first)
        self._random = np.random.default_rng(seed)
        self._inner = optuna.create_study(direction="minimize", sampler=inner)
        self._columns = [_Column(space.codes[:, p], domain) for p, domain in enumerate(space.domains)]
        self._open = {f"p{p}": c.distribution for p, c in enumerate(self._columns) if len(space.domains[p]) > 1}
        self._learns_rows = learns_rows
        self._numbers: dict[int, int] = {}
        """Of the inner study's running trials, by row."""

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a sampler falls back to another, which Optuna says at each ask
            asked = self._inner.ask(self._open)
            row = self._nearest({name: int(value) for name, value in asked.params.items()})
            if self._learns_rows:
                self._inner.tell(asked, state=TrialState.FAIL)
                self._numbers[row] = self._add(row, None, TrialState.RUNNING)
            else:
                self._numbers[row] = asked.number
        return row

    def learn(self, row: int, time_ms: float | None, cost: Cost | None) -> None:
        state = TrialState.COMPLETE if time_ms is not None else TrialState.FAIL
        number = self._numbers.pop(row, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if number is None:
                self._add(row, time_ms, state)
            else:
                self._inner.tell(number, time_ms, state=state)

    def _add(self, row: int, time_ms: float | None, state: TrialState) -> int:
        """Puts a row into the inner study; gives its number there."""
        places = {f"p{p}": int(c.places[c.codes[row]]) for p, c in enumerate(self._columns) if f"p{p}" in self._open}
        trial = optuna.trial.create_trial(params=places, distributions=self._open, value=time_ms, state=state)
        self._inner.add_trial(trial)
        return len(self._inner.get_trials(deepcopy=False)) - 1

    def _nearest(self, places: dict[str, int]) -> int:
        distance = np.where(self.free, np.float32(0), np.float32(np.inf))
        for p, column in enumerate(self._columns):
            if f"p{p}" in places:
                distance += column.distance_from(places[f"p{p}"])
        return int(self._random.choice(np.flatnonzero(distance <= distance.min() + np.float32(1e-6))))


class _Column:
    """A parameter's codes over all rows, the place of each value, and how far two places are apart: 1 at most."""

    def __init__(self, codes: np.ndarray[Any, Any], domain: tuple[Value, ...]) -> None:
        self.codes = np.ascontiguousarray(codes)
        self._ordered = all(isinstance(value, int) and not isinstance(value, bool) for value in domain)
        self.places = np.argsort(np.argsort(np.asarray(domain))) if self._ordered else np.arange(len(domain))

    @property
    def distribution(self) -> BaseDistribution:
        if self._ordered:
            return IntDistribution(0, len(self.places) - 1)
        return CategoricalDistribution(tuple(range(len(self.places))))

    def distance_from(self, place: int) -> np.ndarray[Any, Any]:
        """By rank for numbers, equal or not for names and booleans."""
        if self._ordered:
            table = (np.abs(self.places - place) / max(1, len(self.places) - 1)).astype(np.float32)
        else:
            table = (self.places != place).astype(np.float32)
        return np.asarray(table[self.codes])
