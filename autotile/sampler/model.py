"""Which row next? A model says what to expect of each row, how little is known of it, and what trying it costs.

Bayesian optimisation (Jones, Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box Functions, 1998)
over the rows of a table rather than over a box, so that all it proposes is feasible and new. The model is the Gaussian
process of gaussian.py. What is asked for and not yet told counts as known to be what the model expects, so that asks
ahead spread out.

- The first asks, until two different times are told, spread over the values of each parameter.
- A large table is looked at through some thousands of candidates: random rows, all rows within two parameters of the
  best, and the neighbours of those that the model likes best, found anew whenever the best or the model changes.
- A candidate's score is its expected improvement on the best, by a margin; times its chance not to fail where that
  is small (Gelbart, Snoek and Adams, Bayesian Optimization with Unknown Constraints, 2014, weigh by the chance itself),
  from a process over 1 and 0 with scales of its own, since what decides on failing need not matter to the time; over
  what it will cost to build and run, to a power (Snoek, Larochelle and Adams, Practical Bayesian Optimization, 2012,
  section 3.2: improvement per second), from the first process over the logarithm of costs. A row that needs no building
  any more is the cheaper for it.
- In between come a Thompson draw (Thompson, 1933) and the model's mean, since no one score is best at all times.
- The model is not believed about the closest rows, as it can be sure and wrong: towards the end, and whenever the best
  has stood for long, all that differ from the best in one parameter are tried first, in the order of the model's mean;
  then the same from each new best. So what a search ends with is the best of its neighbourhood, unless it came so late
  that the goal was reached before.
- The last asks are what the model thinks fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from autotile.sampler.acquisition import log_chance, log_improvement
from autotile.sampler.candidates import Neighbourhood
from autotile.sampler.gaussian import Posterior, Scales, Terms, fit
from autotile.sampler.told import Cost, Told
from autotile.space import Space

Array = np.ndarray[Any, Any]

MOST_CANDIDATES = 4000
RANDOM_CANDIDATES = 1500
LEADERS = 3
"""The best rows so far, whose surroundings are always candidates."""

LIKED = 30
"""Candidates that the model likes best, whose neighbours become candidates too; twice, so that it can climb."""

MOST_KNOWN = 300
"""Rows that the model is conditioned on: the best, and some at random of the rest."""

FITTED = 100
"""Rows that its scales are fitted to, likewise."""

JUDGED = 40
"""Rows that were right, and rows that failed, from which the chance to fail is learnt."""

GROWTH = 1.25
"""The scales are fitted anew when this many times as many trials are told."""

DESIGN = 500
"""Rows among which the first asks choose."""

MARGIN = 0.1
"""Standard deviations of the targets by which a row should improve on the best."""

COST_POWER = 0.5
"""Power of the cost by which improvement is divided: 1 would be improvement per second, and shun large tiles."""

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
        self._built = np.zeros(len(space), bool)
        self._told = Told()
        self._libraries = ThreadpoolController()
        self._graph = Neighbourhood(space)
        self._terms = Terms(space.domains, space.codes, derived)
        self._scales = Scales.prior(self._terms)
        self._fits = self._fitted_to = 0
        self._posterior: Posterior | None = None
        self._chance_scales = self._scales
        self._chances: Posterior | None = None  # of success, once something has failed
        self._judged: list[int] = []  # the rows that it is conditioned on
        self._known: list[int] = []  # the rows that the posterior is conditioned on, in its order
        self._news: list[int] = []  # told since
        self._leaders: list[int] = []
        self._candidates: Array = np.empty(0, np.int64)
        self._liked: Array = np.empty(0, np.int64)

    def take(self, row: int) -> None:
        """Marks a row as asked for."""
        if self._free[row]:
            self._free[row] = False
            self._pending[row] = None
            for p, uses in enumerate(self._uses):
                uses[self._codes[row, p]] += 1

    def mark_built(self, rows: Sequence[int]) -> None:
        """Marks rows of which there is nothing to build any more."""
        self._built[rows] = True

    def tell(self, row: int, time_ms: float | None, cost: Cost | None = None) -> None:
        """The time of a row that was taken, None when it failed, and what trying it took."""
        self._pending.pop(row, None)
        self._news.append(row)
        self._told.tell(row, time_ms, cost)

    def choose(self) -> int:
        """A free row. There must be one."""
        if not self._told.tells_apart:
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
        taken = len(self._told) + len(self._pending)
        share = taken / self._goal if self._goal else 0.0
        if share >= SWEEPING or len(self._told) - self._told.best_at >= STANDING:
            near = self._graph.of(self._told.best)
            near = near[self._free[near]]
            if len(near):
                return "mean", 0.0, near
        if share >= LAST:
            return "mean", 0.0, None
        if share >= CLOSING:
            return "improvement", 0.0, None
        return MIX[taken % len(MIX)] if len(self._told) > MIXED_AFTER else MIX[0], MARGIN, None

    def _scores(self, posterior: Posterior, kind: str, margin: float) -> Array:
        targets = self._told.targets(self._known)
        mean = posterior.mean(targets)
        if kind == "mean":
            return np.asarray(self._log_chances() - mean)
        deviation = posterior.deviation(np.fromiter(self._pending, np.int64))
        if kind == "draw":
            return np.asarray(self._log_chances() - mean - deviation * self._random.standard_normal(len(mean)))
        gain = log_improvement(targets.min() - margin - mean, deviation)
        return gain + self._log_chances() - COST_POWER * self._log_costs(posterior)

    def expected_gain(self) -> float | None:
        """By what share of its time the best should still fall with the most promising row; None before it is known.

        The expected improvement in logarithms of the time, with the scales of the model: for small gains, a share.
        """
        if not self._told.tells_apart:
            return None
        with self._libraries.limit(limits=1, user_api="blas"):
            return self._gain_of(self._updated())

    def _gain_of(self, posterior: Posterior) -> float:
        open_ = self._free[self._candidates]
        if not open_.any():
            return 0.0
        logs = self._told.log_times(self._known)
        unit = max(1e-9, float(logs.std()))
        mean = posterior.mean((logs - logs.mean()) / unit)
        deviation = posterior.deviation(np.empty(0, np.int64))
        gains = log_improvement((logs.min() - logs.mean()) / unit - mean, deviation)
        gains = gains + self._log_chances()
        return unit * math.exp(np.max(gains[open_]))

    def _log_chances(self) -> Array | float:
        """What is held against each candidate that will likely fail; 0 where nothing has failed yet."""
        if not self._told.failures:
            return 0.0
        if self._chances is None:
            self._judged = self._some_of_both(self._known)
            self._chances = Posterior(self._terms, self._chance_scales, self._candidates, np.asarray(self._judged))
        right = self._told.successes(self._judged)
        spread = max(1e-9, float(right.std()))  # the scales are of targets whose deviation is 1
        deviation = spread * self._chances.deviation(np.empty(0, np.int64))
        return log_chance(right.mean() + self._chances.mean(right - right.mean()), deviation)

    def _log_costs(self, posterior: Posterior) -> Array | float:
        """The logarithm of what each candidate is expected to cost, but for a constant."""
        logs = self._told.log_costs(self._known)
        if logs is None:
            return 0.0
        saving: Array = self._told.log_saving * self._built[self._candidates]
        return posterior.mean(logs - logs.mean()) + saving

    # ---- what the model knows, and of which rows it is asked -----------------------------------------------------

    def _updated(self) -> Posterior:
        """The posterior of what has been told; anew when the best, or the number told, has moved on."""
        told = len(self._told)
        refit = told >= max(self._fitted_to + 2, GROWTH * self._fitted_to)
        if self._news or self._posterior is None:
            order = self._told.order()
            moved = order[:LEADERS] != self._leaders
            if self._posterior is None or refit or moved or len(self._known) + len(self._news) > 1.5 * MOST_KNOWN:
                self._leaders = order[:LEADERS]
                self._posterior = self._rebuilt(order, refit)
            else:
                for row in self._news:
                    self._posterior.add(row)
                    if self._chances is not None:
                        self._chances.add(row)
                        self._judged.append(row)
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
            targets = self._told.targets(self._known)
            deviation = posterior.deviation(np.empty(0, np.int64))
            scores = log_improvement(targets.min() - MARGIN - posterior.mean(targets), deviation)
            best = self._candidates[np.argsort(-scores, kind="stable")[:MOST_CANDIDATES]]
            self._liked = best[:LIKED]
            near = self._graph.around(np.concatenate([self._liked, self._leaders]))
            posterior = posterior.of(self._set_candidates(np.concatenate([best, near])))
        return posterior

    def _conditioned(self, candidates: Array) -> Posterior:
        return Posterior(self._terms, self._scales, self._set_candidates(candidates), np.asarray(self._known))

    def _set_candidates(self, candidates: Array) -> Array:
        """The free ones of some rows, each once, are the candidates from now on."""
        candidates = np.unique(candidates)
        self._candidates = candidates[self._free[candidates]]
        self._chances = None
        return self._candidates

    def _refit(self, rows: list[int]) -> None:
        """The scales from where they are, and every other time from a random place too: there may be several maxima."""
        self._fits += 1
        self._fitted_to = len(self._told)
        starts = [self._scales]
        if self._fits % 2 == 0:
            prior = Scales.prior(self._terms).logs
            starts.append(Scales(prior + self._random.standard_normal(len(prior))))
        self._scales = fit(self._terms, np.asarray(rows), self._told.targets(rows), starts)
        judged = self._some_of_both(rows)
        right = self._told.successes(judged)
        if 0 < right.sum() < len(right):
            right = (right - right.mean()) / right.std()
            self._chance_scales = fit(self._terms, np.asarray(judged), right, [self._chance_scales])

    def _some_of_both(self, rows: list[int]) -> list[int]:
        """At most JUDGED right ones among the rows, and as many that failed."""
        right = self._told.successes(rows) > 0
        kinds = (np.asarray(rows)[right], np.asarray(rows)[~right])
        some = [k if len(k) <= JUDGED else self._random.choice(k, JUDGED, replace=False) for k in kinds]
        return [int(row) for row in np.concatenate(some)]

    def _some(self, order: list[int], most: int, share: float) -> list[int]:
        """At most so many of the rows: the best, as a share of them, and others at random."""
        if len(order) <= most:
            return list(order)
        best = int(most * share)
        rest = self._random.choice(np.arange(best, len(order)), most - best, replace=False)
        return order[:best] + [order[i] for i in rest]
