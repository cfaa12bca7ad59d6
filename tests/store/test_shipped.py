"""Results that ship: how their files are read, and that each of them holds with today's kernels."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from autotile.assets import DATA_DIR
from autotile.codegen import render, template_digest
from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.space import violations
from autotile.store import ShippedStore, StoreWarning
from autotile.store.serial import from_object, to_object
from autotile.types import Record

Make = Callable[..., Record]
FILES = sorted((DATA_DIR / "tuned").glob("*.json"))


def shipping(folder: Path, *records: Record, name: str = "a") -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"schema_version": 1, "devices": [{"records": [to_object(r) for r in records]}]}))
    return path


def test_bests_by_kernel_and_device_in_the_order_of_the_files(make_record: Make, tmp_path: Path) -> None:
    here, there = make_record(), make_record(device="NVIDIA A100", arch="sm_80")
    shipping(tmp_path, there, name="b")
    shipping(tmp_path, here, make_record(m=64))
    store = ShippedStore(tmp_path)
    assert store.bests() == [here, make_record(m=64), there]
    assert store.bests("matmul", "NVIDIA A100") == [there]
    assert store.bests("transpose") == []


def test_the_best_of_a_problem_is_the_newest(make_record: Make, tmp_path: Path) -> None:
    new = make_record(created="2026-01-01T00:00:00+00:00")
    shipping(tmp_path, make_record(), new, make_record(m=64), name="a")
    shipping(tmp_path, make_record(), name="b")
    best = ShippedStore(tmp_path).best
    assert best("matmul", new.problem, "NVIDIA H200") == new
    assert best("matmul", new.problem, "NVIDIA H200", "sm_80") is None
    assert best("matmul", make_record(m=65).problem, "NVIDIA H200") is None
    assert best("matmul", new.problem, "NVIDIA A100") is None


def test_nothing_ships_where_there_is_no_folder(tmp_path: Path, shipped: Path) -> None:
    assert ShippedStore(tmp_path / "none").bests() == []
    assert ShippedStore().folder == shipped


def test_a_file_is_read_once_until_it_changes(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shipping(tmp_path, make_record())
    read: list[Path] = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or path.read_text().encode())
    for _ in range(3):
        assert ShippedStore(tmp_path).bests() == [make_record()]
    assert read == [path]
    shipping(tmp_path, make_record(m=64))
    os.utime(path, ns=(0, 0))
    assert ShippedStore(tmp_path).bests() == [make_record(m=64)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "not a file that"),
        ('{"devices": 7}', "not a file that"),
        ('{"devices": [{"records": [7]}]}', "1 of 1 records cannot be read, the first of them: a record must be"),
        ('{"devices": [{"records": [{"schema_version": 9}]}]}', "written by record schema 9"),
        ('{"devices": [{"records": 7}]}', "records that are no list"),
    ],
)
def test_a_damaged_file_costs_one_warning_and_itself(make_record: Make, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    shipping(tmp_path, make_record(), name="b")
    with pytest.warns(StoreWarning, match=why) as said:
        assert ShippedStore(tmp_path).bests() == [make_record()]
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ShippedStore(tmp_path).bests() == [make_record()]


def test_of_a_damaged_file_what_can_be_read_serves(make_record: Make, tmp_path: Path) -> None:
    path = shipping(tmp_path, make_record(), make_record(m=64), make_record(m=32))
    path.write_text(path.read_text().replace('"m": 64', '"m": "64"'))
    with pytest.warns(StoreWarning, match="1 of 3 records cannot be read"):
        assert ShippedStore(tmp_path).bests() == [make_record(), make_record(m=32)]


# ---- what does ship -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_record_holds(path: Path) -> None:
    """Each is proven, of today's template and text, and runs on its GPU by the rules and the table."""
    devices = json.loads(path.read_text())["devices"]
    records = [from_object(found) for device in devices for found in device["records"]]
    assert records
    for record in records:
        kernel = load_kernel(record.problem.kernel)
        what = f"{path.name}: {record.problem.kernel} {record.problem.label}"
        assert record.proven, what
        assert not record.identity.estimated, what
        assert kernel.problem(record.problem.asked, record.problem.dtype) == record.problem, what
        assert record.identity.template == template_digest(kernel), f"{what}: run benchmarks/ship.py"
        assert render(kernel, record.problem, record.configuration).digest == record.source_digest, what
        assert not violations(kernel, record.problem, find_gpu(record.identity.device), record.configuration), what
