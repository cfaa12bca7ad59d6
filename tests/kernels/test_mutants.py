"""Kernels with one fault each: the emulator must reject them, and name the line.

A mutant is a rendered text with one string replaced. The same check passes the text as it was, so it can tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.devices.base import Check
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import kernel_folders, load_kernel
from autotile.measure import Variant, make_variant
from autotile.measure.workload import Kind, make_workload
from autotile.types import Value

DEVICE = EmulatorDevice()


KINDS = ("barriers", "bounds", "indices", "accumulators", "tails", "padding")
"""What a fault is in: barriers; tests that keep accesses inside arrays, and words on their size; which element goes
where; sums and their type; the last, partial tile or step; the pitch of tiles, by pad or swizzle."""


@dataclass(frozen=True)
class Mutant:
    """One fault, of one of KINDS. `old` becomes `new` where it stands for the `nth` time (from 0); or the text is left
    as it is, but was `rendered_for` sizes that have other traits than `sizes`, on which it runs.

    `says` must be in the check's detail; each of `lines` is a choice of texts of the mutated source, of which one must
    stand in a line that the detail names. `inputs` other than random are those that alone reveal it.
    """

    name: str
    kind: str
    kernel: str
    old: str
    new: str
    says: str
    lines: tuple[tuple[str, ...], ...] = ()
    point: Mapping[str, Value] | str = "default"
    sizes: tuple[int, ...] = ()
    dtype: str = "float32"
    nth: int = 0
    rendered_for: tuple[int, ...] = ()
    inputs: Kind = "random"

    def __str__(self) -> str:
        return f"{self.kernel}: {self.name}"


BARRIER = "__syncthreads();"
RACE = "shared-memory race"
WRONG = "elements are wrong"
UNWRITTEN = "read of shared memory that the block has not written"

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

# ---- transpose ------------------------------------------------------------------------------------------------------
IN = "tile[r][c] = in[size_t(r) * cols + c];"
OUT = "out[size_t(c) * rows + r] = tile[r][c];"
EDGE = "if (EDGE && (r >= rows_left || c >= cols_left)) continue;"

PADDED = Mutant("", "", "transpose", "", "", "", point="tile33", sizes=(50, 70))
WORDS = replace(PADDED, point={"vector": 4, "swizzle": True, "pad": 0}, sizes=(64, 96))
STRIDED = replace(PADDED, point="strided_writes")
TRANSPOSE = [
    replace(PADDED, name="barrier", kind="barriers", old=BARRIER, new="", says=RACE, lines=((IN,), (OUT,))),
    replace(PADDED, name="last column of the tile", kind="tails", old=IN, new=f"if (c < TILE_COLS - 1) {IN}",
            says=UNWRITTEN,
            lines=((OUT,),)),
    replace(PADDED, name="last column of out's tile", kind="tails", old=OUT, new=f"if (r < TILE_ROWS - 1) {OUT}",
            says="the first at [0, 31]"),
    replace(PADDED, name="stores a row below", kind="indices", old=OUT, new=OUT.replace("(c)", "(c + 1)"),
            says="out-of-bounds store",
            lines=(("out[size_t(c + 1)",),)),
    replace(PADDED, name="loads a row below", kind="indices", old=IN, new=IN.replace("(r)", "(r + 1)"),
            says="out-of-bounds load",
            lines=(("in[size_t(r + 1)",),)),
    replace(PADDED, name="the edge one too far, loading", kind="bounds", old=EDGE,
            new=EDGE.replace("r >= rows", "r > rows"),
            says="out-of-bounds load", lines=((IN,),)),
    replace(PADDED, name="the edge one too far, storing", kind="bounds", old=EDGE,
            new=EDGE.replace("c >= cols", "c > cols"), nth=1,
            says="out-of-bounds store", lines=((OUT,),)),
    replace(PADDED, name="the pad left out of reads", kind="padding", old="rows + r] = tile[r][c]",
            new="rows + r] = tile[0][r * TILE_COLS + c]", says=UNWRITTEN, lines=(("tile[0][r * TILE_COLS + c]",),)),
    replace(STRIDED, name="stores a row below", kind="indices", old="out[size_t(c) * rows + r]",
            new="out[size_t(c + 1) * rows + r]",
            says="out-of-bounds store", lines=(("out[size_t(c + 1)",),)),
    replace(WORDS, name="the swizzle left out of writes", kind="padding", old="&tile[r][swizzled(r, c)]",
            new="&tile[r][c]",
            says="elements are wrong; the first at ["),
    replace(WORDS, name="the square not turned", kind="indices", old="turned[i] = rows[i][j]",
            new="turned[i] = rows[j][i]",
            says="elements are wrong; the first at [0, 1]"),
    replace(WORDS, name="words where rows are odd", kind="bounds", says="misaligned load",
            lines=(("const word*>(in +",),), rendered_for=(64, 96), sizes=(63, 95)),
    replace(PADDED, name="the last tile taken as a whole one", kind="tails", old="rows_left >= TILE_ROWS && cols_left",
            new="rows_left >= TILE_ROWS || cols_left", says="out-of-bounds store", lines=((OUT,),)),
]  # fmt: skip

MUTANTS = [*TEXTBOOK, *REGISTERS, *TRANSPOSE]


@pytest.fixture(scope="session")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def variant_of(mutant: Mutant, sizes: tuple[int, ...]) -> Variant:
    kernel = load_kernel(mutant.kernel)
    point = kernel.presets.get(mutant.point) if isinstance(mutant.point, str) else mutant.point
    problem = kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), mutant.dtype)
    return make_variant(kernel, problem, kernel.configuration(point))


def check(builder: Builder, mutant: Mutant, text: str | None = None, inputs: Kind | None = None) -> Check:
    """One check of the mutant's problem, with its own text or another, on inputs of its own kind or another."""
    variant = variant_of(mutant, mutant.sizes)
    source = variant.source if text is None else replace(variant.source, text=text)
    with DEVICE.stage(make_workload(variant.kernel, variant.problem, 3, inputs or mutant.inputs)) as stage:
        return stage.check(DEVICE.load(builder.build(source)), variant.launch)


def mutated(text: str, mutant: Mutant) -> str:
    if not mutant.old:
        return text
    pieces = text.split(mutant.old)
    assert len(pieces) > mutant.nth + 1, (
        f"{mutant.old!r} stands {len(pieces) - 1} times in the text: the template changed"
    )
    at = mutant.nth + 1
    return mutant.old.join(pieces[:at]) + mutant.new + mutant.old.join(pieces[at:])


def named_lines(detail: str, text: str) -> list[str]:
    """The source lines whose numbers a message gives."""
    lines = text.splitlines()
    return [lines[int(number) - 1] for number in re.findall(r"\bline (\d+)", detail)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_rejected_by_name_and_line(builder: Builder, mutant: Mutant) -> None:
    text = mutated(variant_of(mutant, mutant.rendered_for or mutant.sizes).source.text, mutant)
    found = check(builder, mutant, text)
    assert not found.ok
    assert mutant.says in found.detail
    named = named_lines(found.detail, text)
    for choice in mutant.lines:
        assert any(snippet in line for snippet in choice for line in named), (choice, found.detail, named)
    if mutant.lines:
        known = [snippet for choice in mutant.lines for snippet in choice]
        assert all(any(snippet in line for snippet in known) for line in named), (found.detail, named)


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.inputs != "random"], ids=str)
def test_random_data_would_not_have_shown_it(builder: Builder, mutant: Mutant) -> None:
    text = mutated(variant_of(mutant, mutant.sizes).source.text, mutant)
    assert check(builder, mutant, text, "random").ok


@pytest.mark.parametrize(
    "mutant",
    {(m.kernel, str(m.point), m.sizes, m.dtype, m.inputs): m for m in MUTANTS}.values(),
    ids=lambda m: f"{m.kernel} {m.sizes} {m.dtype} {m.inputs}",
)
def test_the_text_as_it_was_is_right(builder: Builder, mutant: Mutant) -> None:
    found = check(builder, mutant)
    assert (found.ok, found.detail) == (True, "")


@pytest.mark.parametrize("kernel", kernel_folders())
def test_there_are_mutants_enough(kernel: str) -> None:
    """Ten at least, of each kind; what only moves elements has no accumulators."""
    of_this = [mutant for mutant in MUTANTS if mutant.kernel == kernel]
    assert len(of_this) >= 10
    assert len({repr(replace(mutant, name="", kind="")) for mutant in of_this}) == len(of_this), "one is there twice"
    moves_only = load_kernel(kernel).flops == "0"
    assert {mutant.kind for mutant in of_this} == set(KINDS) - ({"accumulators"} if moves_only else set())
