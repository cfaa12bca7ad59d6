"""Faults of the matmul."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mutants import BARRIER, RACE, UNWRITTEN, WRONG, Mutant

from autotile.types import Value

# ---- matmul, the textbook's tile ------------------------------------------------------------------------------------
A_LOAD = "As[ty][tx] = "
B_LOAD = "Bs[ty][tx] = "
SUM = "sum += accumulator(As[ty][kk])"
C_STORE = "c[size_t(row0 + ty) * n + col0 + tx] = "
INSIDE = "if (ty < m_left && tx < n_left)"
A_FROM = "a[size_t(ty) * k + tx]"
B_INSIDE = "ty < k_left && tx < n_left ? b[size_t(ty) * n + tx]"

TILE = Mutant("", "", "matmul", "", "", "", point="tile32", sizes=(40, 50, 70))
TEXTBOOK = [
    replace(TILE, name="first barrier", kind="barriers", old=BARRIER, new="", says=RACE,
            lines=((SUM,), (A_LOAD, B_LOAD))),
    replace(TILE, name="second barrier", kind="barriers", old=BARRIER, new="", nth=1, says=RACE,
            lines=((SUM,), (A_LOAD, B_LOAD))),
    replace(
        TILE, name="last column of A's tile", kind="tails", old=A_LOAD, new=f"if (tx < BLOCK_K - 1) {A_LOAD}",
        says=UNWRITTEN, lines=((SUM,),),
    ),
    replace(
        TILE, name="last column of C's tile", kind="tails", old=C_STORE, new=f"if (tx < BLOCK_N - 1) {C_STORE}",
        says="the first at [0, 31]: nan",
    ),
    replace(
        TILE, name="stores a row below", kind="indices", old=C_STORE, new=C_STORE.replace("ty)", "ty + 1)"),
        says="out-of-bounds store", lines=(("c[size_t(row0 + ty + 1)",),),
    ),
    replace(
        TILE, name="loads a row below", kind="indices", old=A_FROM, new="a[size_t(ty + 1) * k + tx]",
        says="out-of-bounds load", lines=((A_LOAD,),),
    ),
    replace(
        TILE, name="no test of k's tail", kind="tails", old="ty < m_left && tx < k_left ?", new="ty < m_left ?",
        says="out-of-bounds load", lines=((A_LOAD,),),
    ),
    replace(
        TILE, name="a barrier in a branch", kind="barriers", old=f"{INSIDE} c[",
        new=f"{INSIDE} {BARRIER}\n    {INSIDE} c[", says="barrier divergence", lines=((f"{INSIDE} {BARRIER}",),),
    ),
    replace(
        TILE, name="no test of C's rows", kind="bounds", old=INSIDE, new="if (tx < n_left)", says="out-of-bounds store",
        lines=((C_STORE,),),
    ),
    replace(TILE, name="B's tile is read turned", kind="indices", old="Bs[kk][tx]", new="Bs[tx][kk]", says=WRONG),
    replace(TILE, name="the last product alone", kind="accumulators", old="sum += acc", new="sum = acc", says=WRONG),
    replace(
        TILE, name="sums in float32 for float64", kind="accumulators", old="accumulator = double",
        new="accumulator = float", says=WRONG, dtype="float64",
    ),
    replace(
        TILE, name="B's tail is its last row again", kind="tails", old=B_INSIDE,
        new="tx < n_left ? b[size_t(min(ty, k_left - 1)) * n + tx]", says=WRONG, inputs="special",
    ),
    replace(
        TILE, name="A's tail is the next row", kind="tails", old="ty < m_left && tx < k_left ?",
        new="ty < m_left && (tx < k_left || row0 + ty + 1 < m) ?", says=WRONG, inputs="special",
    ),
    replace(
        TILE, name="a sum of zero is not stored", kind="accumulators", old=INSIDE,
        new="if (sum != 0 && ty < m_left && tx < n_left)", says=WRONG, inputs="cancelling",
        sizes=(40, 50, 4), dtype="float16",
    ),
]  # fmt: skip

# ---- matmul, many elements a thread ---------------------------------------------------------------------------------
COPY = "*reinterpret_cast<word<COUNT>*>(to) = *reinterpret_cast<const word<COUNT>*>(from);"
ASYNC = "__pipeline_memcpy_async(to, from"
TURNED = "As[(kk + e) * A_PITCH + row] = turned[e];"
RING_POINT: Mapping[str, Value] = {"staging": "dynamic", "stages": 3, "vector": 4}

MANY = Mutant("", "", "matmul", "", "", "", sizes=(70, 66, 50))
RING = replace(MANY, point=RING_POINT, sizes=(64, 64, 96))
REGISTERS = [
    replace(MANY, name="first barrier", kind="barriers", old=BARRIER, new="", says=RACE,
            lines=((COPY,), (TURNED, COPY))),
    replace(MANY, name="second barrier", kind="barriers", old=BARRIER, new="", nth=1, says=RACE,
            lines=((COPY,), (TURNED, COPY))),
    replace(
        MANY, name="the pad left out of A's writes", kind="padding", old=TURNED,
        new=TURNED.replace("A_PITCH", "BLOCK_M"), says=UNWRITTEN, lines=((COPY,),),
    ),
    replace(MANY, name="a product left out", kind="accumulators", old="for (int kk = 0;", new="for (int kk = 1;",
            says=WRONG),
    replace(
        MANY, name="a product left out", kind="accumulators", old="for (int kk = 0;", new="for (int kk = 1;",
        says=WRONG,
        dtype="float16",
    ),
    replace(
        MANY, name="stores a row below", kind="indices", old="c += offset(row0 + row, n)",
        new="c += offset(row0 + row + 1, n)", says="out-of-bounds store", lines=((COPY,),),
    ),
    replace(
        MANY, name="words where rows are odd", kind="bounds", says="misaligned",
        lines=((COPY,),), rendered_for=(128, 128, 128), sizes=(33, 65, 17),
    ),
    replace(
        MANY, name="the pad left out of B's reads", kind="padding", old="Bs[kk * B_PITCH + col_of(j)]",
        new="Bs[kk * BLOCK_N + col_of(j)]", says=UNWRITTEN, lines=((COPY,),), point={"pad_b": 4, "vector": 4},
        sizes=(64, 64, 64),
    ),
    replace(RING, name="the wait is one too weak", kind="barriers", old="wait_prior(STAGES - 2)",
            new="wait_prior(STAGES - 1)",
            says=RACE, lines=((COPY,), (ASYNC,))),
    replace(RING, name="the ring's barrier", kind="barriers", old=BARRIER, new="", says=RACE,
            lines=((COPY,), (ASYNC,))),
    replace(
        RING, name="k's tail is not zeroed", kind="tails",
        old="else *reinterpret_cast<word<WIDTH>*>(to) = word<WIDTH>{};", new="",
        says=UNWRITTEN, lines=((COPY,),), sizes=(64, 64, 5),
    ),
]  # fmt: skip

MUTANTS = [*TEXTBOOK, *REGISTERS]
