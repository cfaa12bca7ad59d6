"""The numbers of a call that a kernel takes by value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from autotile.dtypes import element_type
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Kernel
from autotile.suggest import did_you_mean

Scalars: TypeAlias = "tuple[Any, ...]"
"""Numpy's float32 or float64, one a scalar of the kernel."""

_REAL: Any = Real


class ScalarChecker:
    """Checks the keywords of calls of one kernel in one dtype. `defaults` are the values of a call that gives none."""

    def __init__(self, kernel: Kernel, dtype: str) -> None:
        self._kernel, self._type = kernel.name, element_type(dtype).scalar
        self._names = tuple(scalar.name for scalar in kernel.scalars)
        self.defaults: Scalars = tuple(self._type(scalar.default) for scalar in kernel.scalars)

    def values(self, given: Mapping[str, Any]) -> Scalars:
        """One value a scalar, in the kernel's order and in the type that the kernel takes.

        Raises ArgumentTypeError for an unknown keyword and for what is no real number, ArgumentValueError for a number
        beyond that type.
        """
        if not given:
            return self.defaults
        for name in given:
            if name not in self._names:
                known = (*self._names, "out", "stream")
                raise ArgumentTypeError(
                    f"{self._kernel} has no argument {name!r}{did_you_mean(name, known)}; a call takes arrays, and the "
                    f"keywords {', '.join(known)}"
                )
        return tuple(
            self._value(name, given[name]) if name in given else default
            for name, default in zip(self._names, self.defaults, strict=True)
        )

    def _value(self, name: str, number: Any) -> Any:
        if not isinstance(number, _REAL) or isinstance(number, bool):
            raise ArgumentTypeError(
                f"{name} must be a real number, not {number!r} of type {type(number).__qualname__}; turn an array of "
                "one element into a number with .item()"
            )
        try:
            wide = float(number)
        except OverflowError:
            wide = math.inf
        with np.errstate(over="ignore"):
            value = self._type(wide)
        if math.isinf(value) and not (isinstance(number, (float, np.floating)) and math.isinf(number)):
            raise ArgumentValueError(
                f"{name} = {number} is beyond {np.dtype(self._type)}, in which the kernel takes it"
            )
        return value
