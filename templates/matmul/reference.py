"""What C must be, and how far off a right kernel may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import element_type
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, batch × m × n, float64, from the inputs as they are: 16-bit ones are first widened (exactly) to float64."""
    a, b = (_operand(inputs, problem, name) for name in "ab")
    return {"c": _activated(_before_activation(inputs, a @ b), problem)}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """The most that a right kernel may be off, batch × m × n, float64, elementwise.

    Summing k products in any order, with or without fused multiply-add, in a type of unit roundoff u gives
    |fl(AB) − AB| ≤ γ_k |A||B|, γ_k = k·u / (1 − k·u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
    §3.5). u is the accumulator's: 2⁻²⁴ for float32 and 16-bit types (whose products are exact in float32), 2⁻⁵³ for
    float64. alpha, beta, addend and bias add a rounding each: γ_5 of the sum of the sizes is more than they take. ReLU
    changes no distance to a larger one, GELU by a factor below 1.13 (its steepest slope) and by some units in the last
    place of its argument: erf is within 2 (CUDA C++ Programming Guide, "Mathematical Functions Appendix"). Rounding the
    result to a 16-bit output adds u_out·(|C| + all that). Underflow adds half a smallest subnormal for each of the k
    products, any of which may fall below it (ibid., §2.4), and half for alpha's product, for the output and for each
    step between. The reference in float64 is itself off by γ_k of float64, which is added: for float64 that doubles the
    bound.
    """
    element = element_type(problem.dtype)
    accumulator = element_type("float64" if element.accumulator == "double" else "float32")
    a, b = (_operand(inputs, problem, name) for name in "ab")
    alpha, beta = (abs(_scalar(inputs, name)) for name in ("alpha", "beta"))
    size = alpha * (np.abs(a) @ np.abs(b))
    bound = _gamma(problem["k"], accumulator.unit_roundoff) * size
    bound += _gamma(problem["k"], element_type("float64").unit_roundoff) * size
    for name, factor in (("addend", beta), ("bias", 1.0)):
        if name in inputs:
            size = size + factor * np.abs(inputs[name].astype(np.float64))
    bound += _gamma(5, accumulator.unit_roundoff) * size
    if "gelu" in problem.switches:
        bound = 1.13 * bound + 8 * accumulator.unit_roundoff * size
    if element is not accumulator:
        bound += element.unit_roundoff * (np.abs(reference(inputs, problem)["c"]) + bound)
    tiny = _smallest_subnormal(problem.dtype)
    return {"c": bound + tiny * (1 + alpha * problem["k"] / 2 + ("addend" in inputs) + ("gelu" in problem.switches))}


def _operand(inputs: Arrays, problem: Problem, name: str) -> np.ndarray[Any, Any]:
    """A or B, not turned, in float64."""
    stored = inputs[name].astype(np.float64)
    return np.swapaxes(stored, -1, -2) if f"{name}_turned" in problem.switches else stored


def _scalar(inputs: Arrays, name: str) -> float:
    """1 where it is not given."""
    return float(inputs[name]) if name in inputs else 1.0


def _before_activation(inputs: Arrays, product: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    product *= _scalar(inputs, "alpha")
    if "addend" in inputs:
        product += _scalar(inputs, "beta") * inputs["addend"].astype(np.float64)
    if "bias" in inputs:
        product += inputs["bias"].astype(np.float64)
    return product


def _activated(values: np.ndarray[Any, Any], problem: Problem) -> np.ndarray[Any, Any]:
    if "relu" in problem.switches:
        return np.where(values < 0, 0.0, values)
    if "gelu" in problem.switches:
        erf = np.frompyfunc(math.erf, 1, 1)
        return 0.5 * values * (1 + erf(values * math.sqrt(0.5)).astype(np.float64))
    return values


def _gamma(count: int, unit_roundoff: float) -> float:
    return count * unit_roundoff / (1 - count * unit_roundoff)


def _smallest_subnormal(dtype: str) -> float:
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}[dtype]
