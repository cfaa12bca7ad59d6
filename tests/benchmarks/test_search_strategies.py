"""The benchmark of samplers: what it searches, what a sampler is told, when it stops, and what it writes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.devices.gpus import find_gpu
from autotile.devices.replay.recording import Recording, read_recording
from autotile.errors import UsageError
from autotile.kernels import load_kernel
from autotile.space import build_space
from autotile.store.serial import to_line
from autotile.types import Identity, Measurement, Problem, Record

Made = Callable[..., Recording]

ROOT = Path(__file__).resolve().parents[2]
REPLAY = ROOT / "tests" / "data" / "replay"


class Scripted:
    """Asks for the rows in order, and keeps what it is asked and told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.asked = 0

    def ask(self) -> tuple[int, int]:
        self.events.append("ask")
        self.asked += 1
        return 100 + self.asked, self.asked - 1

    def tell(self, trial: int, record: Record) -> None:
        self.events.append((trial, record))


def test_a_sampler_is_told_what_it_took(made: Made) -> None:
    from recorded_spaces import search

    scripted = Scripted()
    done = search(made([3, None, 2], [4, 6, 8]), scripted, "1", lambda count, spent_s, best_ms: False)
    assert done.rows == [0, 1, 2]
    assert len(done.cpu_s) == len(done.wall_s) == 3
    assert [event if event == "ask" else event[0] for event in scripted.events] == ["ask", 101, "ask", 102, "ask", 103]
    first, second, third = (event[1] for event in scripted.events if event != "ask")
    assert (dict(first.configuration), first.time_ms) == ({"n": 0}, 3)
    assert (first.build_s, first.check_s, first.measure_s) == (2, 0, 2)
    assert (second.outcome, second.ok, second.message) == ("launch_error", False, "too large")
    assert second.build_s + second.measure_s == 6
    assert third.time_ms == 2


def test_batches_grow_and_are_told_together(made: Made) -> None:
    from recorded_spaces import search

    scripted = Scripted()
    done = search(made([1.0] * 100), scripted, "growing", lambda count, spent_s, best_ms: False)
    kinds = "".join("a" if event == "ask" else "t" for event in scripted.events)
    sizes = [len(run) for run in kinds.split("t") if run]
    assert sizes == [1] * 16 + [2] * 4 + [3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 8, 8, 8, 4]
    assert sum(sizes) == len(done.rows) == 100
    steady = Scripted()
    search(made([1.0] * 10), steady, "4", lambda count, spent_s, best_ms: False)
    assert "".join("a" if event == "ask" else "t" for event in steady.events) == "aaaatttt" * 2 + "aatt"


def test_a_search_ends_with_the_budget(made: Made) -> None:
    """Costs of 3 s each: the fourth begins within a budget of 10 s, a fifth would not."""
    from recorded_spaces import Case, enough_for, search
    from scoring import Scale

    recording = made([5.0, 4, 3, 2, 1, 1], 3.0)
    case = Case("toy", recording, Scale(1.0, 3.5, 3, 10.0, np.asarray([1.0]), np.asarray([2.0])))
    assert search(recording, Scripted(), "1", enough_for(case)).rows == [0, 1, 2, 3]


def test_a_folder_is_read_once_a_search(tmp_path: Path) -> None:
    from recorded_spaces import recordings_in

    shutil.copytree(REPLAY, tmp_path, dirs_exist_ok=True)
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "some.T1.json").write_text("{}")
    notes: list[str] = []
    (found,) = recordings_in([tmp_path], "", notes.append)
    assert found.path.name == "convolution_A100.json"
    assert len(notes) == 2
    assert "other.json: not a recording" in notes[0]
    assert "convolution_A100.T4.json is the same search as convolution_A100.json" in notes[1]
    (tmp_path / "convolution_A100.json").unlink()
    (found,) = recordings_in([tmp_path], "A100,A6000")
    assert found.path.name == "convolution_A100.T4.json"
    assert not list(recordings_in([tmp_path], "A6000"))
    with pytest.raises(UsageError, match=r"none: no such folder"):
        list(recordings_in([tmp_path / "none"], ""))


def journal(path: Path, kernel: str = "transpose") -> Path:
    """A journal of made-up times over some of the transpose's space."""
    problem = Problem("transpose", (("rows", 4096), ("cols", 4096)), "float32")
    space = build_space(load_kernel("transpose"), problem, find_gpu("h200"))
    rows = np.random.default_rng(0).choice(len(space), 120, replace=False)
    identity = Identity("NVIDIA H200", "sm_90", "1", "nvcc 13", "t", 1, False)
    named = Problem(kernel, problem.sizes, problem.dtype)
    lines = []
    for number, row in enumerate(rows.tolist()):
        time_ms = 1.0 + (number * 37 % 120) / 60
        measured = Measurement(time_ms, time_ms, 0.0, 3)
        record = Record(named, space.configuration(row), identity, "ok", "", measured, build_s=0.5, measure_s=0.25)
        lines.append(to_line(record))
    path.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    return path


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    import search_strategies

    monkeypatch.setattr(sys, "argv", ["search_strategies.py", *map(str, arguments)])
    search_strategies.main()


def test_own_recordings_are_searched_with_and_without_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import search_strategies

    made: list[tuple[str, int, bool]] = []

    class Kept(search_strategies.Strategy):  # type: ignore[misc]
        def __init__(self, space: Any, sampler: str, seed: int, *, derived: Any) -> None:
            made.append((sampler, seed, derived is not None))
            super().__init__(space, sampler, seed, derived=derived)

    monkeypatch.setattr(search_strategies, "Strategy", Kept)
    journal(tmp_path / "some.records.jsonl")
    out = tmp_path / "out"
    common = ("--spaces", tmp_path, "--samplers", "model,random", "--repeats", 2, "--jobs", 1, "--out", out)
    run_main(monkeypatch, *common)
    document = json.loads((out / "search_strategies.json").read_text())
    (space,) = document["spaces"]
    assert space["name"] == "transpose 4096×4096 float32, NVIDIA H200"
    assert space["own"]
    assert space["derived_columns"] > 0
    assert (space["rows"], space["failed"], space["best_ms"]) == (120, 0, 1.0)
    assert [item[:2] for item in made] == [(name, seed) for name in ("model", "random", "model") for seed in (0, 1)]
    assert [with_features for _, _, with_features in made] == [True] * 4 + [False] * 2
    labels = [entry["label"] for entry in document["strategies"]]
    assert labels == ["model", "random", "model, without features"]
    for entry in document["strategies"]:
        (on,) = entry["by_space"].values()
        assert on["score"] == entry["mean"] == entry["median"]
        assert 1 <= on["evaluations_needed"]["5%"] <= on["evaluations_needed"]["2%"] <= 120
        assert on["cpu_ms_an_ask"] > 0
        assert on["cpu_share_of_budget"] * space["budget_s"] == pytest.approx(
            on["cpu_ms_an_ask"] / 1e3 * on["evaluations"]
        )
    run_main(monkeypatch, *common, "--without-features")
    document = json.loads((out / "search_strategies.json").read_text())
    assert [entry["label"] for entry in document["strategies"]] == ["model", "random"]
    assert document["spaces"][0]["derived_columns"] == 0


def test_a_kernel_that_is_not_there_costs_its_features(tmp_path: Path) -> None:
    from recorded_spaces import case_of

    notes: list[str] = []
    case = case_of(read_recording(journal(tmp_path / "x.records.jsonl", "nonesuch")), True, notes.append)
    assert case.derived is None
    assert "no kernel 'nonesuch'" in notes[0]


def test_the_same_figures_however_many_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        run_main(
            monkeypatch, "--spaces", REPLAY, "--samplers", "random", "--batch", "1,3", "--repeats", 3,
            "--jobs", processes, "--out", out,
        )  # fmt: skip
        document = json.loads((out / "search_strategies.json").read_text())
        found.append([(entry["label"], entry["mean"]) for entry in document["strategies"]])
        assert {"device", "commit", "date", "python"} <= document["machine"].keys()
    assert found[0] == found[1]
    assert [label for label, _ in found[0]] == ["random", "random, batches of 3"]
    assert found[0][0][1] == pytest.approx(found[0][1][1])  # what is drawn at random does not depend on batches


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--samplers", "modle"], "unknown samplers modle; known: model"),
        (["--batch", "0"], "a number from 1, or growing"),
        (["--repeats", "0"], "'0' is no number from 1"),
        (["--samplers", ""], "nothing is to search"),
    ],
)
def test_wrong_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    with pytest.raises(SystemExit):
        run_main(monkeypatch, "--spaces", REPLAY, *arguments)
    assert why in capsys.readouterr().err


def test_what_an_ask_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = {
        "ConfigurationSpace": {
            "TuningParameters": [{"Name": name, "Values": "list(range(1, 21))"} for name in ("a", "b")],
            "Conditions": [{"Expression": "a * b <= 100"}],
        }
    }
    shutil.copy(REPLAY / "convolution_A100.json", tmp_path)
    (tmp_path / "toy.T1.json").write_text(json.dumps(space))
    run_main(monkeypatch, "--spaces", tmp_path, "--ask-cost", "--samplers", "model", "--trials", 40, "--out", tmp_path)
    recorded, made_up = json.loads((tmp_path / "ask_cost.json").read_text())["asks"]
    assert (recorded["space"], recorded["rows"], recorded["trials"]) == ("convolution_A100", 60, 40)
    assert (made_up["space"], made_up["rows"]) == ("toy", sum(min(20, 100 // a) for a in range(1, 21)))
    assert 0 < made_up["cpu_ms_an_ask"] <= made_up["cpu_ms_most"]


def test_kernel_tuner_gets_the_same_recording(tmp_path: Path) -> None:
    from kernel_tuner_strategies import write_cache
    from recorded_spaces import case_of

    case = case_of(read_recording(REPLAY / "convolution_A100.json"), True)
    written = read_recording(write_cache(case, tmp_path))
    assert (written.names, written.domains) == (case.recording.names, case.recording.domains)
    assert np.array_equal(written.codes, case.recording.codes)
    assert np.array_equal(written.time_ms, case.recording.time_ms, equal_nan=True)
    assert np.allclose(written.cost_ms, case.recording.cost_ms)


@pytest.mark.skipif(importlib.util.find_spec("kernel_tuner") is None, reason="Kernel Tuner is not installed")
def test_kernel_tuner_searches_within_the_budget(tmp_path: Path) -> None:
    from kernel_tuner_strategies import evaluated_rows, write_cache
    from recorded_spaces import case_of

    case = case_of(read_recording(REPLAY / "convolution_A100.json"), True)
    rows = evaluated_rows(case, write_cache(case, tmp_path), "genetic_algorithm", 0)
    assert len(rows) == len(set(rows)) > 1
    spent_s = case.recording.cost_ms[rows].cumsum() / 1e3
    assert spent_s[-2] <= case.scale.budget_s
