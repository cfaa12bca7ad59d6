"""Whole searches on a device that answers as it is told, and the arithmetic of timing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import DEFINITION, SIZE, TEMPLATE, TWELVE, FakeBuilder, FakeDevice, Values, formula, write_kernel

from autotile.devices.base import Check
from autotile.devices.gpus import find_gpu
from autotile.errors import CompileError, ConfigurationError, EnvironmentalError, ImplausibleTime, LaunchError
from autotile.kernels import Kernel, Rule
from autotile.kernels.loader import read_folder
from autotile.measure.timing import TimingPlan, interleaved, measure, physical_floor_ms
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore, RecordStore, Store
from autotile.tuner import Listener, SearchResult, Silent, search
from autotile.types import Value

BEST = {"width": 64, "steps": 2, "mode": "plain"}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RecordStore:
    return MemoryStore() if request.param == "memory" else Store(tmp_path / "home")


@pytest.fixture
def tune(walk: Kernel, store: RecordStore) -> Callable[..., SearchResult]:
    """A search of `walk` for one problem; keywords other than these are search options."""

    def run(
        device: FakeDevice | None = None,
        builder: FakeBuilder | None = None,
        *,
        kernel: Kernel = walk,
        parameters: dict[str, tuple[Value, ...]] | None = None,
        rules: tuple[Rule, ...] = (),
        points: dict[str, Any] | None = None,
        fresh: bool = False,
        listener: Listener | None = None,
        **options: Any,
    ) -> SearchResult:
        spec = Spec(
            kernel,
            (kernel.problem({"n": SIZE}),),
            TWELVE if parameters is None else parameters,
            rules,
            {name: kernel.configuration(values) for name, values in (points or {}).items()},
            SearchOptions(**options),
        )
        (result,) = search(spec, device or FakeDevice(), builder or FakeBuilder(), store, fresh, listener)
        return result

    return run


class Heard(Silent):
    """Listens to the notes."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def note(self, message: str) -> None:
        self._notes.append(message)


def labels(values: list[Values]) -> list[str]:
    return [" ".join(map(str, v.values())) for v in values]


def subset(values: Values) -> dict[str, Value]:
    return {name: values[name] for name in BEST}


def fails(**wanted: Value) -> Callable[[Values], bool]:
    return lambda values: all(values[name] == value for name, value in wanted.items())


# ---- how many, and when it ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["model", "tpe", "random", "grid"])
def test_as_many_distinct_trials_as_asked(tune: Any, store: RecordStore, sampler: str) -> None:
    device = FakeDevice()
    result = tune(device, parameters={}, sampler=sampler, trials=15)
    assert (result.stopped_by, result.new_trials, len(result.records)) == ("trials", 15, 15)
    assert len({r.configuration for r in store.records()}) == len(store.records()) == 15
    assert all(r.configuration["mode"] == "plain" or r.configuration["steps"] > 1 for r in result.records)
    assert (result.space_size, result.space_total) == (40, 48)


@pytest.mark.parametrize("sampler", ["model", "tpe", "random", "grid"])
def test_a_small_space_is_exhausted(tune: Any, sampler: str) -> None:
    device, builder = FakeDevice(), FakeBuilder()
    result = tune(device, builder, sampler=sampler, trials=500)
    assert (result.stopped_by, result.new_trials, result.space_size) == ("exhausted", 12, 12)
    assert len(labels(device.trials)) == len(set(labels(device.trials))) == 12
    assert len(builder.submitted) == 12
    assert subset(result.best.configuration) == BEST
    assert result.best.time_ms == pytest.approx(1.0)


def test_a_space_of_one_is_exhausted(tune: Any) -> None:
    result = tune(parameters={**TWELVE, "width": (64,), "steps": (2,)}, trials=5)
    assert (result.stopped_by, result.new_trials) == ("exhausted", 1)


def test_a_space_of_none_says_what_rejects(tune: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"12 break `width > 999` \(file.yaml:7:3\).* 12 are feasible"):
        tune(rules=(Rule("width > 999", "width > 999", "file.yaml:7:3"),))


def test_the_time_limit(tune: Any) -> None:
    device = FakeDevice(on_check=lambda values, n: time.sleep(0.1 if n == SIZE else 0))
    result = tune(device, parameters={}, trials=40, time_s=0.5)
    assert result.stopped_by == "time"
    assert 0 < result.new_trials < 40
    assert result.best is not None


def test_points(tune: Any) -> None:
    device = FakeDevice()
    points = {"narrow": {"width": 32}, "wide": {"width": 256}, "again": {"width": 32}}
    result = tune(device, parameters={}, points=points, trials=1)
    assert result.stopped_by == "points"
    assert sorted(labels(device.trials)) == ["256 1 plain False", "32 1 plain False"]
    assert {name: r.configuration["width"] for name, r in result.named.items()} == {
        "narrow": 32,
        "wide": 256,
        "again": 32,
    }
    again = tune(FakeDevice(), points=points)
    assert (again.new_trials, again.stopped_by, len(again.named)) == (0, "points", 3)


def test_an_infeasible_point(tune: Any) -> None:
    with pytest.raises(ConfigurationError, match="'bad' is not feasible: staging 1 element"):
        tune(points={"good": {}, "bad": {"mode": "staged"}, "fine": {"mode": "staged", "steps": 2}})


def test_the_default_comes_first(tune: Any) -> None:
    device = FakeDevice()
    tune(device, trials=1)
    assert labels(device.trials) == ["32 1 plain False"]


def test_a_seed_repeats_what_is_proposed(walk: Kernel) -> None:
    """As far as that does not hang on which compiler ends first."""
    orders = []
    for seed in (5, 5, 6):
        builder = FakeBuilder()
        spec = Spec(walk, (walk.problem({"n": SIZE}),), search=SearchOptions("random", trials=20, seed=seed))
        search(spec, FakeDevice(), builder, MemoryStore())
        orders.append(labels(builder.submitted))
    assert orders[0] == orders[1] != orders[2]


# ---- going on ------------------------------------------------------------------------------------------------------


def test_resuming_measures_nothing_twice(tune: Any, store: RecordStore) -> None:
    first, second, third = FakeDevice(), FakeDevice(), FakeDevice()
    tune(first, trials=5)
    result = tune(second, trials=9)
    assert (result.new_trials, len(result.records)) == (4, 9)
    assert len(set(labels(first.trials + second.trials))) == 9
    assert len(store.records()) == 9
    result = tune(third, trials=9)
    assert (result.new_trials, result.stopped_by) == (0, "trials")
    assert third.trials == third.proofs == third.timed == []
    assert result.best == store.best("walk", result.problem, "Fake GPU")


def test_fewer_trials_than_are_on_record(tune: Any) -> None:
    tune(trials=8)
    result = tune(trials=3)
    assert (result.new_trials, len(result.records)) == (0, 8)


@pytest.mark.parametrize("what", ["driver", "compiler", "template", "arch"])
def test_records_of_another_identity_are_left_alone(tune: Any, store: RecordStore, tmp_path: Path, what: str) -> None:
    tune(trials=6)
    device = FakeDevice(**{what: {"driver": "2.0", "arch": "sm_100"}[what]} if what in ("driver", "arch") else {})
    builder = FakeBuilder("fakecc 2.0" if what == "compiler" else "fakecc 1.0")
    changes = {}
    if what == "template":
        changes["kernel"] = read_folder(write_kernel(tmp_path, template=TEMPLATE + "// changed\n") / "walk")
    result = tune(device, builder, trials=6, **changes)
    assert (result.new_trials, len(result.records)) == (6, 6)
    assert len({record.identity for record in store.records()}) == 2


def test_fresh_measures_anew(tune: Any, store: RecordStore) -> None:
    tune(trials=6)
    device = FakeDevice()
    result = tune(device, trials=6, fresh=True)
    assert (result.new_trials, len(result.records), len(device.trials)) == (6, 6, 6)
    assert len(store.records()) == 12


def test_fresh_replaces_a_best_that_was_too_good(tune: Any, store: RecordStore) -> None:
    tune(FakeDevice(lambda values: formula(values) / 10), trials=12)
    result = tune(trials=12, fresh=True)
    assert store.best("walk", result.problem, "Fake GPU").time_ms == result.best.time_ms == pytest.approx(1.0)


def test_a_finished_search_is_not_crowned_again(tune: Any, store: RecordStore) -> None:
    """Not even when the winner's time of the last finals was slower than that of the finals before."""
    tune(trials=6)
    second = tune(FakeDevice(lambda values: formula(values) * 1.1), trials=12)
    assert second.new_trials == 6
    assert second.best == store.best("walk", second.problem, "Fake GPU")  # the same winner, at its latest time
    quiet = FakeDevice(on_check=lambda values, n: pytest.fail("it was checked again"))
    third = tune(quiet, trials=12)
    assert third.new_trials == 0
    assert third.best == store.best("walk", third.problem, "Fake GPU")


def test_a_faster_best_of_another_part_of_the_space_is_crowned_over_these_trials_too(tune: Any) -> None:
    tune(parameters={**TWELVE, "width": (64,)}, trials=4)
    tune(parameters={**TWELVE, "width": (256, 128, 32)}, trials=9)
    quiet = FakeDevice(on_check=lambda values, n: pytest.fail("it was checked again"))
    assert tune(quiet, parameters={**TWELVE, "width": (256, 128, 32)}, trials=9).new_trials == 0


def test_a_narrower_search_leaves_the_faster_best(tune: Any, store: RecordStore) -> None:
    """What is loaded stays the fastest that is known, and the search says so."""
    wide = tune(trials=12)
    heard: list[str] = []
    spec = Spec(wide.kernel, (wide.problem,), {**TWELVE, "width": (256,)})
    (narrow,) = search(spec, FakeDevice(), FakeBuilder(), store, listener=Heard(heard))
    assert narrow.new_trials == 0
    (narrow,) = search(spec, FakeDevice(), FakeBuilder(), store, fresh=True, listener=Heard(heard))
    assert narrow.best.time_ms == pytest.approx(1.3)
    assert store.bests() == [wide.best]
    assert heard == ["a faster one is on record for this problem already, and stays the one that is loaded"]


def test_a_domain_edited_between_searches(tune: Any) -> None:
    tune(parameters={**TWELVE, "width": (64, 128)}, trials=100)
    result = tune(parameters={**TWELVE, "width": (512, 128, 64, 32), "steps": (2, 1)}, trials=100)
    assert (len(result.records), result.new_trials, result.stopped_by) == (8, 4, "exhausted")


def test_records_without_a_best_are_crowned(tune: Any, store: RecordStore) -> None:
    """What a killed run leaves: trials, and no best."""
    before = tune(trials=12)
    killed = MemoryStore(store.records())
    device = FakeDevice()
    spec = Spec(before.kernel, (before.problem,), TWELVE, search=SearchOptions(trials=12))
    (result,) = search(spec, device, FakeBuilder(), killed)
    assert result.new_trials == 0
    assert device.trials == []
    assert subset(killed.best("walk", before.problem, "Fake GPU").configuration) == BEST


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def test_each_fault_costs_one_record(tune: Any, store: RecordStore) -> None:
    """The four fastest fail, each in another way; the true best is the fastest that is right."""

    def refuse(values: Values) -> None:
        if fails(width=64, steps=2)(values):
            raise CompileError("kernel.cu:3: no")

    def on_check(values: Values, n: int) -> Check | None:
        if fails(width=64, steps=1)(values):
            raise LaunchError("too many resources requested")
        return Check(7.5, 3, "3 of 4096 elements are wrong") if fails(width=128, steps=2)(values) else None

    device = FakeDevice(lambda values: 0.0 if fails(width=256)(values) else formula(values), on_check)
    result = tune(device, FakeBuilder(refuse=refuse), trials=500)
    assert result.outcomes == {"ok": 6, "compile_error": 1, "launch_error": 1, "wrong_result": 1, "implausible": 3}
    assert len(store.records()) == 12
    messages = {r.outcome: r.message for r in store.records()}
    assert messages["compile_error"] == "kernel.cu:3: no"
    assert messages["wrong_result"] == "3 of 4096 elements are wrong"
    assert "below the" in messages["implausible"]
    assert all(r.measurement is None for r in store.records() if r.outcome != "ok")
    assert subset(result.best.configuration) == {"width": 64, "steps": 4, "mode": "plain"}
    again = tune(FakeDevice(), trials=500)
    assert (again.new_trials, again.outcomes) == (0, result.outcomes)  # a failure is not tried again either


def test_a_grid_that_no_device_takes_is_one_record(tune: Any, tmp_path: Path) -> None:
    definition = DEFINITION.replace('("ceil_div(problem.n, width * steps)",)', '("1", "70000 if width == 64 else 1")')
    result = tune(kernel=read_folder(write_kernel(tmp_path, definition) / "walk"), trials=500)
    assert result.outcomes == {"ok": 9, "launch_error": 3}
    assert result.new_trials == 12


def test_when_all_fail_nothing_is_saved(tune: Any, store: RecordStore) -> None:
    result = tune(FakeDevice(on_check=lambda values, n: Check(math.inf, n, "wrong")), trials=500)
    assert (result.best, result.outcomes) == (None, {"wrong_result": 12})
    assert store.bests() == []


def test_a_bug_is_not_a_record(tune: Any, store: RecordStore) -> None:
    def broken(values: Values, n: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(FakeDevice(on_check=broken))
    assert store.records() == []


def test_identical_binaries_are_timed_once(tune: Any) -> None:
    device = FakeDevice()
    result = tune(device, parameters={"mode": ("plain",)}, trials=500)
    assert result.new_trials == 24
    assert len(device.trials) == 12
    twins = [r for r in result.records if dict(r.extra).get("same_binary_as")]
    assert len(twins) == 12
    assert all(r.time_ms == pytest.approx(formula(r.configuration)) for r in twins)


def test_binaries_that_differ_in_the_launch_alone_are_timed_each(tune: Any, tmp_path: Path) -> None:
    """The same code in blocks of other sizes is another variant."""
    fixed = TEMPLATE.replace("{{ width }}", "blockDim.x").replace("width=blockDim.x", "width={{ width }}")
    device = FakeDevice()
    kernel = read_folder(write_kernel(tmp_path, template=fixed) / "walk")
    tune(device, kernel=kernel, parameters={**TWELVE, "steps": (1,)}, trials=500)
    assert labels(device.trials) == list(dict.fromkeys(labels(device.trials)))
    assert len(device.trials) == 4


def test_a_finalist_that_fails_its_proof_gives_way(tune: Any, store: RecordStore) -> None:
    bad = fails(width=64, steps=2)
    device = FakeDevice(on_check=lambda values, n: Check(9.0, 1, "off by one") if bad(values) and n == 33 else None)
    result = tune(device, trials=500)
    assert subset(result.best.configuration) == {"width": 64, "steps": 1, "mode": "plain"}
    assert store.bests() == [result.best]
    failed = [r for r in store.records() if r.outcome == "wrong_result"]
    assert [(r.message, r.measurement) for r in failed] == [("on 33 float32, random data: off by one", None)]
    again = tune(FakeDevice(), trials=500)
    assert again.outcomes["wrong_result"] == 1
    assert again.best == result.best


def test_a_result_counts_the_failed_proof(tune: Any) -> None:
    bad = fails(width=64, steps=2)
    result = tune(FakeDevice(on_check=lambda values, n: Check(9.0, 1, "") if bad(values) and n == 33 else None))
    assert result.outcomes["wrong_result"] == 1


def test_a_damaged_best_does_not_bring_the_failed_finalist_back(walk: Kernel, tmp_path: Path) -> None:
    store, bad = Store(tmp_path), fails(width=64, steps=2)
    device = FakeDevice(on_check=lambda values, n: Check(9.0, 1, "wrong") if bad(values) and n == 33 else None)
    problem = walk.problem({"n": SIZE})
    search(Spec(walk, (problem,), TWELVE), device, FakeBuilder(), store)
    (file,) = tmp_path.rglob("*.best.json")
    file.write_text("torn")
    with pytest.warns(UserWarning, match="counts as not there"):
        found = store.best("walk", problem, "Fake GPU")
    assert found is None
    with pytest.warns(UserWarning, match="counts as not there"):
        (again,) = search(Spec(walk, (problem,), TWELVE), device, FakeBuilder(), store)
    assert again.new_trials == 0  # crowned anew from what is on record
    assert not bad(store.best("walk", problem, "Fake GPU").configuration)


def test_finalists_are_timed_again(tune: Any) -> None:
    """The trial's time decides who is a finalist, the final's who wins."""
    seen: set[str] = set()

    def lucky_once(values: Values) -> float:
        lucky = fails(width=256, steps=4)(values) and "finals" not in seen
        return 0.5 if lucky else formula(values)

    class AtTheEnd(Silent):
        def finals(self, contestants: int) -> None:
            seen.add("finals")

    result = tune(FakeDevice(lucky_once), trials=500)
    assert subset(result.best.configuration) == {"width": 256, "steps": 4, "mode": "plain"}
    spec = Spec(result.kernel, (result.problem,), TWELVE)
    (result,) = search(spec, FakeDevice(lucky_once), FakeBuilder(), MemoryStore(), listener=AtTheEnd())
    assert subset(result.best.configuration) == BEST


def test_an_interrupt_keeps_all_and_saves_the_best(tune: Any, store: RecordStore) -> None:
    device = FakeDevice()

    def stop(values: Values, n: int) -> None:
        if n == SIZE and len(device.trials) == 6:
            raise KeyboardInterrupt

    device.on_check = stop
    result = tune(device, trials=12)
    assert (result.stopped_by, result.new_trials, len(store.records())) == ("interrupted", 6, 6)
    assert result.best.time_ms == min(r.time_ms for r in store.records())
    assert store.bests() == [result.best]
    assert device.proofs  # proven even so
    rest = FakeDevice()
    again = tune(rest, trials=12)
    assert (again.stopped_by, again.new_trials, len(rest.trials)) == ("exhausted", 6, 6)
    assert subset(again.best.configuration) == BEST


def test_an_interrupt_in_the_finals_still_saves_the_best(tune: Any, store: RecordStore) -> None:
    device = FakeDevice()

    def stop_once(values: Values, n: int) -> None:
        if n != SIZE and not device.poisoned and len(device.proofs) == 2:
            device.proofs.append(values)  # so that it happens once
            raise KeyboardInterrupt

    device.on_check = stop_once
    result = tune(device, trials=12)
    assert result.stopped_by == "interrupted"
    assert store.bests() == [result.best]
    assert subset(result.best.configuration) == BEST


def test_a_search_killed_before_its_finals_is_crowned_beside_another_ones_best(tune: Any, store: RecordStore) -> None:
    """The saved best is of another part of the space, and says nothing of this one's records."""
    slow, fast = ({"width": (width,), "mode": ("plain",), "hint": (False,)} for width in (256, 64))
    first = tune(parameters=slow)
    device = FakeDevice()

    def killed(values: Values, n: int) -> None:
        if n != SIZE:
            raise SystemExit

    device.on_check = killed
    with pytest.raises(SystemExit):
        tune(device, parameters=fast)
    assert store.bests() == [first.best]
    result = tune(parameters=fast)
    assert result.new_trials == 0
    assert subset(result.best.configuration) == BEST
    assert store.bests() == [result.best]


def test_a_saved_best_of_another_identity_gives_way_whatever_its_date(tune: Any, store: RecordStore) -> None:
    first = tune(trials=12)
    future = replace(
        first.best,
        configuration=max(first.records, key=lambda record: record.time_ms).configuration,  # not in the finals
        created="2099-01-01T00:00:00+00:00",
        identity=replace(first.best.identity, template="another"),
        measurement=replace(first.best.measurement, time_ms=0.001),
    )
    assert store.save_best(future, over=lambda stored: True)
    result = tune(trials=12)
    assert result.new_trials == 0
    assert store.bests() == [result.best]
    assert subset(result.best.configuration) == BEST


def test_what_another_search_finds_meanwhile_is_crowned_too(walk: Kernel, store: RecordStore) -> None:
    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(sampler="grid", trials=3))

    class Meanwhile(Silent):
        def tried(self, record: Any, best: Any, count: int) -> None:
            if count == 1:
                search(replace(spec, search=SearchOptions(trials=12)), FakeDevice(), FakeBuilder(), store)

    (result,) = search(spec, FakeDevice(), FakeBuilder(), store, listener=Meanwhile())
    assert (result.new_trials, len(result.records)) == (3, 12)
    assert subset(result.best.configuration) == BEST
    assert store.bests() == [result.best]


@pytest.mark.parametrize("text", ["// edited\n" + TEMPLATE, "{{ half a file", None])
def test_a_kernel_that_is_edited_ends_its_search(tmp_path: Path, text: str | None) -> None:
    folder = write_kernel(tmp_path) / "walk"
    kernel = read_folder(folder)
    notes: list[str] = []

    class Editor(Heard):
        def tried(self, record: Any, best: Any, count: int) -> None:
            if count == 3 and text is not None:
                (folder / "kernel.cu.j2").write_text(text)
            elif count == 3:
                (folder / "kernel.py").write_text("half a")

    store = MemoryStore()
    spec = Spec(kernel, (kernel.problem({"n": SIZE}),), TWELVE)
    (result,) = search(spec, FakeDevice(), FakeBuilder(), store, listener=Editor(notes))
    assert (result.stopped_by, result.best, store.bests()) == ("edited", None, [])
    assert len({record.identity for record in store.records()}) == 1
    assert "was edited during the search" in notes[-1]


def test_a_problem_that_cannot_be_searched_costs_the_others_nothing(walk: Kernel) -> None:
    """Too large for the device, say."""
    notes: list[str] = []
    device = FakeDevice()
    given = device.stage

    def stage(workload: Any, comparer: Any = None) -> Any:
        if next(iter(workload.inputs.values())).size == 2 * SIZE:
            raise EnvironmentalError("the problem needs more memory")
        return given(workload, comparer)

    device.stage = stage
    problems = tuple(walk.problem({"n": n}) for n in (SIZE, 2 * SIZE, 3 * SIZE))
    results = search(Spec(walk, problems, TWELVE), device, FakeBuilder(), MemoryStore(), listener=Heard(notes))
    assert [result.problem["n"] for result in results] == [SIZE, 3 * SIZE]
    assert notes == [f"walk {2 * SIZE} float32 is passed over: the problem needs more memory"]
    with pytest.raises(EnvironmentalError):
        search(Spec(walk, problems[1:2], TWELVE), device, FakeBuilder(), MemoryStore())


def test_an_interrupt_ends_the_problems_that_follow(walk: Kernel) -> None:
    def stop(values: Values, n: int) -> None:
        raise KeyboardInterrupt

    spec = Spec(walk, (walk.problem({"n": SIZE}), walk.problem({"n": 2 * SIZE})))
    results = search(spec, FakeDevice(on_check=stop), FakeBuilder(), MemoryStore())
    assert [(r.stopped_by, r.best, len(r.records)) for r in results] == [("interrupted", None, 0)]


def test_a_lost_device_ends_the_run_and_keeps_what_was_measured(tune: Any, store: RecordStore) -> None:
    device = FakeDevice()

    def fault(values: Values, n: int) -> None:
        if len(device.trials) == 3:
            device.poisoned = "an illegal address was read"
            raise LaunchError(device.poisoned)

    device.on_check = fault
    result = tune(device, trials=12)
    assert (result.stopped_by, result.best, result.cut_short) == ("device_lost", None, True)
    assert result.outcomes == {"ok": 3, "launch_error": 1}
    again = tune(trials=12)
    assert (again.stopped_by, again.new_trials, again.outcomes["launch_error"]) == ("exhausted", 8, 1)
    assert store.bests() == [again.best]


def test_two_problems_are_kept_apart(walk: Kernel) -> None:
    store = MemoryStore()
    problems = (walk.problem({"n": SIZE}), walk.problem({"n": SIZE}, "float64"))
    results = search(Spec(walk, problems, TWELVE), FakeDevice(), FakeBuilder(), store)
    assert [r.problem for r in results] == list(problems)
    assert len(store.bests()) == 2


# ---- timing --------------------------------------------------------------------------------------------------------


class Clock:
    """Gives times by the call: warm-up, first look, the rest; then for the second try."""

    def __init__(self, *calls: float) -> None:
        self._calls: Iterator[float] = iter(calls)
        self.runs: list[int] = []

    def __call__(self, runs: int) -> tuple[float, ...]:
        self.runs.append(runs)
        return (next(self._calls),) * runs


def test_the_first_launch_does_not_count() -> None:
    clock = Clock(99.0, 2.0, 2.0)
    found = measure(clock, TimingPlan(), floor_ms=0.1)
    assert (found.time_ms, found.min_ms, found.runs, found.spread_ms) == (2.0, 2.0, 9, 0.0)
    assert clock.runs == [1, 3, 6]


def test_a_slow_variant_is_left_alone() -> None:
    clock = Clock(5.0, 4.0)
    found = measure(clock, TimingPlan(give_up_ratio=1.5), floor_ms=0.1, best_ms=2.0)
    assert (found.stopped_early, found.runs, clock.runs) == (True, 3, [1, 3])


def test_a_variant_near_the_best_is_measured_to_the_end() -> None:
    assert not measure(Clock(3.0, 2.9, 2.9), TimingPlan(give_up_ratio=1.5), floor_ms=0.1, best_ms=2.0).stopped_early


def test_a_long_kernel_gets_fewer_runs() -> None:
    clock = Clock(30.0, 30.0)
    assert measure(clock, TimingPlan(budget_ms=60.0), floor_ms=0.1).runs == 3
    clock = Clock(10.0, 10.0, 10.0)
    assert measure(clock, TimingPlan(budget_ms=60.0), floor_ms=0.1).runs == 6


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan, math.inf, 0.05])
def test_nonsense_once_is_measured_again(nonsense: float) -> None:
    clock = Clock(2.0, nonsense, 2.0, 2.0, 2.0)
    assert measure(clock, TimingPlan(), floor_ms=0.1).time_ms == 2.0
    assert clock.runs == [1, 3, 1, 3, 6]


@pytest.mark.parametrize("nonsense", [0.0, -1.0, math.nan, math.inf, 0.05])
def test_nonsense_twice_is_an_error(nonsense: float) -> None:
    with pytest.raises(ImplausibleTime, match="twice"):
        measure(Clock(2.0, nonsense, 2.0, nonsense), TimingPlan(), floor_ms=0.1)


def test_nonsense_in_the_rest_is_measured_again() -> None:
    assert measure(Clock(2.0, 2.0, 0.0, 2.0, 2.0, 2.0), TimingPlan(), floor_ms=0.1).time_ms == 2.0


def test_finals_take_turns() -> None:
    order: list[str] = []

    def contestant(name: str, time_ms: float) -> Callable[[int], tuple[float, ...]]:
        def times(runs: int) -> tuple[float, ...]:
            order.append(name)
            return (99.0,) + (time_ms,) * (runs - 1)

        return times

    found = interleaved([contestant("a", 10.0), contestant("b", 20.0)], rounds=3, runs_a_round=2)
    assert order == ["a", "b", "b", "a", "a", "b"]  # there and back
    assert [(m.time_ms, m.runs) for m in found] == [(10.0, 6), (20.0, 6)]  # the cold first of each round is dropped


def test_finals_of_short_kernels_take_more_turns() -> None:
    short, long = (interleaved([lambda runs, ms=ms: (ms,) * runs], runs_a_round=4) for ms in (0.005, 50.0))
    assert (short[0].runs, long[0].runs) == (160, 32)


def test_the_floor_is_arithmetic_or_traffic(kernels_at: Callable[..., float]) -> None:
    gpu = find_gpu("h200")
    assert kernels_at("matmul", m=4096, n=4096, k=4096) == pytest.approx(2 * 4096**3 / gpu.fp32_tflops / 1e9)
    moved = 2 * 8192 * 8192 * 4 - gpu.l2_bytes
    assert kernels_at("transpose", rows=8192, cols=8192) == pytest.approx(moved / gpu.bandwidth_gbs / 1e6)
    assert kernels_at("transpose", rows=64, cols=64) == 0.0005  # lies in the L2 cache; but no launch takes less
    within = kernels_at("transpose", rows=2048, cols=2048)
    assert within == pytest.approx(2 * 2048 * 2048 * 4 / gpu.bandwidth_gbs / 1e6 / 10)


@pytest.fixture
def kernels_at() -> Callable[..., float]:
    from autotile.kernels import load_kernel

    def floor(name: str, **sizes: int) -> float:
        kernel = load_kernel(name)
        return physical_floor_ms(kernel, kernel.problem(sizes), find_gpu("h200"))

    return floor


def test_a_device_that_gives_no_times_is_implausible() -> None:
    with pytest.raises(ImplausibleTime, match="the device gave no times, twice"):
        measure(lambda runs: (), TimingPlan(), floor_ms=0.1)
    for times in ((), (math.nan,), (0.0,)):
        with pytest.raises(ImplausibleTime, match="a launch in the finals took"):
            interleaved([lambda runs, times=times: (1.0, *times)])


def test_a_second_interrupt_skips_the_proof(tune: Any, store: RecordStore) -> None:
    device = FakeDevice()

    def stop(values: Values, n: int) -> None:
        if n != SIZE or len(device.trials) == 6:
            raise KeyboardInterrupt

    device.on_check = stop
    result = tune(device, trials=12)
    assert (result.stopped_by, result.best, len(store.records())) == ("interrupted", None, 6)
    assert store.bests() == []
    again = tune(trials=12)
    assert (again.new_trials, store.bests()) == (6, [again.best])


def test_a_second_interrupt_says_what_is_on_record_unproven(tune: Any) -> None:
    first = tune(FakeDevice(lambda values: 9.0), trials=3)
    device = FakeDevice()
    notes: list[str] = []

    def stop(values: Values, n: int) -> None:
        if n != SIZE or len(device.trials) == 3:
            raise KeyboardInterrupt

    device.on_check = stop
    result = tune(device, trials=12, listener=Heard(notes))
    assert (result.stopped_by, result.best) == ("interrupted", first.best)
    assert any("is on record, unproven" in note for note in notes)
