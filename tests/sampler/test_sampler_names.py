"""The samplers by name, those of Optuna's among them, and the study that a search leaves in a storage."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from test_strategy import record, run
from toy_spaces import small

from autotile.errors import EnvironmentalError, UsageError
from autotile.sampler import nearest
from autotile.sampler.rows import BUILD_S, RUN_S
from autotile.sampler.strategy import Strategy
from autotile.spec.model import SAMPLERS
from autotile.types import Launch

OWN = ("model", "random", "grid")


def missing(name: str) -> list[str]:
    return [package for package in nearest.NEEDS.get(name, ()) if importlib.util.find_spec(package) is None]


def test_the_names_are_those_that_there_are() -> None:
    assert list(SAMPLERS) == [*OWN, *nearest.OPTUNA]
    assert set(nearest.NEEDS) <= set(nearest.OPTUNA)
    assert set(nearest.LEARNS_ROWS) <= set(nearest.OPTUNA)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_each_tries_all_of_a_small_space(sampler: str) -> None:
    if lacking := missing(sampler):
        pytest.skip(f"{' and '.join(lacking)} not installed")
    space = small()
    asked = run(space, sampler, cost=lambda c: None if c["pad"] else float(c["tile"]))
    assert sorted(asked) == list(range(len(space)))


@pytest.mark.parametrize(("sampler", "packages"), nearest.NEEDS.items(), ids=nearest.NEEDS)
def test_a_package_that_is_missing_is_named(
    sampler: str, packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: Callable[..., Any] = importlib.util.find_spec
    monkeypatch.setattr(nearest, "find_spec", lambda name: None if name in packages else given(name))
    with pytest.raises(
        EnvironmentalError, match=rf"{sampler!r} needs {' and '.join(packages)}.*`pip install"
    ) as caught:
        Strategy(small(), sampler, 0)
    assert f"`pip install {' '.join(packages)}`" in str(caught.value)


def test_of_two_packages_the_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "find_spec", lambda name: None if name == "scipy" else object())
    with pytest.raises(EnvironmentalError, match=r"'gp' needs scipy, .*`pip install scipy`"):
        nearest.optuna_sampler("gp", 0)


@pytest.mark.parametrize("sampler", [name for name in nearest.OPTUNA if name not in nearest.NEEDS])
def test_one_that_needs_nothing_is_not_held_up(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "find_spec", lambda name: None)
    assert not Strategy(small(), sampler, 0).exhausted


@pytest.mark.parametrize("sampler", [name for name in nearest.OPTUNA if name not in nearest.NEEDS])
def test_optunas_own_repeat_by_their_seed(sampler: str) -> None:
    asked = [run(small(), sampler, seed, cost=lambda c: float(c["tile"])) for seed in (1, 1, 2)]
    assert asked[0] == asked[1] != asked[2]


# ---- the study in a storage -----------------------------------------------------------------------------------------


def test_a_study_is_left_with_all_that_the_dashboard_shows(tmp_path: Path) -> None:
    space, storage = small(), f"sqlite:///{tmp_path / 'tuning.db'}"
    strategy = Strategy(space, "grid", 0, jobs=4, storage=storage, title="walk on a GPU")
    right = replace(
        record(space.configuration(0), 2.5),
        registers=64,
        spill_bytes=0,
        static_shared_bytes=128,
        launch=Launch((8, 1, 1), (32, 4, 1), 4096),
        build_s=2.0,
        check_s=0.25,
        measure_s=0.5,
    )
    strategy.replay(10, replace(record(space.configuration(10), None), message="kernel.cu:3: no"))
    strategy.tell(strategy.ask()[0], right)
    strategy.tell(strategy.ask()[0], replace(record(space.configuration(1), None), outcome="timeout"))
    (title,) = optuna.get_all_study_names(storage)
    replayed, told, failed = optuna.load_study(study_name=title, storage=storage).trials
    assert title == "walk on a GPU"
    assert (told.value, told.params, told.state) == (2.5, dict(space.configuration(0)), TrialState.COMPLETE)
    assert told.user_attrs == {
        "outcome": "ok",
        "registers": 64,
        "spill_bytes": 0,
        "static_shared_bytes": 128,
        "shared_bytes": 4096,
        "threads": 128,
        BUILD_S: 0.5,  # of four compilers at a time
        RUN_S: 0.75,
    }
    assert (failed.state, failed.params) == (TrialState.FAIL, dict(space.configuration(1)))
    assert failed.user_attrs["outcome"] == "timeout"
    assert (replayed.state, replayed.params) == (TrialState.FAIL, dict(space.configuration(10)))
    assert replayed.user_attrs == {"outcome": "compile_error", "message": "kernel.cu:3: no", BUILD_S: 0.0, RUN_S: 0.0}


@pytest.mark.parametrize(
    "storage",
    ["sqlite:////no/such/folder/tuning.db", "nothing://at/all", "tuning.db", "sqlite://", "redis://localhost:1/0"],
)
def test_an_address_that_cannot_be_used(storage: str) -> None:
    if storage == "sqlite://":  # in memory: nobody could look at it later, but it is no fault
        assert Strategy(small(), "grid", 0, storage=storage, title="t").ask()[1] == 0
        return
    with pytest.raises(UsageError, match=f"search.storage '{storage}' cannot be used: ") as caught:
        Strategy(small(), "grid", 0, storage=storage, title="t")
    assert "\n" not in str(caught.value)


def test_a_title_that_is_taken(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'tuning.db'}"
    Strategy(small(), "grid", 0, storage=storage, title="t")
    with pytest.raises(UsageError, match="cannot be used: DuplicatedStudyError"):
        Strategy(small(), "grid", 0, storage=storage, title="t")
