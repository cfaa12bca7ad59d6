"""A copy through as much shared memory as is asked for, static or dynamic: see docs/memory.md."""

from __future__ import annotations

from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size

KERNEL = Kernel(
    name="window",
    doc="out[i] = in[i], by way of shared memory",
    dimensions=("n",),
    dtypes=("float32",),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(
        Parameter("memory", ("static", "dynamic"), "static", "who knows the size: the compiler, or the launch"),
        Parameter("kib", (16, 48, 49, 64, 99, 100, 227, 228), 16, "KiB of shared memory a block"),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.n, 256 * kib)",),
        block=("256",),
        shared_bytes="1024 * kib if memory == 'dynamic' else 0",
        static_shared_bytes="1024 * kib if memory == 'static' else 0",
    ),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
)
