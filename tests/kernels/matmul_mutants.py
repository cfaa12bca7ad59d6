"""Faults of the matmul."""

from __future__ import annotations

from collections.abc import Mapping

from mutants import BARRIER, GLOBAL_RACE, LOAD, RACE, STORE, UNWRITTEN, WRONG, Mutant, Sizes, of

from autotile.types import Value


def base(point: Mapping[str, Value] | str, sizes: Sizes, dtype: str = "float32") -> Mutant:
    return Mutant("", "", "matmul", "", "", "", point=point, sizes=sizes, dtype=dtype)


# ---- the textbook's tile --------------------------------------------------------------------------------------------
A_LOAD, B_LOAD = "As[ty][tx] = ", "Bs[ty][tx] = "
SUM = "sum += accumulator(As[ty][kk])"
C_STORE = "c[at] = of(sum, at, col);"
INSIDE = "if (row < m && col < n)"
A_FROM = "a[offset(row, a_pitch) + k0 + tx]"
A_INSIDE = "row < m && k0 + tx < k ?"

TILE = base("tile32", (40, 50, 70))
TEXTBOOK = [
    *of(
        TILE, "barriers",
        ("first barrier", BARRIER, "", RACE, SUM, (A_LOAD, B_LOAD)),
        ("second barrier", BARRIER, "", RACE, SUM, (A_LOAD, B_LOAD), {"nth": 1}),
        ("a barrier in a branch", INSIDE, f"{INSIDE} {BARRIER}\n    {INSIDE}", "barrier divergence",
         f"{INSIDE} {BARRIER}"),
    ),
    *of(
        TILE, "tails",
        ("last column of A's tile", A_LOAD, f"if (tx < BLOCK_K - 1) {A_LOAD}", UNWRITTEN, SUM),
        ("last column of C's tile", INSIDE, INSIDE.replace("row", "tx < BLOCK_N - 1 && row"),
         "the first at [0, 0, 31]: nan"),
        ("no test of k's tail", A_INSIDE, "row < m ?", LOAD, A_LOAD),
        ("B's tail is its last row again", "k0 + ty < k && col < n ? b[offset(k0 + ty, b_pitch)",
         "col < n ? b[offset(min(k0 + ty, k - 1), b_pitch)", WRONG, {"inputs": "special"}),
        ("A's tail is the next row", A_INSIDE, "row < m && (k0 + tx < k || row + 1 < m) ?", WRONG,
         {"inputs": "special"}),
    ),
    *of(
        TILE, "indices",
        ("stores a row below", "put(sum, row, col)", "put(sum, row + 1, col)", STORE, C_STORE, {"nth": 0}),
        ("loads a row below", A_FROM, A_FROM.replace("row", "row + 1"), LOAD, A_LOAD),
        ("B's tile is read turned", "Bs[kk][tx]", "Bs[tx][kk]", WRONG),
    ),
    *of(TILE, "bounds", ("no test of C's rows", INSIDE, "if (col < n)", STORE, C_STORE)),
    *of(
        TILE, "accumulators",
        ("the last product alone", "sum += acc", "sum = acc", WRONG),
        ("sums in float32 for float64", "accumulator sum = 0;", "float sum = 0;", WRONG, {"dtype": "float64"}),
        ("a sum of zero is not stored", INSIDE, INSIDE.replace("row", "sum != 0 && row"), WRONG,
         {"inputs": "cancelling", "sizes": (40, 50, 4), "dtype": "float16"}),
    ),
]  # fmt: skip

# ---- what becomes of a sum ------------------------------------------------------------------------------------------
ALL: Sizes = {"m": 40, "n": 50, "k": 33, "batch": 2, "addend": 1, "bias": 1, "relu": 1}
RESULT = base("tile32", ALL)
RESULTS = [
    *of(
        RESULT, "accumulators",
        ("alpha left out", "sum *= alpha;", "", WRONG),
        ("beta left out", "beta * accumulator(addend[at])", "accumulator(addend[at])", WRONG),
        ("a NaN becomes 0", "sum < accumulator(0) ? accumulator(0) : sum",
         "sum > accumulator(0) ? sum : accumulator(0)", WRONG, {"inputs": "special"}),
        ("half of gelu", "accumulator(0.5) * sum", "sum", WRONG, {"sizes": {"m": 40, "n": 50, "k": 33, "gelu": 1}}),
    ),
    *of(
        RESULT, "indices",
        ("the bias of a row", "accumulator(bias[col])", "accumulator(bias[col - col % 32])", WRONG),
        ("all matrices at the place of the first", "size_t(matrix) * step * pitch", "0 * step * pitch", GLOBAL_RACE,
         (C_STORE, "addend[at]")),
    ),
]  # fmt: skip

# ---- many elements a thread -----------------------------------------------------------------------------------------
COPY = "*reinterpret_cast<word<COUNT>*>(to) = *reinterpret_cast<const word<COUNT>*>(from);"
ASYNC = "__pipeline_memcpy_async(to, from"
TURNED = "to[e * A_PITCH] = word[e];"
AT = "const size_t at = offset(row, result.pitch) + col + e;"

MANY = base("default", (70, 66, 50))
REGISTERS = [
    *of(
        MANY, "barriers",
        ("first barrier of two", BARRIER, "", RACE, COPY, (TURNED, COPY)),
        ("second barrier of two", BARRIER, "", RACE, COPY, (TURNED, COPY), {"nth": 1}),
    ),
    *of(
        MANY, "padding",
        ("the pad left out of A's writes", TURNED, TURNED.replace("A_PITCH", "BLOCK_M"), UNWRITTEN, COPY),
        ("the pad left out of B's reads", "Bs[kk * B_PITCH + col_of(j)]", "Bs[kk * BLOCK_N + col_of(j)]", UNWRITTEN,
         COPY, {"point": {"pad_b": 4, "vector": 4}, "sizes": (64, 64, 64)}),
    ),
    *of(
        MANY, "accumulators",
        ("a product left out", "for (int kk = 0;", "for (int kk = 1;", WRONG),
        ("a product of halves left out", "for (int kk = 0;", "for (int kk = 1;", WRONG, {"dtype": "float16"}),
    ),
    *of(
        MANY, "indices",
        ("stores a row below", AT, AT.replace("row,", "row + 1,"), STORE, COPY),
        ("two lanes at one place", "lane_n = lane % LANES_N", "lane_n = lane % LANES_N / 2 * 2", GLOBAL_RACE, COPY),
    ),
    *of(
        MANY, "bounds",
        ("words where rows are odd", "", "", "misaligned", COPY,
         {"rendered_for": (128, 128, 128), "sizes": (133, 129, 127)}),
    ),
]  # fmt: skip

# ---- the ring -------------------------------------------------------------------------------------------------------
RING: Mapping[str, Value] = {"staging": "dynamic", "stages": 3, "vector": 4}
WAIT = "__pipeline_wait_prior(AHEAD - 1);"
OWN_ROW = "if (row < tile.own_row || row >= m) return;"
OVER: Sizes = {"m": 70, "n": 64, "k": 32, "addend": 1}
B_ZERO = "if (FIRST && outside) __pipeline_memcpy_async(to, from, 16, 16);"
WHOLE = base(RING, (64, 64, 96))
HIDDEN = base(RING, (64, 64, 44))
EARLY = base({**RING, "stages": 4, "early_barrier": True}, (64, 64, 160))
NARROW = base({**RING, "vector": 1}, (64, 50, 32))
RINGS = [
    *of(
        WHOLE, "barriers",
        ("the first wait one too lax", WAIT, WAIT.replace(" - 1", ""), RACE, COPY, ASYNC),
        ("the ring's wait one too lax", WAIT, WAIT.replace(" - 1", ""), RACE, COPY, ASYNC, {"nth": 1}),
        ("the barrier before the ring", BARRIER, "", RACE, COPY, ASYNC),
        ("the ring's barrier", BARRIER, "", RACE, COPY, ASYNC, {"nth": 1}),
    ),
    *of(
        EARLY, "barriers",
        ("a slot refilled that is still read", "AHEAD = STAGES - 2", "AHEAD = STAGES - 1", RACE, COPY, ASYNC),
    ),
    *of(
        HIDDEN, "tails",
        ("one k too many is hidden", "steps * BLOCK_K - k;", "steps * BLOCK_K - k + 1;", WRONG,
         {"point": {**RING, "vector": 1}}),
        ("what hangs out is read", B_ZERO, "if (false) ;", LOAD, ASYNC),
        ("what hangs out is B's first row", B_ZERO,
         "if (FIRST && outside) __pipeline_memcpy_async(to, from + (hidden - b_line() - b_line_on(j)) * pitch, 16);",
         WRONG, {"inputs": "special"}),
    ),
    *of(
        NARROW, "bounds",
        ("columns beyond B", "min(b_at() + b_at_on(j), left - B_WIDTH)", "b_at() + b_at_on(j)", LOAD, ASYNC),
    ),
    *of(
        base(RING, OVER), "bounds",
        ("rows of two tiles", OWN_ROW, "if (row >= m) return;", GLOBAL_RACE, (COPY, "addend[at]"), {"over": True}),
    ),
]  # fmt: skip

# ---- k shared by teams, blocks, parts; packed operands; rows of C ---------------------------------------------------
SMALL: Mapping[str, Value] = {**RING, "block_m": 32, "block_n": 32, "block_k": 16}
PUT = "*reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(word);"
TAKE = "*reinterpret_cast<uint4*>(word) = *reinterpret_cast<const uint4*>(from);"
SYNC, SYNCWARP = "cluster.sync();", "__syncwarp();"
NOT_STARTED, EXITED = "may not have started: a sync() of the cluster is missing", "exited"
ROOM = "*reinterpret_cast<uint4*>(room + lane_row"
PUT_ROW = "result.put(room[at + lane], row, col);"
TEAMS = base({**SMALL, "slices": 4}, (32, 32, 48))
BLOCKS = base({**SMALL, "cluster": 2}, (32, 32, 64))
PARTS = base({**SMALL, "parts": 4}, (40, 32, 64))
PACKED = base({**SMALL, "pack_a": True, "pack_b": True}, (33, 35, 20))
ROWS = base({**SMALL, "store_rows": True}, (32, 33, 16))
SHARED = [
    *of(
        TEAMS, "barriers",
        ("teams: taken before they are given", BARRIER, "", RACE, TAKE, PUT, {"nth": 3}),
        ("teams: given before others are taken", BARRIER, "", RACE, TAKE, PUT, {"nth": 4}),
    ),
    *of(
        BLOCKS, "barriers",
        ("cluster: read before it is there", SYNC, "", NOT_STARTED, TAKE),
        ("cluster: left before it is read", SYNC, "", EXITED, TAKE, {"nth": 1}),
    ),
    *of(BLOCKS, "indices", ("cluster: a word that none finishes", "return q / (SUM", "return (q + 1) / (SUM", "nan")),
    *of(
        PARTS, "accumulators",
        ("gather: the last part left out", "unit <= last_unit", "unit < last_unit", WRONG),
    ),
    *of(
        PARTS, "barriers",
        ("gather: summed before all have added up", BARRIER, "", RACE, "word[e] += room", "room[mine]", {"nth": 3}),
    ),
    *of(
        PACKED, "tails",
        ("pack: the last column left out", "col + e < n)", "col + e < n - 1)", WRONG),
        ("pack: the last word not stored", "first + x < pitch)", "first + x < pitch - 4)", WRONG),
    ),
    *of(PACKED, "barriers", ("pack: turned before it is there", BARRIER, "", RACE, "tile[x][i]", "tile[i][x] =",
                             {"nth": 2})),
    *of(
        ROWS, "barriers",
        ("rows: laid out over those before", SYNCWARP, "", RACE, ROOM, PUT_ROW),
        ("rows: stored before they are whole", SYNCWARP, "", RACE, ROOM, PUT_ROW, {"nth": 1}),
    ),
]  # fmt: skip

# ---- few rows -------------------------------------------------------------------------------------------------------
FOUR = "reinterpret_cast<uint4*>(to)[i]"
FEW = base("one_row", (2, 128, 200))
SKINNY = [
    *of(
        FEW, "tails",
        ("skinny: no zero before the beginning of k", "b_rows[r][e] = 0;", "b_rows[r][e] += 0;", WRONG,
         {"inputs": "special"}),
    ),
    *of(
        FEW, "barriers",
        ("skinny: A is read before it is there", BARRIER, "", RACE, FOUR,
         "__pipeline_memcpy_async(to, inside"),
        ("skinny: sums in A's place while it is read", BARRIER, "", RACE, FOUR, {"nth": 1}),
        ("skinny: the cluster reads before sums are there", SYNC, "", NOT_STARTED, FOUR),
        ("skinny: left before it is read", SYNC, "", EXITED, FOUR, {"nth": 1}),
    ),
]  # fmt: skip

MUTANTS = [*TEXTBOOK, *RESULTS, *REGISTERS, *RINGS, *SHARED, *SKINNY]
