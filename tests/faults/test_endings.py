"""However a search ends, nothing is left running, and what it measured is on disk; the next goes on from there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import psutil
import pytest
from fakes import SIZE, TWELVE, FakeBuilder, write_kernel
from faulty import faulty_device
from faulty_kernel import write_faulty

from autotile.kernels.loader import read_folder
from autotile.spec.model import SearchOptions, Spec
from autotile.store import Store, open_store
from autotile.store.journal import StoreWarning
from autotile.tuner import SearchResult, search

TESTS = Path(__file__).resolve().parents[1]

SEARCH = """
import sys, time
from pathlib import Path
from fakes import SIZE, TWELVE, FakeBuilder, write_kernel
from faulty import faulty_device
from autotile.kernels.loader import read_folder
from autotile.spec.model import SearchOptions, Spec
from autotile.store import Store
from autotile.tuner import Silent, search

folder, seed, pause_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

class Telling(Silent):
    def tried(self, record, best, count):
        print(count, flush=True)
        time.sleep(pause_s)

walk = read_folder(folder / "walk")
spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(seed=seed, sampler="random"))
device = faulty_device(folder / "log", w256="wrong")
(result,) = search(spec, device, FakeBuilder(), Store(folder / "home"), listener=Telling())
print("best", dict(result.best.configuration), result.best.time_ms, result.new_trials)
"""


def start(folder: Path, seed: int = 0, pause_s: float = 0.0) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "AUTOTILE_CXX": "/nowhere/g++"}
    command = [sys.executable, "-c", SEARCH, str(folder), str(seed), str(pause_s)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, store: Store | None = None) -> SearchResult:
    """The same search, in this process, to its end."""
    walk = read_folder(folder / "walk")
    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(sampler="random"))
    device = faulty_device(folder / "log", w256="wrong")
    (result,) = search(spec, device, FakeBuilder(), store or Store(folder / "home"))
    return result


def measuring(folder: Path) -> set[int]:
    """The measuring processes that are there, of all that were ever started on this folder's device."""
    log = folder / "log"
    started = log.read_text(encoding="utf-8").split() if log.exists() else []
    return {int(pid) for pid in started if alive(int(pid))}


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(pids: set[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTILE_CXX", "/nowhere/g++")
    return write_kernel(tmp_path)


def test_kill_9_costs_the_trial_in_flight(folder: Path) -> None:
    chance = random.Random(5)
    for _ in range(3):
        before = len(Store(folder / "home").records())
        process = start(folder, pause_s=0.02)
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(chance.randint(1, 3))]
        time.sleep(chance.random() * 0.03)
        process.kill()
        rest, _ = process.communicate()
        count = len(told) + len(rest.split())
        kept = Store(folder / "home").records()
        assert before + count <= len(kept) <= before + count + 1
        assert len({record.configuration for record in kept}) == len(kept)
        assert gone(measuring(folder))
    result = finish(folder)
    assert len(Store(folder / "home").records()) == len(result.records) == 12
    assert result.outcomes == {"ok": 9, "wrong_result": 3}
    assert Store(folder / "home").bests() == [result.best]


HANGING = ["-m", "autotile", "search", "--device", "emulator", "--templates"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_of_a_search_that_ends_while_a_kernel_hangs(tmp_path: Path, how: signal.Signals) -> None:
    file = write_faulty(tmp_path, "hang", n=4096, limit="600s")
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen([sys.executable, *HANGING, str(tmp_path), str(file)], env=environment)
    seen: set[int] = set()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        below = psutil.Process(process.pid).children(recursive=True)
        seen |= {child.pid for child in below}
        if any(map(hangs, below)):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the kernel never ran")
    process.send_signal(how)
    assert process.wait(20) == (-how if how == signal.SIGKILL else 130)
    assert gone(seen), [pid for pid in seen if alive(pid)]
    assert [path.name for path in scratch.iterdir() if path.name.startswith("autotiledata-")] == []


def hangs(process: psutil.Process) -> bool:
    """Whether it is a measuring process that has done more than start: what it runs is a kernel without end."""
    try:
        measures = "autotile.measure.worker" in " ".join(process.cmdline())
        return measures and float(process.cpu_times().user) > 2.0
    except psutil.NoSuchProcess:  # a compiler that has ended meanwhile
        return False


def test_eight_searches_on_a_fresh_store_lose_nothing_and_agree(folder: Path) -> None:
    processes = [start(folder, seed) for seed in range(8)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, outputs[0][1]
    ends = [output.splitlines()[-1].split("best ")[1] for output, _ in outputs]
    assert len({end.rsplit(" ", 1)[0] for end in ends}) == 1
    store = Store(folder / "home")
    assert len(store.records()) == sum(int(end.rsplit(" ", 1)[1]) for end in ends)
    assert len({record.configuration for record in store.records()}) == 12
    (best,) = store.bests()
    assert (best.configuration["width"], best.configuration["steps"], best.proven) == (64, 2, True)
    assert gone(measuring(folder))


def test_a_torn_store_costs_its_tail(folder: Path) -> None:
    first = finish(folder)
    (journal,) = (folder / "home").rglob("*.records.jsonl")
    (best,) = (folder / "home").rglob("*.best.json")
    whole, kept = journal.read_bytes(), best.read_bytes()
    chance = random.Random(3)
    for _ in range(3):
        journal.write_bytes(whole[: chance.randrange(len(whole))])
        best.write_bytes(kept[: chance.randrange(len(kept))])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("default", StoreWarning)  # as the command line has it
            result = finish(folder)
        files = [str(warning.message).split(": ")[0] for warning in said]
        assert len(files) == len(set(files)), [str(w.message)[-250:] for w in said]
        assert result.new_trials + len(whole[: journal.stat().st_size].splitlines()) >= 12
        assert len(result.records) == 12
        assert result.best is not None
        assert first.best is not None
        assert result.best.configuration == first.best.configuration
        assert Store(folder / "home").bests() == [result.best]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_fills_up_is_said_once_and_the_search_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTILE_HOME", str(folder / "home"))
    notes: list[str] = []
    store = open_store(notes.append)
    place = finish(folder, store).records[0]  # type: ignore[arg-type]
    (journal,) = (folder / "home").rglob("*.records.jsonl")
    journal.unlink()
    journal.symlink_to("/dev/full")
    for best in (folder / "home").rglob("*.best.json"):
        best.unlink()
    result = finish(folder, store)  # type: ignore[arg-type]
    assert (len(result.records), result.outcomes["ok"]) == (12, 9)
    assert result.best is not None
    assert result.best.configuration["width"] == 64
    assert len(notes) == 1, notes
    assert "No space left on device" in notes[0]
    assert store.best("walk", place.problem, place.identity.device) == result.best
