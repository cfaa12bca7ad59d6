"""An explanation on a terminal: what is found comes first, and an estimate is never shown as a measurement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotile.insight.explanation import (
    Barrier,
    Change,
    Explanation,
    Finding,
    Occupancy,
    Pattern,
    Roofline,
    SharedUse,
    Traffic,
)
from autotile.insight.text import WIDTH, text_of

PATTERN = Pattern(
    entry="", line=39, called_from=(), code="out[i] = tile[j];", op="load", space="shared", array="shared memory",
    access_bytes=4, from_machine_code=False, requests=100.0, lanes=32.0, per_request=32.0, ideal_per_request=1.0,
    worst=32, passes=3200.0, used_percent=3.1, percent_of_cost=97.0, shape="column", words="down a column", fix="pad",
    addresses=(),
)  # fmt: skip


@pytest.fixture
def explanation() -> Explanation:
    return Explanation(
        kernel="transpose", problem="64×64 float32", configuration=(("tile", 32), ("padded", False)), device="Some GPU",
        blocks=4, threads=1024, traced_blocks=2,
        findings=(Finding("First " + "word " * 60, line=39), Finding("Second.", "do less")),
        units_ms=(("LSU", 0.07), ("DRAM", 0.02)),
        occupancy=Occupancy(1, 32, 64, (("threads", 2), ("registers", 1)), ("registers",), 40, 0.5),
        roofline=Roofline(0, 32768, 0.0, 66.9, 4800.0, "memory", 0.02, 0.08, True),
        traffic=Traffic(32768.0, 147456.0, None, None, 4.5, "plain", 32768.0, 294912.0),
        patterns=(
            PATTERN,
            replace(PATTERN, line=26, op="store", percent_of_cost=3.0, per_request=1.0, shape="spread", fix=""),
            replace(PATTERN, space="global", array="in", called_from=(30, 67), from_machine_code=True),
            replace(PATTERN, line=90, percent_of_cost=0.1),
        ),
        barriers=(Barrier("", 65, "__syncthreads();", 1.0, ("it keeps two apart",)),),
        shared=SharedUse(4096, 0, 49152, 232448, "A block uses 4 KiB."),
        instructions=(("fused multiply-adds", 8.0),),
        changes=(Change("layout", "padded", 0.03, "≈0.08 → ≈0.03 ms (estimate)"),),
        profile=(("sectors_a_load_request", 32.0, None),),
        notes=("A note.",),
    )  # fmt: skip


def test_findings_come_first_and_all_else_follows(explanation: Explanation) -> None:
    text = str(explanation)
    assert text == text_of(explanation)
    parts = (
        "transpose 64×64", "tile=32 padded=false", "4 blocks of 1024 threads; 2 of 4 traced", "1. First",
        "2. Second. To change: do less.",
        "layout=padded", "global memory", "39<67 load of in", "shared memory", "39 load ", "column", "26 store",
        "spread, fine", "and 1 more", "machine code", "registers", "bound by memory", "LSU ≈0.07", "2 times as much",
        "A block uses 4 KiB.", "8 fused multiply-adds", "line 65, 1 times a block: it keeps two apart",
        "sectors a load request", "–", "A note.",
    )  # fmt: skip
    place = 0
    for part in parts:
        assert part in text, part
    for part in ("1. First", "layout=padded", "global memory", "occupancy", "barriers", "notes"):
        assert text.index(part) > place
        place = text.index(part)
    assert "line 90" not in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_what_is_not_declared_has_no_ceiling(explanation: Explanation) -> None:
    nothing = replace(
        explanation, roofline=replace(explanation.roofline, attainable_ms=0.0, least_bytes=0), patterns=()
    )
    text = text_of(nothing)
    assert "the kernel's definition tells of no bytes and no arithmetic" in text
    assert "0 % of that" not in text
    assert "lines are those of" not in text  # there is no table


def test_an_estimate_is_called_one_and_a_measurement_is_not(explanation: Explanation) -> None:
    headline = text_of(explanation).splitlines()[0]
    assert headline.endswith("≈0.08 ms (estimate)")
    measured = replace(explanation, roofline=replace(explanation.roofline, estimated=False))
    assert text_of(measured).splitlines()[0].endswith("on Some GPU: 0.08 ms")
    assert "what each unit alone would take, ms (estimate)" in text_of(measured)


def test_what_is_not_known_is_said_to_be_so(explanation: Explanation) -> None:
    bare = replace(
        explanation, occupancy=replace(explanation.occupancy, registers=None), barriers=(), instructions=(), profile=(),
        changes=(), notes=(), traffic=replace(explanation.traffic, baseline="", baseline_moved_bytes=None),
    )  # fmt: skip
    text = text_of(bare)
    assert "registers not known" in text
    for word in ("barriers", "hottest loop", "Nsight", "what another value", "plain moves"):
        assert word not in text
