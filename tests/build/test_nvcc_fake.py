"""What nvcc may do to us, with stand-ins for it on a temporary PATH."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.build import nvcc as nvcc_module
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
SOURCE = Source("copy", "copy", 'extern "C" __global__ void copy() {}')
ANSWERS = """
import sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release VERSION, VVERSION.88")
    sys.exit(0)
if "--list-gpu-code" in sys.argv:
    print("sm_80\\nsm_90")
    sys.exit(0)
"""
COMPILES = "open(sys.argv[sys.argv.index('-o') + 1], 'w').write('code')\n"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a fake nvcc whose compile step is the given Python; returns its path."""
    for name in ("AUTOTILE_NVCC", "CUDA_HOME", "CUDA_PATH", *nvcc_module.ENVIRONMENT_FLAGS):
        monkeypatch.delenv(name, raising=False)

    def install(compile_step: str = COMPILES, version: str = "12.2") -> Path:
        folder = tmp_path / "toolkit" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "nvcc"
        path.write_text(f"#!{sys.executable}\n" + ANSWERS.replace("VERSION", version) + compile_step)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        os.utime(path, ns=(time.time_ns(), time.time_ns()))
        monkeypatch.setenv("AUTOTILE_NVCC", str(path))
        return path

    return install


def builder(tmp_path: Path, **options) -> Builder:
    return Builder(SM_90, tmp_path / "home", jobs=2, **options)


def test_missing_says_where_it_looked_and_how_to_set_it(tmp_path, monkeypatch):
    monkeypatch.delenv("AUTOTILE_NVCC", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvcc_module.Path, "is_file", lambda self: False)
    with pytest.raises(ToolchainMissing, match=r"CUDA_HOME .*nothing.*PATH.*AUTOTILE_NVCC"):
        nvcc_module.find_nvcc()


def test_a_named_nvcc_that_is_not_there_is_never_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTILE_NVCC", str(tmp_path / "gone"))
    with pytest.raises(ToolchainMissing, match=r"AUTOTILE_NVCC .*gone"):
        nvcc_module.find_nvcc()


def test_cuda_home_comes_before_path(fake, tmp_path, monkeypatch):
    path = fake()
    monkeypatch.delenv("AUTOTILE_NVCC")
    monkeypatch.setenv("CUDA_HOME", str(path.parent.parent))
    assert nvcc_module.find_nvcc() == path


def test_builds_and_caches(fake, tmp_path):
    fake()
    with builder(tmp_path) as made:
        assert made.compiler == "nvcc 12.2.88"
        assert made.find(SOURCE) is None
        first = made.build(SOURCE)
        assert not first.cached
        again = made.build(SOURCE)
        assert again.cached
        assert again.digest == first.digest
        assert made.submit(SOURCE).result().path == first.path


def test_an_arch_it_does_not_know_names_both(fake, tmp_path):
    fake()
    with pytest.raises(ToolchainMissing, match=r"nvcc 12\.2\.88 .*sm_120.*sm_80, sm_90"):
        Builder(Target("cuda", "sm_120"), tmp_path / "home")


@pytest.mark.parametrize(
    "says",
    [
        "#error -- unsupported GNU version! gcc versions later than 12 are not supported!",
        "nvcc fatal   : Failed to preprocess host compiler properties.",
    ],
)
def test_a_host_compiler_it_cannot_use_is_the_machines_fault(fake, tmp_path, says):
    fake(f"print({says!r}, file=sys.stderr)\nsys.exit(1)\n")
    with builder(tmp_path) as made, pytest.raises(ToolchainMissing, match="-ccbin"):
        made.build(SOURCE)


def test_a_resource_error_of_ptxas_is_the_variants_fault(fake, tmp_path):
    line = "ptxas error   : Entry function 'copy' uses too much shared data (0x20000 bytes, 0xc000 max)"
    fake(f"print('ptxas info    : 0 bytes gmem')\nprint({line!r}, file=sys.stderr)\nsys.exit(255)\n")
    with builder(tmp_path) as made, pytest.raises(CompileError, match=r"copy.*uses too much shared data \(0x20000"):
        made.build(SOURCE)


def test_silence_is_reported_with_status_and_command(fake, tmp_path):
    fake("sys.exit(2)\n")
    with builder(tmp_path) as made, pytest.raises(CompileError, match=r"status 2 .*nvcc -std=c\+\+17 -cubin"):
        made.build(SOURCE)


def test_success_without_a_file_is_a_failure(fake, tmp_path):
    fake("pass\n")
    with builder(tmp_path) as made, pytest.raises(CompileError, match="status 0"):
        made.build(SOURCE)


def test_an_unwritable_tmpdir_does_not_reach_nvcc(fake, tmp_path, monkeypatch):
    fake("import os\nassert os.path.isdir(os.environ['TMPDIR'])\n" + COMPILES)
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    with builder(tmp_path) as made:
        made.build(SOURCE)


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] != "Z"


SLEEPS = """
import subprocess, time
child = subprocess.Popen(["sleep", "3600"])
open(PIDS, "w").write(f"{child.pid}")
time.sleep(3600)
"""


def child_of(pids: Path) -> int:
    deadline = time.monotonic() + 20
    while not (pids.exists() and pids.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(pids.read_text())


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes through /proc")
def test_a_timeout_leaves_no_process(fake, tmp_path):
    pids = tmp_path / "pids"
    fake(SLEEPS.replace("PIDS", repr(str(pids))))
    with builder(tmp_path, timeout_s=2) as made:
        with pytest.raises(CompileError, match="stopped after 2 s"):
            made.build(SOURCE)
        assert gone(child_of(pids))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes through /proc")
def test_closing_kills_what_runs(fake, tmp_path):
    pids = tmp_path / "pids"
    fake(SLEEPS.replace("PIDS", repr(str(pids))))
    made = builder(tmp_path)
    future = made.submit(SOURCE)
    child = child_of(pids)
    made.close()
    assert gone(child)
    with pytest.raises(CompileError, match="closed"):
        future.result(timeout=5)


def test_another_version_builds_again(fake, tmp_path):
    fake(version="12.2")
    with builder(tmp_path) as made:
        made.build(SOURCE)
    fake(version="12.3")
    with builder(tmp_path) as made:
        assert made.compiler == "nvcc 12.3.88"
        assert not made.build(SOURCE).cached


@pytest.mark.parametrize("variable", nvcc_module.ENVIRONMENT_FLAGS)
def test_flags_from_the_environment_are_part_of_the_key(fake, tmp_path, monkeypatch, variable):
    fake()
    with builder(tmp_path) as made:
        made.build(SOURCE)
    monkeypatch.setenv(variable, "-maxrregcount=64")
    with builder(tmp_path) as made:
        assert made.find(SOURCE) is None


def test_one_source_submitted_twice_at_once_compiles_once(fake, tmp_path):
    log = tmp_path / "log"
    fake(f"import time\nopen({str(log)!r}, 'a').write('x')\ntime.sleep(0.5)\n" + COMPILES)
    with builder(tmp_path) as made:
        futures = [made.submit(SOURCE) for _ in range(4)]
        assert len({future.result().path for future in futures}) == 1
    assert log.read_text() == "x"
