"""A problem with options (a batch, a pitch, an offset, in place) leaves as itself, in every format, and comes back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotile.devices.replay.device import open_replay
from autotile.devices.replay.recording import read_recording
from autotile.errors import ImportRefused, UsageError
from autotile.kernels import Kernel
from autotile.report import ImportSummary, export, import_results
from autotile.store import MemoryStore, Store
from autotile.tuner import search_all
from autotile.tuner.replayed import recorded_spec
from autotile.types import Problem, Record

Kernels = Callable[[str], Kernel]
Make = Callable[..., Record]

PITCHED = {"rows": 64, "cols": 32, "batch": 2, "pitch": 40, "offset": 1}
IN_PLACE = {"rows": 64, "cols": 32, "in_place": 1}


@pytest.fixture
def records(measured: Make) -> list[Record]:
    return [measured("moved", sizes) for sizes in (PITCHED, IN_PLACE, {"rows": 64, "cols": 32})]


def written(records: list[Record], format_: str, path: Path, kernels: Kernels) -> Path:
    export(records, format_, path, kernels)
    return path


def test_csv_has_a_column_an_option(records: list[Record], kernels: Kernels) -> None:
    text = export(records, "csv", None, kernels)
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    options = ("option_batch", "option_pitch", "option_offset", "option_in_place")
    assert [[row[name] for name in options] for row in rows] == [["2", "40", "1", ""], ["", "", "", "1"], [""] * 4]
    assert not any("options" in row for row in rows)
    header = text.partition("\n")[0].split(",")
    assert header[header.index("size_cols") + 1 :][:4] == list(options)


def test_markdown_and_cuda_name_them(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    page = export(records, "markdown", None, kernels)
    assert isinstance(page, str)
    for label in ("64×32 batch=2 pitch=40 offset=1 float32", "64×32 in_place float32", "| 64×32 float32 |"):
        assert label in page
    export(records, "cuda", tmp_path, kernels)
    (launches,) = tmp_path.rglob("launch.json")
    entries = json.loads(launches.read_text())["kernels"]
    assert [entry["sizes"] for entry in entries] == [{"rows": 64, "cols": 32}, PITCHED, IN_PLACE]
    assert len({entry["file"] for entry in entries}) == 3


def test_json_there_and_back(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    path = written(records, "json", tmp_path / "x.json", kernels)
    assert import_results(path, store, kernels) == ImportSummary(3, [], proven=3)
    for record in records:
        assert store.best("moved", record.problem, "NVIDIA H200") == record
        assert store.records(problem=record.problem) == [record]


def test_t4_is_a_file_a_problem_and_comes_back_as_its_own(
    records: list[Record], kernels: Kernels, tmp_path: Path
) -> None:
    files = export(records, "t4", tmp_path / "t4", kernels)
    assert isinstance(files, list)
    assert len(files) == 3
    store = MemoryStore()
    for file in files:
        assert import_results(file, store, kernels) == ImportSummary(1, [])
    assert [record.problem for record in store.records()] == [record.problem for record in records]
    (own,) = (json.loads(file.read_text())["metadata"]["autotile"] for file in files if "batch2" in file.name)
    assert own["options"] == {"batch": 2, "pitch": 40, "offset": 1}
    assert "options" not in own["records"][0]


@pytest.mark.parametrize(
    "options", [(("depth", 2),), (("batch", 1),), (("pitch", 8),), (("pitch", 40), ("batch", 2)), (("cols", 64),)]
)
def test_options_that_the_kernel_would_not_state_so_are_refused(
    measured: Make, kernels: Kernels, tmp_path: Path, options: tuple[tuple[str, int], ...]
) -> None:
    odd = Problem("moved", (("rows", 64), ("cols", 32)), "float32", options)
    path = written([measured("moved", PITCHED, changes={"problem": odd})], "json", tmp_path / "x.json", kernels)
    with pytest.raises(ImportRefused, match=r"no dimension 'depth'|in this order, and of batch, pitch|at least 32"):
        import_results(path, MemoryStore(), kernels)


# ---- replayed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["json", "t4"])
def test_a_replay_is_of_the_problem_with_its_options(
    records: list[Record], kernels: Kernels, tmp_path: Path, format_: str
) -> None:
    path = written(records[:1], format_, tmp_path / "x.json", kernels)
    recording = read_recording(path)
    assert recording.own == records[0].problem
    assert recording.problem == "64×32 batch=2 pitch=40 offset=1 float32"
    device = open_replay(path)
    spec = recorded_spec(device.recording, ("search.trials=1",), [Path(__file__).parents[1] / "data" / "kernels"])
    (result,) = search_all([spec], device, MemoryStore())
    assert result.best is not None
    assert (result.problem, result.best.time_ms) == (records[0].problem, 0.5)


def test_two_problems_that_differ_in_options_are_two_searches(
    records: list[Record], kernels: Kernels, tmp_path: Path
) -> None:
    path = written(records, "json", tmp_path / "x.json", kernels)
    with pytest.raises(UsageError, match=r"several searches \(moved 64×32 batch=2.*64×32 in_place"):
        read_recording(path)


def test_options_that_are_no_object(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    path = written(records[:1], "json", tmp_path / "x.json", kernels)
    document: dict[str, Any] = json.loads(path.read_text())
    document["devices"][0]["records"][0]["options"] = 7
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="options that are no object"):
        read_recording(path)
