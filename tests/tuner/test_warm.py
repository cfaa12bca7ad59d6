"""What was the best elsewhere is tried first: which of it, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import SIZE, FakeBuilder, FakeDevice, write_kernel

from autotile.kernels import Kernel, load_kernel
from autotile.kernels.loader import read_folder
from autotile.space import Space, build_space
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore, Store
from autotile.tuner import search
from autotile.tuner.plan import Plan
from autotile.tuner.warm import MOST_ESTIMATED, MOST_WARM, estimated_rows, warm_rows
from autotile.types import PROVEN, Configuration, Identity, Measurement, Problem, Record, Value

HERE = Identity("Fake GPU", "sm_90", "1.0", "fakecc 1.0", "t", 1, False)
SIBLING = replace(HERE, device="Sibling GPU")
STRANGER = replace(HERE, device="Old GPU", arch="sm_70")
EMULATED = replace(HERE, device="emulated Fake GPU", estimated=True)

WIDTHS = (32, 64, 128, 256)
STEPS = (1, 2, 4)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")


@pytest.fixture(scope="module")
def space(walk: Kernel) -> Space:
    return build_space(walk, walk.problem({"n": SIZE}), FakeDevice().info)


@pytest.fixture
def best(walk: Kernel) -> Callable[..., Record]:
    """A proven best of `walk`, of another size or elsewhere."""

    def make(n: int, identity: Identity = HERE, dtype: str = "float32", **values: Value) -> Record:
        return Record(
            walk.problem({"n": n}, dtype),
            walk.configuration(values),
            identity,
            "ok",
            measurement=Measurement(1.0, 1.0, 0.0, 9, estimated=identity.estimated),
            created="2025-01-01T00:00:00+00:00",
            extra=(PROVEN,),
        )

    return make


@pytest.fixture
def warm(walk: Kernel, space: Space) -> Callable[..., list[str]]:
    """The warm rows of the problem of size SIZE, as width and steps."""

    def rows(*bests: Record, identity: Identity = HERE) -> list[str]:
        found = warm_rows(space, walk.problem({"n": SIZE}), identity, MemoryStore(bests=bests), walk)
        return [f"{space.configuration(row)['width']}x{space.configuration(row)['steps']}" for row in found]

    return rows


# ---- which, and in which order --------------------------------------------------------------------------------------


def test_the_nearest_come_first(best: Any, warm: Any) -> None:
    bests = [
        best(SIZE, EMULATED, width=256, steps=1),
        best(SIZE, STRANGER, width=128, steps=4),
        best(SIZE, SIBLING, width=128, steps=2),
        best(16 * SIZE, dtype="float64", width=128, steps=1),
        best(64 * SIZE, width=64, steps=4),
        best(SIZE // 2, width=64, steps=2),
    ]
    order = ["64x2", "64x4", "128x1", "128x2", "128x4", "256x1"]
    assert warm(*bests) == warm(*reversed(bests)) == order


def test_sizes_are_near_by_their_ratios(best: Any, warm: Any) -> None:
    """Three times the size is nearer than an eighth of it, though twice as many elements lie between them."""
    bests = [best(SIZE // 8, width=64), best(3 * SIZE, width=128), best(SIZE // 2, width=256)]
    assert warm(*bests) == ["256x1", "128x1", "64x1"]


def test_an_estimate_is_behind_all_that_was_measured(best: Any, warm: Any) -> None:
    assert warm(best(SIZE, EMULATED, width=64), best(1, STRANGER, "float64", width=128)) == ["128x1", "64x1"]


def test_where_all_is_estimated_the_own_device_is_the_nearest(best: Any, warm: Any) -> None:
    other = replace(EMULATED, device="emulated Old GPU", arch="sm_70")
    bests = [best(SIZE, other, width=128), best(9, EMULATED, width=64)]
    assert warm(*bests, identity=EMULATED) == ["64x1", "128x1"]


def test_no_more_than_a_few(best: Any, warm: Any) -> None:
    bests = [best(SIZE + i, width=WIDTHS[i // 3], steps=STEPS[i % 3]) for i in range(12)]
    assert len(warm(*bests)) == MOST_WARM
    assert warm(*bests) == ["32x1", "32x2", "32x4", "64x1", "64x2", "64x4"]


def test_one_that_was_the_best_of_many_is_one_of_them(best: Any, warm: Any) -> None:
    bests = [best(SIZE + i, width=64) for i in range(9)]
    assert warm(*bests, best(2 * SIZE, width=128)) == ["64x1", "128x1"]


def test_what_is_not_feasible_here_is_left_out(best: Any, warm: Any) -> None:
    """Neither a broken rule, nor a value outside the domains, nor parameters that the kernel had once."""
    given = best(SIZE // 2)

    def with_values(record: Record, **values: Value) -> Record:
        return replace(record, configuration=Configuration.of(values))

    bests = [
        best(SIZE // 2, mode="staged", steps=1),
        with_values(best(SIZE // 4), **{**given.configuration, "width": 48}),
        with_values(best(SIZE // 8), **{**given.configuration, "width": True}),
        with_values(best(SIZE // 16), width=64, depth=3),
        best(SIZE // 32, width=256),
    ]
    assert warm(*bests) == ["256x1"]


def test_a_best_of_other_dimensions_is_left_out(best: Any, warm: Any) -> None:
    """As the kernel had before it was edited."""
    once = replace(best(SIZE, width=64), problem=Problem("walk", (("rows", 64), ("cols", 64)), "float32"))
    assert warm(once, best(2 * SIZE, width=128)) == ["128x1"]


def test_optional_sizes_are_sizes_to_a_search_that_knows_its_kernel() -> None:
    """A batch of 64 is nearer to one of 32 than a single matrix is, though that has the very same sides."""
    moved = load_kernel("moved", [Path(__file__).parents[1] / "data" / "kernels"])
    asked, info = moved.problem({"rows": 64, "cols": 64, "batch": 32}), FakeDevice().info
    bests = [
        Record(moved.problem(sizes), moved.configuration({"width": width}), HERE, "ok", "", Measurement(1.0, 1.0, 0, 9))
        for sizes, width in (({"rows": 64, "cols": 64}, 64), ({"rows": 32, "cols": 64, "batch": 64}, 32))
    ]
    space = build_space(moved, asked, info)
    rows = warm_rows(space, asked, HERE, MemoryStore(bests=bests), moved)
    assert [space.configuration(row)["width"] for row in rows] == [32, 64]


def test_other_kernels_do_not_count(best: Any, warm: Any) -> None:
    assert warm(replace(best(SIZE, width=64), problem=Problem("run", (("n", SIZE),), "float32"))) == []


def estimates(best: Any, identity: Identity, times_ms: dict[str, float]) -> list[Record]:
    """Trials of the problem of size SIZE, by `width`x`steps`."""
    made = []
    for name, time_ms in times_ms.items():
        width, steps = map(int, name.split("x"))
        measurement = Measurement(time_ms, time_ms, 0.0, 1, estimated=identity.estimated)
        made.append(replace(best(SIZE, identity, width=width, steps=steps), measurement=measurement))
    return made


def test_the_emulators_estimates_for_this_gpu_say_where_to_begin(walk: Kernel, space: Space, best: Any) -> None:
    other = replace(EMULATED, device="emulated Old GPU")
    store = MemoryStore()
    store.extend(
        [
            *estimates(best, EMULATED, {"64x1": 3.0, "128x1": 1.0, "256x1": 2.0}),
            *estimates(best, other, {"32x4": 0.1}),
            *estimates(best, SIBLING, {"32x2": 0.1}),
            replace(best(SIZE, EMULATED, width=64, steps=4), outcome="wrong_result", measurement=None),
        ]
    )
    problem = walk.problem({"n": SIZE})
    rows = estimated_rows(space, problem, HERE, store)
    assert [space.configuration(row)["width"] for row in rows] == [128, 256, 64]
    assert estimated_rows(space, problem, EMULATED, store) == []
    assert estimated_rows(space, walk.problem({"n": 2 * SIZE}), HERE, store) == []
    store.extend(estimates(best, EMULATED, {f"{w}x{s}": 0.5 + w for w in WIDTHS for s in STEPS}))
    assert len(estimated_rows(space, problem, HERE, store)) == MOST_ESTIMATED


# ---- in a search -----------------------------------------------------------------------------------------------------


def tried(walk: Kernel, store: Any, **options: Any) -> list[str]:
    device = FakeDevice()
    spec = Spec(walk, (walk.problem({"n": SIZE}),), {"hint": (False,)}, search=SearchOptions(**options))
    search(spec, device, FakeBuilder(), store)
    return [f"{values['width']}x{values['steps']}" for values in device.trials]


@pytest.mark.parametrize("sampler", ["model", "tpe", "random", "grid"])
def test_they_come_after_the_default(walk: Kernel, best: Any, sampler: str) -> None:
    bests = [best(4 * SIZE, width=256, steps=2), best(2 * SIZE, width=128, steps=4), best(8 * SIZE)]
    store = MemoryStore(bests=bests)
    store.extend(estimates(best, EMULATED, {"64x4": 1.0, "64x2": 2.0}))
    assert tried(walk, store, sampler=sampler, trials=5) == ["32x1", "128x4", "256x2", "64x4", "64x2"]


def test_points_are_what_they_are(walk: Kernel, best: Any) -> None:
    device = FakeDevice()
    points = {"wide": walk.configuration({"width": 256})}
    spec = Spec(walk, (walk.problem({"n": SIZE}),), points=points)
    search(spec, device, FakeBuilder(), MemoryStore(bests=[best(2 * SIZE, width=128)]))
    assert [values["width"] for values in device.trials] == [256]


def test_a_damaged_best_elsewhere_is_not_this_searchs_to_tell(walk: Kernel, best: Any, tmp_path: Path) -> None:
    """Warnings are errors here: the search would end."""
    store = Store(tmp_path / "home")
    for record in (best(2 * SIZE, width=128), best(4 * SIZE, width=256), best(2 * SIZE, SIBLING, width=64)):
        store.append(record)
        store.save_best(record)
    for file in (tmp_path / "home").rglob(f"*n{4 * SIZE}*.best.json"):
        file.write_text(file.read_text()[:100])
    for file in (tmp_path / "home").rglob("*ibling*/walk/*.best.json"):
        file.write_bytes(b"\xff\x00")
    assert tried(walk, store, trials=3)[:2] == ["32x1", "128x1"]


def test_presets_are_tried_after_the_default_and_what_was_best_elsewhere(walk: Kernel, space: Space) -> None:
    """As far as the space has them, each once."""
    presets = {"narrow": {"width": 32, "steps": 4}, "known": {"width": 64}, "beyond": {"width": 48}}
    kernel = replace(walk, presets=presets)
    rows = {width: space.row_of(kernel.configuration({"width": width})) for width in (64, 256)}
    spec = SimpleNamespace(kernel=kernel)
    plan: Any = Plan(spec, walk.problem({"n": SIZE}), HERE, space, {}, {}, warm=[rows[256], rows[64]])  # type: ignore[arg-type, list-item]
    first = [
        space.row_of(kernel.configuration(values)) for values in ({}, {"width": 256}, {"width": 64}, presets["narrow"])
    ]
    assert plan.first_rows == list(dict.fromkeys(first))
    assert None not in first
