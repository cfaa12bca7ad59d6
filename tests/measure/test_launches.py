"""How many launches a variant gets, and that what it wrote while it was timed is looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import SIZE, FakeBinary, FakeBuilder, FakeDevice, FakeStage, write_kernel

from autotile.devices.base import Check, Workload, compare
from autotile.errors import ImplausibleTime, WrongResult
from autotile.kernels import Kernel
from autotile.kernels.loader import read_folder
from autotile.measure import make_variant, open_session, scratch
from autotile.measure.session import Session
from autotile.measure.timing import LOOK_MS, TimingPlan, measure
from autotile.types import Binary, Launch


class Launches:
    """Gives a time for each launch, and keeps how many were asked for together."""

    def __init__(self, time_ms: float) -> None:
        self.time_ms, self.asked = time_ms, list[int]()

    def __call__(self, runs: int) -> tuple[float, ...]:
        self.asked.append(runs)
        return (self.time_ms,) * runs


# ---- a look before -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("best_ms", "look_ms", "asked", "early"),
    [
        (2.0, 4.1, [1], True),  # hopeless
        (2.0, 3.9, [3, 6], False),  # not twice the best, and when it is timed it is near it
        (0.1, 0.1 + LOOK_MS * 0.9, [3, 6], False),  # ten times the best: but a first launch may take that much more
        (0.1, 0.1 + LOOK_MS * 1.1, [1], True),
        (math.inf, 1e6, [3, 6], False),  # nothing to compare it with
        (2.0, 0.0, [1, 3, 6], False),  # nobody looked: a launch to warm up comes first
    ],
)
def test_a_look_before_tells_the_hopeless(best_ms: float, look_ms: float, asked: list[int], early: bool) -> None:
    launches = Launches(min(best_ms, 2.0))
    found = measure(launches, TimingPlan(), 0.01, best_ms, look_ms)
    assert launches.asked == asked
    assert (found.stopped_early, found.runs) == (early, sum(runs for runs in asked if look_ms or runs > 1))


def test_a_hopeless_one_has_its_time_on_record() -> None:
    found = measure(Launches(50.0), TimingPlan(), 0.01, best_ms=1.0, look_ms=51.0)
    assert (found.time_ms, found.min_ms, found.spread_ms, found.runs) == (50.0, 50.0, 0.0, 1)


def test_a_hopeless_one_that_is_implausible_is_refused() -> None:
    launches = Launches(0.001)
    with pytest.raises(ImplausibleTime, match="twice"):
        measure(launches, TimingPlan(), 0.01, best_ms=1.0, look_ms=51.0)
    assert launches.asked == [1, 1]


@pytest.mark.parametrize("runs", [1, 2, 5, 40])
@pytest.mark.parametrize(("time_ms", "look_ms"), [(1.0, 0.0), (900.0, 900.0), (0.02, 300.0)])
def test_exactly_so_many_are_timed(runs: int, time_ms: float, look_ms: float) -> None:
    """However slow a variant is, however little of the budget they use up, whatever the look before said."""
    launches = Launches(time_ms)
    found = measure(launches, TimingPlan.exactly(runs), 0.01, best_ms=0.5, look_ms=look_ms)
    assert launches.asked == ([runs] if look_ms else [1, runs])
    assert (found.runs, found.stopped_early) == (runs, False)


# ---- what the launches wrote --------------------------------------------------------------------------------------


FILLINGS = (1.5, -2.5)
"""What outputs hold before a launch: the check's, then the timed launches'."""


class LazyStage(FakeStage):
    """A real output in memory, of which its kernel writes `share`; it takes a second for each launch."""

    def __init__(self, device: LazyDevice, workload: Workload) -> None:
        super().__init__(device, workload)
        self._lazy, self._reference = device, workload.reference["out"]
        self._out = np.empty_like(self._reference)

    def _launch(self, filling: float) -> Check:
        self._out.fill(filling)
        count = int(self._lazy.share * self._out.size)
        self._out[:count] = self._reference[:count]
        return compare(self._out, self._reference, 0.0)

    def check(self, program: FakeBinary, launch: Launch, fillings: int = 2) -> Check:
        self._lazy.steps.append(f"check on {fillings}")
        checks = [self._launch(filling) for filling in FILLINGS[:fillings]]
        return next((check for check in checks if not check.ok), checks[-1])

    def times_ms(self, program: FakeBinary, launch: Launch, runs: int) -> tuple[float, ...]:
        self._lazy.steps.append("time")
        return (1.0,) * runs

    def check_timed(self) -> Check:
        self._lazy.steps.append("check timed")
        return self._launch(FILLINGS[1])


class LazyDevice(FakeDevice):
    share = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def stage(self, workload: Workload, comparer: Binary | None = None) -> FakeStage:
        return LazyStage(self, workload)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")


@pytest.fixture
def session(walk: Kernel, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Of a problem whose right result is `result`, everywhere."""

    def opened(device: FakeDevice, result: float) -> Session:
        def workload(*arguments: Any) -> Workload:
            values = np.full(SIZE, result, np.float32)
            outputs = {"out": (values.shape, values.dtype)}
            return Workload(("in", "out", SIZE), {"in": values}, outputs, {"out": values.copy()}, {"out": 0.0})

        monkeypatch.setattr("autotile.measure.timed.kept_workload", workload)
        return open_session(device, walk, walk.problem({"n": SIZE}))

    return opened


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (FILLINGS[0], "^in the timed launches: 4096 of 4096"),  # the check's filling looks right
        (FILLINGS[1], "^4096 of 4096"),  # the timed launches' would
        (0.0, "^4096 of 4096"),
    ],
)
def test_an_output_that_is_never_written_is_found(walk: Kernel, session: Any, result: float, words: str) -> None:
    device = LazyDevice()
    variant = make_variant(walk, walk.problem({"n": SIZE}), walk.configuration())
    with session(device, result) as opened, pytest.raises(WrongResult, match=words):
        opened.trial(variant, FakeBuilder().build(variant.source))
    assert device.steps[0] == "check on 1"


def test_one_that_is_written_is_checked_before_and_after(walk: Kernel, session: Any) -> None:
    device = LazyDevice()
    device.share = 1.0
    variant = make_variant(walk, walk.problem({"n": SIZE}), walk.configuration())
    binary = FakeBuilder().build(variant.source)
    with session(device, 3.0) as opened:
        assert opened.trial(variant, binary).measurement.time_ms == 1.0
        assert (device.steps[0], device.steps[-1]) == ("check on 1", "check timed")
        assert set(device.steps[1:-1]) == {"time"}
        device.steps.clear()
        opened.recheck(variant, binary, 2)  # no launches are timed after these
        assert device.steps == ["check on 2", "check on 2"]


@pytest.mark.parametrize("result", FILLINGS)
def test_a_winners_check_finds_one_that_is_never_written(walk: Kernel, session: Any, result: float) -> None:
    variant = make_variant(walk, walk.problem({"n": SIZE}), walk.configuration())
    with session(LazyDevice(), result) as opened, pytest.raises(WrongResult):
        opened.recheck(variant, FakeBuilder().build(variant.source), 1)


def test_what_a_launch_took_is_no_part_of_the_verdict() -> None:
    assert Check(0.5, 0, launch_ms=1.0) == Check(0.5, 0, launch_ms=2.0) != Check(0.5, 1)


def test_a_workload_is_kept_for_the_session_that_follows(
    walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made once: in memory for the next session, in a file for the next process. A torn file costs time alone."""
    made: list[int] = []
    given = scratch.make_workload

    def counted(*arguments: Any) -> Workload:
        made.append(1)
        return given(*arguments)

    monkeypatch.setattr(scratch, "make_workload", counted)
    problem, other = walk.problem({"n": 64}), walk.problem({"n": 65})

    def kept(problem: Any) -> np.ndarray[Any, Any]:
        workload = scratch.kept_workload(walk, problem, 0, tmp_path)
        return np.asarray(workload.inputs["in"])

    scratch.forget_workloads(tmp_path)
    first = kept(problem)
    assert kept(problem) is first
    until(lambda: len(list(tmp_path.glob("*.workload"))) == 1)
    (file,) = tmp_path.glob("*.workload")
    scratch._latest.clear()  # as in a process that was started anew
    assert kept(problem).tobytes() == first.tobytes()
    assert len(made) == 1
    assert kept(other).shape == (65,)
    assert len(made) == 2
    until(lambda: len(list(tmp_path.glob("*.workload"))) == 2)
    file.write_bytes(b"torn")
    assert kept(problem).tobytes() == first.tobytes()
    assert len(made) == 3
    until(lambda: file.read_bytes() != b"torn")
    scratch.forget_workloads(tmp_path)
    assert list(tmp_path.glob("*.workload")) == []
    kept(problem)
    assert len(made) == 4


def test_what_is_still_being_written_is_removed_too(
    walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = scratch._write

    def slow(made: Workload, path: Path) -> None:
        time.sleep(0.2)
        given(made, path)

    monkeypatch.setattr(scratch, "_write", slow)
    scratch.kept_workload(walk, walk.problem({"n": 66}), 0, tmp_path)
    scratch.forget_workloads(tmp_path)
    time.sleep(0.4)
    assert list(tmp_path.iterdir()) == []


def until(condition: Callable[[], bool]) -> None:
    """Files are written in the background."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
