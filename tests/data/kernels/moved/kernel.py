"""A copy of matrices that knows batches and pitches: what tests use where a problem has options."""

from __future__ import annotations

from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, ShapeClass, Size, Trait

KERNEL = Kernel(
    name="moved",
    doc="out[b][r][c] = in[b][r][c]",
    dimensions=("rows", "cols"),
    dtypes=("float32", "int32", "float64", "int64"),
    optional=(
        OptionalSize("batch", "1", "matrices"),
        OptionalSize("pitch", "problem.cols", "elements from one row of `in` to the next"),
    ),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="pitch"),
        Output("out", ("batch", "rows", "cols")),
        *(Size(name) for name in ("batch", "rows", "cols", "pitch")),
    ),
    parameters=(Parameter("width", (32, 64, 128, 256), 128, "threads a block"),),
    launch=LaunchPlan(grid=("ceil_div(problem.cols, width)", "problem.rows", "problem.batch"), block=("width",)),
    traits=(Trait("aligned", "problem.alignment % 16 == 0 and problem.pitch % 4 == 0", "rows begin on 16 bytes"),),
    classes=(ShapeClass("tall", "problem.rows >= 8 * problem.cols"), ShapeClass("other", "True")),
    in_place=("in", "out"),
    opaque=True,
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.batch * problem.rows * problem.cols * problem.itemsize",
)
