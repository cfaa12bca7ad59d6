"""Lanes whose slots in shared memory lie some floats apart, and one slot that all read: see docs/memory.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.kernels import Arrays, Input, Kernel, LaunchPlan, Output, Parameter, Size
from autotile.types import Problem


def parts(inputs: Arrays, problem: Problem) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """In float64, each of shape (n,): the floats, and beside each the first of its group."""
    floats = inputs["in"].astype(np.float64)
    return floats, floats[np.arange(problem["n"]) // 32 * 32]


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    floats, firsts = parts(inputs, problem)
    return {"out": floats - firsts}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """One rounding, of a difference, and the smallest subnormal."""
    floats, firsts = parts(inputs, problem)
    return {"out": 2.0**-24 * (np.abs(floats) + np.abs(firsts)) + 2.0**-149}


KERNEL = Kernel(
    name="banks",
    doc="out[i] = in[i] - in[the first of its group of 32]",
    dimensions=("n",),
    dtypes=("float32",),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(Parameter("stride", (1, 2, 3, 4, 8, 16, 32, 33), 1, "floats from one lane's slot to the next lane's"),),
    launch=LaunchPlan(grid=("ceil_div(problem.n, 32)",), block=("32",), static_shared_bytes="4 * (31 * stride + 1)"),
    reference=reference,
    error_bound=error_bound,
    flops="problem.n",
    bytes="2 * problem.n * problem.itemsize",
)
