"""The measuring process in odd surroundings, and what happens when it dies at the wrong moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import SIZE, TWELVE, FakeBuilder, FakeDevice, write_kernel
from faulty import FaultyGpu, children, faulty_device, kill, no_orphans
from interrupter import Interrupter

from autotile.build.leftovers import prefix
from autotile.devices.base import Workload
from autotile.errors import EnvironmentalError, LaunchError, ToolchainMissing
from autotile.kernels import Kernel
from autotile.measure import make_variant
from autotile.measure.limits import Limits
from autotile.measure.remote import SCRATCH, RemoteBench
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import Silent, search
from autotile.tuner.verify import verify

pytestmark = pytest.mark.usefixtures("no_second_opinion")

TESTS = Path(__file__).resolve().parents[1]


def spec_of(kernel: Kernel, *sizes: int) -> Spec:
    problems = tuple(kernel.problem({"n": n}) for n in sizes or (SIZE,))
    return Spec(kernel, problems, TWELVE, search=SearchOptions(launch_limit_s=5.0, trial_limit_s=20.0))


# ---- deaths ---------------------------------------------------------------------------------------------------------


def test_one_that_dies_after_its_work_ends_nothing(walk: Kernel, tmp_path: Path) -> None:
    bench = RemoteBench(FaultyGpu((), tmp_path / "log"), Limits(5.0))
    with no_orphans(), bench:
        for n in (SIZE, 2 * SIZE):
            bench.begin(walk, walk.problem({"n": n}), None)
            kill(children())
            bench.end()
        bench.begin(walk, walk.problem({"n": SIZE}), None)
        variant = make_variant(walk, walk.problem({"n": SIZE}), walk.configuration())
        kill(children())  # nothing is running, so nothing is to blame
        assert bench.trial(variant, FakeBuilder().build(variant.source)).max_error == 0.0


def test_one_that_dies_between_the_finals_and_the_proof_is_no_fault_of_the_best(walk: Kernel, tmp_path: Path) -> None:
    class Killer(Silent):
        def finals(self, contestants: int) -> None:
            kill(children())

    store = MemoryStore()
    (result,) = search(spec_of(walk), faulty_device(tmp_path / "log"), FakeBuilder(), store, listener=Killer())
    assert result.outcomes == {"ok": 12}
    assert result.best is not None
    assert (result.best.configuration["width"], result.best.configuration["steps"]) == (64, 2)


class DiesInProof(FaultyGpu):
    """Is killed at its first check of another problem, and at no later one."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        if len(self.log.read_text(encoding="utf-8").split()) == 1:
            given = device.on_check
            device.on_check = lambda values, n: os.kill(os.getpid(), signal.SIGKILL) if n != SIZE else given(values, n)
        return device


def test_one_that_is_killed_during_a_proof_is_no_fault_of_the_best(walk: Kernel, tmp_path: Path) -> None:
    device = FakeDevice()
    device.reopen = DiesInProof((), tmp_path / "log")
    store = MemoryStore()
    (result,) = search(spec_of(walk), device, FakeBuilder(), store)
    assert result.outcomes == {"ok": 12}
    assert store.bests() == [result.best]
    assert result.best is not None
    assert (result.best.configuration["width"], result.best.configuration["steps"]) == (64, 2)


class CannotStage(FaultyGpu):
    """Its first measuring process works until it is killed by the width 32; later ones have no memory left."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        if len(self.log.read_text(encoding="utf-8").split()) > 1:
            device.stage = self.refuse
        return device

    def refuse(self, workload: Workload, comparer: Any = None) -> Any:
        raise LaunchError("out of memory")


def test_a_device_that_takes_no_data_any_more_blames_no_variant(walk: Kernel, tmp_path: Path) -> None:
    device = FakeDevice()
    device.reopen = CannotStage(((128, "killed"),), tmp_path / "log")
    store = MemoryStore()
    with no_orphans():
        (result,) = search(spec_of(walk), device, FakeBuilder(), store)
    assert result.stopped_by == "device_lost"
    assert {record.outcome for record in store.records()} <= {"ok", "crashed"}
    assert result.outcomes["crashed"] == 1


class SpoiltAtOnce(FaultyGpu):
    """Says that its context is gone as soon as there are data on it."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        given = device.stage

        def stage(workload: Workload, comparer: Any = None) -> Any:
            device.poisoned = "gone"
            return given(workload, comparer)

        device.stage = stage  # type: ignore[method-assign]
        return device


def test_a_device_that_is_spoilt_before_any_variant_ends_the_search(walk: Kernel, tmp_path: Path) -> None:
    device = FakeDevice()
    device.reopen = SpoiltAtOnce((), tmp_path / "log")
    with no_orphans(), pytest.raises(EnvironmentalError, match=r"made ready 3 times: its device was spoilt: gone"):
        search(spec_of(walk), device, FakeBuilder(), MemoryStore())


# An interrupt lands anywhere, in the standard library too, which then may leave a file for the collector to close.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_two_interrupts_in_a_row_leave_nothing_and_blame_nobody(walk: Kernel, tmp_path: Path) -> None:
    store = MemoryStore()
    device = faulty_device(tmp_path / "log", w256="hang")
    options = SearchOptions(sampler="grid", launch_limit_s=60.0, trial_limit_s=60.0)
    interrupter = Interrupter(0.5, 0.52)
    with no_orphans(), contextlib.suppress(KeyboardInterrupt):
        search(replace(spec_of(walk), search=options), device, FakeBuilder(), store, listener=interrupter)
        for timer in interrupter.timers:
            timer.join()
    assert [record.outcome for record in store.records()] == ["ok"] * 9


def test_scratch_folders_of_the_dead_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / (prefix(SCRATCH).replace(str(os.getpid()), str(dead.pid)) + "x1")
    left.mkdir()
    RemoteBench(FaultyGpu((), tmp_path / "log"), Limits(5.0)).close()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(SCRATCH)] == []


# ---- surroundings ---------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys
from pathlib import Path
{before}
from fakes import SIZE, TWELVE, FakeBuilder
from faulty import faulty_device
from autotile.kernels.loader import read_folder
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import search
walk = read_folder(Path({folder!r}) / "walk")
spec = Spec(walk, (walk.problem({{"n": SIZE}}),), TWELVE, search=SearchOptions(trials=2, trial_limit_s=500 * 3600.0))
(result,) = search(spec, faulty_device(Path({folder!r}) / "log"), FakeBuilder(), MemoryStore())
open({folder!r} + "/out", "w").write(str(dict(result.outcomes)))
"""
SURROUNDINGS = {
    "a path object among the import paths": "sys.path.insert(0, Path('.'))",
    "the current folder among them, and left": "sys.path.insert(0, ''); import autotile.tuner; os.chdir('/')",
    "no stderr": "os.close(2)",
    "no stdin and stdout": "os.close(0); os.close(1)",
}


@pytest.mark.parametrize("where", SURROUNDINGS)
def test_it_starts_wherever_a_search_may(where: str, tmp_path: Path) -> None:
    write_kernel(tmp_path)
    script = SCRIPT.format(before=SURROUNDINGS[where], folder=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=TESTS.parent, check=False, timeout=120)
    assert done.returncode == 0
    assert (tmp_path / "out").read_text(encoding="utf-8") == "{'ok': 2}"


# ---- verify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "outcome", "served"),
    [("killed", "crashed", True), ("hang", "timeout", True), ("wrong", "wrong_result", False), ("", "ok", True)],
)
def test_verify_withdraws_what_is_wrong_and_nothing_else(
    walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, outcome: str, served: bool
) -> None:
    store = MemoryStore()
    (result,) = search(spec_of(walk), faulty_device(tmp_path / "log"), FakeBuilder(), store)
    monkeypatch.setattr(FakeDevice, "launch_limit_s", 0.5)
    device = faulty_device(tmp_path / "log2", w64=fault)
    (verified,) = verify(store.bests(), lambda name: walk, device, FakeBuilder(), store)
    assert (verified.outcome, verified.failed) == (outcome, outcome != "ok")
    assert store.bests() == ([result.best] if served else [])


class Elsewhere(FaultyGpu):
    """Opens another GPU than was meant."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        device.info = replace(device.info, name="Another GPU")
        return device


def test_another_device_in_its_place_is_refused(walk: Kernel, tmp_path: Path) -> None:
    device = FakeDevice()
    device.reopen = Elsewhere((), tmp_path / "log")
    with (
        no_orphans(),
        pytest.raises(EnvironmentalError, match=r"opened Another GPU \(sm_90\) where Fake GPU \(sm_90\)"),
    ):
        search(spec_of(walk), device, FakeBuilder(), MemoryStore())


def test_a_compiler_that_is_lost_on_the_way_keeps_what_was_measured(walk: Kernel, tmp_path: Path) -> None:
    """As on a disk that has no room for its files any more."""
    built: list[Any] = []

    def refuse(values: Any) -> None:
        built.append(values)
        if len(built) > 6:
            raise ToolchainMissing("No space left on device")

    store = MemoryStore()
    (result,) = search(spec_of(walk), faulty_device(tmp_path / "log"), FakeBuilder(refuse=refuse), store)
    assert result.stopped_by == "toolchain_lost"
    assert 0 < len(store.records()) <= 6
    assert store.bests() == [result.best]  # what it needed was built
