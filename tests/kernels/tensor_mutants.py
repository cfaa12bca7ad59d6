"""Faults of the matmul on tensor cores, in tier mma."""

from __future__ import annotations

from collections.abc import Mapping

from mutants import BARRIER, GLOBAL_RACE, LOAD, MISALIGNED, RACE, STORE, WRONG, Mutant, Sizes, of

from autotile.types import Value


def base(point: Mapping[str, Value] | str, sizes: Sizes, dtype: str = "bfloat16") -> Mutant:
    return Mutant("", "", "matmul_tensor", "", "", "", point=point, sizes=sizes, dtype=dtype)


# ---- the ring -------------------------------------------------------------------------------------------------------
COPY, PART = (
    "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;",
    "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;",
)
COPIED, READ = (COPY, PART), ("ldmatrix",)
WAIT = "copies_landed<STAGES - 2>"
A_ROWS = "a + place<A_WORDS>(row + i * MMA_M + lane % 16, step * 2 + lane / 16)"
THERE = "there * static_cast<int>(sizeof(element))"

RING = base("default", (64, 64, 160))
TAIL = base("default", (64, 64, 40))
RINGS = [
    *of(
        RING, "barriers",
        ("ring: the barrier", BARRIER, "", RACE, COPIED, READ),
        ("ring: the wait one too lax", WAIT, WAIT.replace("2", "1"), RACE, COPIED, READ),
    ),
    *of(
        RING, "indices",
        ("fragments: rows of A in the other order", A_ROWS, A_ROWS.replace("lane % 16", "(lane + 8) % 16"), WRONG),
        ("fragments: B's halves along k the other way", "lane / 8 % 2", "1 - lane / 8 % 2", WRONG,
         {"sizes": {"m": 64, "n": 64, "k": 160, "b_turned": 1}}),
    ),
    *of(
        RING, "padding",
        ("fragments: the swizzle left out", A_ROWS,
         "a + (row + i * MMA_M + lane % 16) * A_WORDS * 16 + (step * 2 + lane / 16) * 16", WRONG),
        ("fragments: doubles from the place of a neighbour", "[t % WIDTH]", "[1 - t % WIDTH]", WRONG,
         {"dtype": "float64", "sizes": (64, 64, 64)}),
    ),
    *of(TAIL, "tails", ("ring: no zeros beyond k", THERE, "16", WRONG)),
]  # fmt: skip

# ---- sums, and rows of C --------------------------------------------------------------------------------------------
SYNCWARP = "__syncwarp();"
LAID_OUT, FROM = "*reinterpret_cast<Pair*>(room", "from(row, i * 16)"
PUT = "*reinterpret_cast<uint4*>(line + at) = bits[u];"
ODD: Sizes = (40, 51, 37)
SHIFT = "16 - shift * static_cast<int>(sizeof(result))"

ROWS = base("default", (40, 64, 32))
UNALIGNED = base("default", ODD)
RESULTS = [
    *of(
        ROWS, "barriers",
        ("rows: laid out over those before", SYNCWARP, "", RACE, LAID_OUT, FROM),
        ("rows: stored before they are whole", SYNCWARP, "", RACE, LAID_OUT, FROM, {"nth": 1}),
    ),
    *of(ROWS, "bounds", ("rows: below C", "row < rows && ", "", STORE, PUT)),
    *of(
        UNALIGNED, "bounds",
        ("rows: words where they are odd", "", "", MISALIGNED, PUT, {"rendered_for": {"m": 40, "n": 48, "k": 40,
         "a_pitch": 48}, "sizes": {"m": 40, "n": 51, "k": 40, "a_pitch": 48, "b_pitch": 56}}),
    ),
    *of(
        base({"warp_n": 16, "block_k": 64}, (70, 77, 40), "float8_e5m2"), "bounds",
        ("rows: half a warp's words, and lanes beyond them", "min(rows, ROOM_ROWS)", "rows", GLOBAL_RACE, PUT),
        ("rows: the same where they begin on words", "min(rows, ROOM_ROWS)", "rows", GLOBAL_RACE, PUT,
         {"sizes": (70, 80, 48)}),
    ),
    *of(
        UNALIGNED, "tails",
        ("rows: shifted by one element too few", SHIFT, SHIFT.replace("shift", "(shift - 1)"), WRONG),
        ("rows: the last elements left out", "i < head + end - tail", "i < head", "elements are wrong"),
    ),
    *of(
        ROWS, "padding",
        ("rows: the pad left out of writes", "(h * 8 + g) * ROOM_PITCH",
         "(h * 8 + g) * WARP_N * sizeof(result)", WRONG),
    ),
    *of(
        ROWS, "indices",
        ("result: the bias of the column beside", "bias[col]", "bias[col ^ 1]", WRONG,
         {"sizes": {"m": 40, "n": 64, "k": 32, "bias": 1}}),
    ),
    *of(
        ROWS, "accumulators",
        ("result: alpha left out", "sum *= alpha;", "", WRONG),
        ("result: a sum of int8 cut off", "__double2int_rn(__dmul_rn(alpha, sum))",
         "static_cast<int>(__dmul_rn(alpha, sum))", WRONG, {"dtype": "int8", "sizes": (40, 64, 64)}),
        ("result: a column of products left out", "multiply(sums[i][turned], f.a[i], f.b[turned]);",
         "if (turned) multiply(sums[i][turned], f.a[i], f.b[turned]);", WRONG),
    ),
]  # fmt: skip

# ---- the order of the tiles -----------------------------------------------------------------------------------------
# Five by four tiles: bands of one row; one of four and one of one; one of five.
FIVE_BY_FOUR: Sizes = (300, 200, 16)
IN_ROWS, IN_BANDS, IN_ONE = (base({"group": group}, FIVE_BY_FOUR) for group in (1, 4, 8))
FIRST_BAND, FULL_BAND = "tile < GROUP * tiles_n ?", "height == GROUP ?"
TILES = [
    *of(
        IN_BANDS, "bounds",
        ("tiles: the second band's first in the first", FIRST_BAND, FIRST_BAND.replace("<", "<="), WRONG),
        ("tiles: a last band as high as the others", FULL_BAND, FULL_BAND.replace("==", "<="), WRONG),
        ("tiles: rows of a last band that is as high", "rest - across * height", "rest - across * GROUP", LOAD),
        ("tiles: of two matrices the first's alone", "matrix = unsigned(number) /", "matrix = 0 * unsigned(number) /",
         WRONG, {"sizes": {"m": 300, "n": 200, "k": 16, "batch": 2}}),
    ),
    *of(
        IN_ROWS, "bounds",
        ("tiles: the second of many bands in the first", FIRST_BAND, FIRST_BAND.replace("GROUP", "2 * GROUP"), WRONG),
    ),
    *of(
        IN_ONE, "bounds",
        ("tiles: a band that is less than full", FULL_BAND, FULL_BAND.replace("==", "<="), WRONG),
    ),
]  # fmt: skip

# ---- packed operands ------------------------------------------------------------------------------------------------
PACKED = base("default", ODD)
PACKS = [
    *of(
        PACKED, "padding",
        ("pack: read with another pitch than it was written", "(a_matrix, packed_pitch(k)", "(a_matrix, k",
         "misaligned"),
    ),
    *of(
        PACKED, "tails",
        ("pack: the last element left out", "e < left ?", "e < left - 1 ?", WRONG),
        ("pack: the neighbour's word for the last lane's", "if (lane == 31 || left <= WIDTH) high",
         "if (left <= WIDTH) high", WRONG, {"sizes": (40, 300, 37)}),
    ),
    *of(
        base("default", (40, 48, 64), "tf32"), "barriers",
        ("pack: turned before it is there", BARRIER, "", RACE, "*place(col + e, row) =",
         "reinterpret_cast<const uint4*>(place(col, row))", {"nth": 1}),
    ),
]  # fmt: skip

# ---- lines that are shifted on their way ----------------------------------------------------------------------------
WHOLE_WORD = "words.high[j] = *reinterpret_cast<const uint4*>(whole"
SHIFTED = base({"shift": True}, (40, 51, 165))
SHIFTS = [
    *of(
        SHIFTED, "indices",
        ("shift: the same word twice", "(whole + (behind ? 16 : 0))", "(whole)", WRONG),
        ("shift: laid down where it is read", "lay(step + STAGES - 1);", "lay(step);", RACE,
         "*reinterpret_cast<uint4*>(tile + place<WORDS>", READ),
    ),
    *of(
        SHIFTED, "bounds",
        ("shift: a word beyond the array", " && whole + (behind ? 32 : 16) <= end", "", LOAD, WHOLE_WORD),
    ),
]  # fmt: skip

MUTANTS = [*RINGS, *RESULTS, *TILES, *PACKS, *SHIFTS]
