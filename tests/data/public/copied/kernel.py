"""A copy that leaves some types, on some GPUs, to another folder: what tests use of one name for two kernels."""

from __future__ import annotations

from autotile.kernels import Input, Instead, Kernel, LaunchPlan, Output, Parameter, Size

KERNEL = Kernel(
    name="copied",
    doc="out[i] = in[i]",
    dimensions=("n",),
    dtypes=("float32", "float64"),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(Parameter("width", (32, 64), 64, "threads a block"),),
    presets={"narrow": {"width": 32}},
    launch=LaunchPlan(grid=("ceil_div(problem.n, width)",), block=("width",)),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
    instead=(
        Instead(
            "copied_fast",
            when="problem.dtype in ('int32', 'float64') and device.compute_capability >= 80",
            doc="several elements a thread",
        ),
    ),
)
