"""One bad variant costs one record: whatever happens to it, the search goes on, and its winner is the true best.

The faults happen in a real measuring process, to a GPU that is a stand-in; test_faults_gpu.py has a real one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fakes import SIZE, TWELVE, FakeBuilder, FakeDevice, Values
from faulty import FaultyGpu, children, contexts, faulty_device, kill, no_orphans
from interrupter import Interrupter

from autotile.build.builder import COMPILE_TIMEOUT_S
from autotile.devices.base import Check
from autotile.errors import CompileError, EnvironmentalError, LaunchError, ToolchainMissing
from autotile.kernels import Kernel
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, Silent, search, search_all
from autotile.tuner.finals import DRIFT

pytestmark = pytest.mark.usefixtures("no_second_opinion")

FASTEST = {"width": 64, "steps": 2, "mode": "plain", "hint": False}
LIMITS = {"launch_limit_s": 0.5, "trial_limit_s": 20.0}

OUTCOMES = {
    "illegal": ("launch_error", "illegal memory access"),
    "refused": ("launch_error", "128 registers × 1024 threads > 65536"),
    "hang": ("timeout", "had not ended after 0.5 s of checking; its process was killed. search.launch_limit"),
    "stuck": ("timeout", "had not ended after 0.5 s of checking"),
    "killed": ("crashed", "was killed by SIGKILL (from outside, or for want of memory) while checking"),
    "exit": ("crashed", "ended with status 7 while checking"),
    "wrong": ("wrong_result", "5 elements are wrong"),
    "nan": ("wrong_result", "nan"),
    "half": ("wrong_result", "half"),
    "late": ("wrong_result", "in the timed launches: 3 elements are wrong"),
    "zero": ("implausible", "measured 0.000000 ms twice"),
    "negative": ("implausible", "measured -1.000000 ms twice"),
    "not_a_time": ("implausible", "measured nan ms twice"),
    "too_fast": ("implausible", "measured 0.000000 ms twice"),
}


def tune(kernel: Kernel, device: FakeDevice, store: MemoryStore | None = None, **options: Any) -> SearchResult:
    spec = Spec(kernel, (kernel.problem({"n": SIZE}),), TWELVE, search=SearchOptions(**{**LIMITS, **options}))
    (result,) = search(spec, device, FakeBuilder(), MemoryStore() if store is None else store)
    return result


@pytest.mark.parametrize("fault", OUTCOMES)
def test_a_fault_costs_its_record_and_no_more(walk: Kernel, tmp_path: Path, fault: str) -> None:
    outcome, words = OUTCOMES[fault]
    store = MemoryStore()
    with no_orphans():
        result = tune(walk, faulty_device(tmp_path / "log", w32=fault), store)
    failed = [record for record in result.records if not record.ok]
    assert [(r.configuration["width"], r.outcome) for r in failed] == [(32, outcome)] * 3
    assert all(words in record.message for record in failed), failed[0].message
    assert (len(result.records), result.stopped_by, result.outcomes["ok"]) == (12, "exhausted", 9)
    assert result.best is not None
    assert dict(result.best.configuration) == FASTEST
    assert store.bests() == [result.best]
    ends_the_process = fault in ("illegal", "hang", "stuck", "killed", "exit")
    assert contexts(tmp_path / "log") == (4 if ends_the_process else 1)  # each next trial runs in a clean one


def test_the_fastest_is_passed_over_when_it_is_the_one_that_fails(walk: Kernel, tmp_path: Path) -> None:
    result = tune(walk, faulty_device(tmp_path / "log", w64="too_fast"))
    assert result.best is not None
    assert (result.best.configuration["width"], result.best.configuration["steps"]) == (128, 2)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("race", "which is a race"), ("moves", "moves from run to run"), ("elsewhere", "on 1 float32, random data: the")],
)
def test_an_error_that_moves_is_a_race(walk: Kernel, tmp_path: Path, fault: str, words: str) -> None:
    """Some of its runs are right: what shows it is that each check of a winner runs several times."""
    store = MemoryStore()
    result = tune(walk, faulty_device(tmp_path / "log", w64=fault), store)
    assert result.best is not None
    assert result.best.configuration["width"] == 128
    assert all(record.configuration["width"] != 64 for record in store.bests())
    found = [record.message for record in result.records if record.outcome == "wrong_result"]
    assert any(words in message for message in found), found


def test_a_slow_trial_has_a_limit_of_its_own(walk: Kernel, tmp_path: Path) -> None:
    device = faulty_device(tmp_path / "log", w32="slow")
    result = tune(walk, device, launch_limit_s=10.0, trial_limit_s=0.2)
    slow = [record for record in result.records if record.configuration["width"] == 32]
    assert [record.outcome for record in slow] == ["timeout"] * 3
    assert "the trial had not ended after 0.2 s" in slow[0].message
    assert "search.trial_limit" in slow[0].message


def test_every_variant_may_fail(walk: Kernel, tmp_path: Path) -> None:
    store = MemoryStore()
    device = faulty_device(tmp_path / "log", w32="killed", w64="wrong", w128="illegal", w256="zero")
    with no_orphans():
        result = tune(walk, device, store)
    assert result.outcomes == {"crashed": 3, "wrong_result": 3, "launch_error": 3, "implausible": 3}
    assert (result.best, store.bests()) == (None, [])


class Opener:
    """Opens nothing."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self) -> FakeDevice:
        if self.how == "dies":
            os._exit(3)
        raise LaunchError("no context can be made")


def test_a_device_that_cannot_be_opened_ends_the_search(walk: Kernel) -> None:
    device = FakeDevice()
    device.reopen = Opener("dies")
    with no_orphans(), pytest.raises(EnvironmentalError, match=r"could not be made ready 3 times.*ended with status 3"):
        tune(walk, device)


class Broken(FaultyGpu):
    """Has a bug."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        device.on_check = self.bug
        return device

    def bug(self, values: Values, n: int) -> Check:
        raise ZeroDivisionError("a bug in a device")


def test_a_bug_surfaces_with_the_traceback_of_the_other_process(walk: Kernel, tmp_path: Path) -> None:
    device = FakeDevice()
    device.reopen = Broken((), tmp_path / "log")
    with no_orphans(), pytest.raises(ZeroDivisionError, match="a bug in a device") as caught:
        tune(walk, device)
    assert "in bug" in str(caught.value.__cause__)


def test_a_measuring_process_killed_between_trials_costs_nothing(walk: Kernel, tmp_path: Path) -> None:
    killed: list[int] = []

    class Killer(Silent):
        def tried(self, record: Any, best: Any, count: int) -> None:
            if count in (3, 7):
                (pid,) = children()
                kill([pid])
                killed.append(pid)

    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(**LIMITS))
    (result,) = search(spec, faulty_device(tmp_path / "log"), FakeBuilder(), MemoryStore(), listener=Killer())
    assert len(killed) == 2
    assert result.outcomes == {"ok": 12}  # no variant was running, so none is at fault
    assert contexts(tmp_path / "log") == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_interrupt_kills_what_hangs_and_saves_the_best(walk: Kernel, tmp_path: Path) -> None:
    device = faulty_device(tmp_path / "log", w256="hang")
    store = MemoryStore()
    options = SearchOptions(sampler="grid", launch_limit_s=60.0, trial_limit_s=60.0)
    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=options)
    with no_orphans():
        (result,) = search(spec, device, FakeBuilder(), store, listener=Interrupter(0.5))
    assert (result.stopped_by, result.outcomes) == ("interrupted", {"ok": 9})
    assert store.bests() == [result.best]
    assert result.best is not None
    assert dict(result.best.configuration) == FASTEST


# ---- compilers ------------------------------------------------------------------------------------------------------


def test_compile_faults_cost_a_record_each(walk: Kernel, tmp_path: Path) -> None:
    def refuse(values: Values) -> None:
        if values["width"] == 32:
            raise CompileError("ptxas error: uses too much shared data (0x20000 bytes, 0xc000 max)")

    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(**LIMITS))
    (result,) = search(spec, faulty_device(tmp_path / "log"), FakeBuilder(refuse=refuse), MemoryStore())
    assert result.outcomes == {"ok": 9, "compile_error": 3}
    assert result.best is not None
    assert dict(result.best.configuration) == FASTEST


def test_the_files_limit_reaches_the_compilers(walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    def limited(target: Any, jobs: int | None, timeout_s: float) -> FakeBuilder:
        limits.append(timeout_s)
        return FakeBuilder()

    monkeypatch.setattr("autotile.tuner.searches.open_builder", limited)
    for options in (SearchOptions(trials=1, compile_limit_s=7.0), SearchOptions(trials=1)):
        spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=options)
        search_all([spec], FakeDevice(), MemoryStore(), fresh=True)
    assert limits == [7.0, COMPILE_TIMEOUT_S]


def test_a_compiler_that_does_not_work_ends_the_search_at_once(walk: Kernel, tmp_path: Path) -> None:
    tries: list[Values] = []

    def refuse(values: Values) -> None:
        tries.append(values)
        raise ToolchainMissing("unsupported GNU version")

    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(**LIMITS))
    store = MemoryStore()
    with no_orphans(), pytest.raises(ToolchainMissing, match="unsupported GNU version"):
        search(spec, faulty_device(tmp_path / "log"), FakeBuilder(refuse=refuse), store)
    assert store.records() == []
    assert len(tries) <= 4  # what was under way when the first failed


# ---- noise ----------------------------------------------------------------------------------------------------------


class Drifting(FaultyGpu):
    """Slower by a half once it has timed enough."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        given = device.time_ms
        device.time_ms = lambda values: given(values) * (1.5 if len(device.timed) > 20 else 1.0)
        return device


def test_the_first_variant_is_timed_again_at_the_end(walk: Kernel, tmp_path: Path) -> None:
    notes: list[str] = []

    class Listener(Silent):
        def note(self, message: str) -> None:
            notes.append(message)

    device = FakeDevice()
    device.reopen = Drifting((), tmp_path / "log")
    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(**LIMITS))
    (result,) = search(spec, device, FakeBuilder(), MemoryStore(), listener=Listener())
    assert result.best is not None
    assert float(dict(result.best.extra)[DRIFT]) == pytest.approx(1.5)
    assert any("took 1.50 times as long at its end" in note for note in notes)
