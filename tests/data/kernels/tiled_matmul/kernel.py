"""Matmul in Kernel Tuner's tuning space: what a comparison of tuners needs. The template is kernel.cu.j2, beside this
file; README.md says what the parameters do."""

from __future__ import annotations

import numpy as np

from autotile.kernels import Arrays, Derived, Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size, Trait
from autotile.types import Problem


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, m × n, float64: the product of the inputs as they are."""
    return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """γ_k |A||B| for sums in float32, m × n, float64, elementwise.

    γ_k = k·u / (1 − k·u), u = 2⁻²⁴ (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.5); as much of
    float64 for the reference itself, and half a smallest subnormal for each product and a whole one for the output.
    """
    k = problem["k"]
    gammas = sum(k * unit / (1 - k * unit) for unit in (2.0**-24, 2.0**-53))
    size = np.abs(inputs["a"].astype(np.float64)) @ np.abs(inputs["b"].astype(np.float64))
    return {"c": gammas * size + (1 + k / 2) * 2.0**-149}


KERNEL = Kernel(
    name="tiled_matmul",
    doc="C = A·B, row-major, through tiles in shared memory, many elements a thread",
    dimensions=("m", "n", "k"),
    dtypes=("float32",),
    arguments=(
        Input("a", ("m", "k")),
        Input("b", ("k", "n")),
        Output("c", ("m", "n")),
        Size("m"),
        Size("n"),
        Size("k"),
    ),
    parameters=(
        Parameter("block_size_x", (16, 32, 64), 32, "threads of a block along a row of C, and the steps along k"),
        Parameter("block_size_y", (1, 2, 4, 8, 16, 32), 8, "threads of a block down a column of C"),
        Parameter("tile_size_x", (1, 2, 4, 8), 4, "elements of C that a thread computes in a row"),
        Parameter("tile_size_y", (1, 2, 4, 8), 4, "elements of C that a thread computes in a column"),
    ),
    derived=(
        Derived("rows", "block_size_y * tile_size_y", "rows of C that a block computes"),
        Derived("cols", "block_size_x * tile_size_x", "columns of C that a block computes"),
        Derived("tile_bytes", "problem.itemsize * block_size_x * (rows + cols)", "A's tile and B's"),
    ),
    rules=(
        Rule(
            "block_size_x == rows",
            "a step along k is {block_size_x} long, and as many rows of B's tile must be loaded: block_size_y * "
            "tile_size_y is {rows}",
        ),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.m, rows) * ceil_div(problem.n, cols)",),
        block=("block_size_x", "block_size_y"),
        shared_bytes="tile_bytes if tile_bytes > 49152 else 0",
        static_shared_bytes="tile_bytes if tile_bytes <= 49152 else 0",
    ),
    traits=(
        Trait(
            "whole",
            "problem.m % rows == 0 and problem.n % cols == 0 and problem.k % block_size_x == 0",
            "A, B and C are made of whole tiles",
        ),
    ),
    reference=reference,
    error_bound=error_bound,
    flops="2 * problem.m * problem.n * problem.k",
    bytes="(problem.m * problem.k + problem.k * problem.n + problem.m * problem.n) * problem.itemsize",
    trace_sizes=("rows", "cols", "2 * block_size_x"),
    check_sizes=((1, 1, 1), (31, 1, 64), (33, 65, 17), (70, 130, 67), (9, 515, 40), (64, 512, 64)),
)
