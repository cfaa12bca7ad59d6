"""The emulator's counts beside a GPU's, without one: what is drawn, a run made before, what agrees, the table."""

from __future__ import annotations

import json
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_ncu import csv_of

from autotile.devices.gpus import find_gpu
from autotile.insight.machine import Machine
from autotile.insight.ncu import WANTED
from autotile.kernels import load_kernel
from autotile.measure.traced import trace_variant
from autotile.space import violations

SIZES = {"rows": 256, "cols": 256}
ITEMS = [["transpose", SIZES, {"layout": layout, "block_threads": 1024}] for layout in ("plain", "padded")]
UNFIT = ["transpose", SIZES, {"tile_rows": 512, "tile_cols": 512}]


def test_what_is_drawn_is_feasible_distinct_and_the_same_each_time() -> None:
    from counters_beside import drawn

    kernel, info = load_kernel("transpose"), find_gpu("h200")
    first, second = (drawn(kernel, SIZES, 7, 3, info, random.Random(1)) for _ in range(2))
    assert first == second
    assert len(set(first)) == 7
    assert first[:3] == [kernel.configuration(values) for values in list(kernel.presets.values())[:3]]
    assert not any(violations(kernel, kernel.problem(SIZES, "float32"), info, one) for one in first)


@pytest.fixture
def run_before(tmp_path: Path) -> list[str]:
    """The command line for a run over ITEMS: 4 sectors a request; shared loads of 32 wavefronts, and of 1.5."""
    columns: dict[str, list[str | float]] = {
        WANTED[name][0]: values
        for name, values in {
            "load_sectors": ["8,192", "8,192"], "load_requests": ["2,048", "2,048"],
            "store_sectors": [8192, 8192], "store_requests": [2048, 2048],
            "shared_load_wavefronts": [66000, 3072], "shared_loads": [2048, 2048],
            "shared_store_wavefronts": [2048, 2100], "shared_stores": [2048, 2048], "copies": [0, 3],
        }.items()
    }  # fmt: skip
    (tmp_path / "run.csv").write_text(csv_of(["transpose"] * 2, columns))
    (tmp_path / "items.json").write_text(json.dumps([*ITEMS, UNFIT]))
    named = {"--ncu-csv": "run.csv", "--items": "items.json", "--output": "out"}
    return [word for name, file in named.items() for word in (name, str(tmp_path / file))]


def test_a_run_made_before_beside_traces(
    run_before: list[str],
    build_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import counters_beside

    monkeypatch.setenv("AUTOTILE_HOME", str(build_home))
    monkeypatch.setattr(counters_beside, "read_machine", lambda source, info: Machine())
    monkeypatch.setattr(counters_beside, "trace_variant", partial(trace_variant, budget_s=0.0))
    monkeypatch.setattr(
        counters_beside, "traced", lambda variants, info, jobs: [counters_beside.trace(v, info) for v in variants]
    )
    monkeypatch.setattr(sys, "argv", ["counters_beside.py", *run_before])
    counters_beside.main()
    document = json.loads((tmp_path / "out" / "counters_beside.json").read_text())
    plain, padded = document["entries"]
    assert (plain["emulated"]["wavefronts_a_shared_load"], padded["emulated"]["wavefronts_a_shared_load"]) == (32, 1)
    assert plain["differences"]["wavefronts_a_shared_load"] == pytest.approx(32 / (66000 / 2048) - 1)
    assert (plain["copies"], padded["copies"], plain["widths"]) == (False, True, False)
    assert document["totals"]["transpose"] == {
        "sectors_a_load_request": {"compared": 2, "agree": 2}, "sectors_a_store_request": {"compared": 2, "agree": 2},
        "wavefronts_a_shared_load": {"compared": 2, "agree": 1},
        "wavefronts_a_shared_store": {"compared": 2, "agree": 2},
    }  # fmt: skip
    assert {"device", "commit", "date"} <= set(document)
    assert [note for note in document["notes"] if note.startswith("left out transpose 256×256 float32")]
    lines = capsys.readouterr().out.splitlines()
    assert "| transpose | 2 | 2 of 2 | 2 of 2 | 1 of 2 | 2 of 2 |" in lines
    (worst,) = [line for line in lines if line.startswith("| transpose 256×256")]
    assert worst.startswith("| transpose 256×256 float32 | wavefronts a shared load | 1.500 | 1.000 | -33.3% | ")
    assert "Of 1 that do not agree, 1 are of kernels with asynchronous copies." in lines


def test_what_one_side_alone_has_does_not_agree() -> None:
    from counters_beside import WITHIN, difference, totals
    from counters_tables import furthest_apart

    assert (difference(None, None), difference(4.0, None), difference(None, 4.0)) == (0.0, None, None)

    def entry(gpu: float | None, emulated: float | None) -> dict[str, Any]:
        return {"kernel": "k", "counted": dict.fromkeys(WITHIN, gpu), "emulated": dict.fromkeys(WITHIN, emulated),
                "differences": dict.fromkeys(WITHIN, difference(gpu, emulated))}  # fmt: skip

    entries = [entry(None, None), entry(4.0, 4.03), entry(4.0, 4.1), entry(4.0, None)]
    found = totals(entries)["k"]
    assert found["sectors_a_load_request"] == {"compared": 3, "agree": 1}
    assert found["wavefronts_a_shared_load"] == {"compared": 3, "agree": 2}
    apart = [entries.index(one) for one, _ in furthest_apart(entries, WITHIN)]
    assert apart == [3] * 4 + [2] * 2


def test_the_configurations_without_a_gpu(
    run_before: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import counters_beside

    monkeypatch.setattr(sys, "argv", ["counters_beside.py", "--dry-run", *run_before])
    counters_beside.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(", ")[0] for line in lines[:2]] == [
        "transpose 256×256 float32: 64 blocks of 1024 threads"
    ] * 2  # fmt: skip
    assert lines[2].startswith("left out transpose")
