"""A disk that fills up, or shuts, in the middle of a run costs nothing but a message; one that opens again gets all."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from writers import python

from autotile.errors import StoreError
from autotile.store import FallbackStore, Store, open_store
from autotile.types import Configuration, Record

Make = Callable[..., Record]
H200 = "NVIDIA H200"
KEPT = "results are kept in memory and lost at the end"
AGAIN = "can be written again, and all results so far are on disk"

ReadOnlyDisk = tuple[FallbackStore, Store, Callable[[], None]]


def numbered(make: Make, number: int, **changes: Any) -> Record:
    return make(configuration=Configuration((("number", number),)), **changes)


class Shut:
    """A home in whose place lies a file: nobody can write there, not even root. `open` takes it away."""

    def __init__(self, home: Path) -> None:
        self.home, self.aside = home, home.with_name("aside")

    def shut(self) -> None:
        if self.home.exists():
            self.home.rename(self.aside)
        self.home.write_text("in the way")

    def open(self) -> None:
        self.home.unlink()
        if self.aside.exists():
            self.aside.rename(self.home)


@pytest.fixture
def disk(tmp_path: Path) -> Shut:
    return Shut(tmp_path / "home")


def test_what_the_disk_refuses_is_kept_and_said_once(disk: Shut, make_record: Make) -> None:
    notes: list[str] = []
    store = FallbackStore(Store(disk.home), notes.append)
    store.append(numbered(make_record, 0))
    assert notes == []
    disk.shut()
    store.append(numbered(make_record, 1))
    (note,) = notes
    assert note.startswith(f"cannot write {disk.home}")
    assert "set AUTOTILE_HOME to a folder you can write" in note
    assert note.endswith(KEPT)
    store.extend([numbered(make_record, 2), numbered(make_record, 3, device="NVIDIA H100")])
    assert store.save_best(numbered(make_record, 2))
    assert len(notes) == 1
    assert [record.configuration["number"] for record in store.records()] == [1, 2, 3]  # the disk shows nothing now
    assert store.records(device="NVIDIA H100") == [numbered(make_record, 3, device="NVIDIA H100")]
    assert [(entry.name, entry.folder) for entry in store.devices()] == [("NVIDIA H100", None), (H200, None)]
    assert str(disk.home) in str(store.writable())


def test_what_waited_goes_to_the_disk_first_and_in_order(disk: Shut, make_record: Make) -> None:
    notes: list[str] = []
    store = FallbackStore(Store(disk.home), notes.append)
    some = [numbered(make_record, number) for number in range(160)]  # more than go at once
    other = numbered(make_record, 0, device="NVIDIA H100")
    store.append(some[0])
    disk.shut()
    for record in some[1:120]:
        store.append(record)
    store.append(other)
    store.save_best(some[5])
    disk.open()
    assert store.records() == [other, *some[:120]] or store.records() == [*some[:120], other]
    store.extend(some[120:])
    assert notes[1:] == [f"{disk.home} {AGAIN}"]
    assert Store(disk.home).records(device=H200) == some
    assert Store(disk.home).records(device="NVIDIA H100") == [other]
    assert Store(disk.home).bests() == store.bests() == [some[5]]
    assert sorted(map(repr, store.records())) == sorted(map(repr, [other, *some]))
    assert all(entry.folder is not None for entry in store.devices())
    disk.shut()
    store.append(other)
    assert len(notes) == 3  # what is lost now would not be known otherwise
    assert notes[2] == notes[0]


def test_saving_a_best_flushes_too(disk: Shut, make_record: Make) -> None:
    store = FallbackStore(Store(disk.home), lambda _: None)
    disk.shut()
    store.append(make_record())
    disk.open()
    assert store.save_best(make_record())
    assert Store(disk.home).records() == Store(disk.home).bests() == [make_record()]


def test_a_place_that_stays_shut_holds_up_no_other(tmp_path: Path, make_record: Make) -> None:
    store = FallbackStore(Store(tmp_path), lambda _: None)
    here, there = make_record(), make_record(m=2048)
    store.append(here)
    (journal,) = tmp_path.rglob("*.jsonl")
    journal.unlink()
    journal.mkdir()  # a journal that cannot be one
    store.append(here)
    store.append(there)
    assert Store(tmp_path).records(problem=there.problem) == [there]
    journal.rmdir()
    store.append(there)
    assert Store(tmp_path).records(problem=here.problem) == [here]


@pytest.fixture
def full(tmp_path: Path, make_record: Make) -> tuple[FallbackStore, list[str], Path]:
    """A store with record 0 whose journal is on a full device by now; the real one is beside it."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    notes: list[str] = []
    store = FallbackStore(Store(tmp_path), notes.append)
    store.append(numbered(make_record, 0))
    (journal,) = tmp_path.rglob("*.jsonl")
    journal.rename(journal.with_suffix(".real"))
    journal.symlink_to("/dev/full")
    return store, notes, journal


def test_a_full_disk(full: tuple[FallbackStore, list[str], Path], make_record: Make) -> None:
    store, notes, journal = full
    for number in (1, 2):
        store.append(numbered(make_record, number))
    wanted = "No space left on device; free some space, or set AUTOTILE_HOME to a folder you can write. Until"
    assert len(notes) == 1
    assert f"cannot write {journal}: {wanted}" in notes[0]
    assert store.records() == [numbered(make_record, 1), numbered(make_record, 2)]
    journal.unlink()
    journal.with_suffix(".real").rename(journal)
    assert store.records() == [numbered(make_record, number) for number in range(3)]
    store.append(numbered(make_record, 3))
    assert store.records() == Store(journal.parents[3]).records() == [numbered(make_record, n) for n in range(4)]
    assert len(journal.read_bytes().splitlines()) == 4
    assert len(notes) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process")
def test_a_disk_that_fills_up_half_way_through_a_line_and_is_freed(tmp_path: Path, make_record: Make) -> None:
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        home = Path(sys.argv[1])
        store = FallbackStore(Store(home), lambda note: print("note", note))
        store.append(numbered(0))
        store.save_best(numbered(0, time_ms=9.0))
        (journal,) = home.rglob("*.jsonl")
        size = journal.stat().st_size
        limit(size + 100)
        for number in range(1, 4):
            store.append(numbered(number))
            store.save_best(numbered(number, time_ms=9.0 - number))
        print(journal.stat().st_size == size, store.bests()[0].time_ms, Store(home).bests()[0].time_ms)
        limit(3 * size)  # room for two of the three that wait, and for a best
        store.append(numbered(4))
        print(len(store.records()), len(Store(home).records()))
        limit(resource.RLIM_INFINITY)
        store.append(numbered(5))
    """
    said, _ = python(code, tmp_path).communicate()
    lines = said.splitlines()
    assert lines[0].startswith("note cannot write ")
    assert "File too large" in lines[0]
    # all that waits is one write: what did not fit as a whole was given back as a whole
    assert lines[1:] == ["True 6.0 9.0", "5 1", f"note {tmp_path} {AGAIN}"]
    assert Store(tmp_path).records() == [numbered(make_record, number) for number in range(6)]
    assert Store(tmp_path).bests() == [numbered(make_record, 3, time_ms=6.0)]
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_home_whose_permissions_are_taken_away(tmp_path: Path, make_record: Make) -> None:
    notes: list[str] = []
    store = FallbackStore(Store(tmp_path), notes.append)
    store.append(numbered(make_record, 0))
    (journal,) = tmp_path.rglob("*.jsonl")
    journal.chmod(0o444)
    journal.parent.chmod(0o555)
    try:
        if os.access(journal, os.W_OK):
            pytest.skip("permissions do not bind this user")
        store.append(numbered(make_record, 1))
        assert store.save_best(numbered(make_record, 1))
        assert len(notes) == 1
        assert "Permission denied" in notes[0]
        assert store.records() == [numbered(make_record, 0), numbered(make_record, 1)]
    finally:
        journal.parent.chmod(0o755)
        journal.chmod(0o644)
    store.append(numbered(make_record, 2))
    assert Store(tmp_path).records() == [numbered(make_record, number) for number in range(3)]
    assert Store(tmp_path).bests() == [numbered(make_record, 1)]


# ---- which best stays --------------------------------------------------------------------------------------------


class Refusing(Store):
    """A disk that can be read, and written unless it is `shut`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.shut = threading.Event()
        self.refused = 0

    def extend(self, records: Iterable[Record]) -> None:
        self._refuse()
        super().extend(records)

    def save_best(self, record: Record, *, over: Callable[[Record], bool] | None = None) -> bool:
        self._refuse()
        return super().save_best(record, over=over)

    def _refuse(self) -> None:
        if self.shut.is_set():
            self.refused += 1
            raise StoreError(f"cannot write {self.home}: Read-only file system")


@pytest.fixture
def read_only(tmp_path: Path) -> ReadOnlyDisk:
    """A store on a disk that refuses until the last is called, and another process's store on it, which may write."""
    disk = Refusing(tmp_path / "home")
    disk.shut.set()
    return FallbackStore(disk, lambda _: None), Store(disk.home), disk.shut.clear


def served(store: FallbackStore | Store, like: Record) -> Record | None:
    found = store.best("matmul", like.problem, H200)
    assert store.bests() == ([] if found is None else [found])
    assert store.best("matmul", like.problem, H200, "sm_90") == found
    return found


def test_a_best_in_memory_must_beat_the_one_on_disk(read_only: ReadOnlyDisk, make_record: Make) -> None:
    store, disk, freed = read_only
    saved = make_record(time_ms=2.0)
    disk.save_best(saved)
    assert not store.save_best(make_record(time_ms=3.0))
    assert not store.save_best(make_record(time_ms=1.0, estimated=True), over=lambda _: True)
    assert not store.save_best(make_record(outcome="wrong_result"), over=lambda _: True)
    assert served(store, saved) == saved
    assert store.save_best(make_record(time_ms=1.5))
    assert not store.save_best(make_record(time_ms=1.7))
    assert served(store, saved) == make_record(time_ms=1.5)
    assert served(disk, saved) == saved
    freed()
    assert not store.save_best(make_record(time_ms=1.7))
    assert served(disk, saved) == served(store, saved) == make_record(time_ms=1.5)


def test_a_refused_best_that_is_none_anyway_is_not_worth_a_word(tmp_path: Path, make_record: Make) -> None:
    disk, notes = Refusing(tmp_path), list[str]()
    disk.save_best(make_record(time_ms=1.0))
    disk.shut.set()
    for refused in (False, True):
        store = FallbackStore(disk, notes.append, refused)
        assert not store.save_best(make_record(time_ms=2.0))
        assert notes == []


def test_what_over_decided_in_memory_holds_on_disk(read_only: ReadOnlyDisk, make_record: Make) -> None:
    store, disk, freed = read_only
    fast, slow, slowest = (make_record(time_ms=time_ms) for time_ms in (1.0, 2.0, 3.0))
    disk.save_best(fast)
    assert store.save_best(slow, over=lambda stored: stored == fast)
    assert served(store, fast) == slow
    assert store.save_best(slowest, over=lambda stored: store.bests() == [stored])  # deciding may read
    assert not store.save_best(slowest, over=lambda stored: stored == fast)
    assert served(store, fast) == slowest
    freed()
    store.append(fast)
    assert served(disk, fast) == served(store, fast) == slowest


def test_a_better_best_that_came_to_the_disk_meanwhile_stays(read_only: ReadOnlyDisk, make_record: Make) -> None:
    store, disk, freed = read_only
    mine, theirs = make_record(time_ms=2.0), make_record(time_ms=1.0)
    store.save_best(mine)
    assert served(store, mine) == mine
    disk.save_best(theirs)
    assert served(store, mine) == theirs
    freed()
    store.append(mine)
    assert served(disk, mine) == served(store, mine) == theirs


def test_bests_of_disk_and_memory_come_together(read_only: ReadOnlyDisk, make_record: Make) -> None:
    store, disk, freed = read_only
    old, new = make_record(created="2025-01-01"), make_record(arch="sm_100", created="2025-12-01")
    small, other = make_record(m=64), make_record(device="NVIDIA H100")
    disk.save_best(old)
    disk.save_best(small)
    for record in (other, new):
        assert store.save_best(record)
    assert store.best("matmul", old.problem, H200) == new
    assert store.best("matmul", old.problem, H200, "sm_90") == old
    assert store.best("matmul", old.problem, "NVIDIA H100") == other
    assert store.best("transpose", old.problem, H200) is None
    assert store.bests(device="NVIDIA H100") == [other]
    assert store.bests("transpose") == []
    together = store.bests()
    assert len(together) == 4
    freed()
    store.append(other)
    assert together == disk.bests()  # the same, and in the same order


# ---- the rest ----------------------------------------------------------------------------------------------------


def test_reading_still_raises(tmp_path: Path, make_record: Make) -> None:
    store = FallbackStore(Store(tmp_path), lambda _: None)
    store.append(make_record())
    store.save_best(make_record())
    for path in (*tmp_path.rglob("*.jsonl"), *tmp_path.rglob("*.best.json")):
        path.unlink()
        path.mkdir()
    store.append(make_record())
    for read in (store.records, store.bests, lambda: store.save_best(make_record())):
        with pytest.raises(StoreError, match="cannot read"):
            read()


def test_a_note_that_raises_loses_nothing(disk: Shut, make_record: Make) -> None:
    """Warnings may be errors."""

    def raising(message: str) -> None:
        raise UserWarning(message)

    store = FallbackStore(Store(disk.home), raising)
    disk.shut()
    with pytest.raises(UserWarning, match=KEPT):
        store.append(numbered(make_record, 0))
    store.append(numbered(make_record, 1))
    disk.open()
    with pytest.raises(UserWarning, match=AGAIN):
        store.append(numbered(make_record, 2))
    assert Store(disk.home).records() == [numbered(make_record, number) for number in range(3)]


def test_threads_lose_and_double_nothing_while_the_disk_comes_and_goes(tmp_path: Path, make_record: Make) -> None:
    disk = Refusing(tmp_path)
    store = FallbackStore(disk, lambda _: None)
    seen: list[int] = []

    def write(first: int) -> None:
        for number in range(first, first + 20):
            store.append(numbered(make_record, number))
            store.save_best(numbered(make_record, number, time_ms=1000.0 - number))
            mine = [record for record in store.records() if first <= int(record.configuration["number"]) <= number]
            seen.append(len(mine) - (number - first + 1))

    with ThreadPoolExecutor(6) as pool:
        writing = [pool.submit(write, first) for first in range(0, 120, 20)]
        while not all(writer.done() for writer in writing):
            (disk.shut.clear if disk.shut.is_set() else disk.shut.set)()
            time.sleep(0.01)
    disk.shut.clear()
    store.append(numbered(make_record, 120))
    assert [writer.result() for writer in writing] == [None] * 6
    assert disk.refused
    assert set(seen) == {0}
    numbers = [int(record.configuration["number"]) for record in Store(tmp_path).records()]
    assert sorted(numbers) == list(range(121))
    for first in range(0, 120, 20):
        assert [number for number in numbers if first <= number < first + 20] == list(range(first, first + 20))
    assert Store(tmp_path).bests() == [numbered(make_record, 119, time_ms=881.0)]


def test_opening_says_at_once_what_cannot_be_written_and_writes_it_when_it_can(
    disk: Shut, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTILE_HOME", str(disk.home))
    notes: list[str] = []
    open_store().append(numbered(make_record, 0))
    disk.shut()
    store = open_store(notes.append)
    assert len(notes) == 1
    assert notes[0].startswith("cannot write ")
    assert notes[0].endswith(KEPT)
    store.append(numbered(make_record, 1))
    assert len(notes) == 1
    disk.open()
    assert store.records() == [numbered(make_record, 0), numbered(make_record, 1)]
    store.append(numbered(make_record, 2))
    assert notes[1:] == [f"{disk.home} {AGAIN}"]
    assert Store(disk.home).records() == [numbered(make_record, number) for number in range(3)]


def test_a_home_that_can_be_neither_written_nor_read_is_as_good_as_none(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop of links: the system follows it for nobody."""
    (tmp_path / "home").symlink_to(tmp_path / "home")
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "home"))
    notes: list[str] = []
    store = open_store(notes.append)
    store.append(make_record())
    assert store.records() == [make_record()]
    assert len(notes) == 1


def test_the_device_of_what_waits_is_the_one_on_disk(read_only: ReadOnlyDisk, make_record: Make) -> None:
    store, disk, _ = read_only
    disk.append(make_record())
    store.append(make_record(m=64))
    (entry,) = store.devices()
    assert entry.folder is not None
    assert json.loads((entry.folder / "device.json").read_text())["name"] == H200
