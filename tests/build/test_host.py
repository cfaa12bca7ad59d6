"""The host's C++ compiler behind the same builder."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import gone, needs_proc, pids_in

from autotile.build import Builder, process
from autotile.build.host import ENVIRONMENT_FLAGS, short_version
from autotile.build.process import CompileTimeout, ProcessPool, kill_group
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import CompileError, ToolchainMissing
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
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


needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")


@pytest.fixture
def cxx(tmp_path, monkeypatch):
    """Installs a shell script as the C++ compiler."""

    def install(script: str) -> Path:
        path = tmp_path / "cxx"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("AUTOTILE_CXX", str(path))
        return path

    return install


@needs_proc
def test_a_compiler_that_does_not_tell_its_version_is_given_up(cxx, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    path = cxx(f"sleep 3600 &\necho $! $$ > {pids}\nwait")
    monkeypatch.setattr(process, "ASK_LIMIT_S", 1.0)
    begun = time.monotonic()
    with pytest.raises(ToolchainMissing, match=rf"AUTOTILE_CXX names '{path}'.*--version` within 1 s"):
        Builder(HOST, tmp_path / "home")
    assert time.monotonic() - begun < 10
    assert gone(pids_in(pids))


@pytest.mark.parametrize(
    ("script", "says"),
    [("exit 2", "status 2 and 'no message'"), ("", "status 0"), ("echo 'error: no libc'; exit 1", "no libc")],
)
def test_a_compiler_without_a_version_is_none(cxx, tmp_path, script, says):
    cxx(script)
    with pytest.raises(ToolchainMissing, match=f"AUTOTILE_CXX .*{says}"):
        Builder(HOST, tmp_path / "home")


def test_a_named_compiler_that_is_no_program_says_so(cxx, tmp_path, monkeypatch):
    path = cxx("")
    path.chmod(0o644)
    with pytest.raises(ToolchainMissing, match=f"AUTOTILE_CXX names '{path}', which cannot be run as a program"):
        Builder(HOST, tmp_path / "home")
    monkeypatch.setenv("AUTOTILE_CXX", str(tmp_path))
    with pytest.raises(ToolchainMissing, match="cannot be run as a program"):
        Builder(HOST, tmp_path / "home")


# Compiles the runtime; what a kernel meets is what stands for THEN.
ON_A_KERNEL = f'case "$*" in --version|*" -c "*|*-fsyntax-only*) exec {shutil.which("g++")} "$@";; esac\n'


@needs_gcc
def test_a_crash_a_timeout_and_a_full_disk_on_a_kernel(cxx, tmp_path, monkeypatch):
    source, home = Source("copy", "copy", COPY), tmp_path / "home"
    path = cxx(ON_A_KERNEL + "kill -SEGV $$")
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    with Builder(HOST, home, jobs=1, timeout_s=1) as builder:
        with pytest.raises(CompileError, match=rf"{path} crashed .*SIGSEGV"):
            builder.build(source)
        cxx(ON_A_KERNEL + "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1")
        with pytest.raises(CompileError, match=r"SIGKILL .*--jobs"):
            builder.build(source)
        cxx(ON_A_KERNEL + "sleep 3600")
        with pytest.raises(CompileTimeout, match=r"stopped after 1 s.*search\.compile_limit") as raised:
            builder.build(source)
        assert raised.value.outcome == "compile_timeout"
        cxx(ON_A_KERNEL + "echo 'kernel.cu:1:1: fatal error: x.s: No space left on device'; exit 1")
        with pytest.raises(ToolchainMissing, match="No space left"):
            builder.build(source)
    cxx(f'exec {shutil.which("g++")} "$@"')
    with Builder(HOST, home, jobs=1) as builder:
        builder.build(source)


def test_version_and_flags_from_the_environment_are_part_of_the_key(cxx, tmp_path, monkeypatch):
    for name in ENVIRONMENT_FLAGS:
        monkeypatch.delenv(name, raising=False)
    source, keys = Source("copy", "copy", COPY), []

    def look() -> str:
        with Builder(HOST, tmp_path / "home", jobs=1) as builder:
            keys.append(builder._key(source))
            return builder.flags

    cxx("echo warning: no such locale >&2; echo g++ 12.2.0")
    assert look() == ""
    cxx("echo g++ 12.2.1")
    assert look() == ""
    for name in ENVIRONMENT_FLAGS:
        monkeypatch.setenv(name, "/opt/x")
        assert f"{name}=/opt/x" in look()
    assert len(set(keys)) == 2 + len(ENVIRONMENT_FLAGS)


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
    assert gone(pids_in(pids))
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
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as process:
        process.wait()
        kill_group(process.pid)


def test_a_compiler_that_hardens_by_default_builds_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Ubuntu and Fedora do: libc's own memcpy must not come into the emulator's runtime."""
    cxx = tmp_path / "hardened-g++"
    hardened = "-D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection -fcf-protection"
    cxx.write_text(f'#!/bin/sh\nexec g++ {hardened} "$@"\n', encoding="utf-8")
    cxx.chmod(0o755)
    monkeypatch.setenv("AUTOTILE_CXX", str(cxx))
    device, kernel = EmulatorDevice(), load_kernel("transpose")
    problem = kernel.problem({"rows": 33, "cols": 65})
    variant = make_variant(kernel, problem, kernel.configuration())
    with Builder(device.target, tmp_path / "home", jobs=1) as builder:
        binary = builder.build(variant.source)
    with device.stage(make_workload(kernel, problem)) as stage:
        assert stage.check(device.load(binary), variant.launch).ok
