"""Matmul: C = A·B, row-major. The template is kernel.cu.j2, the story README.md, both beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import element_type
from autotile.kernels import Derived, Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size, Trait
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`c`, m × n, float64: the product of the inputs as they are, 16-bit ones first widened (exactly) to float64."""
    return {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64)}


def error_bound(inputs: Arrays, problem: Problem) -> Arrays:
    """The most that a right kernel may be off, m × n, float64, elementwise.

    Summing k products in any order, with or without fused multiply-add, in a type of unit roundoff u gives
    |fl(AB) − AB| ≤ γ_k |A||B|, γ_k = k·u / (1 − k·u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
    §3.5). u is the accumulator's: 2⁻²⁴ for float32 and 16-bit types (whose products are exact in float32), 2⁻⁵³ for
    float64. Rounding the sum to a 16-bit output adds u_out·(|AB| + γ_k |A||B|). Underflow adds half a smallest
    subnormal for each of the k products, any of which may fall below it, and one for the output (ibid., §2.4). The
    reference in float64 is itself off by γ_k of float64, which is added: for float64 that doubles the bound.
    """
    element = element_type(problem.dtype)
    a, b = inputs["a"].astype(np.float64), inputs["b"].astype(np.float64)
    size = np.abs(a) @ np.abs(b)
    accumulator = element_type("float64" if element.accumulator == "double" else "float32")
    bound = _gamma(problem["k"], accumulator.unit_roundoff) * size
    if element is not accumulator:
        bound += element.unit_roundoff * (np.abs(a @ b) + bound)
    bound += _gamma(problem["k"], element_type("float64").unit_roundoff) * size
    return {"c": bound + _smallest_subnormal(problem.dtype) * (1 + problem["k"] / 2)}


def _gamma(count: int, unit_roundoff: float) -> float:
    return count * unit_roundoff / (1 - count * unit_roundoff)


def _smallest_subnormal(dtype: str) -> float:
    return {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}[dtype]


KERNEL = Kernel(
    name="matmul",
    doc="C = A·B, row-major, any size",
    dimensions=("m", "n", "k"),
    dtypes=("float32", "float64", "float16", "bfloat16"),
    arguments=(
        Input("a", ("m", "k")),
        Input("b", ("k", "n")),
        Output("c", ("m", "n")),
        Size("m"),
        Size("n"),
        Size("k"),
    ),
    parameters=(
        Parameter(
            "staging",
            ("none", "static", "dynamic"),
            "static",
            "none: straight from global memory; static or dynamic: through tiles in that kind of shared memory",
        ),
        Parameter("block_m", (16, 32, 64, 128, 256), 64, "rows of C that a block computes"),
        Parameter("block_n", (16, 32, 64, 128, 256), 64, "columns of C that a block computes"),
        Parameter("block_k", (8, 16, 32), 16, "how far along k a tile reaches"),
        Parameter("thread_m", (1, 4, 8, 16), 4, "rows of C that a thread computes"),
        Parameter("thread_n", (1, 4, 8, 16), 4, "columns of C that a thread computes"),
        Parameter("lanes_m", (1, 2, 4, 8), 4, "lanes of a warp along m, the other 32 / lanes_m lie along n"),
        Parameter("a_layout", ("row", "k_major"), "k_major", "A's tile in shared memory: by rows, or turned"),
        Parameter("pad_a", (0, 1, 4), 4, "elements after each row of A's tile, against bank conflicts"),
        Parameter("pad_b", (0, 4), 0, "elements after each row of B's tile"),
        Parameter("vector", (1, 2, 4), 2, "elements that one load or store of global memory moves"),
        Parameter("stages", (1, 2, 3, 4), 1, "tiles in flight: 1 with two barriers a step, more in a ring with one"),
        Parameter("unroll", (2, 4, 8, 16, 32), 8, "steps of the innermost loop along k that the compiler unrolls"),
        Parameter("min_blocks", (1, 2), 1, "blocks that must fit a multiprocessor: bounds a thread's registers"),
        Parameter("group", (1, 8), 1, "rows of tiles that are walked together, for the L2 cache"),
    ),
    derived=(
        Derived("textbook", "staging == 'static' and thread_m * thread_n == 1", "one element a thread, from tiles"),
        Derived("word_bytes", "vector * problem.itemsize", "bytes that one load or store of global memory moves"),
        Derived(
            "chunk_m",
            "min(thread_m, max(1, 16 // problem.itemsize), 4) if a_layout == 'k_major' else 1",
            "rows that a thread reads from shared memory at once",
        ),
        Derived(
            "chunk_n",
            "min(thread_n, max(1, 16 // problem.itemsize), 4)",
            "columns that a thread reads from shared memory at once",
        ),
        Derived(
            "a_bytes",
            "problem.itemsize * "
            "(block_k * (block_m + pad_a) if a_layout == 'k_major' else block_m * (block_k + pad_a))",
            "A's tile in shared memory",
        ),
        Derived("tile_bytes", "a_bytes + problem.itemsize * block_k * (block_n + pad_b)", "A's tile and B's"),
        Derived("sum_registers", "max(1, problem.itemsize // 4)", "registers of one sum"),
        Derived(
            "least_registers",
            "sum_registers * (thread_m * thread_n + thread_m + thread_n) + 24",
            "registers below which a thread's sums, and what one step adds to them, would spill",
        ),
        Derived(
            "registers",
            "least_registers + sum_registers * (thread_m + thread_n) + 16",
            "a guess at a thread's registers: with the next step's values on their way as well",
        ),
    ),
    launch=LaunchPlan(
        grid=("ceil_div(problem.m, block_m) * ceil_div(problem.n, block_n)",),
        block=(
            "block_n if staging == 'none' or textbook else block_m * block_n // (thread_m * thread_n)",
            "block_m if staging == 'none' or textbook else 1",
        ),
        shared_bytes="stages * tile_bytes if staging == 'dynamic' else 0",
        static_shared_bytes="tile_bytes if staging == 'static' else 0",
    ),
    rules=(
        Rule(
            "problem.k <= 1000000 or problem.dtype == 'float64'",
            "with k = {problem.k} the error bound of float32 sums is a tenth of |A||B| and proves little; use float64",
        ),
        # What does nothing stays at one value, or the space would hold the same kernel many times.
        Rule(
            "staging != 'none' or (thread_m == 1 and thread_n == 1 and block_k == 8)",
            "without tiles a thread computes one element and nothing steps: thread_m and thread_n must be 1 "
            "(are {thread_m} and {thread_n}) and block_k 8 (is {block_k})",
        ),
        Rule(
            "staging != 'none' or (pad_a == 0 and pad_b == 0)",
            "without tiles there is nothing to pad: pad_a and pad_b must be 0 (are {pad_a} and {pad_b})",
        ),
        Rule(
            "(staging != 'none' and not textbook) or (lanes_m == 1 and a_layout == 'row' and vector == 1)",
            "one element a thread is a warp along n, A by rows and no vectors: lanes_m must be 1 (is {lanes_m}), "
            "a_layout row (is {a_layout}) and vector 1 (is {vector})",
        ),
        Rule(
            "not textbook or (block_m == block_n and block_n == block_k)",
            "one element a thread, through tiles, wants square tiles, which each thread helps to load by one element: "
            "block_m, block_n and block_k must be equal (are {block_m}, {block_n} and {block_k})",
        ),
        Rule(
            "staging == 'dynamic' or stages == 1",
            "a ring of {stages} tiles needs staging dynamic, not {staging}: elsewhere stages must be 1",
        ),
        Rule(
            "staging == 'none' or unroll <= block_k",
            "unrolling {unroll} steps of a tile that has only block_k = {block_k}",
        ),
        Rule(
            "staging == 'none' or textbook or unroll >= 8",
            "a register tile hides its reads behind 8 unrolled steps or more, not {unroll}",
        ),
        # Shapes.
        Rule(
            "word_bytes <= 16",
            "a word of {vector} elements of {problem.itemsize} bytes is {word_bytes} bytes; one load moves 16 at most",
        ),
        Rule(
            "staging == 'none' or textbook or "
            "(block_m % (lanes_m * thread_m) == 0 and block_n % (32 // lanes_m * thread_n) == 0)",
            "a block of {block_m}×{block_n} is not made of whole warps of {lanes_m * thread_m}×"
            "{32 // lanes_m * thread_n} ({lanes_m}×{32 // lanes_m} lanes of {thread_m}×{thread_n})",
        ),
        Rule("threads % 32 == 0 and threads >= 32", "{threads} threads are not whole warps of 32"),
        Rule(
            "block_k % vector == 0 and block_n % vector == 0",
            "rows of tiles of {block_k} and {block_n} elements are not made of whole words of {vector}",
        ),
        Rule(
            "block_m % thread_m == 0 and block_n % thread_n == 0 "
            "and thread_m % chunk_m == 0 and thread_n % chunk_n == 0",
            "{thread_m}×{thread_n} elements a thread do not divide {block_m}×{block_n} in chunks of "
            "{chunk_m}×{chunk_n}",
        ),
        # Words in shared memory must lie on their own size.
        Rule(
            "pad_a % (chunk_m if a_layout == 'k_major' else vector) == 0",
            "a pad of {pad_a} elements would misalign A's tile, which is read in words of "
            "{chunk_m if a_layout == 'k_major' else vector}: use a multiple",
        ),
        Rule(
            "pad_b % max(chunk_n, vector) == 0",
            "a pad of {pad_b} elements would misalign B's tile, which is filled and read in words of "
            "{max(chunk_n, vector)}: use a multiple",
        ),
        Rule(
            "a_bytes % 16 == 0 and tile_bytes % 16 == 0",
            "tiles of {a_bytes} and {tile_bytes - a_bytes} bytes would not lie on 16 bytes",
        ),
        # What cannot fit, or not be fast.
        Rule(
            "staging == 'none' or textbook or (thread_m <= 4 * thread_n and thread_n <= 4 * thread_m)",
            "{thread_m}×{thread_n} elements a thread reuse little of what they read: one side is more than 4 times "
            "the other",
        ),
        Rule(
            "staging == 'none' or textbook or thread_m * thread_n >= 16",
            "{thread_m}×{thread_n} elements a thread are too few to be worth registers: 16 at least",
        ),
        Rule(
            "block_m <= 8 * block_n and block_n <= 8 * block_m",
            "a block of {block_m}×{block_n} reuses little of what it loads: one side is more than 8 times the other",
        ),
        Rule("thread_m * thread_n <= 128", "{thread_m}×{thread_n} sums a thread; more than 128 spill"),
        Rule(
            "registers <= min(255, device.max_registers_per_thread)",
            "about {registers} registers a thread, of {device.max_registers_per_thread}",
        ),
        Rule(
            "min_blocks * threads <= device.max_threads_per_sm",
            "{min_blocks} blocks of {threads} threads do not fit the {device.max_threads_per_sm} of a multiprocessor",
        ),
        Rule(
            "min_blocks * threads * least_registers <= device.registers_per_sm",
            "{min_blocks} blocks of {threads} threads with {least_registers} registers or more do not fit the "
            "{device.registers_per_sm} of a multiprocessor: they would spill",
        ),
        Rule(
            "min_blocks * (shared_bytes + static_shared_bytes) <= device.shared_bytes_per_sm",
            "{min_blocks} blocks of {shared_bytes + static_shared_bytes} bytes do not fit the "
            "{device.shared_bytes_per_sm} bytes of shared memory of a multiprocessor",
        ),
    ),
    traits=(
        Trait(
            "aligned",
            "problem.alignment % word_bytes == 0 and problem.k % vector == 0 and problem.n % vector == 0",
            "every row of A, B and C begins on a whole word, and holds whole words",
        ),
    ),
    presets={
        "one_element": {
            "staging": "none",
            "block_m": 32,
            "block_n": 32,
            "block_k": 8,
            "thread_m": 1,
            "thread_n": 1,
            "lanes_m": 1,
            "a_layout": "row",
            "pad_a": 0,
            "pad_b": 0,
            "vector": 1,
            "unroll": 4,
        },
        "tile32": {
            "staging": "static",
            "block_m": 32,
            "block_n": 32,
            "block_k": 32,
            "thread_m": 1,
            "thread_n": 1,
            "lanes_m": 1,
            "a_layout": "row",
            "pad_a": 0,
            "pad_b": 0,
            "vector": 1,
            "unroll": 2,
        },
    },
    reference=reference,
    error_bound=error_bound,
    flops="2 * problem.m * problem.n * problem.k",
    bytes="(problem.m * problem.k + problem.k * problem.n + problem.m * problem.n) * problem.itemsize",
    trace_sizes=("block_m", "block_n", "block_k * max(4, stages + 1)"),
    check_sizes=(
        (1, 1, 1),
        (31, 1, 64),
        (33, 65, 17),
        (100, 100, 100),
        (128, 128, 130),
        (257, 63, 129),
        (5, 300, 7),
        (64, 256, 96),
    ),
)
