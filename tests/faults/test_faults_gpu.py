"""Kernels that go wrong on a real GPU: each costs one record, and the next is measured as if nothing had been."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from faulty import no_orphans
from faulty_kernel import write_faulty
from waiting_kernel import NEVER_ENDING, write_waiting

import autotile
from autotile.build import Builder
from autotile.devices.cuda import CudaDevice
from autotile.devices.select import open_device
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.measure.sanitize import find_sanitizer, sanitize
from autotile.store import Store
from autotile.types import Record

pytestmark = pytest.mark.gpu

N = 1 << 26
"""Elements: 512 MiB are read and written, so that times are steady."""

RIGHT = {128: "none", 256: "none", 512: "none"}

OUTCOMES = {
    "nothing": ("wrong_result", "elements are wrong"),
    "wrong": ("wrong_result", "1 of 67108864 elements are wrong"),
    "half": ("wrong_result", "(never written)"),
    "nan": ("wrong_result", "nan instead of"),
    "outside": ("wrong_result", "elements are wrong"),
    "illegal": ("launch_error", "illegal"),
    "misaligned": ("launch_error", "misaligned"),
    "trap": ("launch_error", "launch failure"),
    "resources": ("launch_error", "registers × 1024 threads >"),
    "hang": ("timeout", "had not ended after 2 s"),
    "does_not_compile": ("compile_error", "error"),
}
"""A missing barrier (`race`) shows on a GPU when it likes: that one is the emulator's to find."""


def times(records: object) -> dict[object, float]:
    assert isinstance(records, (list, tuple))
    return {r.configuration["width"]: r.time_ms for r in records if r.ok and isinstance(r, Record)}


def test_each_fault_costs_one_record_and_disturbs_no_time(tmp_path: Path) -> None:
    clean = write_faulty(tmp_path, "none", N, "[128, 256, 512]")
    (alone,) = autotile.search(clean, device="cuda", templates=tmp_path)
    assert alone.outcomes == {"ok": 3}
    # In the order of the grid each right variant comes first of its width, behind the faults of the width before it.
    faulty = write_faulty(tmp_path, ", ".join(["none", *OUTCOMES]), N, "[128, 256, 512]")
    with no_orphans():
        (among,) = autotile.search(faulty, device="cuda", templates=tmp_path, fresh=True)
    found = {(r.configuration["width"], str(r.configuration["fault"])): r for r in among.records}
    for width in (128, 256, 512):
        assert found[width, "none"].outcome == "ok"
        for fault, (outcome, words) in OUTCOMES.items():
            record = found[width, fault]
            assert (fault, record.outcome) == (fault, outcome), record.message
            assert words in record.message, (fault, record.message)
    before, after = times(alone.records), times(among.records)
    assert after == pytest.approx(before, rel=0.05)
    assert among.best is not None
    assert among.best.configuration["fault"] == "none"
    assert alone.best is not None
    assert among.best.time_ms == pytest.approx(alone.best.time_ms, rel=0.05)
    assert dict(among.best.extra)["traced"] == "yes"


def test_a_race_that_the_gpu_hides_is_found_by_the_emulator(tmp_path: Path) -> None:
    """32 lanes run in step, so neighbours in a warp hardly ever meet this one."""
    file = write_faulty(tmp_path, "race", N)
    (result,) = autotile.search(file, device="cuda", templates=tmp_path)
    assert result.best is None
    assert Store().bests("faulty") == []
    (record,) = result.records
    assert record.outcome == "wrong_result"
    if "the emulator found" in record.message:
        assert "shared-memory race" in record.message


def test_verify_sanitize_passes_what_is_right(tmp_path: Path) -> None:
    file = write_faulty(tmp_path, "none", 1 << 20)
    (result,) = autotile.search(file, device="cuda", templates=tmp_path)
    assert result.best is not None
    command = [
        sys.executable,
        "-m",
        "autotile",
        "verify",
        "--device",
        "cuda",
        "--sanitize",
        "--templates",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok")
    assert "memcheck found nothing" in done.stdout
    assert "racecheck found nothing" in done.stdout


@pytest.mark.parametrize(
    ("fault", "tool", "words"),
    [("race", "racecheck", "Race reported between"), ("outside", "memcheck", "Invalid __global__ write")],
)
def test_the_sanitizer_sees_a_race_and_an_access_beyond_an_array(
    tmp_path: Path, fault: str, tool: str, words: str
) -> None:
    write_faulty(tmp_path, "none", 1 << 20)
    device, kernel = open_device("cuda"), load_kernel("faulty", tmp_path)
    assert isinstance(device, CudaDevice)
    with Builder(device.target) as builder:
        variant = make_variant(kernel, kernel.problem({"n": 1 << 20}), kernel.configuration({"fault": fault}))
        found = sanitize(tool, find_sanitizer(), device, builder, variant)
    assert words in found.words, found.words


def test_barriers_that_nobody_arrives_at_end_in_a_record(tmp_path: Path) -> None:
    """The matmul on tensor cores, of which tier wgmma is not told that its tiles have been asked for."""
    write_waiting(tmp_path)
    search = tmp_path / "waiting.yaml"
    search.write_text(NEVER_ENDING, encoding="utf-8")
    device = open_device("cuda")
    if device.info.compute_capability != 90:
        pytest.skip(f"{device.info.name} has no wgmma")
    begun = time.monotonic()
    with no_orphans():
        (result,) = autotile.search(search, device="cuda", templates=tmp_path)
    assert time.monotonic() - begun < 120
    outcomes = {
        tier: {r.outcome for r in result.records if r.configuration["tier"] == tier} for tier in ("wgmma", "mma")
    }
    assert outcomes["mma"] == {"ok"}
    assert outcomes["wgmma"] <= {"timeout", "launch_error"}, [record.message for record in result.records]
    assert result.best is not None
    assert result.best.configuration["tier"] == "mma"
