"""Transpose: out[c][r] = in[r][c]. The template is kernel.cu.j2, the story README.md, both beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from autotile.dtypes import ELEMENT_TYPES
from autotile.kernels import (
    Derived,
    Input,
    Kernel,
    LaunchPlan,
    OptionalSize,
    Output,
    Parameter,
    Rule,
    ShapeClass,
    Size,
    Trait,
)
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]

STRIP_ROWS = 64
"""Rows of `out` that a core moves at once: their columns of `in` share cache lines."""


def reference(inputs: Arrays, problem: Problem) -> Arrays:
    """`out`, batch × cols × rows, of the input's own dtype: elements are moved, never computed with.

    In strips, on all cores: matrices of gigabytes are searched too.
    """
    turned = np.swapaxes(inputs["in"], -1, -2)
    out = np.empty(turned.shape, turned.dtype)

    def move(first: int) -> None:
        out[:, first : first + STRIP_ROWS] = turned[:, first : first + STRIP_ROWS]

    with ThreadPoolExecutor() as threads:
        list(threads.map(move, range(0, out.shape[1], STRIP_ROWS)))
    return {"out": out}


def error_bound(inputs: Arrays, problem: Problem) -> Mapping[str, float]:
    """Zero: every element arrives bit for bit."""
    return {"out": 0.0}


FLAT = "staging in ('flat_in', 'flat_out')"
OUT_SECTORS = (
    "problem.alignment % 32 == 0 and problem.out_pitch * problem.itemsize % 32 == 0 "
    "and problem.rows % store_vector == 0"
)
"""Every row of `out` begins on a sector of 32 bytes and holds whole words of 16."""

KERNEL = Kernel(
    name="transpose",
    doc="out[c][r] = in[r][c], any size and batch, views of larger matrices, in place; elements of 1 to 16 bytes",
    dimensions=("rows", "cols"),
    optional=(
        OptionalSize("batch", "1", "matrices, each transposed by itself"),
        OptionalSize("in_pitch", "problem.cols", "elements from one row of `in` to the next"),
        OptionalSize("out_pitch", "problem.rows", "elements from one row of `out` to the next"),
        OptionalSize("in_step", "problem.rows", "rows from one matrix of `in` to the next"),
        OptionalSize("out_step", "problem.cols", "rows from one matrix of `out` to the next"),
    ),
    dtypes=("float32", *(name for name in ELEMENT_TYPES if name != "float32")),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="in_pitch", step="in_step"),
        Output("out", ("batch", "cols", "rows"), pitch="out_pitch", step="out_step"),
        *(Size(name) for name in ("rows", "cols", "batch", "in_pitch", "out_pitch", "in_step", "out_step")),
    ),
    in_place=("in", "out"),
    opaque=True,
    classes=(
        ShapeClass("in place", "problem.in_place == 1"),
        ShapeClass("few columns", "problem.cols * 16 <= problem.rows and problem.cols <= 256"),
        ShapeClass("few rows", "problem.rows * 16 <= problem.cols and problem.rows <= 256"),
        ShapeClass(
            "odd pitch",
            "problem.in_pitch * problem.itemsize % 16 != 0 or problem.out_pitch * problem.itemsize % 32 != 0 "
            "or problem.alignment % 32 != 0",
        ),
        ShapeClass("small", "problem.batch * problem.rows * problem.cols * problem.itemsize <= 33554432"),
        ShapeClass("large", "problem.rows > 0"),
    ),
    parameters=(
        Parameter(
            "staging",
            ("strided_reads", "strided_writes", "tile", "turned", "flat_in", "flat_out"),
            "tile",
            "straight with strided loads or stores; through a tile, by elements or turned in registers by words; or a "
            "block that spans the short side of a skinny matrix, which is contiguous in memory",
        ),
        Parameter("tile_rows", (16, 32, 64, 128, 256, 512), 32, "rows of `in` that a block moves"),
        Parameter("tile_cols", (16, 32, 64, 128, 256, 512), 32, "columns of `in` that a block moves"),
        Parameter(
            "block_threads",
            (32, 64, 128, 160, 192, 256, 288, 320, 384, 512, 576, 768, 1024),
            256,
            "threads of a block",
        ),
        Parameter("load_vector", (1, 2, 4, 8, 16), 1, "elements that one load moves, 16 bytes at most"),
        Parameter("turn_rows", (1, 2, 4, 8, 16), 1, "rows that a thread turns in registers, 16 bytes at most"),
        Parameter("layout", ("plain", "padded", "swizzled"), "padded", "of the tile, against bank conflicts"),
        Parameter(
            "block_order",
            ("rows", "columns", "diagonal", "row_bands", "column_bands"),
            "rows",
            "order in which tiles are taken",
        ),
    ),
    derived=(
        Derived("load_bytes", "load_vector * problem.itemsize", "bytes that one load moves"),
        Derived("turn_bytes", "turn_rows * problem.itemsize", "bytes of a column that a thread has turned"),
        Derived("store_vector", "16 // problem.itemsize", "elements in 16 bytes, which one store moves from the tile"),
        Derived(
            "halo_rows",
            f"0 if staging != 'turned' or problem.in_place or ({OUT_SECTORS}) else 32 // problem.itemsize",
            "rows read beyond the tile, so that stores may begin where a sector does",
        ),
        Derived("wavefront_lanes", "min(32, 128 // turn_bytes)", "lanes whose stores to the tile fill 128 bytes"),
        Derived(
            "skew",
            "max(1, wavefront_lanes // min(tile_cols // load_vector, wavefront_lanes) * turn_bytes // 16)",
            "words of 16 bytes of one line that a wavefront fills",
        ),
        Derived(
            "pad_elements",
            "0 if layout != 'padded' else tile_rows if staging == 'tile' "
            "else tile_cols // load_vector * skew * store_vector",
            "elements of the tile that hold nothing",
        ),
        Derived(
            "tile_elements",
            "tile_rows * tile_cols if staging == 'tile' "
            "else tile_cols * (tile_rows + halo_rows) if staging == 'turned' "
            "else tile_rows * problem.cols if staging == 'flat_in' "
            "else problem.rows * tile_cols if staging == 'flat_out' else 0",
            "elements that are in shared memory at once",
        ),
        Derived(
            "tile_bytes",
            "(tile_elements + pad_elements) * problem.itemsize * (1 + problem.in_place) if tile_elements else 0",
            "shared memory; static up to 48 KiB, dynamic above and where it depends on the matrix",
        ),
        Derived("patches", "tile_rows * tile_cols // (load_vector * turn_rows)", "what threads turn, in a tile"),
        Derived("patch_steps", "ceil_div(patches, block_threads)", "patches that a thread turns"),
        Derived("down", "ceil_div(problem.rows, tile_rows)", "tiles in a column of tiles"),
        Derived("across", "ceil_div(problem.cols, tile_cols)", "tiles in a row of tiles"),
        Derived("side", "down + down % 2", "tiles along a square matrix, made even: see parts/pair.cu.j2"),
        Derived(
            "blocks",
            "down if staging == 'flat_in' else across if staging == 'flat_out' "
            "else side // 2 * (side + 1) if problem.in_place else down * across",
            "blocks of one matrix",
        ),
        Derived("words", "tile_rows * tile_cols // store_vector", "words of 16 bytes in a tile"),
        Derived("batch_y", "32768", "matrices along y of the grid"),
        Derived("band_bytes", "16384", "bytes of a row that a band of tiles covers"),
    ),
    launch=LaunchPlan(
        grid=(
            "blocks",
            "min(problem.batch, batch_y)",
            "ceil_div(problem.batch, batch_y)",
        ),
        block=("block_threads",),
        shared_bytes=f"tile_bytes if tile_bytes > 49152 or {FLAT} else 0",
        static_shared_bytes=f"0 if tile_bytes > 49152 or {FLAT} else tile_bytes",
    ),
    rules=(
        Rule("block_threads % 32 == 0", "{block_threads} threads are not whole warps of 32"),
        Rule(
            "load_bytes <= 16 and turn_bytes <= 16",
            "words of {load_bytes} and {turn_bytes} bytes: one load or store moves 16 at most",
        ),
        Rule(
            "staging in ('turned', 'flat_in', 'flat_out') or (load_vector == 1 and turn_rows == 1)",
            "{staging} moves single elements: load_vector and turn_rows must be 1 (are {load_vector} and {turn_rows})",
        ),
        Rule(
            "staging not in ('strided_reads', 'strided_writes', 'tile') or tile_rows * tile_cols % block_threads == 0",
            "a tile of {tile_rows}×{tile_cols} does not divide among {block_threads} threads",
        ),
        Rule(
            "staging in ('tile', 'turned') or layout == 'plain'",
            "{staging} has no tile whose layout could be {layout}: it must be plain",
        ),
        Rule(
            "not (staging == 'tile' and layout == 'swizzled') or is_power_of_two(tile_cols)",
            "the swizzle needs a power of two, not {tile_cols} columns",
        ),
        Rule(
            "staging != 'turned' or (tile_rows % turn_rows == 0 and tile_cols % load_vector == 0)",
            "a tile of {tile_rows}×{tile_cols} does not divide into patches of {turn_rows}×{load_vector}",
        ),
        Rule(
            "staging != 'turned' or tile_rows * problem.itemsize % 32 == 0",
            "{tile_rows} rows are {tile_rows * problem.itemsize} bytes of a row of `out`, not whole sectors of 32: "
            "stores moved on to where a sector begins would leave elements to no block",
        ),
        Rule(
            "staging != 'turned' or 4 * patch_steps * block_threads <= 5 * patches",
            "{patches} patches of {turn_rows}×{load_vector} would leave too many of {block_threads} threads idle",
        ),
        Rule(
            "staging != 'turned' or 4 * ceil_div(words, block_threads) * block_threads <= 5 * words",
            "{words} words of 16 bytes would leave too many of {block_threads} threads idle",
        ),
        Rule(
            "staging != 'turned' or patch_steps * turn_rows * load_bytes <= 256",
            "a thread would hold {patch_steps} patches of {turn_rows * load_bytes} bytes in registers; 256 bytes are "
            "the most",
        ),
        Rule(
            "staging != 'flat_in' or (tile_cols == tile_rows and load_bytes == 16 "
            "and block_threads * turn_rows % tile_rows == 0)",
            "flat_in copies whole rows in words of 16 bytes: load_vector must be {16 // problem.itemsize}, tile_cols "
            "as tile_rows, and {tile_rows} rows in words of {turn_rows} divide {block_threads} threads",
        ),
        Rule(
            "staging != 'flat_out' or (tile_rows == tile_cols and turn_rows == 1 "
            "and block_threads * load_vector % tile_cols == 0)",
            "flat_out writes whole rows: turn_rows must be 1, tile_rows as tile_cols, and {tile_cols} columns in words "
            "of {load_vector} divide {block_threads} threads",
        ),
        Rule(f"block_order == 'rows' or not ({FLAT})", "{staging} has one order of blocks: rows, not {block_order}"),
        Rule(
            "staging != 'flat_in' or problem.in_pitch == problem.cols",
            "flat_in takes rows of `in` for one stretch of memory, but they are {problem.in_pitch} elements apart and "
            "hold {problem.cols}",
        ),
        Rule(
            "staging != 'flat_out' or problem.out_pitch == problem.rows",
            "flat_out takes rows of `out` for one stretch of memory, but they are {problem.out_pitch} elements apart "
            "and hold {problem.rows}",
        ),
        Rule(
            "problem.in_place == 0 "
            "or (staging in ('tile', 'turned') and tile_rows == tile_cols and block_order == 'rows')",
            "in place square tiles change places, through shared memory, in one order: not {staging} with "
            "{tile_rows}×{tile_cols} in {block_order}, whose blocks would read what others have written over",
        ),
    ),
    traits=(
        Trait(
            "in_words",
            "problem.alignment % 16 == 0 "
            "and (problem.batch == 1 or problem.in_step * (problem.in_pitch * problem.itemsize % 16) % 16 == 0) "
            "if staging == 'flat_in' else "
            "problem.alignment % load_bytes == 0 and problem.in_pitch % load_vector == 0 "
            "and problem.cols % load_vector == 0",
            "every load of `in` begins on a whole word",
        ),
        Trait(
            "shifted",
            "staging == 'turned' and load_bytes == 16 and not problem.in_place and not (problem.alignment % 16 == 0 "
            "and problem.in_pitch % load_vector == 0 and problem.cols % load_vector == 0)",
            "rows of `in` begin between words of 16 bytes, and are read by whole words all the same",
        ),
        Trait(
            "out_words",
            "problem.alignment % 16 == 0 "
            "and (problem.batch == 1 or problem.out_step * (problem.out_pitch * problem.itemsize % 16) % 16 == 0) "
            "if staging == 'flat_out' else "
            "problem.alignment % 16 == 0 and problem.out_pitch % store_vector == 0 "
            "and problem.rows % store_vector == 0",
            "every row of `out` (of flat_out: every matrix) begins on a word of 16 bytes",
        ),
        Trait(
            "turn_words",
            "problem.alignment % turn_bytes == 0 and problem.out_pitch % turn_rows == 0 "
            "and problem.rows % turn_rows == 0",
            "rows of `out` are whole words of turn_rows elements",
        ),
        Trait(
            "realigned", "halo_rows > 0", "rows of `out` begin inside a sector: stores are moved on to where one begins"
        ),
        Trait("in_place", "problem.in_place == 1", "the result takes the matrix's place"),
    ),
    presets={
        "strided_reads": {"staging": "strided_reads", "layout": "plain", "block_threads": 1024},
        "strided_writes": {"staging": "strided_writes", "layout": "plain", "block_threads": 1024},
        "tile32": {"layout": "plain", "block_threads": 1024},
        "tile33": {"layout": "padded", "block_threads": 1024},
    },
    baseline="strided_reads",
    reference=reference,
    error_bound=error_bound,
    flops="0",
    bytes="2 * problem.batch * problem.rows * problem.cols * problem.itemsize",
    trace_sizes=(
        "problem.rows if staging == 'flat_out' else tile_rows + problem.rows % 32",
        "problem.cols if staging == 'flat_in' else tile_cols + problem.cols % 32",
    ),
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
        (257, 257),
        {"rows": 70, "cols": 90, "batch": 3},
        {"rows": 128, "cols": 64, "batch": 2},
        {"rows": 100, "cols": 60, "in_pitch": 77, "out_pitch": 135},
        {"rows": 64, "cols": 96, "batch": 3, "in_pitch": 128, "out_pitch": 160, "in_step": 70, "out_step": 100},
        {"rows": 97, "cols": 97, "batch": 2, "in_pitch": 101, "out_pitch": 101, "in_step": 99, "out_step": 99},
        (17000, 40),  # bands of tiles are at most 16 KiB wide: whole ones, and a last one that is cut
        (40, 17000),
        {"rows": 65, "cols": 65, "in_pitch": 70, "out_pitch": 70},
        {"rows": 160, "cols": 160, "in_pitch": 192, "out_pitch": 192},
    ),
)
