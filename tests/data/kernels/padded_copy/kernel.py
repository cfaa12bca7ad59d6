"""Copy of matrices whose rows and matrices may lie apart: out[b][r][c] = in[b][r][c]."""

from __future__ import annotations

from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Size, Trait

KERNEL = Kernel(
    name="padded_copy",
    doc="out[b][r][c] = in[b][r][c]",
    dimensions=("rows", "cols"),
    dtypes=("float32", "int8", "complex128", "bfloat16", "float64"),
    optional=(
        OptionalSize("batch", "1", "matrices"),
        OptionalSize("in_pitch", "problem.cols", "elements from row to row of `in`"),
        OptionalSize("out_pitch", "problem.cols", "elements from row to row of `out`"),
        OptionalSize("in_step", "problem.rows", "rows from matrix to matrix of `in`"),
        OptionalSize("out_step", "problem.rows", "rows from matrix to matrix of `out`"),
    ),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="in_pitch", step="in_step"),
        Output("out", ("batch", "rows", "cols"), pitch="out_pitch", step="out_step"),
        *(Size(name) for name in ("batch", "rows", "cols", "in_pitch", "out_pitch", "in_step", "out_step")),
    ),
    parameters=(Parameter("width", (32, 64, 128), 64, "threads a block"),),
    launch=LaunchPlan(grid=("problem.rows", "problem.batch"), block=("width",)),
    traits=(
        Trait(
            "even",
            "problem.alignment % (2 * problem.itemsize) == 0 and problem.cols % 2 == 0 and problem.in_pitch % 2 == 0",
            "every row of `in` begins on a pair of elements",
        ),
    ),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.batch * problem.rows * problem.cols * problem.itemsize",
    trace_sizes=("8", "width"),
    check_sizes=((1, 1), (3, 65), {"rows": 5, "cols": 33, "batch": 2, "in_pitch": 40, "out_pitch": 37, "out_step": 6}),
)
