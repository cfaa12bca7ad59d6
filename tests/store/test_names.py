"""Device names make safe, distinct folders, and come back as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotile.store import Store
from autotile.store.names import device_folder, is_safe, path_name
from autotile.types import Problem, Record

Make = Callable[..., Record]

NAMES = [
    "NVIDIA GeForce RTX 4090 Laptop GPU",
    "NVIDIA GeForce RTX 4090",
    "Tesla V100-SXM2-16GB",
    "Tesla V100-SXM2-32GB",
    "NVIDIA A100 80GB PCIe",
    "A/B:C*?",
    "A B C",
    "CON",
    "con",
    "nul.txt",
    "NVIDIA H200",
    "nvidia h200",
    "NVIDIA  H200",
    "../../x",
    "..",
    ".",
    "",
    " ",
    "trailing. ",
    "новая карта",
    "显卡",
    "x" * 500,
    "x" * 501,
    "line\nbreak",
    "emulated NVIDIA H200",
    "NVIDIA H200.",
    "NVIDIA H200 ",
    "NVIDIA/H200",
    "NVIDIA\\H200",
    "NVIDIA H200\0",
    "aux",
    "COM1",
    "LPT9.gpu",
    "com¹",
    "-",
    "--",
    "carte ac\u00e9r\u00e9e",
    "carte ace\u0301re\u0301e",  # the same to look at
    "Straße",
    "STRASSE",
    "\u212aelvin",  # a sign that lower() makes a plain k
    "kelvin",
    "broken \udcff encoding",
    "\U0001f5a5" * 100,
]


def test_names_round_trip_and_stay_apart(tmp_path: Path, make_record: Make) -> None:
    store = Store(tmp_path)
    for index, name in enumerate(NAMES):
        store.append(make_record(device=name, seed=index))
        store.save_best(make_record(device=name, seed=index))
    assert sorted(entry.name for entry in store.devices()) == sorted(NAMES)
    folders = [path.name for path in (tmp_path / "devices").iterdir()]
    assert len({folder.casefold() for folder in folders}) == len(NAMES)
    assert all(is_safe(folder) and len(folder) < 120 for folder in folders)
    assert {path.parts[len(tmp_path.parts)] for path in tmp_path.rglob("*")} == {"devices"}  # nothing escaped
    for index, name in enumerate(NAMES):
        best = store.best("matmul", make_record().problem, name)
        assert best is not None
        assert (best.identity.device, best.seed) == (name, index)
        assert [record.seed for record in store.records(device=name)] == [index]


@given(st.text(st.characters(), max_size=80), st.text(st.characters(), max_size=80), st.text(max_size=12))
def test_folders_are_safe_and_distinct(one: str, other: str, arch: str) -> None:
    assert is_safe(device_folder(one, arch))
    assert (device_folder(one, arch).casefold() == device_folder(other, arch).casefold()) == (one == other)
    assert is_safe(path_name(one))
    assert (path_name(one).casefold() == path_name(other).casefold()) == (one == other)


@pytest.mark.parametrize("name", ["matmul", "m4096-n4096-k4096-float32", "_x", "a.b", "t_2"])
def test_usual_names_are_kept(name: str) -> None:
    assert path_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "CON", "nul", "com1.txt", "x.", ".x", "a b", "x" * 181])
def test_unsafe_names_are_not(name: str) -> None:
    assert not is_safe(name)
    assert is_safe(path_name(name))


def test_kernels_whose_names_differ_in_case_alone_share_no_file(tmp_path: Path, make_record: Make) -> None:
    """Some file systems do not tell Scan from scan."""
    store, problem = Store(tmp_path), make_record().problem
    for time_ms, kernel in ((1.0, "scan"), (2.0, "Scan"), (3.0, "SCAN")):
        store.save_best(make_record(time_ms=time_ms, problem=Problem(kernel, problem.sizes, problem.dtype)))
    assert len({path.name.casefold() for path in tmp_path.glob("devices/*/*/") if path.is_dir()}) == 3
    assert sorted((record.problem.kernel, record.time_ms) for record in store.bests()) == [
        ("SCAN", 3.0),
        ("Scan", 2.0),
        ("scan", 1.0),
    ]


def test_a_name_like_a_hashed_one_is_kept_apart_from_it() -> None:
    hashed = path_name("a b")
    assert path_name(hashed) != hashed
    assert is_safe(path_name(hashed))


def test_kernels_and_problems_that_are_no_file_names(tmp_path: Path, make_record: Make) -> None:
    store = Store(tmp_path)
    record = make_record(problem=Problem("../up", (("a/b", 1), ("c", 10**200)), "..\\float"))
    store.append(record)
    store.save_best(record)
    assert store.best("../up", record.problem, "NVIDIA H200") == record
    assert store.records("../up") == store.bests("../up") == [record]
    assert {path.name for path in tmp_path.iterdir()} == {"devices"}


def test_the_device_file_says_name_arch_and_kind(tmp_path: Path, make_record: Make) -> None:
    store = Store(tmp_path)
    store.append(make_record(device="emulated NVIDIA H200", estimated=True))
    store.append(make_record(extra=(("device_kind", "replay"),)))
    emulated, replayed = store.devices()
    assert (emulated.name, emulated.arch, emulated.kind) == ("emulated NVIDIA H200", "sm_90", "emulator")
    assert (replayed.name, replayed.kind) == ("NVIDIA H200", "replay")
    assert emulated.folder is not None
    assert json.loads((emulated.folder / "device.json").read_text())["name"] == "emulated NVIDIA H200"


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"name": 3}'])
def test_without_its_file_a_device_is_known_by_its_records(
    tmp_path: Path, make_record: Make, content: str | None
) -> None:
    store = Store(tmp_path)
    store.append(make_record())
    (entry,) = store.devices()
    assert entry.folder is not None
    file = entry.folder / "device.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert store.devices() == [entry]


def test_a_folder_that_is_no_device_is_passed_over(tmp_path: Path, make_record: Make) -> None:
    (tmp_path / "devices" / "stray").mkdir(parents=True)
    (tmp_path / "devices" / "file").write_text("")
    assert Store(tmp_path).devices() == []


def test_home_comes_from_the_environment(tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "chosen"))
    Store().append(make_record())
    assert (tmp_path / "chosen" / "devices").is_dir()
