"""Dots: out = alpha * x @ y + addend + bias, in the type of the results: what tests of arrays of two types call.

Sums of int8 are int32, of shorter floats of their own type or, `wide`, float32. Of integers, alpha times a sum is
rounded to the nearest before the rest is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from autotile.dtypes import element_type
from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Scalar, Size, Switch, Trait
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    if problem.dtype == "int8":
        x, y = inputs["x"].astype(np.int64), inputs["y"].astype(np.int64)
        scaled = np.rint(inputs["alpha"].astype(np.float32) * (x @ y).astype(np.float32))
        return {"out": sum(added(inputs, np.int64), scaled.astype(np.int64)).astype(np.int32)}
    x, y = inputs["x"].astype(np.float64), inputs["y"].astype(np.float64)
    return {"out": sum(added(inputs, np.float64), inputs["alpha"] * (x @ y))}


def added(inputs: Arrays, dtype: type) -> list[Any]:
    return [inputs[name].astype(dtype) for name in ("addend", "bias") if name in inputs]


def error_bound(inputs: Arrays, problem: Problem) -> Mapping[str, Any]:
    """A rounding a product, a sum and a step after, each in the accumulator's type, and one to the result's."""
    if problem.dtype == "int8":
        return {"out": 0.0}
    x, y = (np.abs(inputs[name].astype(np.float64)) for name in "xy")
    size = np.abs(inputs["alpha"]) * (x @ y) + sum(map(np.abs, added(inputs, np.float64)))
    unit = element_type("float64" if problem.dtype == "float64" else "float32").unit_roundoff
    result = KERNEL.result_type(problem)
    least = float(ml_dtypes.finfo(result.numpy).smallest_subnormal)
    return {"out": ((2 * problem["k"] + 6) * unit + 2 * result.unit_roundoff) * size + 2 * least}


KERNEL = Kernel(
    name="dots",
    doc="out = alpha * x @ y + addend + bias",
    dimensions=("m", "n", "k"),
    dtypes=("int8", "bfloat16", "float16", "float32", "float64", "tf32", "float8_e4m3fn", "float8_e5m2"),
    switches=(
        Switch("wide", "results are float32"),
        Switch("added", "an addend is added"),
        Switch("bias", "a bias is added to each row"),
    ),
    wide="wide",
    optional=(OptionalSize("out_pitch", "problem.n", "elements from row to row of `out` and `addend`"),),
    arguments=(
        Input("x", ("m", "k")),
        Input("y", ("k", "n")),
        Input("addend", ("m", "n"), pitch="out_pitch", when="added", may_be="out", of="result"),
        Input("bias", ("n",), when="bias", of="result"),
        Output("out", ("m", "n"), pitch="out_pitch", of="result"),
        *(Size(name) for name in ("m", "n", "k", "out_pitch")),
        Scalar("alpha", 1.0),
    ),
    parameters=(Parameter("width", (32, 64), 32, "threads a block"),),
    launch=LaunchPlan(grid=("ceil_div(problem.n, 2 * width)", "problem.m"), block=("width",)),
    traits=(
        Trait("added", "problem.added == 1", "there is an addend"),
        Trait("bias", "problem.bias == 1", "there is a bias"),
        Trait(
            "paired",
            "problem.alignment % (2 * problem.result_itemsize) == 0 and (problem.n + problem.out_pitch) % 2 == 0 "
            "and problem.n % 2 == 0",
            "every row of `out` is of pairs that begin on their size",
        ),
    ),
    reference=reference,
    error_bound=error_bound,
    flops="2 * problem.m * problem.n * problem.k",
    bytes="(problem.m + problem.n) * problem.k * problem.itemsize + problem.m * problem.n * problem.result_itemsize",
    check_sizes=((1, 1, 1), (3, 7, 5), (5, 34, 20), {"m": 4, "n": 10, "k": 6, "out_pitch": 14}),
    trace_sizes=("2", "2 * width", "8"),
)
