"""The host's C++ compiler behind the same builder."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.build.host import short_version
from autotile.build.process import ProcessPool, kill_group
from autotile.errors import CompileError
from autotile.types import Source, Target

HOST = Target("host", "host")
COPY = """
extern "C" __global__ void copy(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}
"""


@pytest.mark.parametrize(
    ("path", "line", "short"),
    [
        ("/usr/bin/g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "g++ 12.2.0"),
        ("/usr/bin/g++-13", "g++-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", "g++-13 13.3.0"),
        ("/usr/bin/clang++", "Debian clang version 16.0.6 (27+b1)", "clang++ 16.0.6"),
        ("/usr/bin/c++", "something else", "c++ something else"),
    ],
)
def test_short_version(path, line, short):
    assert short_version(path, line) == short


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="needs a C++ compiler")
def test_builds_caches_and_refuses(tmp_path):
    with Builder(HOST, tmp_path, jobs=1) as builder:
        first = builder.build(Source("copy", "copy", COPY))
        assert first.path.suffix == ".so"
        assert first.target == HOST
        assert builder.build(Source("copy", "copy", COPY)).cached
        with pytest.raises(CompileError):
            builder.build(Source("copy", "copy", COPY.replace("a[i]", "c[i]")))


def alive(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] != "Z"


HANGS = """#!/bin/sh
[ "$1" = --version ] && { echo stand-in 1.0; exit; }
case "$*" in AT_ONCE) exec REAL "$@";; esac
sleep 3600 &
CHILD
echo $! $$ > PIDS.new; mv PIDS.new PIDS
wait
"""


@pytest.mark.skipif(not Path("/proc/self").exists() or not shutil.which("g++"), reason="needs /proc and g++")
@pytest.mark.parametrize("part", ["runtime", "kernel"])
def test_closing_kills_a_compiler_that_hangs(tmp_path, monkeypatch, part):
    pids, cxx = tmp_path / "pids", tmp_path / "cxx"
    text = HANGS.replace("PIDS", str(pids)).replace("REAL", shutil.which("g++")).replace("CHILD", "")
    cxx.write_text(text.replace("AT_ONCE", '*" -c "*' if part == "kernel" else "nothing"))
    cxx.chmod(0o755)
    monkeypatch.setenv("AUTOTILE_CXX", str(cxx))
    builder = Builder(HOST, tmp_path / "home", jobs=2)
    futures = [builder.submit(Source("copy", "copy", COPY + "//" * number)) for number in range(3)]
    deadline = time.monotonic() + 30
    while not pids.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    begun = time.monotonic()
    builder.close()
    assert time.monotonic() - begun < 2
    assert not any(map(alive, map(int, pids.read_text().split())))
    assert all(future.done() for future in futures)
    with pytest.raises(CompileError, match="closed"):
        futures[0].result()


@pytest.mark.skipif(not shutil.which("setsid"), reason="needs setsid")
def test_closing_does_not_wait_for_a_daemon_that_holds_the_pipe(tmp_path, monkeypatch):
    pids, cxx = tmp_path / "pids", tmp_path / "cxx"
    text = HANGS.replace("PIDS", str(pids)).replace("AT_ONCE", "nothing")
    cxx.write_text(text.replace("CHILD", "setsid sleep 3600 &\n"))
    cxx.chmod(0o755)
    monkeypatch.setenv("AUTOTILE_CXX", str(cxx))
    builder = Builder(HOST, tmp_path / "home", jobs=1)
    future = builder.submit(Source("copy", "copy", COPY))
    while not pids.exists():
        time.sleep(0.02)
    begun = time.monotonic()
    builder.close()
    assert time.monotonic() - begun < 2
    with pytest.raises(CompileError, match="closed"):
        future.result(timeout=5)
    os.kill(int(pids.read_text().split()[0]), 9)  # the daemon itself is not ours to kill


def test_input_larger_than_a_pipe_arrives_and_what_is_not_utf8_is_read():
    code = "import sys, time; n = len(sys.stdin.read(1)); time.sleep(0.3); n += len(sys.stdin.read()); print(n)"
    code += "; sys.stdout.flush(); sys.stdout.buffer.write(bytes([255]))"
    done = ProcessPool().run([sys.executable, "-c", code], text="x" * 1_000_000, timeout_s=30)
    assert (done.status, done.text) == (0, "1000000\n\ufffd")


def test_a_group_that_is_gone_is_killed_without_a_word():
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True, encoding="utf-8")
    os.waitpid(process.pid, 0)  # behind its back: returncode stays None
    kill_group(process)
    process.wait()
