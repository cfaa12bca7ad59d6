"""`--problem`, what a kernel's problems may say, and results that ship, on the command line and from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.cli import main
from autotile.codegen import template_digest
from autotile.errors import ArgumentTypeError, UsageError
from autotile.kernels import load_kernel
from autotile.report import export
from autotile.runtime.notes import AutotileWarning
from autotile.store import Store
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Record

TOYS = Path(__file__).parents[1] / "data" / "kernels"
MOVED = load_kernel("moved", [TOYS])
SEARCH = import_module("autotile.runtime.search")  # the package has the function of this name in its place
CONFIG = "kernel: moved\nproblems: [{rows: 9, cols: 9}]\nparameters: {width: [32]}\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit code, and what it wrote to stdout and to stderr."""

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        return int(left.value.code or 0), found.out, found.err

    return command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "moved.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def record() -> Record:
    return Record(
        MOVED.problem({"rows": 64, "cols": 64, "batch": 3}),
        MOVED.configuration(),
        Identity("NVIDIA H200", "sm_90", "570", "nvcc 13.0", template_digest(MOVED), SCHEMA_VERSION, False),
        "ok",
        measurement=Measurement(0.25, 0.24, 0.01, 15),
        created="2025-06-01T12:00:00+00:00",
        extra=(PROVEN,),
    )


# ---- --problem ------------------------------------------------------------------------------------------------------


def test_search_takes_problems_in_place_of_the_files(run: Run, config: Path) -> None:
    command = ["search", config, "--device", "emulator", "--templates", TOYS, "--dry-run", "--json", "-"]
    problems = ["--problem", "rows=4, cols=6, batch=2, dtype=int64", "--problem", "rows=5, cols=6, in_place=true"]
    code, out, _ = run(*command, *problems)
    assert code == 0
    assert [space["problem"] for space in json.loads(out)["spaces"]] == [
        {"rows": 4, "cols": 6, "batch": 2, "dtype": "int64"},
        {"rows": 5, "cols": 6, "in_place": 1, "dtype": "float32"},
    ]


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        ("rows=4", "the problem 'rows=4': moved also needs cols"),
        (
            "rows=4, cols=6, zz=2",
            "moved has no dimension 'zz'; it has rows, cols, batch, pitch, offset, in_place",
        ),
        ("rows=4, cols=six", "cols must be an integer from 1 to 2147483647, not 'six'"),
        ("rows=4, cols=6, dtype=flot32", "no dtype 'flot32' (did you mean 'float32'?)"),
        ("rows:4", "--problem wants NAME=VALUE"),
    ],
)
def test_a_problem_that_cannot_be(run: Run, config: Path, problem: str, why: str) -> None:
    code, out, err = run("search", config, "--device", "emulator", "--templates", TOYS, "--problem", problem)
    assert (code, out) == (2, "")
    assert err.startswith("autotile: ")
    assert why in err


def test_a_recording_has_a_problem_of_its_own(run: Run, record: Record, tmp_path: Path) -> None:
    export([record], "t4", tmp_path / "x.T4.json", lambda name: MOVED)
    code, _, err = run("search", tmp_path / "x.T4.json", "--templates", TOYS, "--problem", "rows=4, cols=6")
    assert code == 2
    assert "holds the recorded times of one problem" in err


def test_search_from_python(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []
    monkeypatch.setattr(SEARCH, "search_all", lambda specs, *rest: searched.extend(specs) or [])
    problems = [{"rows": 4, "cols": np.int64(6), "dtype": np.float64}, {"rows": 5, "cols": 6, "pitch": 8}]
    autotile.search(config, problems=problems, device="emulator", templates=TOYS)
    (spec,) = searched
    assert [problem.key for problem in spec.problems] == ["rows4-cols6-float64", "rows5-cols6-pitch8-float32"]
    with pytest.raises(UsageError, match="also needs cols"):
        autotile.search(config, problems=[{"rows": 4}], device="emulator", templates=TOYS)
    for wrong in ({"rows": 4}, "rows=4", [4], [{4: 4}], None):
        with pytest.raises(ArgumentTypeError, match="problems must be a list of problems such as"):
            autotile.search(config, problems=wrong, device="emulator", templates=TOYS)


def test_what_a_search_notes_points_at_its_caller(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotile.devices import cuda
    from autotile.errors import DeviceNotFound

    def none(number: int) -> None:
        raise DeviceNotFound("no GPU today")

    monkeypatch.setattr(cuda, "open_cuda", none)
    monkeypatch.setattr(SEARCH, "search_all", lambda *given: [])
    monkeypatch.setattr(Store, "writable", lambda store: "the disk is full")
    with pytest.warns(AutotileWarning) as said:
        autotile.search(config, templates=TOYS)
    assert ["no GPU today" in str(w.message) for w in said] == [True, False]
    assert [Path(w.filename) for w in said] == [Path(__file__)] * 2


def test_render_of_a_problem(run: Run) -> None:
    def text(*more: str) -> str:
        code, out, err = run("render", "moved", "--templates", TOYS, *more)
        assert (code, err) == (0, "")
        return out

    assert "whole words" in text()
    for problem in ("offset=1", "cols=4095", "pitch=4097"):
        assert "single elements" in text("--problem", problem)
    assert "single elements" in text("--unaligned")
    assert "unsigned long long* in" in text("--problem", "batch=3, dtype=float64")
    assert "unsigned int* in" in text("--problem", "dtype=float64", "--dtype", "int32")
    code, out, err = run("render", "moved", "--templates", TOYS, "--problem", "")
    assert (code, out) == (2, "")
    assert "--problem wants NAME=VALUE" in err


# ---- show -----------------------------------------------------------------------------------------------------------


def test_show_tells_what_a_problem_may_say(run: Run) -> None:
    code, out, _ = run("show", "moved", "--templates", TOYS)
    assert code == 0
    words = " ".join(out.split())
    for part in (
        "batch 1 matrices",
        "pitch problem.cols elements from one row of `in` to the next",
        "offset 0 elements by which every array begins",
        "in_place false whether `out` takes the place of `in`",
        "tall problem.rows >= 8 * problem.cols",
        "what is tuned for one dtype serves all of its size",
    ):
        assert part in words
    plain = run("show", "toy", "--templates", TOYS)[1]
    assert "offset" in plain
    for part in ("in_place", "classes", "all of its size"):
        assert part not in plain


def test_show_as_json(run: Run) -> None:
    found = json.loads(run("show", "moved", "--templates", TOYS, "--json", "-")[1])
    assert [option["name"] for option in found["options"]] == ["batch", "pitch", "offset", "in_place"]
    assert found["options"][1]["default"] == "problem.cols"
    assert [c["name"] for c in found["classes"]] == ["tall", "other"]
    assert found["opaque"] is True


# ---- what ships -----------------------------------------------------------------------------------------------------


def test_list_and_show_mark_what_ships(run: Run, record: Record, shipped: Path) -> None:
    stale = replace(record, identity=replace(record.identity, device="NVIDIA A100", template="0" * 16))
    export([record, stale], "json", shipped / "h200.json", lambda name: MOVED)
    mine = replace(record, problem=MOVED.problem({"rows": 64, "cols": 64}))
    Store().save_best(mine)
    out = run("list", "--templates", TOYS)[1]
    lines = [line.split() for line in out.splitlines() if "64×64" in line]
    assert [(line[1], line[-1] == "shipped", "batch=3" in line) for line in lines] == [
        ("A100", True, True),
        ("H200", True, True),
        ("H200", False, False),
    ]
    assert "or shipped" in out
    out = run("show", "moved", "--templates", TOYS)[1]
    assert "NVIDIA H200, 64×64 batch=3 float32: shipped; best 0.25 ms 0 GB/s\n" in out
    assert "NVIDIA A100, 64×64 batch=3 float32: shipped; best 0.25 ms 0 GB/s (of an earlier template)\n" in out
    for command in (["list"], ["show", "moved"]):
        found = json.loads(run(*command, "--templates", TOYS, "--json", "-")[1])
        assert [one["options"] for one in found["shipped"]] == [{"batch": 3}] * 2
    assert "shipped" not in run("show", "toy", "--templates", TOYS)[1]
    assert run("list")[1].count("–  shipped") == 2  # of a kernel that is not here, but listed


def test_what_ships_is_not_the_users_to_export_or_verify(run: Run, record: Record, shipped: Path) -> None:
    export([record], "json", shipped / "h200.json", lambda name: MOVED)
    for command in (["export"], ["verify", "--device", "emulator"]):
        assert run(*command, "--templates", TOYS)[0] == 1
