"""A sampler that learns, over feasible rows: a model says what to expect of each row, and how little is known of it.

Bayesian optimisation (Jones, Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box Functions, 1998)
over the rows of a table rather than over a box, so that all it proposes is feasible and new. The model is the Gaussian
process of gaussian.py. What is asked for and not yet told counts as known to be what the model expects, so that asks
ahead spread out. A failure counts as the worst time seen.

- The first asks, until two different times are told, spread over the values of each parameter.
- A large table is looked at through some thousands of candidates: random rows, all rows within two parameters of the
  best, and the neighbours of those that the model likes best, found anew whenever the best or the model changes.
- A candidate's score is its expected improvement on the best, by a margin; in between come a Thompson draw (Thompson,
  1933) and the model's mean, since no one score is best at all times.
- It is not believed about the closest rows, as it can be sure and wrong: towards the end, and whenever the best has
  stood for long, all that differ from the best in one parameter are tried first, in the order of the model's mean;
  then the same from each new best. So what a search ends with is the best of its neighbourhood, unless it came so late
  that the goal was reached before.
- The last asks are what the model thinks fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from autotile.space import Space
from autotile.tuner.candidates import Neighbourhood
from autotile.tuner.gaussian import Posterior, Scales, Terms, fit

Array = np.ndarray[Any, Any]

MOST_CANDIDATES = 4000
RANDOM_CANDIDATES = 1500
LEADERS = 3
"""The best rows so far, whose surroundings are always candidates."""

LIKED = 30
"""Candidates that the model likes best, whose neighbours become candidates too; twice, so that it can climb."""

MOST_KNOWN = 300
"""Rows that the model is conditioned on: the best, and some at random of the rest."""

FITTED = 150
"""Rows that its scales are fitted to, likewise."""

GROWTH = 1.2
"""The scales are fitted anew when this many times as many trials are told."""

DESIGN = 500
"""Rows among which the first asks choose."""

MARGIN = 0.1
"""Standard deviations of the targets by which a row should improve on the best."""

MIXED_AFTER = 60
MIX = ("improvement", "improvement", "draw", "mean")
CLOSING, SWEEPING, LAST = 0.6, 0.75, 0.9
"""Shares of the goal: after the first, improvements count without a margin; after the second, the neighbours of the
best come first; after the third, the mean alone counts."""

STANDING = 60
"""Trials told since the best, after which its neighbours come first as well."""


class Model:
    """Chooses rows. `take` says what is asked for, `tell` how long it took; both may come from an earlier search.

    `goal` is the number of rows at which the search will end, if that is known. `derived` holds more columns to
    compare rows by, rows × columns, each from 0 to 1. The same seed, takes and tells give the same choices.
    """

    def __init__(self, space: Space, seed: int, goal: int | None = None, derived: Array | None = None) -> None:
        self._codes, self._goal = space.codes, goal
        self._random = np.random.default_rng(seed)
        self._free = np.ones(len(space), bool)
        self._uses = [np.zeros(len(domain), np.int64) for domain in space.domains]
        self._pending: dict[int, None] = {}
        self._times: dict[int, float] = {}  # ms; infinite for a failure
        self._different: set[float] = set()
        self._best = self._best_at = -1  # the fastest row told, and how many were told before it
        self._libraries = ThreadpoolController()
        self._graph = Neighbourhood(space)
        self._terms = Terms(space.domains, space.codes, derived)
        self._scales = Scales.prior(self._terms)
        self._fits = self._fitted_to = 0
        self._posterior: Posterior | None = None
        self._known: list[int] = []  # the rows that the posterior is conditioned on, in its order
        self._news: list[int] = []  # told since
        self._leaders: list[int] = []
        self._candidates = self._liked = np.empty(0, np.int64)

    def take(self, row: int) -> None:
        """Marks a row as asked for."""
        if self._free[row]:
            self._free[row] = False
            self._pending[row] = None
            for p, uses in enumerate(self._uses):
                uses[self._codes[row, p]] += 1

    def tell(self, row: int, time_ms: float | None) -> None:
        """The time of a row that was taken; None when it failed."""
        self._pending.pop(row, None)
        self._news.append(row)
        if time_ms is not None:
            self._different.add(time_ms)
            if time_ms < self._times.get(self._best, math.inf):
                self._best, self._best_at = row, len(self._times)
        self._times[row] = math.inf if time_ms is None else time_ms

    def choose(self) -> int:
        """A free row. There must be one."""
        if len(self._different) < 2:
            return self._spread()
        # Compilers keep every core busy meanwhile: threads of small products would wait for each other.
        with self._libraries.limit(limits=1, user_api="blas"):
            posterior = self._updated()
            kind, margin, among = self._turn()
            open_ = self._free[self._candidates]
            if among is not None:
                open_ &= np.isin(self._candidates, among)
            if not open_.any():
                return int(self._random.choice(np.flatnonzero(self._free) if among is None else among))
            scores = self._scores(posterior, kind, margin)
            return int(self._candidates[np.argmax(np.where(open_, scores, -np.inf))])

    def _spread(self) -> int:
        """Of some free rows, one whose values have been used least."""
        free = np.flatnonzero(self._free)
        some = free if len(free) <= DESIGN else self._random.choice(free, DESIGN, replace=False)
        used = self._random.random(len(some))  # below 1: decides among equals
        for p, uses in enumerate(self._uses):
            used += uses[self._codes[some, p]]
        return int(some[np.argmin(used)])

    # ---- whose turn it is, and how good a candidate is -----------------------------------------------------------

    def _turn(self) -> tuple[str, float, Array | None]:
        """The score that is in turn, the margin of an improvement, and the free rows to choose among if not all."""
        taken = len(self._times) + len(self._pending)
        share = taken / self._goal if self._goal else 0.0
        if share >= SWEEPING or len(self._times) - self._best_at >= STANDING:
            near = self._graph.of(self._best)
            near = near[self._free[near]]
            if len(near):
                return "mean", 0.0, near
        if share >= LAST:
            return "mean", 0.0, None
        if share >= CLOSING:
            return "improvement", 0.0, None
        return MIX[taken % len(MIX)] if len(self._times) > MIXED_AFTER else MIX[0], MARGIN, None

    def _scores(self, posterior: Posterior, kind: str, margin: float) -> Array:
        targets = self._targets(self._known)
        mean = posterior.mean(targets)
        if kind == "mean":
            return -mean
        deviation = posterior.deviation(np.fromiter(self._pending, np.int64))
        if kind == "draw":
            return np.asarray(-mean - deviation * self._random.standard_normal(len(mean)))
        return _log_improvement(targets.min() - margin - mean, deviation)

    def _targets(self, rows: Sequence[int]) -> Array:
        """What the model learns for some told rows, with mean 0 and deviation 1 among them; less is better.

        Half the logarithm of the time, half the normal quantile of its rank: the one tells how much better a row is,
        the other keeps a few very slow rows from deciding the scale.
        """
        every = np.fromiter(self._times.values(), float, len(self._times))
        worst = max(self._different)
        every = np.sort(np.log(np.minimum(every, worst)))
        logs = np.log(np.minimum([self._times[row] for row in rows], worst))
        rank = (np.searchsorted(every, logs, "left") + np.searchsorted(every, logs, "right")) / 2
        normal = np.interp(rank, np.arange(len(every)) + 0.5, _quantiles(len(every)))
        mixed = normal + (logs - every.mean()) / max(1e-9, float(every.std()))
        return np.asarray((mixed - mixed.mean()) / max(1e-9, float(mixed.std())))

    # ---- what the model knows, and of which rows it is asked -----------------------------------------------------

    def _updated(self) -> Posterior:
        """The posterior of what has been told; anew when the best, or the number told, has moved on."""
        told = len(self._times)
        refit = told >= max(self._fitted_to + 2, GROWTH * self._fitted_to)
        if self._news or self._posterior is None:
            order = sorted(self._times, key=self._times.__getitem__)
            moved = order[:LEADERS] != self._leaders
            if self._posterior is None or refit or moved or len(self._known) + len(self._news) > 1.5 * MOST_KNOWN:
                self._leaders = order[:LEADERS]
                self._posterior = self._rebuilt(order, refit)
            else:
                for row in self._news:
                    self._posterior.add(row)
                    self._known.append(row)
            self._news.clear()
        return self._posterior

    def _rebuilt(self, order: list[int], refit: bool) -> Posterior:
        """From the told rows, the best first."""
        if refit:
            self._refit(self._some(order, FITTED, 0.5))
        self._known = self._some(order, MOST_KNOWN, 0.7)
        if len(self._free) <= MOST_CANDIDATES:
            return self._conditioned(np.flatnonzero(self._free))
        at_random = self._random.integers(len(self._free), size=RANDOM_CANDIDATES)
        around = [self._graph.within_two(row) for row in self._leaders]
        posterior = self._conditioned(np.concatenate([at_random, self._liked, *around]))
        for _ in range(2):
            targets = self._targets(self._known)
            deviation = posterior.deviation(np.empty(0, np.int64))
            scores = _log_improvement(targets.min() - MARGIN - posterior.mean(targets), deviation)
            best = self._candidates[np.argsort(-scores, kind="stable")[:MOST_CANDIDATES]]
            self._liked = best[:LIKED]
            near = [self._graph.of(int(row)) for row in (*self._liked, *self._leaders)]
            posterior = self._conditioned(np.concatenate([best, *near]))
        return posterior

    def _conditioned(self, candidates: Array) -> Posterior:
        candidates = np.unique(candidates)
        self._candidates = candidates[self._free[candidates]]
        return Posterior(self._terms, self._scales, self._candidates, np.asarray(self._known))

    def _refit(self, rows: list[int]) -> None:
        """The scales from where they are, and every other time from a random place too: there may be several maxima."""
        self._fits += 1
        self._fitted_to = len(self._times)
        starts = [self._scales]
        if self._fits % 2 == 0:
            prior = Scales.prior(self._terms).logs
            starts.append(Scales(prior + self._random.standard_normal(len(prior))))
        self._scales = fit(self._terms, np.asarray(rows), self._targets(rows), starts)

    def _some(self, order: list[int], most: int, share: float) -> list[int]:
        """At most so many of the rows: the best, as a share of them, and others at random."""
        if len(order) <= most:
            return list(order)
        best = int(most * share)
        rest = self._random.choice(np.arange(best, len(order)), most - best, replace=False)
        return order[:best] + [order[i] for i in rest]


@lru_cache(maxsize=1)
def _quantiles(count: int) -> Array:
    """The normal quantiles of so many evenly spaced ranks."""
    normal = NormalDist()
    return np.asarray([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


def _log_gain(z: float) -> float:
    """log(z·Φ(z) + φ(z)): of the improvement expected of a standard normal beyond −z."""
    return math.log(z * math.erfc(-z / math.sqrt(2)) / 2 + math.exp(-z * z / 2) / math.sqrt(2 * math.pi))


_GRID = np.linspace(-12, 12, 24 * 64 + 1)
_GAINS = np.asarray([_log_gain(float(z)) for z in _GRID])


def _log_improvement(lead: Array, deviation: Array) -> Array:
    """The logarithm of the expected improvement; `lead` is by how much the mean is better than what is to be beaten.

    From a table, with a straight line below it, where improvements are too unlikely for their order to matter.
    """
    z = lead / deviation
    return np.asarray(np.log(deviation) + np.interp(z, _GRID, _GAINS) + 12 * np.minimum(0, z + 12))
