"""When a search is over: its trials, its time, or for want of gains; and how often each variant is timed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import DEFINITION, SIZE, TWELVE, FakeBinary, FakeBuilder, FakeDevice, FakeStage, Values, write_kernel
from faulty import faulty_device, no_orphans

from autotile.devices.base import Check, Workload
from autotile.kernels import Kernel
from autotile.kernels.loader import read_folder
from autotile.spec.model import EFFORTS, SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, Silent, search
from autotile.tuner.budget import PATIENCE, Budget
from autotile.types import Binary, Configuration, Identity, Launch, Measurement, Problem, Record

PROBLEM = Problem("walk", (("n", SIZE),), "float32")
IDENTITY = Identity("Fake GPU", "sm_90", "1.0", "fakecc 1.0", "t", 1, False)


def trial(time_ms: float | None) -> Record:
    measurement = None if time_ms is None else Measurement(time_ms, time_ms, 0.0, 3)
    return Record(PROBLEM, Configuration(()), IDENTITY, "crashed" if time_ms is None else "ok", measurement=measurement)


def after(effort: str, *times_ms: float | None) -> Budget:
    budget = Budget(SearchOptions(effort=effort), goal=1000)
    for time_ms in times_ms:
        budget.count(trial(time_ms))
    return budget


# ---- patience --------------------------------------------------------------------------------------------------------


def test_every_effort_has_its_patience() -> None:
    assert list(PATIENCE) == list(EFFORTS)
    patience = [PATIENCE[effort] for effort in ("quick", "normal")]
    assert all(p is not None for p in patience)
    assert PATIENCE["full"] is None


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_patience_ends_with_trials_without_a_gain_and_none_expected(effort: str) -> None:
    patience = PATIENCE[effort]
    assert patience is not None
    still = [1.0] + [2.0, None] * (patience.trials // 2)
    tired = after(effort, *still)
    assert tired.tries_patience
    assert not tired.is_patient(patience.least_gain * 0.9)
    assert tired.is_patient(patience.least_gain * 1.1)  # something is still to be expected
    assert tired.is_patient(None)  # nobody can say
    assert after(effort, *still[:-1]).is_patient(0.0)  # one trial short


def test_a_gain_renews_patience_if_it_is_worth_having() -> None:
    still = [2.0] * 41
    assert not after("quick", 1.0, *still).is_patient(0.0)
    assert after("quick", 1.0, *still, 0.99).is_patient(0.0)
    assert not after("quick", 1.0, *still, 0.996).is_patient(0.0)  # less than half a per cent


def test_many_small_gains_are_counted_from_the_last_best() -> None:
    """Each is too small to renew patience by itself, and the next is measured against it."""
    budget = after("quick", *(0.999**i for i in range(45)))
    assert budget.since_gain == 44


def test_full_effort_never_tires() -> None:
    budget = after("full", *[1.0] * 500)
    assert budget.is_patient(0.0)
    assert not budget.tries_patience


def test_failures_alone_are_no_gain() -> None:
    assert after("quick", *[None] * 10).since_gain == 10


@pytest.mark.parametrize(("time_s", "elapsed_s", "left_s"), [(None, 9.0, None), (5.0, 2.0, 3.0), (5.0, 7.0, 0.0)])
def test_the_time_that_is_left(time_s: float | None, elapsed_s: float, left_s: float | None) -> None:
    assert Budget(SearchOptions(time_s=time_s), 1).left_s(elapsed_s) == left_s


# ---- in a search -----------------------------------------------------------------------------------------------------

WIDER = {
    "(32, 64, 128, 256), 32": "tuple(32 * i for i in range(1, 17)), 32",
    "(1, 2, 4), 1": "tuple(range(1, 17)), 1",
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """496 configurations when `hint` is left alone."""
    definition = DEFINITION
    for old, new in WIDER.items():
        assert old in definition
        definition = definition.replace(old, new)
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels"), definition) / "walk")


def smooth(values: Values) -> float:
    """ms, 1 at the best."""
    return 1 + abs(int(values["width"]) - 192) / 320 + abs(int(values["steps"]) - 9) / 10 + (values["mode"] == "staged")


def tune(
    kernel: Kernel,
    device: FakeDevice,
    parameters: Any = None,
    store: MemoryStore | None = None,
    listener: Silent | None = None,
    **options: Any,
) -> SearchResult:
    problem = kernel.problem({"n": SIZE})
    spec = Spec(kernel, (problem,), parameters or {"hint": (False,)}, search=SearchOptions(**options))
    kept = MemoryStore() if store is None else store
    (result,) = search(spec, device, FakeBuilder(), kept, listener=listener)
    return result


@pytest.mark.parametrize(("effort", "least", "most"), [("quick", 40, 120), ("normal", 120, 250)])
def test_a_search_ends_when_no_gain_is_expected(wide: Kernel, effort: str, least: int, most: int) -> None:
    result = tune(wide, FakeDevice(smooth), effort=effort, trials=400)
    assert result.stopped_by == "gain"
    assert least < result.new_trials < most
    assert result.best is not None
    assert result.best.time_ms == 1.0


def test_a_full_search_goes_on_to_its_trials(wide: Kernel) -> None:
    result = tune(wide, FakeDevice(smooth), effort="full", trials=160)
    assert (result.stopped_by, result.new_trials) == ("trials", 160)


def test_a_search_without_a_model_goes_on_to_its_trials(wide: Kernel) -> None:
    result = tune(wide, FakeDevice(smooth), effort="quick", sampler="random", trials=130)
    assert (result.stopped_by, result.new_trials) == ("trials", 130)


def test_a_search_that_has_ended_stays_ended(wide: Kernel) -> None:
    """Run again, it tries what it takes to know that nothing is to be gained, and no 40 more."""
    store = MemoryStore()
    first = tune(wide, FakeDevice(smooth), store=store, effort="quick", trials=400)
    again = tune(wide, FakeDevice(smooth), store=store, effort="quick", trials=400)
    assert first.stopped_by == again.stopped_by == "gain"
    assert again.new_trials <= 5
    assert first.best is not None
    assert again.best is not None
    assert again.best.configuration == first.best.configuration


# ---- launches a variant ----------------------------------------------------------------------------------------------


class Counting(FakeDevice):
    """Counts the launches that were timed, by configuration. A check's launch has warmed up."""

    def __init__(self, time_ms: Any) -> None:
        super().__init__(time_ms)
        self.on_check = lambda values, n: replace(Check(0.0, 0), launch_ms=time_ms(values))
        self.launches: Counter[str] = Counter()

    def stage(self, workload: Workload, comparer: Binary | None = None) -> FakeStage:
        counted, given = FakeStage(self, workload), FakeStage.times_ms

        def times_ms(program: FakeBinary, launch: Launch, runs: int) -> tuple[float, ...]:
            self.launches[str(program.values)] += runs
            return given(counted, program, launch, runs)

        counted.times_ms = times_ms  # type: ignore[method-assign]
        return counted


class BeforeFinals(Silent):
    """Keeps what was counted when the trials ended: the finals time their own."""

    def __init__(self, device: Counting) -> None:
        self._device = device
        self.launches: Counter[str] = Counter()

    def finals(self, contestants: int) -> None:
        self.launches = self.launches or Counter(self._device.launches)


def uneven(values: Values) -> float:
    """From 1 to 1000 ms: hopeless ones, near ones, and such as would use up the budget of launches."""
    return {32: 1.0, 64: 1.05, 128: 40.0, 256: 1000.0}[int(values["width"])]


@pytest.mark.parametrize("runs", [1, 7])
def test_so_many_launches_are_timed_of_each(walk: Kernel, runs: int) -> None:
    device = Counting(uneven)
    heard = BeforeFinals(device)
    result = tune(walk, device, TWELVE, listener=heard, runs=runs)
    assert list(heard.launches.values()) == [runs] * 12
    assert {(r.measurement.runs, r.measurement.stopped_early) for r in result.records} == {(runs, False)}


def test_as_many_as_each_is_worth_where_nothing_is_said(walk: Kernel) -> None:
    device = Counting(uneven)
    heard = BeforeFinals(device)
    tune(walk, device, TWELVE, listener=heard, sampler="grid")
    assert set(heard.launches.values()) == {1, 9}


def test_the_measuring_process_is_told_too(walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_CXX", "/nowhere/g++")
    with no_orphans():
        result = tune(walk, faulty_device(tmp_path / "log"), TWELVE, runs=7, trials=2)
    assert [record.measurement.runs for record in result.records] == [7, 7]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")
