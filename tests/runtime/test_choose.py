"""Which record serves: of problems with options, of other types, of what ships with autotile."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.codegen import template_digest
from autotile.devices.gpus import find_gpu
from autotile.errors import NotTuned
from autotile.kernels import load_kernel
from autotile.report import export
from autotile.runtime.choose import SAME_ARCH, Choice, choose
from autotile.runtime.notes import AutotileWarning
from autotile.store import MemoryStore, ShippedStore, Store
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Problem, Record

TOYS = Path(__file__).parents[1] / "data" / "kernels"
GPU = dataclasses.replace(find_gpu("h200"), driver="570", estimated=False)
MOVED = load_kernel("moved", [TOYS])
TODAY = template_digest(MOVED)
OLD = "0" * 16


def tuned(
    width: int = 64, dtype: str = "float32", time_ms: float = 1.0, device: str = GPU.name, template: str = TODAY,
    **sizes: int,
) -> Record:  # fmt: skip
    """A proven best of `moved` on a GPU; 1024 × 1024 where the sizes do not say."""
    return Record(
        MOVED.problem({"rows": 1024, "cols": 1024, **sizes}, dtype),
        MOVED.configuration({"width": width}),
        Identity(device, "sm_90", "570", "nvcc 13.0", template, SCHEMA_VERSION, False),
        "ok",
        measurement=Measurement(time_ms, time_ms, 0.0, 9),
        created="2025-06-01T12:00:00+00:00",
        extra=(PROVEN,),
    )


def failing(record: Record, outcome: str = "wrong_result", created: str = "") -> Record:
    return dataclasses.replace(
        record, outcome=outcome, measurement=None, extra=(), created=created or record.created, message="all wrong"
    )


def chosen(
    *bests: Record, trials: tuple[Record, ...] = (), shipped: ShippedStore | None = None, dtype: str = "float32",
    kernel: Any = MOVED, **sizes: int,
) -> Choice:  # fmt: skip
    problem = kernel.problem({"rows": 1024, "cols": 1024, **sizes}, dtype)
    return choose(kernel, problem, GPU, TODAY, MemoryStore(trials, bests), shipped)


@pytest.fixture
def ships(shipped: Path) -> Any:
    """Writes records as a shipped file; returns the store of what ships."""

    def write(*records: Record, name: str = "h200") -> ShippedStore:
        export(records, "json", shipped / f"{name}.json", lambda name: MOVED)
        return ShippedStore()

    return write


# ---- types that the text does not tell apart ------------------------------------------------------------------------


def test_a_type_of_the_same_size_is_served_exactly() -> None:
    other = tuned(dtype="int32")
    found = chosen(other, tuned(dtype="float64"), batch=1)
    assert (found.match, found.record, found.differs) == ("exact", other, ())
    own = tuned(width=128)
    assert chosen(other, own).record == own
    assert chosen(tuned(dtype="int64"), dtype="float32").match == "default"


def test_a_kernel_that_looks_into_elements_is_served_its_own_type_alone() -> None:
    assert chosen(tuned(dtype="int32"), kernel=dataclasses.replace(MOVED, opaque=False)).match == "default"


def test_what_failed_in_one_type_has_failed_in_all_of_its_size() -> None:
    other, near = tuned(dtype="int32"), tuned(width=256, rows=512)
    assert chosen(other, near, trials=(failing(tuned()),)).record == near
    assert chosen(near, trials=(failing(tuned(width=256, dtype="int32")),)).match == "default"
    assert chosen(near, trials=(failing(tuned(width=256, dtype="int64")),)).record == near


def test_the_last_word_counts_whichever_type_it_was_said_of() -> None:
    near, then = tuned(width=256, rows=512), "2025-01-01T00:00:00+00:00"
    trials = (tuned(width=256), failing(tuned(width=256, dtype="int32"), "launch_error", then))
    assert chosen(near, trials=trials).record == near


# ---- options --------------------------------------------------------------------------------------------------------


def test_of_a_sister_device_the_very_problem_comes_first() -> None:
    near, same = tuned(width=32, device="sister", rows=1025), tuned(width=128, device="sister", time_ms=9.0)
    found = chosen(near, same)
    assert (found.match, found.configuration["width"]) == (SAME_ARCH, 128)


def test_the_own_class_comes_before_a_nearer_problem() -> None:
    wide, tall = tuned(rows=1024, cols=256), tuned(rows=8192, cols=64)
    assert chosen(wide, tall, rows=1024, cols=128).record == tall


def test_a_batch_counts_in_what_is_near() -> None:
    single, batched = tuned(), tuned(rows=512, cols=512, batch=64)
    found = chosen(single, batched, batch=32)
    assert found.record == batched
    sides = tuple(f"{side} (tuned 512, asked 1024)" for side in ("rows", "cols"))
    assert found.differs == (*sides, "batch (tuned 64, asked 32)")
    assert chosen(single, batched, batch=2).record == single


def test_a_gap_between_rows_counts_and_none_does_not() -> None:
    gaps, other = tuned(pitch=4096), tuned(rows=512)
    assert chosen(gaps, other).record == other
    assert chosen(gaps, tuned(rows=64), pitch=2048).differs == ("pitch (tuned 4096, asked 2048)",)
    assert chosen(tuned(cols=512)).differs == ("cols (tuned 512, asked 1024)",)
    assert chosen(tuned(batch=4)).differs == ("batch (tuned 4, asked 1)",)


def test_a_pitch_that_is_as_usual_makes_nothing_further_away() -> None:
    """Half as many columns are nearer than three eighths of the rows, though the pitch is half as long too."""
    narrow, low = tuned(cols=512), tuned(rows=384)
    assert chosen(narrow, low).record == narrow


def test_of_equals_the_one_that_is_aligned_alike_serves() -> None:
    off, straight = tuned(rows=512, offset=1, time_ms=9.0), tuned(rows=512)
    assert chosen(straight, off, offset=1).record == off
    found = chosen(tuned(), offset=3)
    assert (found.match, found.differs) == ("near_problem", ("offset (tuned 0, asked 3)",))


@pytest.mark.parametrize(("saved", "asked"), [({"in_place": 1}, {}), ({}, {"in_place": 1})])
def test_in_place_and_out_of_place_never_serve_each_other(saved: dict[str, int], asked: dict[str, int]) -> None:
    assert chosen(tuned(**saved), tuned(rows=512, **saved), **asked).match == "default"
    assert chosen(tuned(rows=512, **saved), **saved).match == "near_problem"


@pytest.mark.parametrize("options", [(("depth", 3),), (("pitch", 1000),), (("batch", 1),)])
def test_options_that_the_kernel_does_not_know_are_not_served(options: tuple[tuple[str, int], ...]) -> None:
    """Nor what it would not say so: a pitch below a row, a batch of one."""
    record = tuned(rows=512)
    odd = dataclasses.replace(record, problem=Problem("moved", record.problem.sizes, "float32", options))
    assert chosen(odd).match == "default"
    assert chosen(record).match == "near_problem"


# ---- what ships -----------------------------------------------------------------------------------------------------


def test_a_shipped_result_is_exact_where_the_store_has_none(ships: Any) -> None:
    record = tuned(batch=3)
    found = chosen(tuned(width=128), shipped=ships(record), batch=3)
    assert (found.match, found.record, found.shipped, found.differs) == ("exact", record, True, ())
    mine = tuned(width=128, batch=3)
    found = chosen(mine, shipped=ships(record), batch=3)
    assert (found.match, found.record, found.shipped) == ("exact", mine, False)
    assert chosen(tuned(width=128, dtype="int32"), shipped=ships(tuned())).record.configuration["width"] == 128


def test_a_shipped_result_of_another_template_is_but_near(ships: Any) -> None:
    found = chosen(shipped=ships(tuned(template=OLD)))
    assert (found.match, found.shipped) == ("near_problem", True)
    assert found.differs == (f"template (tuned {OLD}, here {TODAY})",)
    exact = tuned(width=128)
    assert chosen(tuned(template=OLD), shipped=ships(exact)).record == exact


def test_near_ones_of_both_are_compared_and_of_equals_the_store_wins(ships: Any) -> None:
    mine, theirs = tuned(rows=512, time_ms=2.0), tuned(rows=512, width=128)
    assert chosen(mine, shipped=ships(theirs)).record == mine
    found = chosen(tuned(rows=64), shipped=ships(theirs))
    assert (found.match, found.record, found.shipped) == ("near_problem", theirs, True)


def test_this_device_comes_before_the_architecture(ships: Any) -> None:
    here, there = tuned(rows=64), tuned(width=128, device="NVIDIA GH200")
    assert chosen(there, shipped=ships(here)).record == here
    found = chosen(shipped=ships(there))
    assert (found.match, found.shipped) == ("same_arch", True)


def test_a_shipped_result_that_failed_here_is_passed_over(ships: Any) -> None:
    record, near = tuned(), tuned(width=128, rows=512)
    found = chosen(shipped=ships(record, near), trials=(failing(record),))
    assert (found.match, found.record) == ("near_problem", near)


# ---- through `load` -------------------------------------------------------------------------------------------------

EMULATED = "emulated NVIDIA H200"


def loaded(**named: Any) -> autotile.TunedKernel:
    return autotile.load("moved", rows=1024, cols=1024, device="emulator", templates=TOYS, **named)


def test_load_serves_what_ships_without_a_word_on_drivers(ships: Any) -> None:
    """They are another machine's, as everybody expects."""
    ships(tuned(device=EMULATED))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = loaded(strict=True)
    assert (found.match, found.record) == ("exact", tuned(device=EMULATED))
    Store().save_best(tuned(device=EMULATED))
    try:
        with pytest.warns(AutotileWarning) as said:
            loaded()
        assert "tuned with the driver 570" in str(said[0].message)
    finally:
        Store().withdraw(tuned(device=EMULATED))


def test_a_store_that_is_given_is_used_alone(ships: Any) -> None:
    ships(tuned(device=EMULATED))
    with pytest.raises(NotTuned, match="nothing is saved"):
        loaded(store=MemoryStore(), strict=True)


def test_a_measurement_that_ships_serves_the_emulator_as_of_its_arch(ships: Any) -> None:
    ships(tuned())
    with pytest.warns(AutotileWarning, match=r"same_arch\); differs in device \(tuned NVIDIA H200"):
        assert loaded().match == "same_arch"


def test_load_takes_options(ships: Any) -> None:
    ships(tuned(device=EMULATED, batch=2, offset=1), tuned(device=EMULATED))
    found = loaded(batch=np.int64(2), offset=1, strict=True)
    assert found.record.problem.options == (("batch", 2), ("offset", 1))


def test_a_damaged_file_is_said_once_and_the_others_serve(ships: Any, shipped: Path) -> None:
    ships(tuned(device=EMULATED))
    (shipped / "a.json").write_text(json.dumps({"devices": 3}))
    with pytest.warns(UserWarning, match=r"a\.json: not a file that `autotile export"):
        assert loaded().match == "exact"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded().match == "exact"
