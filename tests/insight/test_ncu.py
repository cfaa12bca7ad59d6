"""Nsight Compute, by a stand-in that answers as the real one did: which metrics it is asked for, and what they tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_ncu import EVERYTHING, FakeNcu, csv_of, listing

from autotile.build import nvrtc
from autotile.errors import EnvironmentalError, TimedOut, ToolchainMissing
from autotile.insight.ncu import WANTED, available_metrics, chosen, counted, find_ncu, launches, ratios, raw_rows

REAL = Path(__file__).resolve().parents[1] / "data" / "ncu" / "h200.csv"
"""Of an H200, with Nsight Compute 2025.3: some kernels' launches, and of its columns those that are read."""


def real_ratios() -> list[tuple[str, dict[str, float | None]]]:
    rows = raw_rows(REAL.read_text())
    metrics = chosen(WANTED, frozenset(column.partition(".")[0] for column in rows[0]), [])
    return [(launch.name, ratios(launch.counters)) for launch in counted(rows, WANTED, metrics)]


def test_a_real_listing_of_launches() -> None:
    found = real_ratios()
    tiled, padded, packs, main, gathers, skinny, tile32, tile33, flat, odd = found
    assert [packs[0], main[0], gathers[0]] == ["matmul_pack", "matmul", "matmul_gather"]
    names = ("sectors_a_load_request", "sectors_a_store_request", "wavefronts_a_shared_load",
             "wavefronts_a_shared_store")  # fmt: skip
    told = [[pair[1][name] for name in names] for pair in (tile32, tile33, tiled)]
    # A wavefront more here and there, where loads and stores of shared memory meet.
    assert told[0] == pytest.approx([4, 4, 32, 1], rel=0.05)
    assert told[1] == pytest.approx([4, 4, 1, 1], rel=0.05)
    assert told[2] == pytest.approx([4, 4, 1, 1], rel=0.2)
    # Asynchronous copies alone, of 16 bytes a lane; and such among plain loads: none is counted twice.
    assert [flat[1][name] for name in names] == pytest.approx([16, 16, 4, 4], rel=0.003)
    assert skinny[1]["sectors_a_load_request"] == pytest.approx(16, rel=0.001)
    assert padded[1]["wavefronts_a_shared_load"] == pytest.approx(10 / 3, rel=0.001)  # those predicated off left out
    assert odd[1]["sectors_a_load_request"] == pytest.approx(5.089, rel=0.001)
    assert main[1]["registers"] == 128
    assert main[1]["time_ms"] == pytest.approx(0.1124, rel=0.001)
    assert main[1]["occupancy_percent"] is None  # it was not asked for


def test_copies_that_are_counted_apart_are_added() -> None:
    together = {"load_sectors": 48.0, "load_requests": 12.0, "plain_loads": 4.0, "copy_sectors": 32.0,
                "copy_requests": 8.0}  # fmt: skip
    apart = together | {"load_sectors": 16.0, "load_requests": 4.0}
    assert [ratios(raw)["sectors_a_load_request"] for raw in (together, apart)] == [4, 4]
    unknown = {**apart, "copy_sectors": None, "copy_requests": None}
    assert ratios(unknown)["sectors_a_load_request"] == 4


def test_what_is_not_there_is_none() -> None:
    assert set(ratios({}).values()) == {None}
    assert ratios({"load_sectors": 5.0, "load_requests": 0.0})["sectors_a_load_request"] is None
    assert ratios({"load_conflicts": 3.0, "copy_conflicts": 4.0, "store_conflicts": None})["bank_conflicts"] == 7
    assert ratios({"shared_store_wavefronts": 6.0, "shared_stores": 1.0, "copy_wavefronts": 2.0, "copies": 1.0})[
        "wavefronts_a_shared_store"
    ] == 4  # fmt: skip


def test_metrics_are_asked_for_by_what_there_is(tmp_path: Path) -> None:
    lacks = {"dram__throughput", "smsp__sass_inst_executed_op_shared_ld", "l1tex__t_sectors_pipe_lsu_mem_global_op_st"}
    there = [metric for metric in EVERYTHING if metric.partition(".")[0] not in lacks]
    stores = WANTED["store_sectors"][0]
    text = csv_of(
        ["f", "g"],
        {"gpu__time_duration.sum": ["1,500", "n/a"], "dram__bytes.sum.pct_of_peak_sustained_elapsed": [7, 8]},
    )
    fake, notes = FakeNcu(tmp_path, text, there), list[str]()
    found = launches(fake.path, "f", WANTED, ["true"], notes)
    assert notes == [f"this release of Nsight Compute does not count here: store_sectors ({stores})"]
    assert "smsp__inst_executed_op_shared_ld_pred_on_any.sum" in fake.metrics
    assert "launch__registers_per_thread" in fake.metrics  # which no listing has
    assert not {metric.partition(".")[0] for metric in fake.metrics} & lacks
    assert [launch.name for launch in found] == ["f", "g"]
    assert [set(launch.counters) for launch in found] == [set(WANTED)] * 2
    assert [launch.counters["time_ns"] for launch in found] == [1500, None]
    assert [launch.counters["dram_percent"] for launch in found] == [7, 8]
    words = fake.words
    assert words[words.index("--kernel-name") + 1] == "f"
    assert words[-1] == "true"
    launches(fake.path, "f", WANTED, ["true"], notes)
    assert fake.calls == 3  # it is asked for its metrics once


def test_a_listing_of_several_gpus_is_what_they_share(tmp_path: Path) -> None:
    both = [
        listing(["a__b.sum", "c__d.sum"]),
        listing(["a__b.sum"], "Another (XX200)"),
        listing([], "An old one (XX1)"),
    ]
    fake = FakeNcu(tmp_path, "")
    (tmp_path / "listing").write_text("".join(both))
    assert available_metrics(fake.path) == {"a__b"}


def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    denied = FakeNcu(tmp_path / "denied", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    with pytest.raises(EnvironmentalError, match=r"CAP_SYS_ADMIN.*NVreg_RestrictProfilingToAdminUsers=0"):
        launches(denied.path, "f", WANTED, ["true"], [])
    with pytest.raises(EnvironmentalError, match=r"no launch \(status 1\): .*error code"):
        launches(denied.path, "f", WANTED, ["false"], [])
    with pytest.raises(TimedOut, match="had not ended after 0 s"):
        launches(denied.path, "f", WANTED, ["sleep", "20"], [], limit_s=0.2)
    bare = FakeNcu(tmp_path / "bare", "", [])
    (tmp_path / "bare" / "listing").write_text("==ERROR== no driver\n")
    with pytest.raises(ToolchainMissing, match=r"listed no metric \(status 0\): ==ERROR== no driver"):
        launches(bare.path, "f", WANTED, ["true"], [])


def test_where_ncu_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "toolkits", lambda: iter([("here", tmp_path / "one"), ("there", tmp_path / "two")]))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(ToolchainMissing, match=r"one/bin/ncu, .*two/bin/ncu\..*AUTOTILE_NCU"):
        find_ncu()
    made = FakeNcu(tmp_path / "two" / "bin", "").path
    assert find_ncu() == made
    on_path = FakeNcu(tmp_path / "path", "").path
    assert find_ncu() == on_path
    monkeypatch.setenv("AUTOTILE_NCU", str(made))
    assert find_ncu() == made
    assert find_ncu(on_path) == on_path
    monkeypatch.setenv("AUTOTILE_NCU", str(tmp_path / "absent"))
    with pytest.raises(ToolchainMissing, match=r"absent was named .* is no program"):
        find_ncu()
