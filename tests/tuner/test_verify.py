"""`autotile verify`: what is saved is proven again, and what fails is not served any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from faulty import no_orphans
from faulty_kernel import write_faulty

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ToolchainMissing, UsageError
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.measure.sanitize import find_sanitizer, findings
from autotile.measure.trace import Tracer
from autotile.store import Store
from autotile.types import Configuration


def verify(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotile", "verify", "--device", "emulator", "--templates", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_right_stays_and_what_fails_is_withdrawn(tmp_path: Path) -> None:
    assert verify(tmp_path).returncode == 1  # nothing is saved yet
    file = write_faulty(tmp_path, "none", 4096)
    with no_orphans():
        (result,) = autotile.search(file, device="emulator", templates=tmp_path)
    best = result.best
    assert best is not None
    done = verify(tmp_path, "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok           faulty 4096 float32: ≈")
    (entry,) = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["verified"]
    assert (entry["outcome"], entry["estimated"], entry["speed"]) == ("ok", True, None)
    assert Store().bests() == [best]

    # As if an older autotile, that did not look so closely, had saved a kernel with a race.
    racy = Configuration.of({**best.configuration, "fault": "race"})
    assert Store().save_best(replace(best, configuration=racy), over=lambda stored: True)
    done = verify(tmp_path)
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    assert done.stdout.startswith("wrong_result faulty 4096 float32: ")
    assert "shared-memory race" in done.stdout
    assert Store().bests() == []
    failed = [record for record in Store().records() if not record.ok]
    assert [(record.configuration, record.outcome) for record in failed] == [(racy, "wrong_result")]
    assert verify(tmp_path).returncode == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_template_that_changed_proves_nothing(tmp_path: Path) -> None:
    file = write_faulty(tmp_path, "none", 4096)
    autotile.search(file, device="emulator", templates=tmp_path)
    template = tmp_path / "faulty" / "kernel.cu.j2"
    template.write_text("// another\n" + template.read_text(encoding="utf-8"), encoding="utf-8")
    done = verify(tmp_path)
    assert (done.returncode, done.stdout) == (
        1,
        "outdated     faulty 4096 float32: the template has changed since: search again\n",
    )
    assert len(Store().bests()) == 1


def test_the_sanitizer_is_for_gpus() -> None:
    from autotile.tuner.verify import verify as verify_records

    with pytest.raises(UsageError, match="is no GPU, so compute-sanitizer cannot watch it"):
        next(verify_records([], load_kernel, EmulatorDevice(), None, Store(), ["memcheck"]))  # type: ignore[arg-type]


def test_a_missing_sanitizer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_SANITIZER", "/nowhere/compute-sanitizer")
    with pytest.raises(ToolchainMissing, match="looked at /nowhere/compute-sanitizer"):
        find_sanitizer()


MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at faulty+0x1a0
=========     by thread (7,0,0) in block (3,0,0)
=========     Address 0x7f12 is out of bounds
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at faulty+0x90
=========     and Read access at faulty+0xd0 [512 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_reports_are_read() -> None:
    assert findings("memcheck", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == ""
    clean = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert findings("racecheck", clean) == ""
    assert findings("memcheck", MEMCHECK).startswith("ERROR SUMMARY: 1 error; Invalid __global__ write of size 4 bytes")
    assert "Race reported between Write access" in findings("racecheck", RACECHECK)
    with pytest.raises(ToolchainMissing, match="did not report on the variant; it said: nothing"):
        findings("memcheck", "")


class Gpu:
    """As much of a GPU as the tracer looks at."""

    info = replace(EmulatorDevice("a100").info, name="Some GPU", kind="cuda", estimated=False)


def test_a_tracer_finds_the_race_that_results_hide(tmp_path: Path) -> None:
    from autotile.errors import WrongResult

    write_faulty(tmp_path, "none", 4096)
    kernel = load_kernel("faulty", tmp_path)
    problem = kernel.problem({"n": 1 << 26})
    tracer = Tracer(Gpu(), jobs=1)  # type: ignore[arg-type]
    try:
        for fault, expected in (("none", "yes"), ("trap", "no: ")):
            variant = make_variant(kernel, problem, kernel.configuration({"fault": fault}))
            assert tracer.trace(kernel, problem, variant).startswith(expected)
        variant = make_variant(kernel, problem, kernel.configuration({"fault": "race"}))
        with pytest.raises(
            WrongResult, match=r"the emulator found, where the GPU showed nothing: .*shared-memory race"
        ):
            tracer.trace(kernel, problem, variant)
    finally:
        tracer.close()


def test_without_a_compiler_the_tracer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_CXX", "/nowhere/g++")
    kernel = load_kernel("transpose")
    problem = kernel.problem({"rows": 64, "cols": 64})
    tracer = Tracer(Gpu())  # type: ignore[arg-type]
    variant = make_variant(kernel, problem, kernel.configuration())
    tracer.prepare([variant])
    assert tracer.trace(kernel, problem, variant).startswith("no: AUTOTILE_CXX names '/nowhere/g++'")
    tracer.close()
