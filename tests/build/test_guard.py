"""No compiler outlives the process that started it, however that ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
from processes import alive, gone, needs_proc, pids_in

from autotile.build import guard, nvrtc
from autotile.build.process import ProcessPool

pytestmark = needs_proc

SLEEPS = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "3600"])
open(PIDS, "w").write(f"{child.pid} {os.getpid()}\\n")
time.sleep(3600)
"""
PARENT = """
import os, sys, time
from pathlib import Path
from autotile.build import Builder, nvrtc
from autotile.types import Source, Target

home, pids, nvrtc.WORKER = map(Path, sys.argv[1:4])
with Builder(Target("cuda", "sm_90"), home, jobs=2, compiler=sys.argv[4]) as builder:
    builder.warm_up()
    future = builder.submit(Source("k", "k", "text"))
    while not (pids.exists() and pids.read_text().endswith("\\n")):
        time.sleep(0.02)
    THEN
    print("ready", flush=True)
    future.result()
"""
FORKS = """
    if os.fork() == 0:
        os.close(1)
        time.sleep(3600)
"""


@pytest.fixture(params=["nvcc", "nvrtc"])
def parent(request, fake, fake_nvrtc, tmp_path):
    """Starts a process whose compiler, and a child of that, sleep: the process and their numbers."""
    started = []

    def start(then: str = ""):
        pids = tmp_path / "pids"
        install = fake if request.param == "nvcc" else fake_nvrtc
        install(SLEEPS.replace("PIDS", repr(str(pids))))
        arguments = [str(tmp_path / "home"), str(pids), str(nvrtc.WORKER), request.param]
        command = [sys.executable, "-c", PARENT.replace("THEN", then), *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        started.append(process)
        return process, pids_in(pids)

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a child that it forked, too
        with process:
            pass


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_parent(parent, ending):
    process, pids = parent()
    assert process.stdout.readline() == "ready\n"
    process.send_signal(ending)
    assert gone(pids)
    assert process.wait(timeout=5) != 0


@pytest.mark.parametrize("then", ["raise RuntimeError", "os._exit(3)", "sys.exit(3)"])
def test_the_parent_ends_by_itself(parent, then):
    process, pids = parent(then)
    assert gone(pids)
    assert process.wait(timeout=5) != 0


def test_a_child_that_the_parent_forked_keeps_nothing_alive(parent):
    process, pids = parent(FORKS)
    assert process.stdout.readline() == "ready\n"
    process.kill()
    assert gone(pids)
    os.killpg(process.pid, 0)  # raises if the forked child were not there


def test_idle_workers_go_with_the_parent_too(fake_nvrtc, tmp_path):
    path = tmp_path / "idle"
    fake_nvrtc(hello=f"open({str(path)!r}, 'a').write(f'{{os.getpid()}}\\n')\nanswer({{'version': '1', 'archs': []}})")
    idle = "    time.sleep(3600)\n"
    code = PARENT.partition("    future")[0] + idle
    arguments = [str(tmp_path / "home"), str(path), str(nvrtc.WORKER), "nvrtc"]
    with subprocess.Popen([sys.executable, "-c", code, *arguments]) as process:
        deadline = time.monotonic() + 30
        while len(pids := pids_in(path)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert gone(pids)


def test_killed_before_the_compiler_has_run_a_step(tmp_path):
    """The shell that is to become the compiler may be slow: here it becomes it when nobody is left to wait for it."""
    code = (
        "import sys\n"
        "from autotile.build import guard\n"
        "path = sys.argv[1]\n"
        "enter = f'echo $$ > {path}; until [ -e {path}.go ]; do sleep 0.05; done; exec \"$@\"'\n"
        "guard._ENTER = guard._ENTER.replace('exec \"$@\"', enter)\n"
        "from autotile.build.process import ProcessPool\n"
        "ProcessPool().run(['sleep', '3600'], timeout_s=3600)\n"
    )
    path = tmp_path / "entered"
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as process:
        pids = pids_in(path)
        process.kill()
    time.sleep(0.2)
    assert alive(pids[0])  # it still waits, and is killed as what it becomes
    (tmp_path / "entered.go").touch()
    assert gone(pids)


def test_what_a_compiler_leaves_behind_is_killed_at_its_normal_end(tmp_path):
    path = tmp_path / "pids"
    script = f"sleep 3600 >/dev/null 2>&1 & echo $! > {path}"
    assert ProcessPool().run(["/bin/sh", "-c", script], timeout_s=30).status == 0
    assert gone(pids_in(path))


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("exit 127", 127), ("kill -SEGV $$", -11)])
def test_the_status_is_the_commands_own(script, status):
    done = ProcessPool().run(["/bin/sh", "-c", f"echo out; echo err >&2; {script}"], timeout_s=30)
    assert (done.status, done.text) == (status, "out\nerr\n")


def test_what_cannot_be_started_is_an_error_as_without_the_guard(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for command, kind in ((tmp_path / "gone", FileNotFoundError), (file, PermissionError), (tmp_path, PermissionError)):
        with pytest.raises(kind, match=str(command)):
            ProcessPool().run([str(command)], timeout_s=30)


def test_the_pipe_is_handed_to_nobody():
    """A compiler that held the write end would keep the watcher waiting for as long as it ran."""
    listing = ProcessPool().run(["/bin/sh", "-c", "ls -l /proc/$$/fd"], timeout_s=30).text
    inode = os.fstat(guard.errors_to()).st_ino
    assert "pipe:" in listing  # its own output
    assert f"pipe:[{inode}]" not in listing
    assert not os.get_inheritable(guard.errors_to())


def test_a_watcher_that_was_killed_is_replaced():
    first = guard.errors_to()
    assert guard.errors_to() == first
    watcher = guard._watcher
    watcher._process.kill()
    watcher._process.wait()
    guard.release(1)  # nobody reads it: not an error
    assert ProcessPool().run(["true"], timeout_s=30).status == 0
    assert guard._watcher is not watcher


def test_a_forked_child_has_a_watcher_of_its_own():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking while threads run
        guard.errors_to()
        with guard._lock:  # as if another thread were starting a compiler
            child = os.fork()
    if child == 0:
        status = 4
        try:
            signal.alarm(20)
            status = ProcessPool().run(["/bin/sh", "-c", "exit 5"], timeout_s=10).status
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert guard._watcher.alive


def test_many_threads_at_once():
    pool, statuses = ProcessPool(), []

    def work(number: int) -> None:
        statuses.append(pool.run(["/bin/sh", "-c", f"exit {number}"], timeout_s=30).status == number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [True] * 8
