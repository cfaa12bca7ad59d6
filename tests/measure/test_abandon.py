"""Two threads and a measuring process: one waits for a trial, the other breaks it off, or closes the bench."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import SIZE, FakeBuilder, FakeDevice, write_kernel
from faulty import FaultyGpu, children, contexts, kill, no_orphans

from autotile.errors import AutotileError, Crashed
from autotile.kernels import Kernel
from autotile.kernels.loader import read_folder
from autotile.measure import LocalBench, Trial, make_variant, process
from autotile.measure.limits import Limits
from autotile.measure.remote import RemoteBench

SOON_S = 15.0
LIMITS = Limits(30.0, 30.0)


BEFORE: set[int] = set()


@pytest.fixture(autouse=True)
def remember_children() -> None:
    """What other tests of this process have left running (a compilers' watcher, say) is none of a bench's."""
    BEFORE.clear()
    BEFORE.update(children())


def fresh() -> list[int]:
    return [pid for pid in children() if pid not in BEFORE]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    return read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")


class Asking:
    """A trial of a width in a thread, as a pipeline has it."""

    def __init__(self, bench: RemoteBench, kernel: Kernel, width: int) -> None:
        variant = make_variant(kernel, kernel.problem({"n": SIZE}), kernel.configuration({"width": width}))
        binary = FakeBuilder().build(variant.source)
        self.end: Trial | BaseException | None = None

        def run() -> None:
            try:
                self.end = bench.trial(variant, binary)
            except BaseException as error:  # whatever it is: the test looks at it
                self.end = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def ended(self) -> Trial | BaseException | None:
        self.thread.join(SOON_S)
        assert not self.thread.is_alive(), "it still waits"
        return self.end


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def checking(bench: RemoteBench) -> bool:
    """Whether a trial is being waited for."""
    process = bench._process
    return process is not None and process.busy and bench._ready


@contextlib.contextmanager
def begun(walk: Kernel, log: Path, **widths: str) -> Iterator[RemoteBench]:
    """A bench with the data of `walk` on a device whose widths fail as they are told (`w32="hang"`)."""
    gpu = FaultyGpu(tuple((int(name[1:]), fault) for name, fault in widths.items()), log)
    with no_orphans(SOON_S), RemoteBench(gpu, LIMITS) as bench:
        bench.begin(walk, walk.problem({"n": SIZE}), None)
        yield bench


# ---- abandoning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["hang", "stuck"])
def test_a_trial_without_end_is_broken_off(walk: Kernel, tmp_path: Path, fault: str) -> None:
    with begun(walk, tmp_path / "log", w32=fault) as bench:
        asking = Asking(bench, walk, 32)
        until(lambda: checking(bench))
        time.sleep(0.05)
        at = time.monotonic()
        bench.abandon()
        end = asking.ended()
        assert time.monotonic() - at < SOON_S
        assert isinstance(end, Crashed)
        assert "was killed by SIGKILL" in str(end)
        assert fresh() == []  # who abandons wants no other process
        assert bench.lost is None


def test_a_bench_goes_on_after_it_was_abandoned(walk: Kernel, tmp_path: Path) -> None:
    """As the proof of the best does, after an interrupt."""
    with begun(walk, tmp_path / "log", w32="hang") as bench:
        asking = Asking(bench, walk, 32)
        until(lambda: checking(bench))
        bench.abandon()
        asking.ended()
        assert isinstance(Asking(bench, walk, 64).ended(), Trial)
        assert contexts(tmp_path / "log") == 2


@contextlib.contextmanager
def unheard(bench: RemoteBench, kernel: Kernel, width: int) -> Iterator[Asking]:
    """A trial of which the measuring process has heard nothing yet: it was stopped before it was asked."""
    assert bench._process is not None
    os.kill(bench._process._process.pid, signal.SIGSTOP)
    asking = Asking(bench, kernel, width)
    until(lambda: checking(bench))
    yield asking


def test_one_that_dies_before_it_takes_a_trial_up_is_no_fault_of_the_variant(walk: Kernel, tmp_path: Path) -> None:
    """The request could still be sent to it: a process that is ending keeps its connection for a while."""
    with begun(walk, tmp_path / "log") as bench:
        with unheard(bench, walk, 64) as asking:
            time.sleep(0.05)  # it is sent
            kill(fresh())
        assert isinstance(asking.ended(), Trial)
        assert contexts(tmp_path / "log") == 2


def test_a_trial_that_was_never_taken_up_is_not_tried_again_once_abandoned(walk: Kernel, tmp_path: Path) -> None:
    with begun(walk, tmp_path / "log") as bench:
        with unheard(bench, walk, 64) as asking:
            bench.abandon()
        assert isinstance(asking.ended(), Crashed)
        assert fresh() == []
        assert contexts(tmp_path / "log") == 1


def test_abandoning_a_bench_at_rest_costs_nothing(walk: Kernel, tmp_path: Path) -> None:
    with begun(walk, tmp_path / "log") as bench:
        bench.abandon()
        assert isinstance(Asking(bench, walk, 64).ended(), Trial)
        assert contexts(tmp_path / "log") == 1


class SlowToOpen(FaultyGpu):
    """Takes its time to make a context."""

    def __call__(self) -> FakeDevice:
        device = super().__call__()
        time.sleep(30)
        return device


@pytest.mark.parametrize("step", ["make", "begin"])
def test_preparing_can_be_abandoned(walk: Kernel, tmp_path: Path, step: str) -> None:
    """And is not tried three times over, as it is when a process is lost."""
    problem = walk.problem({"n": SIZE})
    ends: list[BaseException] = []
    with no_orphans(SOON_S), RemoteBench(SlowToOpen((), tmp_path / "log"), LIMITS) as bench:

        def prepare() -> None:
            try:
                bench.make(walk, problem) if step == "make" else bench.begin(walk, problem, None)
            except AutotileError as error:
                ends.append(error)

        thread = threading.Thread(target=prepare)
        thread.start()
        until(lambda: contexts(tmp_path / "log"))
        bench.abandon()
        thread.join(SOON_S)
        assert not thread.is_alive()
        assert [type(end) for end in ends] == [Crashed]
        assert contexts(tmp_path / "log") == 1
        assert bench.lost is None


def test_a_bench_in_this_process_has_nothing_to_abandon(walk: Kernel) -> None:
    with LocalBench(FakeDevice()) as bench:
        bench.abandon()
        bench.begin(walk, walk.problem({"n": SIZE}), None)
        variant = make_variant(walk, walk.problem({"n": SIZE}), walk.configuration())
        assert bench.trial(variant, FakeBuilder().build(variant.source)).max_error == 0.0
    assert not bench.overlaps


# ---- closing ---------------------------------------------------------------------------------------------------------


def test_closing_ends_a_trial_without_end(walk: Kernel, tmp_path: Path) -> None:
    with begun(walk, tmp_path / "log", w32="hang") as bench:
        asking = Asking(bench, walk, 32)
        until(lambda: checking(bench))
        bench.close()
        assert isinstance(asking.ended(), Exception)
        assert fresh() == []


def test_a_trial_that_ends_in_a_closed_bench_starts_no_successor(
    walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has let go of the process that died, and is about to start the next when the bench is closed."""
    dropping, closed = threading.Event(), threading.Event()
    given = process.MeasuringProcess.kill

    def kill(self: Any) -> None:
        given(self)
        if threading.current_thread() is not threading.main_thread():
            dropping.set()
            assert closed.wait(SOON_S)

    monkeypatch.setattr(process.MeasuringProcess, "kill", kill)
    with begun(walk, tmp_path / "log", w32="exit") as bench:
        asking = Asking(bench, walk, 32)
        assert dropping.wait(SOON_S)
        bench.close()
        closed.set()
        assert isinstance(asking.ended(), Crashed)
        assert fresh() == []
        assert not bench._scratch.exists()
        with pytest.raises(Crashed, match="the bench was closed meanwhile"):
            bench.begin(walk, walk.problem({"n": SIZE}), None)


def test_a_successor_that_is_just_being_started_ends_with_the_bench(
    walk: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = threading.Event()
    given = process.MeasuringProcess.__init__

    def init(self: Any, *arguments: Any) -> None:
        given(self, *arguments)
        if threading.current_thread() is not threading.main_thread():
            starting.set()
            time.sleep(0.2)  # it runs, and the bench does not know it yet

    monkeypatch.setattr(process.MeasuringProcess, "__init__", init)
    with begun(walk, tmp_path / "log", w32="exit") as bench:
        asking = Asking(bench, walk, 32)
        assert starting.wait(SOON_S)
        bench.close()
        asking.ended()
        until(lambda: not fresh())
        assert not bench._scratch.exists()


class ClosedMeanwhile:
    """A connection that another thread lets go of while this one waits at it."""

    def __init__(self, process: Any, at: str, error: Exception) -> None:
        self._process, self._given, self._at, self._error = process, process._connection, at, error
        self.send, self.close = self._given.send, self._given.close

    def poll(self, limit_s: float) -> bool:
        return self._fails("poll")

    def recv(self) -> bool:
        return self._fails("recv")

    def _fails(self, at: str) -> bool:
        if at == self._at:
            self._process.interrupt()
            raise self._error
        return True


@pytest.mark.parametrize("at", ["poll", "recv"])
@pytest.mark.parametrize("error", [OSError("handle is closed"), TypeError("'NoneType' is no integer")])
def test_a_connection_that_is_closed_meanwhile_is_a_crash(
    walk: Kernel, tmp_path: Path, at: str, error: Exception
) -> None:
    with begun(walk, tmp_path / "log") as bench:
        process: Any = bench._process
        process._connection = ClosedMeanwhile(process, at, error)
        end = Asking(bench, walk, 32).ended()
        assert isinstance(end, Crashed)
        assert "was killed by SIGKILL" in str(end)


def test_closing_twice_is_closing_once(walk: Kernel, tmp_path: Path) -> None:
    with begun(walk, tmp_path / "log") as bench:
        bench.close()
        bench.close()


def test_two_threads_close_one_connection_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Closed twice at once, its number would be closed twice, and be another file's by then."""
    made = process.MeasuringProcess([], tmp_path)
    close, inside, most = made._connection.close, [], []

    def slow_close() -> None:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.2)
        inside.pop()
        close()

    monkeypatch.setattr(made._connection, "close", slow_close)
    threads = [threading.Thread(target=made.kill) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1]
