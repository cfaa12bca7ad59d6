"""Affine: out = alpha * x + beta * addend + bias, an element a thread: what tests of switches, scalars and steps call.

Packed, a step before copies x into scratch memory, in rows, and a step after adds the bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import element_type
from autotile.kernels import (
    Input,
    Kernel,
    LaunchPlan,
    OptionalSize,
    Output,
    Parameter,
    Scalar,
    Scratch,
    Size,
    Step,
    Switch,
    Trait,
)
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


def terms(inputs: Arrays, problem: Problem) -> list[Any]:
    """What is added up, each m × n or a row of it, in float64."""
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    found = [wide["alpha"] * (np.swapaxes(wide["x"], -1, -2) if "x_turned" in problem.switches else wide["x"])]
    if "added" in problem.switches:
        found.append(wide["beta"] * wide["addend"])
    return [*found, wide["bias"]] if "bias" in problem.switches else found


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    return {"out": sum(terms(inputs, problem))}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """Two products and two sums, each rounded once, and the output twice where the bias is added afterwards; what falls
    below the smallest subnormal is lost."""
    size = sum(np.abs(term) for term in terms(inputs, problem))
    element = element_type(problem.dtype)
    accumulator = element_type("float64" if element.scalar is np.float64 else "float32")
    least = float(np.finfo(element.numpy).smallest_subnormal)
    return {"out": (5 * accumulator.unit_roundoff + 3 * element.unit_roundoff) * size + 3 * least}


KERNEL = Kernel(
    name="affine",
    doc="out = alpha * x + beta * addend + bias",
    dimensions=("m", "n"),
    dtypes=("float32", "float64", "float16"),
    switches=(
        Switch("x_turned", "x is stored n × m"),
        Switch("added", "beta times an addend is added"),
        Switch("bias", "a bias is added to each row"),
    ),
    optional=(
        OptionalSize("x_pitch", "problem.m if problem.x_turned else problem.n", "elements from row to row of `x`"),
        OptionalSize("out_pitch", "problem.n", "elements from row to row of `out` and `addend`"),
    ),
    arguments=(
        Input("x", ("m", "n"), pitch="x_pitch", turned="x_turned"),
        Input("addend", ("m", "n"), pitch="out_pitch", when="added", may_be="out"),
        Input("bias", ("n",), when="bias"),
        Output("out", ("m", "n"), pitch="out_pitch"),
        *(Size(name) for name in ("m", "n", "x_pitch", "out_pitch")),
        Scalar("alpha", 1.0),
        Scalar("beta", 1.0),
        Scratch("work"),
    ),
    parameters=(
        Parameter("width", (32, 64), 32, "threads a block"),
        Parameter("packed", (False, True), False, "whether x is copied into rows first"),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.n, width)", "problem.m"),
        block=("width",),
        scratch_bytes="problem.m * problem.n * problem.itemsize if packed else 0",
        before=(Step("pack", ("ceil_div(problem.m * problem.n, width)",), ("width",), when="packed"),),
        after=(Step("finish", ("problem.m",), ("threads",), when="packed and problem.bias"),),
    ),
    traits=(
        Trait("x_turned", "problem.x_turned == 1", "x is stored n × m"),
        Trait("added", "problem.added == 1", "there is an addend"),
        Trait("bias", "problem.bias == 1", "there is a bias"),
    ),
    reference=reference,
    error_bound=error_bound,
    flops="2 * problem.m * problem.n",
    bytes="(2 + problem.added) * problem.m * problem.n * problem.itemsize",
    check_sizes=((1, 1), (1, 37), (65, 1), (33, 100), {"m": 33, "n": 40, "x_pitch": 50, "out_pitch": 44}),
)
