"""Transpose: out[c][r] = in[r][c]. The template is kernel.cu.j2, the story README.md, both beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.dtypes import ELEMENT_TYPES
from autotile.kernels import Derived, Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Rule, Size, Trait
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`out`, batch × cols × rows, of the input's own dtype: elements are moved, never computed with."""
    return {"out": np.ascontiguousarray(np.swapaxes(inputs["in"], -1, -2))}


def error_bound(inputs: Arrays, problem: Problem) -> Mapping[str, float]:
    """Zero: every element arrives bit for bit."""
    return {"out": 0.0}


KERNEL = Kernel(
    name="transpose",
    doc="out[c][r] = in[r][c], any size, elements of 1 to 16 bytes",
    dimensions=("rows", "cols"),
    dtypes=("float32", *(name for name in ELEMENT_TYPES if name != "float32")),
    optional=(
        OptionalSize("batch", "1", "matrices, each transposed by itself"),
        OptionalSize("in_pitch", "problem.cols", "elements from one row of `in` to the next"),
        OptionalSize("out_pitch", "problem.rows", "elements from one row of `out` to the next"),
        OptionalSize("in_step", "problem.rows", "rows from one matrix of `in` to the next"),
        OptionalSize("out_step", "problem.cols", "rows from one matrix of `out` to the next"),
    ),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="in_pitch", step="in_step"),
        Output("out", ("batch", "cols", "rows"), pitch="out_pitch", step="out_step"),
        *(Size(name) for name in ("rows", "cols", "batch", "in_pitch", "out_pitch", "in_step", "out_step")),
    ),
    parameters=(
        Parameter(
            "staging",
            ("strided_reads", "strided_writes", "tile"),
            "tile",
            "straight with strided loads, straight with strided stores, or through a tile in shared memory",
        ),
        Parameter("tile_rows", (16, 32, 64, 128, 256), 32, "rows of `in` that a block moves"),
        Parameter("tile_cols", (16, 32, 64, 128, 256), 32, "columns of `in` that a block moves"),
        Parameter("thread_rows", (1, 2, 4, 8, 16), 4, "rows that a thread handles, `vector` elements of each"),
        Parameter("vector", (1, 2, 4, 8, 16), 1, "elements that one load or store moves, 16 bytes at most"),
        Parameter("pad", (0, 1, 2, 4, 8), 1, "elements added to each row of the tile, against bank conflicts"),
        Parameter("swizzle", (False, True), False, "reorder the words of each row of the tile instead of padding"),
        Parameter("block_order", ("rows", "columns", "diagonal", "groups"), "rows", "order in which tiles are taken"),
    ),
    derived=(
        Derived("word_bytes", "vector * problem.itemsize", "bytes that one load or store moves"),
        Derived(
            "tile_bytes",
            "tile_rows * (tile_cols + pad) * problem.itemsize if staging == 'tile' else 0",
            "shared memory of the tile; static up to 48 KiB, dynamic above",
        ),
    ),
    launch=LaunchPlan(
        grid=(
            "ceil_div(problem.rows, tile_rows) * ceil_div(problem.cols, tile_cols)",
            "min(problem.batch, 32768)",
            "ceil_div(problem.batch, 32768)",
        ),
        block=("tile_rows * tile_cols // (thread_rows * vector)",),
        shared_bytes="tile_bytes if tile_bytes > 49152 else 0",
        static_shared_bytes="tile_bytes if tile_bytes <= 49152 else 0",
    ),
    rules=(
        Rule(
            "word_bytes <= 16",
            "a word of {vector} elements of {problem.itemsize} bytes is {word_bytes} bytes; one load moves 16 at most",
        ),
        Rule(
            "thread_rows % vector == 0",
            "a thread turns squares of {vector}×{vector} elements, so its {thread_rows} rows must be a multiple of "
            "{vector}",
        ),
        Rule(
            "tile_rows % thread_rows == 0 and tile_cols % vector == 0 and tile_rows % vector == 0",
            "a tile of {tile_rows}×{tile_cols} does not divide into {thread_rows} rows a thread and words of {vector}",
        ),
        Rule("threads % 32 == 0", "{threads} threads are not whole warps of 32"),
        Rule(
            "thread_rows * word_bytes <= 256",
            "a thread would hold {thread_rows} words of {word_bytes} bytes in registers; 256 bytes are the most",
        ),
        Rule(
            "staging == 'tile' or (pad == 0 and not swizzle)",
            "without a tile there is nothing to pad or swizzle: pad must be 0 (is {pad}) and swizzle false",
        ),
        Rule("not swizzle or pad == 0", "a swizzled tile needs no pad: pad must be 0, not {pad}"),
        Rule(
            "pad % vector == 0",
            "a pad of {pad} elements would misalign the tile's words of {vector} elements: use a multiple of {vector}",
        ),
        Rule(
            "not swizzle or (is_power_of_two(tile_cols) and is_power_of_two(vector))",
            "the swizzle needs powers of two, not {tile_cols} columns in words of {vector}",
        ),
    ),
    traits=(
        Trait(
            "aligned",
            "problem.alignment % word_bytes == 0 and problem.rows % vector == 0 and problem.cols % vector == 0 "
            "and problem.in_pitch % vector == 0 and problem.out_pitch % vector == 0",
            "every row of `in` and `out` begins on a whole word, and holds whole words",
        ),
    ),
    presets={
        "strided_reads": {"staging": "strided_reads", "pad": 0, "thread_rows": 1},
        "strided_writes": {"staging": "strided_writes", "pad": 0, "thread_rows": 1},
        "tile32": {"pad": 0, "thread_rows": 1},
        "tile33": {"pad": 1, "thread_rows": 1},
    },
    reference=reference,
    error_bound=error_bound,
    flops="0",
    bytes="2 * problem.batch * problem.rows * problem.cols * problem.itemsize",
    trace_sizes=("tile_rows", "tile_cols"),
    check_sizes=(
        (1, 1),
        (1, 37),
        (53, 1),
        (31, 65),
        (64, 64),
        (100, 260),
        (128, 257),
        (257, 128),
        (257, 129),
        (130, 515),
    ),
)
