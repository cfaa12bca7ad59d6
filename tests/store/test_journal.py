"""The journal: what is written stays, whatever ends the writer."""

from __future__ import annotations

import errno
import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from writers import python

from autotile.errors import StoreError
from autotile.store import Store, StoreWarning
from autotile.types import Configuration, Record

Make = Callable[..., Record]


def journal_of(home: Path) -> Path:
    (path,) = home.glob("devices/*/*/*.records.jsonl")
    return path


def numbered(make: Make, number: int, **changes: Any) -> Record:
    return make(configuration=Configuration((("number", number),)), **changes)


def test_appended_records_come_back_in_order(tmp_path: Path, make_record: Make) -> None:
    some = [numbered(make_record, number) for number in range(5)]
    for record in some:
        Store(tmp_path).append(record)
    assert Store(tmp_path).records() == some
    assert len(journal_of(tmp_path).read_bytes().splitlines()) == 5


def test_nothing_is_made_before_the_first_write(tmp_path: Path, make_record: Make) -> None:
    home = tmp_path / "deep" / "home"
    store = Store(home)
    record = make_record()
    assert store.records() == store.bests() == store.devices() == []
    assert store.best("matmul", record.problem, "NVIDIA H200") is None
    assert not home.parent.exists()
    store.append(record)
    assert store.records() == [record]


def test_truncated_at_any_byte_the_torn_line_is_lost_and_the_next_append_heals(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)  # the slow part, which a file cut by hand does not need
    some = [numbered(make_record, number) for number in range(2)]
    late = numbered(make_record, 99)
    store = Store(tmp_path)
    store.extend(some)
    path = journal_of(tmp_path)
    whole = path.read_bytes()
    ends = [index for index, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        # a record that lacks nothing but its newline is whole
        left = some[: sum(end <= length for end in ends)]
        torn = length > 0 and length not in ends and whole[length - 1 : length] != b"\n"
        for expected in (left, [*left, late]):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert store.records() == expected
            assert len(caught) == torn
            if expected is left:
                store.append(late)


def test_unreadable_lines_cost_one_warning_that_names_file_and_lines(tmp_path: Path, make_record: Make) -> None:
    store = Store(tmp_path)
    store.extend([numbered(make_record, number) for number in range(4)])
    path = journal_of(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:40]
    lines[2] = lines[2].replace(b'"schema_version":1', b'"schema_version":99')
    lines.insert(3, b"")
    path.write_bytes(b"\n".join(lines))
    with pytest.warns(StoreWarning) as caught:
        assert store.records() == [numbered(make_record, 0), numbered(make_record, 3)]
    assert len(caught) == 1
    message = str(caught[0].message)
    assert str(path) in message
    assert "skipped line 2: not JSON" in message
    assert "skipped line 3: written by record schema 99; this autotile reads 1" in message


def test_a_journal_of_schema_0_is_refused_by_name(tmp_path: Path, make_record: Make) -> None:
    store = Store(tmp_path)
    store.extend([numbered(make_record, number) for number in range(9)])
    path = journal_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"schema_version":1', b'"schema_version":0'))
    with pytest.warns(StoreWarning, match=r"lines 1, 2, 3, 4, 5 and 4 more: written by record schema 0; this autot"):
        assert store.records() == []


def test_kill_9_costs_at_most_the_record_in_flight(tmp_path: Path, make_record: Make) -> None:
    code = """
        store, number = Store(Path(sys.argv[1])), int(sys.argv[2])
        while True:
            store.append(numbered(number))
            store.save_best(numbered(number, time_ms=1000.0 / (number + 1)))
            print(number, flush=True)
            number += 1
    """
    moments = random.Random(0)
    expected = 0
    for _ in range(6):
        writer = python(code, tmp_path, expected)
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        time.sleep(moments.uniform(0.0, 0.1))
        writer.kill()
        said, _ = writer.communicate()
        # the last number may be cut short itself
        acknowledged = max([acknowledged, *map(int, said.rpartition("\n")[0].split())])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            numbers = [record.configuration["number"] for record in Store(tmp_path).records()]
        assert numbers in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))
        best = Store(tmp_path).best("matmul", make_record().problem, "NVIDIA H200")
        assert best is not None
        assert best.configuration["number"] in (acknowledged, acknowledged + 1)
        expected = len(numbers)


def test_eight_processes_at_once_on_a_fresh_store_lose_nothing(tmp_path: Path, make_record: Make) -> None:
    code = """
        store, first = Store(Path(sys.argv[1])), int(sys.argv[2])
        print("ready", flush=True)
        sys.stdin.readline()
        assert store.writable() is None
        for number in range(first, first + 50):
            store.append(numbered(number))
            store.save_best(numbered(number, time_ms=1000.0 - (number * 7919) % 400))
        print("done", flush=True)
        sys.stdin.readline()
        (best,) = store.bests()
        print(len(store.records()), best.configuration["number"], best.time_ms)
    """
    home = tmp_path / "fresh"
    writers = [python(code, home, 50 * index) for index in range(8)]
    for word in ("ready\n", "done\n"):  # all begin together, and all look when all have written
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == word
        assert word == "done\n" or not home.exists()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
    fastest = max(range(400), key=lambda number: (number * 7919) % 400)
    assert {writer.communicate()[0] for writer in writers} == {f"400 {fastest} 601.0\n"}
    assert [writer.returncode for writer in writers] == [0] * 8
    store = Store(home)
    numbers = [int(record.configuration["number"]) for record in store.records()]
    assert sorted(numbers) == list(range(400))
    for first in range(0, 400, 50):  # each writer's own records are in its order
        assert [number for number in numbers if first <= number < first + 50] == list(range(first, first + 50))
    assert store.bests() == [numbered(make_record, fastest, time_ms=601.0)]
    assert len(list(home.rglob("*.best.json"))) == 1
    assert not list(home.rglob("*.tmp"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_disk_that_fills_up_half_way_through_a_line(tmp_path: Path, make_record: Make) -> None:
    Store(tmp_path).append(numbered(make_record, 0))
    path = journal_of(tmp_path)
    size = path.stat().st_size
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            Store(Path(sys.argv[1])).append(numbered(1))
        except Exception as error:
            print(type(error).__name__, error)
    """
    writer = python(code, tmp_path, size + 100)
    said, _ = writer.communicate()
    assert said.startswith(f"StoreError cannot write {path}: File too large; set AUTOTILE_HOME to a folder")
    assert path.stat().st_size == size  # the part that did fit was given back
    Store(tmp_path).append(numbered(make_record, 2))
    assert Store(tmp_path).records() == [numbered(make_record, 0), numbered(make_record, 2)]


def test_a_record_that_cannot_be_made_durable_is_taken_back(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some disks find out that they are full only when they sync."""
    store = Store(tmp_path)
    store.append(numbered(make_record, 0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="No space left on device; free some space, or set AUTOTILE_HOME"):
        store.append(numbered(make_record, 1))
    assert store.records() == [numbered(make_record, 0)]


def test_a_home_that_cannot_be_is_said_with_the_way_out(tmp_path: Path, make_record: Make) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    store = Store(in_the_way / "home")
    reason = store.writable()
    assert reason is not None
    for write in (store.append, store.save_best):
        with pytest.raises(StoreError, match="set AUTOTILE_HOME to a folder you can write") as refusal:
            write(make_record())
        assert str(in_the_way) in str(refusal.value)
        assert "Not a directory" in str(refusal.value) or "File exists" in str(refusal.value)
    assert store.records() == store.bests() == store.devices() == []
    assert Store(tmp_path / "good").writable() is None


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_home_where_even_root_cannot_write(make_record: Make) -> None:
    store = Store(Path("/proc/autotile"))
    assert "cannot write /proc/autotile" in str(store.writable())
    with pytest.raises(StoreError, match="/proc/autotile"):
        store.append(make_record())


def test_a_read_only_home(tmp_path: Path, make_record: Make) -> None:
    Store(tmp_path).append(make_record())
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("permissions do not bind this user")
        store = Store(tmp_path)
        assert "Permission denied" in str(store.writable())
        with pytest.raises(StoreError, match="Permission denied"):
            store.append(make_record(m=1024))
        assert store.records() == [make_record()]
    finally:
        for path in folders:
            path.chmod(0o755)
