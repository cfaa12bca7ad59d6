"""What C must be, and how far off a right kernel may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import element_type
from autotile.kernels import beside
from autotile.types import Problem

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

SHARED = beside(__file__, "../_lib/matmul.py")
operand, scalar, finished = (SHARED[name] for name in ("operand", "scalar", "finished"))
gamma, smallest_subnormal = (SHARED[name] for name in ("gamma", "smallest_subnormal"))

SUM_ROUNDOFF = 2.0**-22
"""How far off one addition of a tensor core is, at most, of the largest number that it adds, in float32: sums are cut
off, not rounded, and numbers are shifted to the largest before they are added (Fasi, Higham, Mikaitis and Pranesh,
Numerical behavior of NVIDIA tensor cores, PeerJ CS 2021): twice the 2⁻²⁴ of rounding, and as much for the shift. Four
products or more are added at once (ibid.)."""

FLOAT8_ROUNDOFF, FLOAT8_AT_ONCE = 2.0**-13, 32
"""Sums of float8 products keep some 14 bits on sm_90 (DeepSeek-V3 Technical Report, 2024, §3.3.2); 32 come at once."""

LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""What becomes of results beyond it: conversions to float8 saturate (PTX ISA, "cvt", .satfinite)."""


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, batch × m × n: float64 from the inputs as they are, exactly widened; of int8, int32 to the last bit. What is
    beyond a float8's range, infinity too, becomes its largest number, as conversions to it have it."""
    a, b = (operand(inputs, problem, name) for name in "ab")
    c = finished(inputs, problem, a @ b)
    if problem.dtype in LARGEST and "wide" not in problem.switches:
        c = np.clip(c, -LARGEST[problem.dtype], LARGEST[problem.dtype])  # a NaN stays one
    # Products of int8 and their sums are exact in float64, and each step after them is rounded as the kernel's is.
    return {"c": np.clip(np.rint(c), -(2.0**31), 2.0**31 - 1).astype(np.int32) if problem.dtype == "int8" else c}


def error_bound(inputs: Arrays, problem: Problem) -> Mapping[str, Array | float]:
    """The most that a right kernel may be off, batch × m × n, float64, elementwise; 0 for int8.

    What sums may be off, see `_sums_off`. tf32 cuts each factor to 10 bits of its fraction first, 2⁻¹⁰ at most:
    2·2⁻¹⁰ + 2⁻²⁰ of |A||B|. alpha, beta, addend and bias add a rounding each, in float32 or float64; GELU changes a
    distance by its steepest slope, below 1.13, and by some units in the last place of its argument. Rounding the result
    adds u_out·(|C| + all that). A smallest subnormal is added for the output: a float8's is large.
    """
    if problem.dtype == "int8":
        return {"c": 0.0}
    element = element_type(problem.dtype)
    result = element_type(
        "float32" if "wide" in problem.switches and element.accumulator == "float" else element.stored
    )
    u_step = 2.0**-53 if element.accumulator == "double" else 2.0**-24
    a, b = (operand(inputs, problem, name) for name in "ab")
    alpha, beta = (abs(scalar(inputs, name)) for name in ("alpha", "beta"))
    size = alpha * (np.abs(a) @ np.abs(b))
    bound = (
        _sums_off(problem, alpha, a, b, size) + gamma(problem["k"], 2.0**-53) * size
    )  # the kernel's, the reference's
    if element.factor_roundoff:
        bound += (2 * element.factor_roundoff + element.factor_roundoff**2) * size
    for name, factor in (("addend", beta), ("bias", 1.0)):
        if name in inputs:
            size = size + factor * np.abs(inputs[name].astype(np.float64))
    bound += gamma(5, u_step) * size
    if "gelu" in problem.switches:
        bound = 1.13 * bound + 8 * u_step * size
    if result.name not in ("float32", "float64"):
        bound += result.unit_roundoff * (np.abs(finished(inputs, problem, a @ b)) + bound)
    tiny = smallest_subnormal(result.name)
    return {"c": bound + tiny + 2.0**-149 * (1 + alpha * problem["k"])}


def _sums_off(problem: Problem, alpha: float, a: Array, b: Array, size: Array) -> Array:
    """In float64, γ_k |A||B| with γ_k = k·u / (1 − k·u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
    ed., §3.5). In float32 each of k / 4 additions is off by u of the numbers' sizes, and so is each of its 4 products.

    In float8, that would be more than the results of a few thousand products. The products of one addition are off by
    u of the largest, so of |A||B| altogether; but an addition is off by u of what has been summed so far, which grows
    as a random walk does: 4 times √((A∘A)(B∘B)) for each. That holds of terms whose signs are random or cancel, as
    those of all data that prove a kernel are (the reasoning of Higham and Mary, A new approach to probabilistic
    rounding error analysis, SIAM J. Sci. Comput. 41/5, 2019).
    """
    k = problem["k"]
    if problem.dtype == "float64":
        return np.asarray(gamma(k, 2.0**-53) * size)
    if problem.dtype in LARGEST:
        additions = -(-k // FLOAT8_AT_ONCE)
        walk = alpha * np.sqrt((a * a) @ (b * b))
        return np.asarray(FLOAT8_ROUNDOFF * (FLOAT8_AT_ONCE * size + 4 * additions * walk))
    return np.asarray((k / 4 + 4) * SUM_ROUNDOFF * size)
