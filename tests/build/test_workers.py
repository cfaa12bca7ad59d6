"""Warm workers: one answer a request, whatever the workers do. (Builders with workers: test_nvrtc_fake.py.)"""

import os
import signal
import sys
import threading

import pytest
from processes import alive, gone, needs_proc, pids_in

from autotile.build import workers
from autotile.build.process import CompileTimeout, Finished
from autotile.build.workers import WorkerPool
from autotile.errors import CompileError, ToolchainMissing

pytestmark = needs_proc

ECHO = """
import json, os, signal, sys, time
def answer(fields, *parts):
    head = json.dumps({**fields, "lengths": [len(part) for part in parts]}).encode()
    sys.stdout.buffer.write(b"\\0autotile " + head + b"\\n" + b"".join(parts))
    sys.stdout.buffer.flush()
answer({"pid": os.getpid()})
while header := sys.stdin.buffer.readline():
    fields = json.loads(header)
    payload = sys.stdin.buffer.read(fields["lengths"][0])
    exec(fields.get("do", ""))
    answer({"pid": os.getpid()}, payload, b"", payload)
"""


@pytest.fixture
def pool():
    made = WorkerPool([sys.executable, "-I", "-S", "-c", ECHO], "echo")
    yield made
    made.close()


def pid_of(pool, do="", payload=b"", limit_s=30.0) -> int:
    return pool.ask({"do": do}, payload, limit_s).fields["pid"]


def test_answers_come_whole_and_from_the_same_process(pool):
    payload = os.urandom(3_000_000)  # more than pipes hold, and with every byte that could pass for a mark
    reply = pool.ask({}, payload, 30)
    assert list(reply.parts) == [payload, b"", payload]
    assert {pid_of(pool) for _ in range(3)} == {reply.fields["pid"]} == {pool.hello()["pid"]}


def test_what_a_library_prints_is_no_answer(pool):
    prints = "os.write(1, b'warning: \\n\\n{}'); os.write(2, b'more')"
    assert pid_of(pool, prints) == pid_of(pool)


def test_as_many_workers_as_ask_at_once(pool):
    pool.start(2)
    pool.start(2)
    barrier, pids = threading.Barrier(3), []

    def work() -> None:
        barrier.wait()
        pids.append(pid_of(pool, "time.sleep(1)"))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 3
    assert pid_of(pool) in pids


def test_one_that_takes_too_long_is_killed_and_replaced_at_once(pool):
    slow = pid_of(pool)
    with pytest.raises(CompileTimeout, match=r"echo was stopped after 0\.5 s.*search\.compile_limit"):
        pid_of(pool, "time.sleep(3600)", limit_s=0.5)
    assert gone([slow])
    assert len(pool._all) == 1  # the replacement gets ready before it is asked
    assert pid_of(pool) != slow


def test_one_that_does_not_even_read_is_killed_too(pool):
    stopped = pid_of(pool)
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(CompileTimeout):
        pid_of(pool, payload=bytes(1 << 20), limit_s=0.5)
    assert gone([stopped])


@pytest.mark.parametrize(
    ("do", "crash", "text"),
    [
        ("os.write(2, b'last words'); os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV", "last words"),
        ("os._exit(3)", None, ""),
    ],
)
def test_a_crash_is_told_and_costs_one_answer(pool, do, crash, text):
    done = pool.ask({"do": do}, b"", 30)
    assert isinstance(done, Finished)
    assert (done.crash, done.text) == (crash, text)
    assert pid_of(pool)


def test_an_idle_one_that_somebody_kills_is_replaced_unseen(pool):
    first = pid_of(pool)
    os.kill(first, signal.SIGKILL)
    assert gone([first])
    assert pid_of(pool) != first


def test_one_that_is_killed_over_a_request_is_replaced_once(pool, tmp_path):
    """It may have been on its way out when it was asked; a request that kills whoever takes it is given up."""
    kill, seen = "os.kill(os.getpid(), signal.SIGKILL)", str(tmp_path / "seen")
    assert pid_of(pool, f"if not os.path.exists({seen!r}):\n    open({seen!r}, 'w').close()\n    {kill}")
    done = pool.ask({"do": f"open({seen!r}, 'a').write('x'); {kill}"}, b"", 30)
    assert isinstance(done, Finished)
    assert done.status == -signal.SIGKILL
    assert (tmp_path / "seen").read_text() == "xx"


def test_one_that_is_killed_while_it_starts_is_replaced_unseen(pool):
    pool.start(1)
    pool._idle[0].kill()
    assert pid_of(pool)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("import os; os.abort()", "did not get ready: it was ended by SIGABRT"),
        ("import sys; sys.exit('no library')", "did not get ready: it ended with status 1, saying: no library"),
        ("import time; time.sleep(3600)", r"was not ready after 0\.5 s"),
    ],
)
def test_one_that_never_gets_ready_is_the_machines_fault(monkeypatch, start, says):
    monkeypatch.setattr(workers, "START_LIMIT_S", 0.5 if "sleep" in start else 30.0)
    pool = WorkerPool([sys.executable, "-I", "-S", "-c", start], "echo")
    with pytest.raises(ToolchainMissing, match=f"echo's worker {says}"):
        pool.ask({}, b"", 30)
    assert not pool._all
    pool.close()


def test_what_cannot_be_started_says_so(tmp_path):
    pool = WorkerPool([str(tmp_path / "nothing")], "echo")
    with pytest.raises(ToolchainMissing, match=r"status 127, saying: .*nothing: not found"):
        pool.hello()
    pool.close()


def test_closing_kills_what_runs_and_what_waits(pool, tmp_path):
    pool.start(2)
    path, errors = tmp_path / "pid", []

    def work() -> None:
        do = f"open({str(path)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(3600)"
        try:
            pool.ask({"do": do}, b"", 3600)
        except CompileError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    pids = [*pids_in(path), *(worker._process.pid for worker in pool._all)]
    pool.close()
    thread.join(5)
    assert not any(map(alive, pids))
    assert "closed while" in str(errors[0])
    with pytest.raises(CompileError, match="the builder was closed"):
        pool.ask({}, b"", 30)
    pool.start(1)
    assert not pool._all
