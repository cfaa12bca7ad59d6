"""What C must be, and how far off a right kernel may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import element_type
from autotile.kernels import beside
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]

SHARED = beside(__file__, "../_lib/matmul.py")
operand, scalar, finished = (SHARED[name] for name in ("operand", "scalar", "finished"))
gamma, smallest_subnormal = (SHARED[name] for name in ("gamma", "smallest_subnormal"))


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, batch × m × n, float64, from the inputs as they are: 16-bit ones are first widened (exactly) to float64."""
    a, b = (operand(inputs, problem, name) for name in "ab")
    return {"c": finished(inputs, problem, a @ b)}


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
    a, b = (operand(inputs, problem, name) for name in "ab")
    alpha, beta = (abs(scalar(inputs, name)) for name in ("alpha", "beta"))
    size = alpha * (np.abs(a) @ np.abs(b))
    bound = gamma(problem["k"], accumulator.unit_roundoff) * size
    bound += gamma(problem["k"], element_type("float64").unit_roundoff) * size
    for name, factor in (("addend", beta), ("bias", 1.0)):
        if name in inputs:
            size = size + factor * np.abs(inputs[name].astype(np.float64))
    bound += gamma(5, accumulator.unit_roundoff) * size
    if "gelu" in problem.switches:
        bound = 1.13 * bound + 8 * accumulator.unit_roundoff * size
    if element is not accumulator:
        bound += element.unit_roundoff * (np.abs(reference(inputs, problem)["c"]) + bound)
    tiny = smallest_subnormal(problem.dtype)
    return {"c": bound + tiny * (1 + alpha * problem["k"] / 2 + ("addend" in inputs) + ("gelu" in problem.switches))}
