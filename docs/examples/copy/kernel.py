"""A copy whose lanes ask for memory in the ways that docs/memory.md compares."""

from __future__ import annotations

from autotile.kernels import (
    Arrays,
    Derived,
    Input,
    Kernel,
    LaunchPlan,
    OptionalSize,
    Output,
    Parameter,
    Rule,
    Size,
    Switch,
    Trait,
)
from autotile.types import Problem


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """n floats, from the first on, or from the second."""
    first = int("late" in problem.switches)
    return {"out": inputs["in"][first : first + problem["n"]]}


KERNEL = Kernel(
    name="copy",
    doc="out[i] = in[i], or in[i + 1]",
    dimensions=("n",),
    dtypes=("float32",),
    switches=(Switch("late", "the first float of `in` is left out"),),
    optional=(OptionalSize("length", "problem.n + problem.late", "floats of `in`"),),
    arguments=(Input("in", ("length",)), Output("out", ("n",)), Size("n")),
    parameters=(
        Parameter("vector", (1, 2, 4), 1, "floats of a word, which a thread moves at once"),
        Parameter("each", (1, 2, 4, 8, 32), 1, "words that a thread copies"),
        Parameter("order", ("in_turns", "stretches"), "in_turns", "whether neighbours take neighbours"),
    ),
    derived=(Derived("word_bytes", "vector * problem.itemsize"),),
    rules=(
        Rule(
            "problem.alignment % word_bytes == 0 and (vector == 1 or not problem.late)",
            "a word of {word_bytes} bytes must lie at a multiple of {word_bytes}, and the first would not",
        ),
        Rule("problem.n % vector == 0", "{problem.n} floats are no whole number of words of {vector}"),
        Rule("each > 1 or order == 'in_turns'", "a stretch of one word is a turn: leave order at in_turns"),
    ),
    launch=LaunchPlan(grid=("ceil_div(problem.n, vector * each * 128)",), block=("128",)),
    presets={
        "plain": {},
        "words": {"vector": 4},
        "stretches": {"each": 8, "order": "stretches"},
        "turns": {"each": 8},
    },
    baseline="plain",
    traits=(Trait("late", "problem.late == 1", "the first float of `in` is left out"),),
    reference=reference,
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
)
