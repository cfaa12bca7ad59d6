"""Records that another version of autotile wrote: read exactly, or refused by the version's name with a way out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from autotile.store import Store, StoreWarning, Unreadable
from autotile.store.bulk import from_lines
from autotile.store.serial import from_line, to_line
from autotile.types import Record

Make = Callable[..., Record]
DATA = Path(__file__).parent / "data"
OTHERS = [
    (0, "written by record schema 0; this autotile reads 1 (search again to replace it)"),
    (99, "written by record schema 99; this autotile reads 1 (update autotile to read it)"),
]


def test_a_record_from_before_flags_has_none(make_record: Make, tmp_path: Path) -> None:
    line = (DATA / "before_flags.jsonl").read_bytes()
    assert b'"flags"' not in line
    assert from_line(line) == make_record(flags="")
    assert from_lines([line[:-1]]) == [make_record(flags="")]
    store = Store(tmp_path)
    store.append(make_record())
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_bytes(line + path.read_bytes())
    path.with_name(path.name.replace(".records.jsonl", ".best.json")).write_bytes(line)
    assert store.records() == [make_record(), make_record()]
    assert store.bests() == [make_record()]


def test_flags_are_kept_and_tell_identities_apart(make_record: Make) -> None:
    plain, fast = make_record(), make_record(flags="-use_fast_math")
    assert plain.identity != fast.identity
    assert [from_line(to_line(record)) for record in (plain, fast)] == [plain, fast]
    assert from_lines([to_line(record)[:-1] for record in (plain, fast, plain)]) == [plain, fast, plain]


@pytest.mark.parametrize("flags", [None, 7, ["-G"]])
def test_flags_that_are_no_text_are_refused(make_record: Make, flags: object) -> None:
    found = json.loads(to_line(make_record()))
    found["identity"]["flags"] = flags
    line = json.dumps(found, separators=(",", ":")).encode()
    with pytest.raises(Unreadable, match="flags must be text"):
        from_line(line)
    assert isinstance(from_lines([line])[0], Unreadable)


@pytest.mark.parametrize(("version", "why"), OTHERS)
def test_another_schema_is_refused_by_name_in_a_journal(
    make_record: Make, tmp_path: Path, version: int, why: str
) -> None:
    store, record = Store(tmp_path), make_record()
    store.append(record)
    (path,) = tmp_path.rglob("*.jsonl")
    path.write_bytes((DATA / f"schema_{version}.jsonl").read_bytes() + path.read_bytes())
    with pytest.warns(StoreWarning) as caught:
        assert store.records() == [record]
    assert [str(warning.message) for warning in caught] == [
        f"{path}: skipped line 1: {why}; the other records were read"
    ]


@pytest.mark.parametrize("same_shape", [False, True])
@pytest.mark.parametrize(("version", "why"), OTHERS)
def test_another_schema_is_refused_by_name_in_a_best(
    make_record: Make, tmp_path: Path, version: int, why: str, same_shape: bool
) -> None:
    store, record = Store(tmp_path), make_record()
    store.save_best(record)
    (path,) = tmp_path.rglob("*.best.json")
    text = path.read_text().replace('"schema_version": 1', f'"schema_version": {version}')
    path.write_text(text if same_shape else (DATA / f"schema_{version}.jsonl").read_text())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert store.best("matmul", record.problem, record.identity.device) is None
        assert store.bests() == []
    assert [str(warning.message).startswith(f"{path}: {why}; it counts as not there") for warning in caught] == [
        True
    ] * 2
