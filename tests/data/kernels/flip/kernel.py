"""Flip: out[b][c][r] = in[b][r][c], an element a thread, in place too: what tests of views and batches call."""

from __future__ import annotations

import numpy as np

from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Size, Trait

KERNEL = Kernel(
    name="flip",
    doc="out[b][c][r] = in[b][r][c]",
    dimensions=("rows", "cols"),
    dtypes=("float32", "float64", "int8", "complex64", "complex128", "bfloat16"),
    optional=(
        OptionalSize("batch", "1", "matrices"),
        OptionalSize("in_pitch", "problem.cols", "elements from row to row of `in`"),
        OptionalSize("out_pitch", "problem.rows", "elements from row to row of `out`"),
        OptionalSize("in_step", "problem.rows", "rows from matrix to matrix of `in`"),
        OptionalSize("out_step", "problem.cols", "rows from matrix to matrix of `out`"),
    ),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="in_pitch", step="in_step"),
        Output("out", ("batch", "cols", "rows"), pitch="out_pitch", step="out_step"),
        *(Size(name) for name in ("rows", "cols", "in_pitch", "out_pitch", "in_step", "out_step")),
    ),
    parameters=(Parameter("width", (32, 64), 32, "threads a block"),),
    launch=LaunchPlan(grid=("ceil_div(problem.rows * problem.cols, width)", "problem.batch"), block=("width",)),
    traits=(Trait("swap", "problem.in_place", "each pair changes places"),),
    in_place=("in", "out"),
    opaque=True,
    reference=lambda inputs, problem: {"out": np.ascontiguousarray(np.swapaxes(inputs["in"], -1, -2))},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.batch * problem.rows * problem.cols * problem.itemsize",
)
