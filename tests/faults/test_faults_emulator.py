"""Kernels that go wrong, on the emulator: each costs its record, in words that name the fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty import no_orphans
from faulty_kernel import write_faulty

import autotile
from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import TimedOut
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.store import Store

OUTCOMES = {
    "nothing": ("wrong_result", "elements are wrong"),
    "wrong": ("wrong_result", "1 of 1"),
    "half": ("wrong_result", "elements are wrong"),
    "nan": ("wrong_result", "nan instead of"),
    "race": ("wrong_result", "shared-memory race"),
    "outside": ("wrong_result", "out-of-bounds store"),
    "illegal": ("wrong_result", "store"),
    "misaligned": ("wrong_result", "misaligned load"),
    "hang": ("timeout", "had not ended after 2 s"),
    "does_not_compile": ("compile_error", "kernel.cu:"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_fault_is_named_and_the_right_one_wins(tmp_path: Path) -> None:
    file = write_faulty(tmp_path, ", ".join(["none", *OUTCOMES]), n=4096)
    with no_orphans():
        (result,) = autotile.search(file, device="emulator", templates=tmp_path)
    found = {str(record.configuration["fault"]): record for record in result.records}
    assert {name: record.outcome for name, record in found.items()} == {
        "none": "ok",
        **{name: outcome for name, (outcome, _) in OUTCOMES.items()},
    }
    for name, (_, words) in OUTCOMES.items():
        assert words in found[name].message, (name, found[name].message)
    assert result.best is not None
    assert result.best.configuration["fault"] == "none"
    assert Store().bests() == [result.best]


def test_the_emulators_own_limit_says_nothing_of_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow or busy CPU is no reason to call a kernel wrong."""
    monkeypatch.setattr("autotile.devices.emulator.device.LAUNCH_LIMIT_S", 0.3)
    write_faulty(tmp_path, "hang", n=4096)
    device, kernel = EmulatorDevice(), load_kernel("faulty", tmp_path)
    variant = make_variant(kernel, kernel.problem({"n": 4096}), kernel.configuration({"fault": "hang"}))
    with Builder(device.target) as builder:
        program = device.load(builder.build(variant.source))
    with device.stage(make_workload(kernel, variant.problem)) as stage, pytest.raises(TimedOut, match="time limit"):
        stage.check(program, variant.launch)
