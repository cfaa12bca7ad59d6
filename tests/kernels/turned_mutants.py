"""Faults of the transpose by words that are turned in registers."""

from __future__ import annotations

from collections.abc import Mapping

from mutants import BARRIER, BEYOND_TILE, GLOBAL_RACE, LOAD, MISALIGNED, RACE, STORE, UNWRITTEN, WRONG, base, of

from autotile.types import Value

EDGE = "if (EDGE && (r >= rows_left || c >= cols_left)) continue;"
FULL = "rows_left >= TILE_ROWS && cols_left"

# ---- turned: words of 4 elements, squares of 4 x 4 ------------------------------------------------------------------
TURN_4: Mapping[str, Value] = {
    "staging": "turned", "tile_rows": 32, "tile_cols": 32, "block_threads": 64, "load_vector": 4, "turn_rows": 4,
}  # fmt: skip
TO_TILE = "+ j * LINE) = patches[step].column(j);"
FROM_IN = "row.word = *reinterpret_cast<const uint4*>(from);"
FROM_TILE = "*reinterpret_cast<const uint4*>(tile + place(c, r));"
TO_OUT = "*reinterpret_cast<uint4*>(out + size_t(c) * out_pitch + r) ="
ROW_EDGE = "if (EDGE && (r0 + i >= rows_left || c >= cols_left)) continue;"

WORDS = base(TURN_4, (64, 96))
SWIZZLED_WORDS = base({**TURN_4, "layout": "swizzled"}, (64, 96))
UNEVEN = base({**TURN_4, "tile_rows": 64, "tile_cols": 64, "block_threads": 160}, (64, 128))
TURNED = [
    *of(WORDS, "barriers", ("turned: barrier", BARRIER, "", RACE, TO_TILE, TO_OUT)),
    *of(
        WORDS, "indices",
        ("turned: the square not turned", "turned.at[i] = rows[i].at[j]", "turned.at[i] = rows[j].at[i]",
         "elements are wrong; the first at [0, 0, 1]"),
        ("turned: a patch's rows from one below", "in + size_t(r0) * in_pitch + c",
         "in + size_t(r0 + 1) * in_pitch + c",
         LOAD, FROM_IN),
        ("turned: a row of `in` again", "i++, from += in_pitch", "i++, from += i == 1 ? 0 : in_pitch", WRONG),
        ("turned: stores a row below", TO_OUT, TO_OUT.replace("(c)", "(c + 1)"), STORE, "out + size_t(c + 1)"),
    ),
    *of(
        WORDS, "padding",
        ("turned: the pad left out of reads", "tile + place(c, r)", "tile + (c * LINE + r)", UNWRITTEN,
         TO_OUT),
        ("turned: the pad by half groups", "line / LOAD_VECTOR * SKEW", "line / 2 * SKEW", BEYOND_TILE, TO_TILE),
        ("turned: lines a pad further apart than they are read", TO_TILE, TO_TILE.replace("LINE)", "(LINE + SKEW))"),
         BEYOND_TILE, "(LINE + SKEW)"),
        ("turned: lines an element further apart", TO_TILE, TO_TILE.replace("LINE)", "(LINE + 1))"),
         "misaligned store", "(LINE + 1)"),
    ),
    *of(
        SWIZZLED_WORDS, "padding",
        ("turned: the words dealt out by line", "line / LOAD_VECTOR *", "line *", WRONG),
        ("turned: more words dealt out than a line has", " % DEALT;", ";", BEYOND_TILE, TO_TILE,
         {"point": {**TURN_4, "layout": "swizzled", "tile_cols": 64}, "sizes": (64, 128)}),
    ),
    *of(
        WORDS, "bounds",
        ("turned: words where rows are odd", "", "", "misaligned load", FROM_IN,
         {"rendered_for": (64, 96), "sizes": (63, 95)}),
        ("turned: whole tiles where they are not", FULL.replace("TILE_ROWS", "LINE"), "true || cols_left", STORE,
         TO_OUT,
         {"sizes": (40, 44), "rendered_for": (64, 96)}),
        ("turned: the edge one too far, loading", ROW_EDGE, ROW_EDGE.replace("i >= rows", "i > rows"), LOAD, FROM_IN,
         {"sizes": (40, 44)}),
        ("turned: the edge one too far, storing", EDGE, EDGE.replace("c >= cols", "c > cols"), STORE, TO_OUT,
         {"sizes": (40, 44)}),
    ),
    *of(
        UNEVEN, "tails",
        ("turned: loads by more threads than patches", "if (patch >= PATCHES) break;", "", LOAD, FROM_IN),
        ("turned: patches beyond the tile", "if (patch >= PATCHES) break;", "", BEYOND_TILE, TO_TILE, {"nth": 1}),
        ("turned: stores by more threads than words", "if (i >= WORDS) break;", "", BEYOND_TILE, TO_OUT),
    ),
]  # fmt: skip

# ---- turned: bytes and pairs of bytes in registers ------------------------------------------------------------------
BYTES = base({**TURN_4, "load_vector": 16, "turn_rows": 8, "tile_rows": 64, "tile_cols": 64, "block_threads": 32},
             (64, 128), "int8")  # fmt: skip
PAIRS = base({**TURN_4, "load_vector": 8, "turn_rows": 4, "block_threads": 32}, (64, 96), "float16")
PERMUTED = [
    *of(
        BYTES, "indices",
        *((f"bytes: {name}", old, new, WRONG, {"nth": nth}) for name, old, new, nth in (
            ("rows a and b interleaved by pairs", "(a, b, 0x5140)", "(a, b, 0x5410)", 0),
            ("the low halves of a and b twice", "(a, b, 0x7362)", "(a, b, 0x5140)", 0),
            ("rows c and d the other way round", "(c, d, 0x5140)", "(d, c, 0x5140)", 0),
            ("the high halves of c and d", "(c, d, 0x7362)", "(c, d, 0x7632)", 0),
            ("the second pair of pairs", "(ab_low, cd_low, 0x7632)", "(ab_low, cd_low, 0x7362)", 0),
            ("columns 2 and 3 as 0 and 1", "(ab_high, cd_high, 0x5410)", "(ab_low, cd_low, 0x5410)", 0),
            ("squares of the first four rows alone", "i < TURN_ROWS; i += 4", "i < 4; i += 4", 0),
            ("squares not turned", "patches[step].turn_squares();", "", 0),
            ("a column's parts from one square", "rows[i * 4 + j % 4]", "rows[j % 4]", 0),
            ("a column's part of its neighbour", ".part[j / 4]", ".part[j / 8]", 0),
        )),
    ),
    *of(
        PAIRS, "indices",
        ("pairs: low halves", "(a, b, 0x5410)", "(a, b, 0x5140)", WRONG),
        ("pairs: high halves", "(a, b, 0x7632)", "(a, b, 0x7362)", WRONG),
        ("pairs: squares not turned", "patches[step].turn_squares();", "", WRONG),
        ("pairs: a column's parts", "rows[i * 2 + j % 2]", "rows[i + j % 2]", WRONG),
    ),
]  # fmt: skip

# ---- turned: rows that begin anywhere -------------------------------------------------------------------------------
AROUND = "row.word = window(around[0], around[1], shift);"
SINGLE = "row.at[j] = from[j];"
BEFORE, BEYOND = "around < bounds.first || ", " || around + 2 > bounds.end"
SHIFT_2: Mapping[str, Value] = {**TURN_4, "load_vector": 8, "turn_rows": 1, "block_threads": 128}

SHIFTED = base(SHIFT_2, {"rows": 70, "cols": 95, "offset": 1}, "float16")
SHIFTED_4 = base(TURN_4, {"rows": 70, "cols": 95, "offset": 1})
LAST_HALO = base(SHIFT_2, {"rows": 48, "cols": 64, "offset": 1}, "float16")
ELEMENTS = base({**TURN_4, "load_vector": 2, "turn_rows": 2, "block_threads": 128}, (63, 95))
ODD = [
    *of(
        SHIFTED, "indices",
        ("window: moved by 8 bytes one byte late", "shift >= 8", "shift > 8", WRONG),
        ("window: moved by 4 bytes one byte late", "shift % 8 >= 4", "shift % 8 > 4", WRONG),
        ("window: half as many bits", "bits = shift * 8", "bits = shift * 4", WRONG),
        ("window: its last part from the wrong word", "(by8 ? high.w : high.y)", "high.y", WRONG),
        ("shifted: the two words are one", "window(around[0], around[1], shift)",
         "window(around[0], around[0], shift)", WRONG),
    ),
    *of(
        SHIFTED_4, "indices",
        ("window: a word of 4 bytes from the wrong half", "b = by8 ? low.w : low.y", "b = by8 ? low.y : low.w", WRONG),
        ("window: a word of 4 bytes too early", "s = by4 ? e : d", "s = by4 ? d : e", WRONG),
    ),
    *of(
        SHIFTED, "bounds",
        ("shifted: nothing tests the end", BEYOND, "", LOAD, AROUND),
        ("shifted: the test of the end 16 bytes late", BEYOND, BEYOND.replace("2", "1"), LOAD, AROUND),
        ("shifted: nothing tests the beginning", BEFORE, "", LOAD, AROUND),
        ("shifted: the first tile taken as whole", " && block > 0", "", LOAD, AROUND),
        ("shifted: single elements beyond the row", f"if (c + j < cols_left) {SINGLE}", SINGLE, LOAD, SINGLE),
    ),
    *of(
        LAST_HALO, "bounds",
        ("shifted: the last tile's halo taken as whole", "rows_left > LINE", "rows_left >= LINE", LOAD, AROUND),
    ),
    *of(
        ELEMENTS, "bounds",
        ("turned: single elements beyond the row", "if (!EDGE || c + j < cols_left) ", "", LOAD, SINGLE),
    ),
]  # fmt: skip

HEADS = "if (row0 == 0) store_heads(out, tile, out_pitch, rows_left, cols_left);"
HEAD_GUARD = "c < cols_left && r < rows_left && r < head_bytes(line) / sizeof(element)"
TO_LINE = "*reinterpret_cast<uint4*>(line + first) = moved.word;"
LINE_END = "if (first + j < rows_left) line[first + j] = moved.at[j];"
HEAD_STORE = "line[r] = tile[place(c, r)];"
LOW, HIGH = "tile + place(c, r + skipped));", "tile + place(c, r + skipped + STORE_VECTOR)"

REALIGNED = base(TURN_4, (95, 64))
REALIGNED_2 = base(SHIFT_2, (95, 64), "float16")
MOVED = [
    *of(
        REALIGNED, "indices",
        ("realigned: stores an element further", "first = r + head / sizeof(element)",
         "first = r + head / sizeof(element) + 1", MISALIGNED, TO_LINE),
        ("realigned: the head's whole words not skipped", "skipped = head / 16 * STORE_VECTOR", "skipped = 0", WRONG),
        ("realigned: the window an element late", "window(low, high, head % 16)", "window(low, high, head % 16 + 4)",
         WRONG),
        ("realigned: heads an element too long", "head_bytes(const element* line) {\n    return -reinterpret",
         "head_bytes(const element* line) {\n    return 4 - reinterpret", MISALIGNED, TO_LINE),
    ),
    *of(
        REALIGNED, "padding",
        ("realigned: the halo too short", "HALO = 8", "HALO = 4", UNWRITTEN, HIGH),
        ("realigned: the halo in no line", "LINE = TILE_ROWS + HALO", "LINE = TILE_ROWS", BEYOND_TILE, HIGH),
    ),
    *of(
        REALIGNED, "tails",
        ("realigned: heads left out", HEADS, "", "elements are wrong; the first at ["),
        ("realigned: heads one too short", "r < head_bytes(line) /", "r + 1 < head_bytes(line) /", WRONG),
        ("realigned: heads of the second tile", "row0 == 0", "row0 == TILE_ROWS", GLOBAL_RACE, TO_LINE, HEAD_STORE),
        ("realigned: the last elements left out", LINE_END, ";", WRONG),
    ),
    *of(
        REALIGNED, "bounds",
        ("realigned: words beyond the row", "first + STORE_VECTOR <= rows_left", "first < rows_left", GLOBAL_RACE,
         TO_LINE, HEAD_STORE),
        ("realigned: words beyond the matrix", "first + STORE_VECTOR <= rows_left", "first < rows_left", STORE, TO_LINE,
         {"sizes": (45, 1)}),
        ("realigned: single elements beyond the row", LINE_END, LINE_END.replace("if (first + j < rows_left) ", ""),
         STORE, "line[first + j]"),
        ("realigned: the edge one too far", "if (EDGE && c >= cols_left)", "if (EDGE && c > cols_left)", STORE,
         (TO_LINE, LINE_END), {"sizes": (95, 70)}),
        ("realigned: heads beyond the columns", HEAD_GUARD, HEAD_GUARD.replace("c < cols", "c <= cols"), STORE,
         HEAD_STORE, {"sizes": (95, 70)}),
        ("realigned: heads beyond the rows", HEAD_GUARD, HEAD_GUARD.replace("r < rows_left && ", ""), GLOBAL_RACE,
         HEAD_STORE,
         {"sizes": (3, 70)}),
    ),
    *of(REALIGNED, "barriers", ("realigned: barrier", BARRIER, "", RACE, TO_TILE, (LOW, HIGH))),
    *of(
        REALIGNED_2, "indices",
        ("realigned: the window an element late, of 2 bytes", "window(low, high, head % 16)",
         "window(low, high, head % 16 + 2)", WRONG),
        ("realigned: the first word twice", HIGH, "tile + place(c, r + skipped)", WRONG),
    ),
]  # fmt: skip

MUTANTS = [*TURNED, *PERMUTED, *ODD, *MOVED]
