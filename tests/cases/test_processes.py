"""What one variant does to its process, or to its compiler, is nothing to the others."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest
from fakes import SIZE, TWELVE, FakeBuilder, FakeDevice, Values, write_kernel
from faulty import faulty_device, no_orphans

from autotile.build.process import CompileTimeout
from autotile.devices.emulator import lines
from autotile.kernels.loader import read_folder
from autotile.spec import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, search


@pytest.fixture(autouse=True)
def _no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator has nothing to say of a stand-in's winner."""
    monkeypatch.setenv("AUTOTILE_CXX", "/nowhere/g++")


def tune(root: Path, device: FakeDevice, builder: FakeBuilder) -> SearchResult:
    kernel = read_folder(write_kernel(root) / "walk")
    spec = Spec(kernel, (kernel.problem({"n": SIZE}),), {**TWELVE, "steps": (2,)}, search=SearchOptions("grid"))
    (result,) = search(spec, device, builder, MemoryStore())
    return result


def test_times_after_an_illegal_access_are_those_of_a_run_without_one(tmp_path: Path) -> None:
    """facebookresearch/TensorComprehensions#271: it poisoned all that came after."""
    with no_orphans():
        clean = tune(tmp_path / "kernels", faulty_device(tmp_path / "clean"), FakeBuilder())
        faulty = tune(tmp_path / "kernels", faulty_device(tmp_path / "faulty", w64="illegal"), FakeBuilder())
    expected = {r.configuration: r.time_ms for r in clean.records if r.configuration["width"] != 64}
    assert {r.configuration: r.time_ms for r in faulty.records if r.ok} == expected
    assert faulty.outcomes == {"ok": 3, "launch_error": 1}
    assert faulty.best is not None
    assert faulty.best.time_ms == min(expected.values())


def test_a_compiler_that_is_stopped_costs_a_record_of_its_own_kind(tmp_path: Path) -> None:
    """pytorch/helion#91: some variants compile for minutes."""

    def refuse(values: Values) -> None:
        if values["width"] == 64:
            raise CompileTimeout("nvcc was stopped after 60 s")

    result = tune(tmp_path, FakeDevice(), FakeBuilder(refuse=refuse))
    assert result.outcomes == {"ok": 3, "compile_timeout": 1}
    (failed,) = (record for record in result.records if not record.ok)
    assert (failed.configuration["width"], failed.message) == (64, "nvcc was stopped after 60 s")


def test_a_line_finder_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child would outlive it, and nobody would know of it."""
    tool, child = tmp_path / "addr2line", tmp_path / "child"
    tool.write_text(
        f"#!{sys.executable}\nimport subprocess, time\n"
        f"open({str(child)!r}, 'w').write(str(subprocess.Popen(['/bin/sleep', '600']).pid))\ntime.sleep(600)\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lines, "_TIMEOUT_S", 2.0)
    table = lines.LineTable(tmp_path / "kernel.so")
    table.resolve([4096])
    assert table.line(4096) is None
    pid, deadline = int(child.read_text()), time.monotonic() + 5
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
