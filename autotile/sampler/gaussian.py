"""A Gaussian process over the rows of a discrete space: what is known of a few rows says what to expect of others.

Two rows are as far apart as their parameters' values: r² = Σ d / l², with one or two terms d a parameter and a length
scale l for each. Between numbers d is the squared difference of places in [0, 1] and, for three values or more, a
second term that is 1 for any two different values, so that a parameter may act as an order, as a set of names, or as
both; between names or two values, the latter alone. Columns that follow from the values (threads, bytes) may be given
too; each is one more squared term. The covariance is Matérn's with ν = 5/2, s²·(1 + a + a²/3)·exp(−a), a = √5·r
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 4.17). The scales are those of the largest
posterior density (eq. 5.8 and 5.9 with log-normal priors), found by BFGS (Nocedal and Wright, Numerical Optimization,
2nd ed., algorithm 6.1), so that nothing is set by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autotile.types import Value

Array = np.ndarray[Any, Any]

NOISE = 0.01
"""The median of the prior of the noise's variance, in units of the targets' variance."""

LEAST_NOISE = 1e-4
"""Added to the noise's variance, so that no covariance matrix is near to singular."""

SPREADS = (1.0, 1.0, 1.5)
"""Standard deviations of the log-normal priors: of a length scale, of the variance s², of the noise."""

FARTHEST = 4.0
"""How many of these standard deviations a scale may be off its prior's median."""


class Terms:
    """What is known of each row of a table, and the distance terms in which two rows are compared.

    `codes` are rows × parameters, as in a space; `derived` are more columns, each on a scale from 0 to 1.
    """

    def __init__(self, domains: Sequence[tuple[Value, ...]], codes: Array, derived: Array | None = None) -> None:
        sizes = [len(domain) for domain in domains]
        self._codes = codes
        self._derived = np.zeros((len(codes), 0), np.float32) if derived is None else derived
        self._offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self._width = sum(sizes)
        self._tables: list[tuple[int, Array]] = []
        medians: list[float] = []
        open_ = [p for p, size in enumerate(sizes) if size > 1]
        root = math.sqrt(max(1, len(open_)))
        for p in open_:
            ordered = sizes[p] > 2 and all(isinstance(v, int) and not isinstance(v, bool) for v in domains[p])
            if ordered:
                at = places(domains[p])
                self._tables.append((p, (at[:, None] - at) ** 2))
                medians.append(0.5 * root)
            self._tables.append((p, 1.0 - np.eye(sizes[p])))
            medians.append(2.0 * root if ordered else root)
        medians += [2.0 * root] * self._derived.shape[1]  # they count once trials show that they do
        self.medians = np.log(medians)

    def __len__(self) -> int:
        return len(self.medians)

    def between(self, rows: Array) -> Array:
        """Each term's distances among n rows, terms × n × n."""
        codes, derived = self._codes[rows], self._derived[rows].astype(np.float64)
        pairs = [table[np.ix_(codes[:, p], codes[:, p])] for p, table in self._tables]
        pairs += [(column[:, None] - column) ** 2 for column in derived.T]
        return np.asarray(np.stack(pairs))

    def coordinates(self, rows: Array, precision: type = np.float64) -> Array:
        """Rows as indicators of their values, then their derived columns: what `squared` compares."""
        whole: Array = np.zeros((len(rows), self._width + self._derived.shape[1]), precision)
        np.put_along_axis(whole, self._codes[rows].astype(np.int64) + self._offsets, 1.0, axis=1)
        whole[:, self._width :] = self._derived[rows]
        return whole

    def form(self, weights: Array) -> Array:
        """The matrix of the quadratic form that `squared` needs for the terms' weights."""
        width = self._width + self._derived.shape[1]
        form = np.zeros((width, width))
        for (p, table), weight in zip(self._tables, weights, strict=False):
            part = slice(self._offsets[p], self._offsets[p] + len(table))
            form[part, part] += weight * table
        derived = np.arange(self._width, width)
        form[derived, derived] = -2 * weights[len(self._tables) :]
        return form

    def squared(self, left: Array, right: Array, form: Array, weights: Array) -> Array:
        """r² between the coordinates of two sets of rows, left × right: a product of matrices, in right's precision."""
        left = left.astype(right.dtype, copy=False)
        r2 = (left @ form.astype(right.dtype, copy=False)) @ right.T
        if self._derived.shape[1]:
            derived = weights[len(self._tables) :].astype(right.dtype)
            a, b = left[:, self._width :], right[:, self._width :]
            r2 += np.einsum("ij,ij,j->i", a, a, derived)[:, None]
            r2 += np.einsum("ij,ij,j->i", b, b, derived)
        return np.asarray(np.maximum(r2, 0, out=r2))


def places(domain: tuple[Value, ...]) -> Array:
    """Numbers on a scale from 0 to 1: by logarithm where all are positive, else by rank."""
    numbers = np.asarray(domain, float)
    numbers = np.log(numbers) if (numbers > 0).all() else np.argsort(np.argsort(numbers)).astype(float)
    return np.asarray((numbers - numbers.min()) / max(1e-12, np.ptp(numbers)))


@dataclass(frozen=True)
class Scales:
    """What is fitted: `logs` holds the logarithms of each term's length scale, of s² and of the noise's variance."""

    logs: Array

    @classmethod
    def prior(cls, terms: Terms) -> Scales:
        return cls(np.concatenate([terms.medians, [0.0, math.log(NOISE)]]))

    @cached_property
    def weights(self) -> Array:
        return np.asarray(np.exp(-2 * self.logs[:-2]))

    @property
    def variance(self) -> float:
        return math.exp(self.logs[-2])

    @property
    def noise(self) -> float:
        return math.exp(self.logs[-1]) + LEAST_NOISE


def fit(terms: Terms, rows: Array, targets: Array, starts: Sequence[Scales]) -> Scales:
    """The most probable scales for n rows of the table and their targets, from the best of some starts."""
    objective = _objective(terms, rows, targets)
    centre, reach = Scales.prior(terms).logs, FARTHEST * _spreads(terms)
    found = [minimise(objective, start.logs, centre - reach, centre + reach) for start in starts]
    return Scales(min(found, key=lambda pair: pair[0])[1])


def _spreads(terms: Terms) -> Array:
    return np.concatenate([np.full(len(terms), SPREADS[0]), SPREADS[1:]])


def _objective(terms: Terms, rows: Array, targets: Array) -> Callable[[Array], tuple[float, Array]]:
    """The negative log posterior density of the scales, less a constant, and its gradient."""
    count = len(rows)
    below = np.tril(np.ones((count, count), bool), -1)  # each pair once
    distances = np.ascontiguousarray(terms.between(rows)[:, below])
    centre = Scales.prior(terms).logs
    spread = _spreads(terms)

    def objective(logs: Array) -> tuple[float, Array]:
        scales = Scales(logs)
        a = np.sqrt(5 * (scales.weights @ distances))
        decay = np.exp(-a)
        slope = (1 + a) * decay  # −6/5 ∂shape / ∂r²
        shape = slope + a * a / 3 * decay
        covariance = np.zeros((count, count))  # of which Cholesky reads what is not above the diagonal
        covariance[below] = scales.variance * shape
        covariance.flat[:: count + 1] = scales.variance + scales.noise
        factor = np.linalg.cholesky(covariance)
        half = triangular_inverse(factor)
        alpha = (half @ targets) @ half
        outer: Array = half.T @ half - np.outer(alpha, alpha)
        trace, pairs = float(np.trace(outer)), outer[below]
        off = (logs - centre) / spread
        value = 0.5 * targets @ alpha + np.log(np.diag(factor)).sum() + 0.5 * off @ off
        gradient = off / spread
        gradient[:-2] += 5 / 3 * scales.variance * scales.weights * (distances @ (pairs * slope))
        gradient[-2] += scales.variance * (0.5 * trace + float(pairs @ shape))
        gradient[-1] += 0.5 * trace * (scales.noise - LEAST_NOISE)
        return float(value), gradient

    return objective


def minimise(
    objective: Callable[[Array], tuple[float, Array]],
    start: Array,
    low: Array,
    high: Array,
    steps: int = 30,
    longest: float = 1.5,
) -> tuple[float, Array]:
    """BFGS with backtracking, kept between `low` and `high`: the least value found, and where.

    `objective` gives a value and its gradient. No coordinate moves more than `longest` in a step.
    """
    point = np.clip(start, low, high)
    value, gradient = objective(point)
    inverse = np.eye(len(point)) * 0.1  # of the Hessian
    for step in range(steps):
        held = ((point <= low) & (gradient > 0)) | ((point >= high) & (gradient < 0))
        slope = np.where(held, 0.0, gradient)
        direction = np.where(held, 0.0, -inverse @ slope)
        direction *= min(1.0, longest / max(1e-12, float(np.abs(direction).max())))
        descent = float(direction @ slope)
        length = 1.0
        while descent <= -1e-4:
            trial = np.clip(point + length * direction, low, high)
            new_value, new_gradient = objective(trial)
            if new_value <= value + 1e-4 * length * descent:
                break
            length *= 0.4
            if length < 1e-3:
                return value, point
        else:
            return value, point
        moved, turned, gain = trial - point, new_gradient - gradient, value - new_value
        point, value, gradient = trial, new_value, new_gradient
        bend = float(moved @ turned)
        if bend > 1e-10:
            if step == 0:
                inverse = np.eye(len(point)) * (bend / float(turned @ turned))
            mapped = inverse @ turned
            inverse += np.outer(moved, moved) * ((bend + turned @ mapped) / bend**2)
            inverse -= (np.outer(mapped, moved) + np.outer(moved, mapped)) / bend
        if gain < 1e-2:
            break
    return value, point


class Posterior:
    """Mean and variance of m candidate rows, given n known ones; the known may be added to one by one.

    Rasmussen and Williams, algorithm 2.1, by way of the factor's inverse, which grows by a row at a time: n·m
    operations for each row known, whatever the size of the table. What concerns candidates is in single precision.
    """

    def __init__(self, terms: Terms, scales: Scales, candidates: Array, known: Array) -> None:
        self._terms, self._scales = terms, scales
        self._form = terms.form(scales.weights)
        self._single = self._form.astype(np.float32)
        self._known = terms.coordinates(known)
        self._half = self._half_of(self._covariance(self._known, self._known))
        self._look_at(candidates)

    def of(self, candidates: Array) -> Posterior:
        """The same of other candidates."""
        other = copy(self)
        other._look_at(candidates)
        return other

    def _look_at(self, candidates: Array) -> None:
        self._candidates = self._terms.coordinates(candidates, np.float32)
        self._projected = self._half.astype(np.float32) @ self._covariance(self._known, self._candidates)
        self._variance = np.float32(self._scales.variance) - _squares(self._projected)

    def add(self, row: int) -> None:
        """One more known row."""
        new = self._terms.coordinates(np.asarray([row]))
        count = len(self._known)
        across = self._half @ self._covariance(self._known, new)[:, 0]
        pivot = math.sqrt(max(self._scales.variance + self._scales.noise - across @ across, LEAST_NOISE))
        half = np.zeros((count + 1, count + 1))
        half[:count, :count] = self._half
        half[count, :count] = -across @ self._half / pivot
        half[count, count] = 1 / pivot
        fresh = self._covariance(new, self._candidates)[0] - across.astype(np.float32) @ self._projected
        fresh /= np.float32(pivot)
        self._half, self._known = half, np.concatenate([self._known, new])
        self._projected = np.concatenate([self._projected, fresh[None]])
        self._variance = self._variance - fresh * fresh

    def mean(self, targets: Array) -> Array:
        """Of each candidate, for the targets of the known rows in the order in which these came."""
        return np.asarray((self._half @ targets).astype(np.float32) @ self._projected)

    def deviation(self, pending: Array) -> Array:
        """Of each candidate, as if the pending rows were known to be just what the mean says.

        That is the kriging believer of Ginsbourger, Le Riche and Carraro (Kriging is well-suited to parallelize
        optimization, 2010), which leaves the mean as it is.
        """
        variance = self._variance
        if len(pending):
            rows = self._terms.coordinates(pending)
            across = self._half @ self._covariance(self._known, rows)
            half = self._half_of(self._covariance(rows, rows) - across.T @ across).astype(np.float32)
            seen = across.T.astype(np.float32) @ self._projected
            variance = variance - _squares(half @ (self._covariance(rows, self._candidates) - seen))
        return np.asarray(np.sqrt(np.maximum(variance, np.float32(1e-9))))

    def _covariance(self, left: Array, right: Array) -> Array:
        form = self._single if right.dtype == np.float32 else self._form
        a = np.sqrt(5 * self._terms.squared(left, right, form, self._scales.weights))
        decay = np.exp(-a)
        shape = a * a
        shape /= 3
        shape += a
        shape += 1
        shape *= decay
        shape *= self._scales.variance
        return np.asarray(shape)

    def _half_of(self, covariance: Array) -> Array:
        """The inverse of the Cholesky factor, with the noise of what is measured."""
        covariance.flat[:: len(covariance) + 1] += self._scales.noise
        return triangular_inverse(np.linalg.cholesky(covariance))


SMALL = 32
"""Rows of a triangle that is inverted as any matrix is."""


def triangular_inverse(lower: Array) -> Array:
    """The inverse of a lower triangle, by halves: less than half the work of inverting it as any matrix.

    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 14.2: block inversion.)
    """
    count = len(lower)
    if count <= SMALL:
        return np.linalg.inv(lower)
    half = count // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = first = triangular_inverse(lower[:half, :half])
    inverse[half:, half:] = second = triangular_inverse(lower[half:, half:])
    inverse[half:, :half] = -second @ (lower[half:, :half] @ first)
    return inverse


def _squares(columns: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->j", columns, columns))
