"""A transpose in three lines, straight or through a tile, whose columns lie in one bank or not: see docs/memory.md."""

from __future__ import annotations

import numpy as np

from autotile.kernels import Derived, Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size

KERNEL = Kernel(
    name="turn",
    doc="out[c][r] = in[r][c]",
    dimensions=("rows", "cols"),
    dtypes=("float32",),
    arguments=(Input("in", ("rows", "cols")), Output("out", ("cols", "rows")), Size("rows"), Size("cols")),
    parameters=(
        Parameter("way", ("strided", "tile"), "tile", "straight, or through a tile in shared memory"),
        Parameter("layout", ("plain", "padded", "swizzled"), "padded", "of the tile"),
    ),
    derived=(Derived("pitch", "33 if layout == 'padded' else 32", "floats from row to row of the tile"),),
    rules=(Rule("way == 'tile' or layout == 'plain'", "there is no tile to lay out: set layout=plain"),),
    launch=LaunchPlan(
        grid=("ceil_div(problem.rows, 32)", "ceil_div(problem.cols, 32)"),
        block=("32", "32"),
        static_shared_bytes="32 * pitch * 4 if way == 'tile' else 0",
    ),
    presets={
        "strided": {"way": "strided", "layout": "plain"},
        "tile32": {"layout": "plain"},
        "tile33": {"layout": "padded"},
        "swizzled": {"layout": "swizzled"},
    },
    baseline="strided",
    reference=lambda inputs, problem: {"out": np.ascontiguousarray(inputs["in"].T)},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.rows * problem.cols * problem.itemsize",
)
