"""Faults of the transpose: the classics, in place, skinny matrices, batches, pitches and orders of blocks."""

from __future__ import annotations

from collections.abc import Mapping

import turned_mutants
from mutants import BARRIER, GLOBAL_RACE, LOAD, RACE, STORE, UNWRITTEN, WITH_GAPS, WRONG, base, of
from turned_mutants import EDGE, FULL, HEAD_STORE, TO_LINE, TO_TILE, TURN_4

from autotile.types import Value

# ---- the classics ---------------------------------------------------------------------------------------------------
IN = "tile[place(r, c)] = in[size_t(r) * in_pitch + c];"
OUT = "out[size_t(c) * out_pitch + r] = tile[place(r, c)];"
MOVE = "out[size_t(c) * out_pitch + r] = in[size_t(r) * in_pitch + c];"

PADDED = base("tile33", (50, 70))
SWIZZLED = base({"layout": "swizzled"}, (50, 70))
STRIDED = base("strided_writes", (50, 70))
CLASSICS = [
    *of(PADDED, "barriers", ("tile: barrier", BARRIER, "", RACE, IN, OUT)),
    *of(
        PADDED, "tails",
        ("tile: last column of the tile", IN, f"if (c < TILE_COLS - 1) {IN}", UNWRITTEN, OUT),
        ("tile: last column of out's tile", OUT, f"if (r < TILE_ROWS - 1) {OUT}", "the first at [0, 0, 31]"),
        ("tile: the last one taken as whole", FULL, FULL.replace("&&", "||"), STORE, OUT),
    ),
    *of(
        PADDED, "indices",
        ("tile: stores a row below", OUT, OUT.replace("(c)", "(c + 1)"), STORE, "out[size_t(c + 1)"),
        ("tile: loads a row below", IN, IN.replace("size_t(r)", "size_t(r + 1)"), LOAD, "in[size_t(r + 1)"),
    ),
    *of(
        PADDED, "bounds",
        ("tile: the edge one too far, loading", EDGE, EDGE.replace("r >= rows", "r > rows"), LOAD, IN),
        ("tile: the edge one too far, storing", EDGE, EDGE.replace("c >= cols", "c > cols"), STORE, OUT, {"nth": 1}),
    ),
    *of(
        PADDED, "padding",
        ("tile: the pad left out of reads", OUT, OUT.replace("place(r, c)", "r * TILE_COLS + c"), UNWRITTEN,
         "tile[r * TILE_COLS + c]"),
    ),
    *of(
        SWIZZLED, "padding",
        ("tile: the swizzle left out of writes", IN, IN.replace("place(r, c)", "r * PITCH + c"), WRONG,
         {"sizes": (64, 96)}),
        ("tile: elements dealt out with too few places", "(c ^ r % TILE_COLS)", "(c ^ r % TILE_COLS) / 2", RACE, IN),
    ),
    *of(
        STRIDED, "indices",
        ("strided: stores a row below", MOVE, MOVE.replace("(c)", "(c + 1)"), STORE, "out[size_t(c + 1)"),
    ),
    *of(
        STRIDED, "bounds",
        ("strided: no edge", EDGE, "", STORE, MOVE),
    ),
]  # fmt: skip

# ---- in place -------------------------------------------------------------------------------------------------------
IN_PLACE: Mapping[str, Value] = {"staging": "tile", "tile_rows": 16, "tile_cols": 16, "block_threads": 64}
OTHER = "if (i != j) {"
SWAPPED = "in + there, in_pitch, cols_left, rows_left"

PAIR = base(IN_PLACE, {"rows": 45, "cols": 45, "in_place": 1})
EVEN_PAIR = base({**TURN_4, "load_vector": 2, "turn_rows": 2, "block_threads": 256},
                 {"rows": 77, "cols": 77, "in_pitch": 80, "out_pitch": 80, "in_place": 1})  # fmt: skip
PAIRED = [
    *of(PAIR, "barriers", ("in place: barrier", BARRIER, "", RACE, IN, OUT)),
    *of(
        PAIR, "indices",
        ("in place: the mirror not stored", OTHER, "if (false) {", WRONG, {"nth": 1}),
        ("in place: the mirror not loaded", OTHER, "if (false) {", UNWRITTEN, OUT),
        ("in place: the mirror stored where it was", "store<true>(out + here, mirrored",
         "store<true>(out + there, mirrored",
         STORE, OUT),
        ("in place: an odd number of tiles not rounded up", "tiles + tiles % 2", "tiles", GLOBAL_RACE, OUT, IN),
        ("in place: the second half of pairs one further", "j = side - 1 - j", "j = side - j", WRONG),
        ("in place: a pair twice", "if (j > i) j--;", "if (j >= i) j--;", GLOBAL_RACE, OUT, IN),
        ("in place: the mirror over the tile", "mirrored = tile + TILE_ELEMENTS", "mirrored = tile", WRONG),
    ),
    *of(
        PAIR, "bounds",
        ("in place: no tile beyond the last", "if (j >= tiles) return;", "", LOAD, IN),
        ("in place: the mirror has the tile's sides", SWAPPED, "in + there, in_pitch, rows_left, cols_left", LOAD, IN,
         {"nth": 1}),
    ),
    *of(EVEN_PAIR, "barriers", ("in place, turned: barrier", BARRIER, "", RACE, TO_TILE, "tile[place(c, r)]")),
    *of(
        EVEN_PAIR, "indices",
        ("in place, turned: an element of out's rows again", "out[size_t(c) * out_pitch + r] = tile[place(c, r)]",
         "out[size_t(c) * out_pitch + r] = tile[place(c, r & ~1u)]", WITH_GAPS),
    ),
]  # fmt: skip

# ---- skinny matrices ------------------------------------------------------------------------------------------------
FLAT_IN: Mapping[str, Value] = {
    "staging": "flat_in", "tile_rows": 32, "tile_cols": 32, "block_threads": 64, "load_vector": 4, "turn_rows": 2,
    "layout": "plain",
}  # fmt: skip
FLAT_OUT: Mapping[str, Value] = {**FLAT_IN, "staging": "flat_out", "turn_rows": 1, "load_vector": 2}
TAIL = "for (unsigned i = elements / WORD * WORD + threadIdx.x; i < elements; i += THREADS) "
COPIED = "__pipeline_memcpy_async(tile + i, in + i, 16);"
COPY_END = "tile[i] = in[i];"
OUT_END = "out[i] = tile[i];"
TO_ROW = "*reinterpret_cast<uint2*>(out + size_t(c) * out_pitch + r) = "
TURN_IN = "turned.at[i] = tile[(r + i) * cols + c];"
HERE = "if (r + i < rows_here) "

COLUMNS = base(FLAT_IN, (61, 9))
ROWS = base(FLAT_OUT, (9, 61))
SKINNY = [
    *of(
        COLUMNS, "barriers",
        ("flat_in: barrier", BARRIER, "", RACE, TURN_IN, (COPIED, COPY_END)),
        ("flat_in: copies not waited for", "__pipeline_wait_prior(0);", "", RACE, TURN_IN, COPIED),
    ),
    *of(
        COLUMNS, "tails",
        ("flat_in: the elements behind the last word", f"{TAIL}{COPY_END}", "", UNWRITTEN, TURN_IN),
        ("flat_in: a block that is not whole", "min(TILE_ROWS, rows - row0)", "TILE_ROWS", LOAD, (COPIED, COPY_END)),
        ("flat_in: the last row", HERE, "if (r + i + 1 < rows_here) ", WRONG, {"nth": 1}),
    ),
    *of(
        COLUMNS, "bounds",
        ("flat_in: stores a row too many", HERE, "", STORE, "+ r + i] = turned.at[i]", {"nth": 1}),
        ("flat_in: threads beyond the rows", "if (r >= rows_here) return;", "", STORE, TO_ROW, {"sizes": (60, 9)}),
        ("flat_in: words where rows are odd", "", "", "misaligned store", TO_ROW,
         {"sizes": (61, 9), "rendered_for": (64, 9)}),
    ),
    *of(
        COLUMNS, "indices",
        ("flat_in: every block from the first row", "in += size_t(row0) * cols;", "", WRONG),
        ("flat_in: a column further", TURN_IN, TURN_IN.replace("+ c]", "+ c + 1]"), LOAD, "+ c + 1]"),
        ("flat_in: steps as many columns as threads", "c += THREADS / DOWN", "c += THREADS", WRONG),
    ),
    *of(ROWS, "barriers", ("flat_out: barrier", BARRIER, "", RACE, "loaded.at[j];", ("tile + i", OUT_END))),
    *of(
        ROWS, "tails",
        ("flat_out: the elements behind the last word", f"{TAIL}{OUT_END}", "", "elements are wrong; the first at ["),
        ("flat_out: a block that is not whole", "min(TILE_COLS, cols - col0)", "TILE_COLS", LOAD, "= from[j];"),
    ),
    *of(
        ROWS, "bounds",
        ("flat_out: columns beyond the row", "if (c + j < cols_here) ", "", LOAD, "loaded.at[j] = from[j];"),
        ("flat_out: words where matrices are odd", "", "", "misaligned store", "*reinterpret_cast<uint4*>(out + i)",
         {"sizes": {"rows": 9, "cols": 61, "offset": 1}, "rendered_for": (9, 61)}),
    ),
    *of(
        ROWS, "indices",
        ("flat_out: every block to the first row", "out += size_t(col0) * rows;", "", GLOBAL_RACE, "(out + i)"),
        ("flat_out: columns by the wrong pitch", "tile[(c + j) * rows + r]", "tile[(c + j) * TILE_COLS + r]", STORE,
         "tile[(c + j) * TILE_COLS + r]"),
    ),
]  # fmt: skip

# ---- batches, pitches, orders of blocks -----------------------------------------------------------------------------
VIEWS = {"rows": 40, "cols": 24, "batch": 3, "in_pitch": 32, "out_pitch": 50, "in_step": 43, "out_step": 26}
SMALL: Mapping[str, Value] = {
    "staging": "strided_reads", "tile_rows": 16, "tile_cols": 16, "block_threads": 32, "layout": "plain",
}  # fmt: skip
LONG: Mapping[str, Value] = {**SMALL, "tile_rows": 512, "block_threads": 256}
WIDE: Mapping[str, Value] = {**SMALL, "tile_cols": 512, "block_threads": 256}

BATCH = base(TURN_4, VIEWS)
MANY_MATRICES = base(SMALL, {"rows": 1, "cols": 2, "batch": 32770}, "int8")
ROW_BANDS = base({**LONG, "block_order": "row_bands"}, (1500, 60), "complex128")
COLUMN_BANDS = base({**WIDE, "block_order": "column_bands"}, (40, 1500), "complex128")
DIAGONAL = base({**SMALL, "block_order": "diagonal"}, (60, 60))
DOWN = base({**SMALL, "block_order": "columns"}, (60, 40))
PLACES = [
    *of(
        BATCH, "indices",
        ("batch: every matrix from the first", "size_t(matrix) * in_step * in_pitch", "0", WITH_GAPS),
        ("batch: matrices one upon another, of `in`", "size_t(matrix) * in_step", "size_t(matrix) * rows", WITH_GAPS),
        ("batch: matrices one upon another, of `out`", "size_t(matrix) * out_step", "size_t(matrix) * cols",
         "wrote between the rows of its output"),
        ("pitch: cols for in_pitch", "in += size_t(row0) * in_pitch", "in += size_t(row0) * cols", WITH_GAPS),
        ("pitch: rows for out_pitch", "out += size_t(col0) * out_pitch", "out += size_t(col0) * rows", GLOBAL_RACE,
         TO_LINE,
         {"sizes": {**VIEWS, "cols": 40, "out_step": 40, "in_pitch": 40}}),
        ("pitch: rows for out_pitch, in a tile", "out + size_t(c) * out_pitch", "out + size_t(c) * rows_left",
         GLOBAL_RACE,
         HEAD_STORE, TO_LINE),
    ),
    *of(
        MANY_MATRICES, "indices",
        ("batch: z left out", "blockIdx.z * BATCH_Y + blockIdx.y", "blockIdx.y", GLOBAL_RACE, MOVE),
    ),
    *of(
        MANY_MATRICES, "bounds",
        ("batch: matrices beyond the last", "if (matrix >= batch) return;", "", LOAD, MOVE),
    ),
    *of(
        ROW_BANDS, "tails",
        ("row bands: the last as high as others", "min(BAND, down - band * BAND)", "min(BAND, down)", LOAD, MOVE),
        ("row bands: always of one height", "min(BAND, down - band * BAND)", "1", STORE, MOVE),
    ),
    *of(
        ROW_BANDS, "indices",
        ("row bands: counted by columns", "block / across / BAND", "block / down / BAND", LOAD, MOVE),
        ("row bands: the rest counted from the first", "block - band * BAND * across", "block", STORE, MOVE),
    ),
    *of(
        COLUMN_BANDS, "tails",
        ("column bands: the last as wide as others", "min(BAND, across - band * BAND)", "min(BAND, across)", STORE,
         MOVE),
        ("column bands: always of one width", "min(BAND, across - band * BAND)", "1", LOAD, MOVE),
    ),
    *of(
        COLUMN_BANDS, "indices",
        ("column bands: the band's own columns alone", "(band * BAND + rest % width)", "(rest % width)", GLOBAL_RACE,
         MOVE),
    ),
    *of(
        DIAGONAL, "indices",
        ("diagonal: not round the end", "block / across % across) % across", "block / across % across)", STORE, MOVE),
        ("diagonal: two tiles further", "(block % across + block", "(block % across * 2 + block", GLOBAL_RACE, MOVE),
    ),
    *of(DOWN, "indices", ("columns: a tile further each time", "block / down * TILE", "(block + 1) / down * TILE",
    STORE, MOVE)),
]  # fmt: skip

MUTANTS = [*CLASSICS, *PAIRED, *SKINNY, *PLACES, *turned_mutants.MUTANTS]
