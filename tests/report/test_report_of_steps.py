"""A problem with switches, and a launch with steps and scratch memory, in every format and back."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotile.cli import main
from autotile.cli.text import load_line
from autotile.devices.replay.recording import read_recording
from autotile.errors import EXIT_OK, ImportRefused
from autotile.kernels import Kernel
from autotile.report import ImportSummary, export, import_results
from autotile.store import MemoryStore, Store
from autotile.types import Problem, Record

Kernels = Callable[[str], Kernel]
Make = Callable[..., Record]

SWITCHED = {"m": 40, "n": 50, "x_turned": True, "bias": True}


@pytest.fixture
def records(measured: Make) -> list[Record]:
    """Packed and switched, and neither."""
    return [measured("affine", SWITCHED, packed=True), measured("affine", {"m": 40, "n": 50})]


def test_csv_has_a_column_a_switch_and_says_what_is_launched(records: list[Record], kernels: Kernels) -> None:
    text = export(records, "csv", None, kernels)
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = ("switch_x_turned", "switch_bias", "scratch_bytes", "before", "after")
    assert [[row[name] for name in columns] for row in rows] == [
        ["true", "true", "8000", "_pack 63x1x1 32x1x1", "_finish 40x1x1 32x1x1"],
        [""] * 5,
    ]
    assert not {"switches", "launch"} & rows[0].keys()
    assert "before" not in str(export(records[1:], "csv", None, kernels)).partition("\n")[0]


def test_markdown_says_so_too(records: list[Record], kernels: Kernels) -> None:
    text = export(records, "markdown", None, kernels)
    assert isinstance(text, str)
    switched, plain = [line for line in text.splitlines() if line.startswith("| affine")]
    assert "| 40×50 x_turned bias float32 |" in switched
    assert "packed=true; before: …_pack, grid (63, 1, 1), block (32, 1, 1); after: …_finish" in switched
    assert "scratch: 8000 bytes" in switched
    assert "before" not in plain


def test_cuda_names_an_arrays_type_where_it_is_not_the_problems(
    measured: Make, kernels: Kernels, tmp_path: Path
) -> None:
    asked = {"m": 4, "n": 6, "k": 5, "bias": True}
    export([measured("dots", asked)], "cuda", tmp_path, kernels)
    (launches,) = tmp_path.rglob("launch.json")
    (entry,) = json.loads(launches.read_text())["kernels"]
    arguments = {argument["name"]: argument for argument in entry["arguments"]}
    assert {name: argument.get("dtype") for name, argument in arguments.items()} == {
        "x": None, "y": None, "addend": None, "bias": "int32", "out": "int32",
        "m": None, "n": None, "k": None, "out_pitch": None, "alpha": None,
    }  # fmt: skip
    assert (entry["dtype"], arguments["alpha"]["is"]) == ("int8", "float")


def test_cuda_tells_how_to_launch_what_is_around_it(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    export(records, "cuda", tmp_path, kernels)
    (launches,) = tmp_path.rglob("launch.json")
    plain, switched = json.loads(launches.read_text())["kernels"]
    assert switched["sizes"] == SWITCHED
    assert switched["scratch_bytes"] == 8000
    assert switched["before"] == [{"entry": "affine_pack", "grid": [63, 1, 1], "block": [32, 1, 1]}]
    assert switched["after"] == [{"entry": "affine_finish", "grid": [40, 1, 1], "block": [32, 1, 1]}]
    assert not {"scratch_bytes", "before", "after"} & plain.keys()
    assert switched["arguments"] == [
        {"name": "x", "is": "input", "shape": [50, 40], "strides": [40, 1]},
        {"name": "addend", "is": "null"},
        {"name": "bias", "is": "input", "shape": [50], "strides": [1]},
        {"name": "out", "is": "output", "shape": [40, 50], "strides": [50, 1]},
        *({"name": name, "is": "int", "value": v} for name, v in (("m", 40), ("n", 50))),
        *({"name": name, "is": "int", "value": v} for name, v in (("x_pitch", 40), ("out_pitch", 50))),
        *({"name": name, "is": "float", "default": 1.0} for name in ("alpha", "beta")),
        {"name": "work", "is": "scratch"},
    ]
    headers = {
        entry["file"]: (launches.parent / entry["file"]).read_text().split("\n\n")[0] for entry in (plain, switched)
    }
    for piece in (
        "// before: affine_pack, grid (63, 1, 1), block (32, 1, 1)\n",
        "// after: affine_finish, grid (40, 1, 1), block (32, 1, 1)\n",
        "// scratch: 8000 bytes\n",
        "same arguments, on the same stream",
    ):
        assert piece in headers[switched["file"]]
        assert piece not in headers[plain["file"]]


def test_json_there_and_back(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    store, path = Store(tmp_path / "home"), tmp_path / "x.json"
    export(records, "json", path, kernels)
    assert import_results(path, store, kernels) == ImportSummary(2, [], proven=2)
    assert store.best("affine", records[0].problem, "NVIDIA H200") == records[0]
    again = Store(tmp_path / "home")
    assert again.records(problem=records[0].problem) == [records[0]]
    assert again.records(problem=records[1].problem) == [records[1]]


@pytest.mark.parametrize("format_", ["json", "t4"])
def test_a_recording_is_of_the_problem_with_its_switches(
    records: list[Record], kernels: Kernels, tmp_path: Path, format_: str
) -> None:
    export(records[:1], format_, tmp_path / "x.json", kernels)
    assert read_recording(tmp_path / "x.json").own == records[0].problem
    assert import_results(tmp_path / "x.json", MemoryStore(), kernels).imported == 1
    if format_ == "t4":
        own = json.loads((tmp_path / "x.json").read_text())["metadata"]["autotile"]
        assert own["switches"] == ["x_turned", "bias"]
        assert "switches" not in own["records"][0]


@pytest.mark.parametrize(
    ("switches", "says"),
    [(("turned",), "no dimension 'turned'"), (("bias", "x_turned"), "in this order"), (("bias", "bias"), "order")],
)
def test_switches_that_the_kernel_would_not_state_so_are_refused(
    measured: Make, kernels: Kernels, tmp_path: Path, switches: tuple[str, ...], says: str
) -> None:
    odd = Problem("affine", (("m", 40), ("n", 50)), "float32", (), switches)
    export([measured("affine", SWITCHED, changes={"problem": odd})], "json", tmp_path / "x.json", kernels)
    with pytest.raises(ImportRefused, match=says):
        import_results(tmp_path / "x.json", MemoryStore(), kernels)


def test_a_launch_with_other_steps_is_refused(records: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    export(records[:1], "json", tmp_path / "x.json", kernels)
    document: dict[str, Any] = json.loads((tmp_path / "x.json").read_text())
    del document["devices"][0]["records"][0]["launch"]["after"]
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(ImportRefused, match="launched in another way"):
        import_results(tmp_path / "x.json", MemoryStore(), kernels)


def test_show_and_render_list_switches_scalars_and_steps(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--templates", str(Path(__file__).parents[1] / "data" / "kernels")])
        assert left.value.code == EXIT_OK
        return capsys.readouterr().out

    shown = said("show", "affine")
    for piece in ("x_turned         false", "x is stored n × m", "alpha            1", "affine_pack", "before: packed"):
        assert piece in shown
    document = json.loads(said("show", "affine", "--json", "-"))
    assert document["switches"] == ["x_turned", "added", "bias"]
    assert document["scalars"] == {"alpha": 1.0, "beta": 1.0}
    assert document["steps"][1] == {"entry": "affine_finish", "launched": "after", "when": "packed and problem.bias"}
    rendered = said("render", "affine", "--set", "packed=true", "--problem", "m=40, n=50, x_turned=1, bias=true")
    assert "// before: affine_pack, grid (63, 1, 1), block (32, 1, 1)" in rendered
    assert "// scratch: 8000 bytes" in rendered


def test_the_line_that_loads_a_winner_is_python(kernels: Kernels) -> None:
    problem = kernels("affine").problem(SWITCHED)
    line = load_line(problem)
    assert line == 'affine = autotile.load("affine", m=40, n=50, x_turned=True, bias=True, dtype="float32")'
    stated = ast.parse(line).body[0].value.keywords  # type: ignore[attr-defined]
    found = {keyword.arg: ast.literal_eval(keyword.value) for keyword in stated}
    assert kernels("affine").problem({name: v for name, v in found.items() if name != "dtype"}) == problem
