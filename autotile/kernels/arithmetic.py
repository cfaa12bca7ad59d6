"""What the operators and functions of expressions mean, on numbers and on numpy columns alike: Python's arithmetic.

Columns hold 64-bit integers, which numpy lets wrap round without a word. Here a column's result is Python's own, or an
OverflowError where it does not fit; booleans count as 0 and 1; and text is a TypeError. The quotients of / are float64.
Dividing by zero gives 0, so that one expression may guard against its own divisor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Operation = Callable[[Any, Any], Any]

_LEAST, _MOST = -(2**63), 2**63 - 1


def number(value: Any) -> Any:
    """A Python number, or a column of 64-bit integers or floats. Raises TypeError for text."""
    if isinstance(value, np.ndarray) and value.ndim:
        kind = value.dtype.kind
        if kind == "f":
            return value
        if kind not in "biu":
            raise TypeError("text is no number")
        return value.astype(np.int64, copy=False)
    plain = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if isinstance(plain, str):
        raise TypeError(f"{plain!r} is no number")
    return int(plain) if isinstance(plain, bool) else plain


def is_text(value: Any) -> bool:
    return bool(np.asarray(value).dtype.kind == "U")


def _is_column(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _range(value: Any) -> tuple[int, int] | None:
    """The least and the greatest of an integer or a column of them; None for fractions and for an empty column."""
    if _is_column(value):
        if value.dtype.kind != "i" or not value.size:
            return None
        return int(value.min()), int(value.max())
    return (value, value) if isinstance(value, int) else None


def _exact(operation: Operation) -> Operation:
    """`operation` (+, − or ×) on columns too, with Python's integers where 64 bits might not do."""

    def apply(left: Any, right: Any) -> Any:
        left, right = number(left), number(right)
        if not (_is_column(left) or _is_column(right)):
            return operation(left, right)
        ranges = _range(left), _range(right)
        if ranges[0] is not None and ranges[1] is not None:
            # each operation is monotone in either operand, so its extremes lie where theirs do
            corners = [operation(a, b) for a in ranges[0] for b in ranges[1]]
            if min(corners) >= _LEAST and max(corners) <= _MOST:
                return operation(left, right)
            exact = operation(np.asarray(left, object), np.asarray(right, object))
            return exact.astype(np.int64)  # an OverflowError, unless the extremes lie in different rows
        with np.errstate(over="ignore", invalid="ignore"):
            return operation(left, right)

    return apply


def _guarded(operation: Operation) -> Operation:
    """`operation` (a division), with 0 where the divisor is 0."""

    def apply(left: Any, right: Any) -> Any:
        left, right = number(left), number(right)
        if not (_is_column(left) or _is_column(right)):
            return operation(left, right) if right != 0 else 0
        none = np.equal(right, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            if not none.any() and (_is_column(right) or abs(right) <= _MOST):
                return operation(left, right)
            return np.where(none, 0, operation(left, np.where(none, 1, right)))

    return apply


add, subtract, multiply = _exact(operator.add), _exact(operator.sub), _exact(operator.mul)
floor_divide, divide, remainder = _guarded(operator.floordiv), _guarded(operator.truediv), _guarded(operator.mod)


def negative(value: Any) -> Any:
    return subtract(0, value)


def absolute(value: Any) -> Any:
    return larger(value, negative(value))


def ceil_div(dividend: Any, divisor: Any) -> Any:
    """The quotient, rounded up: the number of tiles that cover a side."""
    return negative(floor_divide(negative(dividend), divisor))


def smaller(left: Any, right: Any) -> Any:
    return _chosen(min, np.minimum, number(left), number(right))


def larger(left: Any, right: Any) -> Any:
    return _chosen(max, np.maximum, number(left), number(right))


def _chosen(of_two: Operation, of_columns: Operation, left: Any, right: Any) -> Any:
    return of_columns(left, right) if _is_column(left) or _is_column(right) else of_two(left, right)


def is_power_of_two(value: Any) -> Any:
    value = number(value)
    return (value > 0) & (value & subtract(value, 1) == 0)
