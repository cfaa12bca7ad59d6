"""One member of many points, which lie as an array of structures or as a structure of arrays: see docs/memory.md."""

from __future__ import annotations

from autotile.kernels import Arrays, Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Size, Switch, Trait
from autotile.types import Problem


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """The first of each three floats, or the first n of all."""
    n = problem["n"]
    return {"out": inputs["points"][:n] if "arrays" in problem.switches else inputs["points"][: 3 * n : 3]}


KERNEL = Kernel(
    name="points",
    doc="out[i] = the x of point i, of points x, y, z",
    dimensions=("n",),
    dtypes=("float32",),
    switches=(Switch("arrays", "all x lie together, then all y, then all z"),),
    optional=(OptionalSize("floats", "3 * problem.n", "floats of `points`"),),
    arguments=(Input("points", ("floats",)), Output("out", ("n",)), Size("n")),
    parameters=(Parameter("width", (128, 256), 128, "threads a block"),),
    launch=LaunchPlan(grid=("ceil_div(problem.n, width)",), block=("width",)),
    traits=(Trait("arrays", "problem.arrays == 1", "a structure of arrays"),),
    reference=reference,
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
)
