"""Serves under the name of `copied` too, for some of its own types."""

from __future__ import annotations

from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size

KERNEL = Kernel(
    name="copied_fast",
    doc="out[i] = in[i], several elements a thread",
    dimensions=("n",),
    dtypes=("int32", "float64", "float32"),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(Parameter("each", (2, 4), 4, "elements a thread"),),
    presets={"two": {"each": 2}},
    launch=LaunchPlan(grid=("ceil_div(problem.n, 32 * each)",), block=("32",)),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
)
