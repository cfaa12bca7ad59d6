"""Transpose of a matrix, also where it lies: then a thread swaps the elements of a pair, and the matrix is square."""

from __future__ import annotations

import numpy as np

from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Size, Trait

KERNEL = Kernel(
    name="square",
    doc="out[c][r] = in[r][c]",
    dimensions=("rows", "cols"),
    dtypes=("float32", "int8", "float64"),
    optional=(
        OptionalSize("in_pitch", "problem.cols", "elements from row to row of `in`"),
        OptionalSize("out_pitch", "problem.rows", "elements from row to row of `out`"),
    ),
    arguments=(
        Input("in", ("rows", "cols"), pitch="in_pitch"),
        Output("out", ("cols", "rows"), pitch="out_pitch"),
        *(Size(name) for name in ("rows", "cols", "in_pitch", "out_pitch")),
    ),
    in_place=("in", "out"),
    parameters=(Parameter("width", (32, 64), 32, "threads a block"),),
    launch=LaunchPlan(grid=("problem.rows",), block=("width",)),
    traits=(
        Trait("within", "problem.in_place == 1", "`out` lies where `in` does"),
        Trait("even", "problem.rows % 2 == 0 and problem.cols % 2 == 0", "both sides are even"),
    ),
    reference=lambda inputs, problem: {"out": np.ascontiguousarray(inputs["in"].T)},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.rows * problem.cols * problem.itemsize",
    trace_sizes=("8", "12"),
    check_sizes=((1, 1), (5, 7), (33, 33), (10, 10)),
)
