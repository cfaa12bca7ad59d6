"""A matmul without a tile, with one, and with one that lacks a barrier on purpose, and is wrong: see docs/memory.md."""

from __future__ import annotations

import numpy as np

from autotile.kernels import Arrays, Derived, Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size
from autotile.types import Problem


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, n × n, float64."""
    return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """γ_n |A||B|, γ_n = n·u / (1 − n·u), u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
    §3.5), as much of float64 for the reference, and half a smallest subnormal a product and a whole one for the sum."""
    n = problem["n"]
    gammas = sum(n * unit / (1 - n * unit) for unit in (2.0**-24, 2.0**-53))
    size = np.abs(inputs["a"].astype(np.float64)) @ np.abs(inputs["b"].astype(np.float64))
    return {"c": gammas * size + (1 + n / 2) * 2.0**-149}


KERNEL = Kernel(
    name="product",
    doc="C = A·B, n × n",
    dimensions=("n",),
    dtypes=("float32",),
    arguments=(Input("a", ("n", "n")), Input("b", ("n", "n")), Output("c", ("n", "n")), Size("n")),
    parameters=(
        Parameter("way", ("naive", "tile"), "tile", "from global memory, or through tiles in shared memory"),
        Parameter("each", (1, 2, 4), 1, "a thread computes each × each elements of C"),
        Parameter(
            "barriers",
            ("both", "first_missing", "second_missing"),
            "both",
            "with one missing the kernel is wrong, on purpose: to see the race; no search takes it unasked",
            searched=("both",),
        ),
    ),
    derived=(Derived("side", "32 * each", "rows and columns of C that a block computes"),),
    rules=(
        Rule("way == 'tile' or each == 1", "without a tile a thread computes one element: set each=1"),
        Rule("way == 'tile' or barriers == 'both'", "without a tile there are no barriers to leave out"),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.n, side)", "ceil_div(problem.n, side)"),
        block=("32", "32"),
        static_shared_bytes="2 * 32 * side * 4 if way == 'tile' else 0",
    ),
    presets={"naive": {"way": "naive"}, "tile32": {"way": "tile"}, "registers": {"way": "tile", "each": 4}},
    baseline="naive",
    reference=reference,
    error_bound=error_bound,
    flops="2 * problem.n * problem.n * problem.n",
    bytes="3 * problem.n * problem.n * problem.itemsize",
    trace_sizes=("2 * side",),
    check_sizes=((1,), (31,), (33,), (64,), (100,)),
)
