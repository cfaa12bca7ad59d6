"""What both matmul kernels say of a problem, whichever of them serves: what may be asked, and what C must be then.

Each kernel.py adds its dtypes, arrays and parameters; each reference.py adds how far off a right kernel may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.kernels import OptionalSize, Size, Switch, Trait
from autotile.types import Problem

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

DIMENSIONS = ("m", "n", "k")

SWITCHES = (
    Switch("a_turned", "A is stored turned, k × m"),
    Switch("b_turned", "B is stored turned, n × k"),
    Switch("addend", "beta times another matrix is added, which may be C as it was"),
    Switch("bias", "a row of n is added to every row"),
    Switch("relu", "what is below 0 becomes 0"),
    Switch("gelu", "x becomes x·Φ(x), Φ of the normal distribution, by erf"),
)

TRAITS = tuple(Trait(switch.name, f"problem.{switch.name} == 1", f"{switch.name} is on") for switch in SWITCHES)

OPTIONAL = (
    OptionalSize("batch", "1", "products, each of an A and a B of its own"),
    OptionalSize(
        "a_pitch", "problem.m if problem.a_turned else problem.k", "elements from one stored row of A to the next"
    ),
    OptionalSize(
        "b_pitch", "problem.k if problem.b_turned else problem.n", "elements from one stored row of B to the next"
    ),
    OptionalSize("c_pitch", "problem.n", "elements from one row of C, and of the addend, to the next"),
    OptionalSize("a_step", "problem.k if problem.a_turned else problem.m", "rows from one matrix of A to the next"),
    OptionalSize("b_step", "problem.n if problem.b_turned else problem.k", "rows from one matrix of B to the next"),
    OptionalSize("c_step", "problem.m", "rows from one matrix of C, and of the addend, to the next"),
)

SIZES = tuple(Size(name) for name in (*DIMENSIONS, *(size.name for size in OPTIONAL)))
"""The arguments that tell a kernel its problem's sizes."""


def operand(inputs: Arrays, problem: Problem, name: str) -> Array:
    """A or B, not turned, in float64."""
    stored = inputs[name].astype(np.float64)
    return np.swapaxes(stored, -1, -2) if f"{name}_turned" in problem.switches else stored


def scalar(inputs: Arrays, name: str) -> float:
    """1 where it is not given."""
    return float(inputs[name]) if name in inputs else 1.0


def finished(inputs: Arrays, problem: Problem, product: Array) -> Array:
    """act(alpha·product + beta·addend + bias), in float64. It is worked out in the product's place."""
    product *= scalar(inputs, "alpha")
    if "addend" in inputs:
        product += scalar(inputs, "beta") * inputs["addend"].astype(np.float64)
    if "bias" in inputs:
        product += inputs["bias"].astype(np.float64)
    if "relu" in problem.switches:
        return np.where(product < 0, 0.0, product)
    if "gelu" in problem.switches:
        erf = np.frompyfunc(math.erf, 1, 1)
        return 0.5 * product * (1 + erf(product * math.sqrt(0.5)).astype(np.float64))
    return product


def gamma(count: int, unit_roundoff: float) -> float:
    """How far off so many roundings are at most, as a part of what the sizes add up to: count·u / (1 − count·u)."""
    return count * unit_roundoff / (1 - count * unit_roundoff)


def smallest_subnormal(dtype: str) -> float:
    """The smallest number above 0 that a result of that type may be."""
    return {
        "float8_e4m3fn": 2.0**-9, "float8_e5m2": 2.0**-16, "float16": 2.0**-24, "bfloat16": 2.0**-133,
        "float32": 2.0**-149, "float64": 2.0**-1074,
    }[dtype]  # fmt: skip
