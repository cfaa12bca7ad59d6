"""Copy: out[i] = in[i]. Small enough to read at a glance; what tests use where any kernel will do."""

from __future__ import annotations

from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size

KERNEL = Kernel(
    name="toy",
    doc="out[i] = in[i]",
    dimensions=("n",),
    dtypes=("float32", "float64"),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(
        Parameter("width", (32, 64, 128, 256), 128, "threads a block"),
        Parameter("staged", (False, True), False, "through shared memory"),
        Parameter("buffers", (1, 64, 100), 1, "elements of shared memory a thread, when staged"),
    ),
    rules=(
        Rule("width % 32 == 0", "{width} threads are not whole warps"),
        Rule("threads <= device.max_threads_per_block", "too many threads"),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.n, threads)",),
        block=("width",),
        shared_bytes="width * buffers * problem.itemsize if staged else 0",
    ),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
)
