"""Results in: what was exported comes back, and nothing that was tampered with does."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotile.errors import ImportRefused
from autotile.kernels import Kernel
from autotile.report import ImportSummary, export, import_results
from autotile.store import MemoryStore, Store
from autotile.types import Configuration, Launch, Measurement, Problem, Record

Kernels = Callable[[str], Kernel]
Make = Callable[..., Record]


def written(records: list[Record], path: Path, kernels: Kernels) -> Path:
    export(records, "json", path, kernels)
    return path


def test_what_was_exported_comes_back_with_its_identity(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    records = [
        measured(time_ms=2.0, width=64),
        measured(time_ms=1.0),
        measured("matmul", {"m": 128, "n": 64, "k": 32}, device="Tesla V100-SXM2-16GB", arch="sm_70"),
        measured("transpose", {"rows": 10, "cols": 20}, estimated=True, device="emulated NVIDIA H200"),
        measured(width=256, changes={"outcome": "launch_error", "measurement": None, "message": "too many"}),
        measured(width=32, changes={"outcome": "compile_error", "measurement": None, "source_digest": ""}),
    ]
    path = written(records, tmp_path / "out.json", kernels)
    store = Store(tmp_path / "home")
    assert import_results(path, store, kernels) == ImportSummary(6, [], proven=4)
    assert sorted(map(repr, store.records())) == sorted(map(repr, records))
    assert store.best("toy", records[1].problem, "NVIDIA H200") == records[1]
    assert {record.identity.device for record in store.bests()} == {record.identity.device for record in records}
    assert import_results(path, store, kernels) == ImportSummary(0, [], known=6)
    assert len(store.records()) == 6


def test_an_older_import_does_not_replace_a_newer_best(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    old = measured(time_ms=0.1)
    mine = measured(time_ms=1.0, changes={"created": "2025-09-01T00:00:00Z"})
    mine = dataclasses.replace(mine, identity=dataclasses.replace(mine.identity, driver="580"))
    store = MemoryStore([mine])
    store.save_best(mine)
    assert import_results(written([old], tmp_path / "x.json", kernels), store, kernels).imported == 1
    assert store.best("toy", mine.problem, "NVIDIA H200") == mine


def test_one_bad_record_costs_itself(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    good, bad = measured(), measured(width=64, changes={"source_digest": "0" * 64})
    store = MemoryStore()
    summary = import_results(written([bad, good], tmp_path / "x.json", kernels), store, kernels)
    assert summary.imported == 1
    ((what, why),) = summary.refused
    assert what == "device 1, record 1 (toy)"
    assert "template of toy here gives another source" in why
    assert store.records() == [good]


CHANGES: list[tuple[dict[str, Any], str]] = [
    ({"problem": Problem("nosuch", (("n", 5),), "float32")}, "no kernel 'nosuch'"),
    ({"problem": Problem("../../x", (("n", 5),), "float32")}, "not a kernel's name"),
    ({"problem": Problem("toy", (("../n", 5),), "float32")}, "no dimension"),
    ({"problem": Problem("toy", (("n", 10**30),), "float32")}, "n must be an integer from 1"),
    ({"problem": Problem("toy", (("n", -5),), "float32")}, "n must be an integer from 1"),
    ({"problem": Problem("toy", (("n", 5),), "../float32")}, "no dtype"),
    ({"problem": Problem("matmul", (("k", 8), ("m", 8), ("n", 8)), "float32")}, "in this order"),
    ({"configuration": Configuration((("width", 64),))}, "has the parameters"),
    ({"configuration": Configuration((("width", 64), ("colour", 1)))}, "no parameter 'colour'"),
    ({"configuration": Configuration((("width", "64"), ("staged", False), ("buffers", 1)))}, "takes an integer"),
    ({"configuration": Configuration((("width", 33), ("staged", False), ("buffers", 1)))}, "breaks the rule width"),
    ({"configuration": Configuration((("width", 2**30), ("staged", False), ("buffers", 1)))}, "out of all proportion"),
    ({"configuration": Configuration((("width", 10**40), ("staged", False), ("buffers", 1)))}, "32-bit"),
    ({"configuration": Configuration((("width", 0), ("staged", True), ("buffers", 1)))}, "another source"),
    ({"source_digest": ""}, "another source"),
    ({"launch": Launch((1, 1, 1), (128, 1, 1), 0)}, "launched in another way"),
    ({"launch": Launch((10**50, 1, 1), (128, 1, 1), -(10**50))}, "launched in another way"),
    ({"measurement": None}, "has no time"),
    ({"measurement": Measurement(-1.0, 1.0, 0.0, 3)}, "-1 ms is none"),
    ({"measurement": Measurement(0.0, 0.0, 0.0, 3)}, "0 ms is none"),
    ({"measurement": Measurement(1.0, 1.0, 0.0, 3, estimated=True)}, "an estimate"),
]


@pytest.mark.parametrize(("changes", "why"), CHANGES, ids=range(len(CHANGES)))
def test_a_tampered_record_is_refused_by_name(
    measured: Make, kernels: Kernels, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    store = Store(tmp_path / "home")
    path = written([measured(changes=changes)], tmp_path / "x.json", kernels)
    with pytest.raises(ImportRefused, match=r"x\.json: nothing could be imported") as refusal:
        import_results(path, store, kernels)
    assert why in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not store.home.exists()


@pytest.mark.parametrize(
    "name",
    ["../../x", "..", "a/../b", "/etc/passwd", "\\\\server\\x", "C:\\x", "~root/x", "", "a\nb", "a\0b", "x" * 201],
)
def test_device_names_that_look_like_paths_are_refused(
    measured: Make, kernels: Kernels, tmp_path: Path, name: str
) -> None:
    for changed in ({"device": name}, {"arch": name}):
        path = written([measured(**changed)], tmp_path / "x.json", kernels)
        with pytest.raises(ImportRefused, match="not a device's name"):
            import_results(path, Store(tmp_path / "home"), kernels)
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_name_with_a_slash_is_a_name(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    path = written([measured(device="A/B:C*?")], tmp_path / "x.json", kernels)
    store = Store(tmp_path / "home")
    assert import_results(path, store, kernels).imported == 1
    assert [entry.name for entry in store.devices()] == ["A/B:C*?"]


FILES = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("null", "not a file that"),
    ("[]", "not a file that"),
    ('{"schema_version": 99, "devices": []}', "written by record schema 99; this autotile reads 1"),
    ('{"schema_version": 0}', "written by record schema 0"),
    ('{"schema_version": 1}', "not a file that"),
    ('{"schema_version": 1, "devices": {}}', "not a file that"),
    ('{"schema_version": 1, "devices": [7]}', "device 1: a record must be an object"),
    ('{"schema_version": 1, "devices": [{"records": 7}]}', "device 1: a record must be an object"),
    ('{"schema_version": 1, "devices": [{"records": [7, 8, 9]}]}', "must be an object, not 7 (and 2 more)"),
    ('{"schema_version": 1, "devices": [{"records": [{"schema_version": 3}]}]}', "written by record schema 3"),
    ("[" * 50_000, "nested too deeply"),
    ("1" * 10_000, "not"),
    ("NaN", "not JSON"),
]


@pytest.mark.parametrize(("text", "why"), FILES, ids=range(len(FILES)))
def test_a_file_that_is_no_export_is_refused_with_one_message(
    kernels: Kernels, tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ImportRefused) as refusal:
        import_results(path, MemoryStore(), kernels)
    assert str(refusal.value).startswith(f"{path}: ")
    assert why in str(refusal.value)
    assert len(str(refusal.value)) < 400 + len(str(path))


def test_a_file_that_is_not_there(kernels: Kernels, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="cannot be read"):
        import_results(tmp_path / "none.json", MemoryStore(), kernels)


def test_an_export_of_nothing_imports_nothing(kernels: Kernels, tmp_path: Path) -> None:
    path = written([], tmp_path / "x.json", kernels)
    assert import_results(path, MemoryStore(), kernels) == ImportSummary(0, [])


def test_a_failed_record_may_carry_a_time(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    record = measured(changes={"outcome": "implausible", "measurement": Measurement(0.0, 0.0, 0.0, 3)})
    store = MemoryStore()
    path = written([record], tmp_path / "x.json", kernels)
    assert json.loads(path.read_text())["devices"]
    assert import_results(path, store, kernels).imported == 1
    assert store.bests() == []
