"""The emulator counts what Nsight Compute counted on an H200 (tests/data/counters/h200.json), and finds both races.

Not compared here: the wavefronts of a shared load of the matmul through a tile. The compiler reads rows of A in words
of 16 bytes, and the emulator sees the widths of the text unless it is told those of the machine code.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEASURED = json.loads((ROOT / "tests" / "data" / "counters" / "h200.json").read_text(encoding="utf-8"))
BY_WIDTH = ("product_tile32", "wavefronts_a_shared_load")
COUNTS = [
    (name, counter, count)
    for name, counts in MEASURED["counters"].items()
    for counter, count in counts.items()
    if (name, counter) != BY_WIDTH
]
RACES = {
    "product_first_missing": "read-after-write",
    "product_second_missing": "write-after-read",
}
"""How the accesses would go that the missing barrier keeps in order."""


@pytest.fixture(scope="module")
def traced(build_home: Path) -> Iterator[dict[str, Any]]:
    """By their names in the file: each example, and its trace."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    import memory_examples

    examples = [one for one in vars(memory_examples).values() if isinstance(one, memory_examples.Example)]
    compared = {one.measured: one for one in examples if one.measured}
    with memory_examples.Runs(build_home) as runs:
        runs.prepare(compared.values())
        yield {name: (one, runs.trace(one)) for name, one in compared.items()}
    sys.path.remove(folder)
    sys.modules.pop("memory_examples")


def test_all_that_was_measured_is_compared(traced: dict[str, Any]) -> None:
    assert traced.keys() == MEASURED["counters"].keys() | MEASURED["results"].keys()
    assert len(COUNTS) == 18


@pytest.mark.parametrize(("name", "counter", "count"), COUNTS)
def test_a_request_costs_what_it_cost_there(traced: dict[str, Any], name: str, counter: str, count: float) -> None:
    """To the digits that were noted: the emulator counts exactly, and so does Nsight Compute."""
    _, trace = traced[name]
    assert trace.per_request[counter] == pytest.approx(count, abs=0.005)
    assert trace.diagnostics == ()


@pytest.mark.parametrize("name", RACES)
def test_a_missing_barrier_is_a_race_with_both_lines(traced: dict[str, Any], name: str) -> None:
    """Of either tile, between the line that stores it and the one that reads it."""
    example, trace = traced[name]
    found = {
        tuple(example.text[line - 1].strip() for line in sorted((race.line, race.other_line)))
        for race in trace.diagnostics
        if (race.kind, race.op) == ("shared_race", RACES[name])
    }
    assert found == {
        ("As[ty + i][tx] = in_a ? a[size_t(row + i) * n + start + tx] : 0.0f;", "x[i] = As[ty + 32 * i][k];"),
        ("Bs[ty][tx + i] = in_b ? b[size_t(start + ty) * n + col + i] : 0.0f;", "y[i] = Bs[k][tx + 32 * i];"),
    }
