"""A sampler for spaces of feasible rows: a Gaussian process says what to expect of each, and where little is known.

Bayesian optimisation (Jones, Schonlau and Welch, Efficient Global Optimization, 1998) over the rows of a table rather
than over a box, so that every proposal is feasible and new.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from autotile.space import Space
from autotile.tuner.candidates import Neighbourhood
from autotile.tuner.gaussian import Posterior, Scales, Terms, fit

Array = np.ndarray[Any, Any]

RANDOM_ROWS = 1500
MOST_ROWS = 4000
MOST_KNOWN = 300
FITTED = 120
GROWTH = 1.2
MARGIN = 0.1
LEADERS = 3
LOCAL = 0.3
DESIGN = 500


class Model:
    def __init__(self, space: Space, seed: int, goal: int | None = None, derived=None, **over) -> None:
        self._space, self._codes = space, space.codes
        self._random = np.random.default_rng(seed)
        self._free = np.ones(len(space), bool)
        self._graph = Neighbourhood(space)
        self._goal = goal
        self._terms = Terms(space.domains, space.codes, derived)
        self._scales = Scales.prior(self._terms) if len(self._terms) else None
        self._taken: list[int] = []
        self._times: dict[int, float] = {}
        self._posterior = None
        self._known: list[int] = []
        self._rows = np.empty(0, np.int64)
        self._fitted_at = 0
        self._fits = 0
        self._leaders: list[int] = []
        self._top = np.empty(0, np.int64)
        self._counts = [np.zeros(len(d)) for d in space.domains]
        self._news = []
        self.o = dict(
            random_rows=RANDOM_ROWS,
            most_rows=MOST_ROWS,
            growth=GROWTH,
            margin=MARGIN,
            leaders=LEADERS,
            local=LOCAL,
            fitted=FITTED,
            localmode="mean",
            cyc=("ei", "ei", "ts", "mean"),
            cycn=60,
            top=30,
            restart=2,
            ext=2,
            design="bal",
            known=MOST_KNOWN,
            mix=0.5,
        )
        self.o.update(over)
        self.fit_s = 0

    def take(self, row: int) -> None:
        if self._free[row]:
            self._free[row] = False
            self._taken.append(row)
            for p, count in enumerate(self._counts):
                count[self._codes[row, p]] += 1

    def tell(self, row: int, time_ms: float | None) -> None:
        if row not in self._times:
            self._news.append(row)
        self._times[row] = math.inf if time_ms is None else time_ms

    def choose(self) -> int:
        finite = {t for t in self._times.values() if t < math.inf}
        if len(finite) < 2 or self._scales is None:
            return self._spread()
        self._update()
        free = self._free[self._rows]
        if not free.any():
            return int(self._random.choice(np.flatnonzero(self._free)))
        targets = self._targets(self._known)
        mean = self._posterior.mean(targets)
        told = len(self._times)
        kind = self.o["cyc"][len(self._taken) % len(self.o["cyc"])] if told > self.o["cycn"] else "ei"
        local = self._goal is not None and len(self._taken) >= (1 - self.o["local"]) * self._goal
        if local:
            near = np.unique(np.concatenate([self._graph.of(row) for row in self._leaders]))
            near = free & np.isin(self._rows, near)
            if near.any():
                kind = self.o["localmode"]
                if self.o["localmode"] == "ei":
                    kind = "ei0"
                elif self.o["localmode"] == "eimean":
                    kind = "ei0" if len(self._taken) < .9 * self._goal else "mean"
                elif self.o["localmode"] != "all":
                    free = near
                else:
                    kind = "mean"
        margin = 0 if kind == "ei0" else self.o["margin"]
        if kind == "mean":
            score = -mean
        else:
            pending = [r for r in self._taken if r not in self._times]
            sd = self._posterior.deviation(np.asarray(pending, np.int64))
            if kind == "ts":
                score = -(mean + sd * self._random.standard_normal(len(sd)))
            else:
                score = log_improvement((targets.min() - margin - mean) / sd) + np.log(sd)
        score = np.where(free, score, -np.inf)
        return int(self._rows[np.argmax(score)])

    def _spread(self) -> int:
        free = np.flatnonzero(self._free)
        some = free if len(free) <= DESIGN else self._random.choice(free, DESIGN, replace=False)
        if self.o["design"] == "random":
            return int(self._random.choice(some))
        used = sum(count[self._codes[some, p]] * 1.0 for p, count in enumerate(self._counts) if len(count) > 1)
        return int(some[np.argmin(used + self._random.random(len(some)) * 1e-3)])

    def _targets(self, rows: Sequence[int]) -> Array:
        all_ = np.array([self._times[r] for r in self._times])
        valid = np.log(all_[np.isfinite(all_)])
        log = lambda t: np.where(np.isfinite(t), np.log(np.where(np.isfinite(t), t, 1)), valid.max())
        whole = log(all_)
        order = np.sort(whole)
        n = len(whole)
        at = log(np.array([self._times[r] for r in rows]))
        rank = (np.searchsorted(order, at, "left") + np.searchsorted(order, at, "right")) / 2
        q = self._quantiles(n)
        normal = np.interp(rank, np.arange(n) + 0.5, q)
        w = self.o["mix"]
        y = w * normal + (1 - w) * (at - whole.mean()) / (whole.std() + 1e-9)
        return (y - y.mean()) / (y.std() + 1e-9)

    _cache = (0, None)

    def _quantiles(self, n):
        if self._cache[0] != n:
            self._cache = (n, np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)]))
        return self._cache[1]

    def _update(self) -> None:
        told = len(self._times)
        refit = self._posterior is None or told >= self.o["growth"] * self._fitted_at and told >= self._fitted_at + 2
        leaders = sorted(self._times, key=lambda r: self._times[r])[: self.o["leaders"]]
        moved = leaders != self._leaders
        self._leaders = leaders
        if refit or moved:
            self._rebuild(refit)
        else:
            for row in self._news:
                self._posterior.add(row)
                self._known.append(row)
        self._news = []

    def _rebuild(self, refit: bool) -> None:
        told = sorted(self._times, key=lambda r: self._times[r])
        self._known = self._subset(told, self.o["known"])
        if refit:
            import time

            b = time.perf_counter()
            self._fitted_at = len(told)
            rows = self._subset(told, self.o["fitted"], 0.5)
            starts = [self._scales]
            self._fits += 1
            if self.o["restart"] and self._fits % self.o["restart"] == 0:
                prior = Scales.prior(self._terms).logs
                starts.append(
                    Scales(prior + self._random.standard_normal(len(prior)) * np.r_[np.ones(len(prior) - 2), 0, 0])
                )
            self._scales = fit(self._terms, np.asarray(rows), self._targets(rows), starts)
            self.fit_s += time.perf_counter() - b
        self._rows = self._candidates()
        self._posterior = Posterior(self._terms, self._scales, self._rows, np.asarray(self._known))
        if len(self._free) > self.o["most_rows"]:
            for _ in range(self.o["ext"]):
                self._extend()

    def _extend(self) -> None:
        """Adds the neighbours of the rows that the model likes best."""
        targets = self._targets(self._known)
        mean, sd = self._posterior.mean(targets), self._posterior.deviation(np.empty(0, np.int64))
        score = log_improvement((targets.min() - self.o["margin"] - mean) / sd) + np.log(sd)
        order = np.argsort(-score, kind="stable")
        best = self._rows[order[: self.o["top"]]]
        near = np.concatenate([self._graph.of(int(r)) for r in best])
        keep = self._rows[order[: self.o["most_rows"] - self.o["top"] * 20]]
        self._top = best
        rows = np.unique(np.concatenate([keep, near[self._free[near]]]))
        self._rows = rows
        self._posterior = Posterior(self._terms, self._scales, self._rows, np.asarray(self._known))

    def _candidates(self) -> Array:
        if len(self._free) <= self.o["most_rows"]:
            return np.flatnonzero(self._free)
        parts = [self._random.integers(len(self._free), size=self.o["random_rows"]), self._top]
        for i, row in enumerate(self._leaders):
            parts.append(self._graph.within_two(row))
        rows = np.unique(np.concatenate(parts))
        return rows[self._free[rows]]

    def _subset(self, told, most, share=0.7) -> list[int]:
        if len(told) <= most:
            return list(told)
        best = int(most * share)
        rest = self._random.choice(np.arange(best, len(told)), most - best, replace=False)
        return told[:best] + [told[i] for i in rest]


_GRID = np.linspace(-12, 12, 24 * 64 + 1)
_LOG_GAIN = np.array(
    [math.log(z * 0.5 * math.erfc(-z / math.sqrt(2)) + math.exp(-z * z / 2) / math.sqrt(2 * math.pi)) for z in _GRID]
)


def log_improvement(z: Array) -> Array:
    return np.interp(z, _GRID, _LOG_GAIN) + np.minimum(0, z + 12) * 12
