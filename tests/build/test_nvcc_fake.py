"""What nvcc may do to us, with stand-ins for it on a temporary PATH."""

import signal
import time
from pathlib import Path

import pytest
from processes import gone, needs_proc, pids_in

from autotile.build import Builder, find_built, process
from autotile.build import nvcc as nvcc_module
from autotile.build.process import CompileTimeout, Finished
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
SOURCE = Source("copy", "copy", 'extern "C" __global__ void copy() {}')


def builder(tmp_path: Path, **options) -> Builder:
    return Builder(SM_90, tmp_path / "home", jobs=2, **options)


def test_missing_says_where_it_looked_and_how_to_set_it(tmp_path, monkeypatch):
    monkeypatch.delenv("AUTOTILE_NVCC", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvcc_module, "USUAL_PLACE", tmp_path / "usual")
    with pytest.raises(ToolchainMissing, match=r"CUDA_HOME .*nothing.*PATH.*usual.*AUTOTILE_NVCC"):
        nvcc_module.find_nvcc()


def test_a_named_nvcc_that_is_not_there_is_never_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTILE_NVCC", str(tmp_path / "gone"))
    with pytest.raises(ToolchainMissing, match=r"AUTOTILE_NVCC .*gone: not there"):
        nvcc_module.find_nvcc()


@pytest.mark.parametrize("fault", ["a folder", "not executable"])
@pytest.mark.parametrize("variable", ["AUTOTILE_NVCC", "CUDA_HOME"])
def test_what_is_no_program_says_why(tmp_path, monkeypatch, variable, fault):
    """Where CUDA_HOME is of no use, the PATH may help: here it does not."""
    path = tmp_path / "bin" / "nvcc"
    path.parent.mkdir()
    path.mkdir() if fault == "a folder" else path.write_text("#!/bin/sh\n")
    for name in ("AUTOTILE_NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(path if variable == "AUTOTILE_NVCC" else tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvcc_module, "USUAL_PLACE", tmp_path / "nothing")
    with pytest.raises(ToolchainMissing, match=rf"{variable} \({path}: {fault}\).*set AUTOTILE_NVCC"):
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


FIXES = {
    "#error -- unsupported GNU version! gcc versions later than 12 are not supported!": "-ccbin",
    "nvcc fatal   : Failed to preprocess host compiler properties.": "-ccbin",
    "sh: 1: g++: not found": "-ccbin",
    "/opt/bin/gcc-13: No such file or directory": "-ccbin",
    "nvcc fatal   : Unsupported gpu architecture 'compute_90a'": "AUTOTILE_NVCC",
    "kernel.cu(1): error writing to /tmp/x.s: No space left on device": "No space left",
    "nvcc fatal   : Could not open output file '/nonexistent/tmpxft'": "AUTOTILE_NVCC",
}


@pytest.mark.parametrize("says", FIXES)
def test_what_no_source_would_survive_is_the_machines_fault(fake, tmp_path, says):
    path = fake(f"print({says!r}, file=sys.stderr)\nsys.exit(1)")
    with builder(tmp_path) as made, pytest.raises(ToolchainMissing, match=FIXES[says]) as raised:
        made.build(SOURCE)
    assert says.partition(":")[2].strip() in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_resource_error_of_ptxas_is_the_variants_fault(fake, tmp_path):
    line = "ptxas error   : Entry function 'copy' uses too much shared data (0x20000 bytes, 0xc000 max)"
    fake(f"print('ptxas info    : 0 bytes gmem')\nprint({line!r}, file=sys.stderr)\nsys.exit(255)\n")
    with builder(tmp_path) as made, pytest.raises(CompileError, match=r"copy.*uses too much shared data \(0x20000"):
        made.build(SOURCE)


@pytest.mark.parametrize(
    ("step", "says"), [("sys.exit(2)", "status 2 and no message"), ("pass", "status 0 and no cubin")]
)
def test_silence_is_reported_with_status_and_command(fake, tmp_path, step, says):
    fake(f"if 'copy' in open('kernel.cu').read():\n    {step}\nelse:\n    compiled()")
    with builder(tmp_path) as made, pytest.raises(CompileError, match=says + r" .*nvcc -std=c\+\+17 -cubin"):
        made.build(SOURCE)


@pytest.mark.parametrize("step", ["sys.exit(2)", "pass", "open('kernel.cubin', 'w')"])
def test_silence_about_an_empty_kernel_too_is_the_machines_fault(fake, tmp_path, step):
    fake(step)
    with builder(tmp_path) as made, pytest.raises(ToolchainMissing, match=r"even compile an empty .*AUTOTILE_NVCC"):
        made.build(SOURCE)


CRASHES = {
    "os.kill(os.getpid(), signal.SIGSEGV)": "SIGSEGV",
    "print('Segmentation fault'); sys.exit(139)": "SIGSEGV",
    "print('nvcc: line 3: 77 Aborted    (core dumped) cicc'); sys.exit(134)": "SIGABRT",
    "print(\"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\"); sys.exit(9)": "SIGKILL .*--jobs",
    "sys.exit(139)": "SIGSEGV",
}


@pytest.mark.parametrize("step", CRASHES)
def test_a_crash_costs_one_variant(fake, tmp_path, step):
    fake(f"import os, signal\nif 'copy' in open('kernel.cu').read():\n    {step}\ncompiled()")
    with builder(tmp_path) as made:
        with pytest.raises(CompileError, match=rf"copy.*ended by {CRASHES[step]}.*`.*nvcc -std=") as raised:
            made.submit(SOURCE).result()
        assert raised.value.outcome == "compile_error"
        assert not made.submit(Source("other", "other", "another text")).result().cached


def test_an_ordinary_error_is_no_crash():
    assert Finished(255, "ptxas fatal   : Ptx assembly aborted due to errors").crash is None
    assert Finished(255, "").crash is None
    assert Finished(0, "Killed").crash is None
    assert Finished(1, "g++: fatal error: Killed signal terminated program cc1plus").crash.startswith("SIGKILL")
    assert Finished(-signal.SIGBUS, "").crash == "SIGBUS"


def test_an_unwritable_tmpdir_does_not_reach_nvcc(fake, tmp_path, monkeypatch):
    fake("import os\nassert os.path.isdir(os.environ['TMPDIR'])\ncompiled()")
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    with builder(tmp_path) as made:
        made.build(SOURCE)


SLEEPS = """
import os, subprocess, time
child = subprocess.Popen(["sleep", "3600"])
open(PIDS, "w").write(f"{child.pid} {os.getpid()}\\n")
time.sleep(3600)
"""


@needs_proc
def test_a_timeout_leaves_no_process(fake, tmp_path):
    pids = tmp_path / "pids"
    fake(SLEEPS.replace("PIDS", repr(str(pids))))
    with builder(tmp_path, timeout_s=2) as made:
        with pytest.raises(CompileTimeout, match=r"stopped after 2 s.*search\.compile_limit") as raised:
            made.build(SOURCE)
        assert raised.value.outcome == "compile_timeout"
        assert gone(pids_in(pids))


@needs_proc
def test_closing_kills_what_runs(fake, tmp_path):
    pids = tmp_path / "pids"
    fake(SLEEPS.replace("PIDS", repr(str(pids))))
    made = builder(tmp_path)
    future = made.submit(SOURCE)
    running = pids_in(pids)
    made.close()
    assert gone(running)
    with pytest.raises(CompileError, match="closed"):
        future.result(timeout=5)


@needs_proc
def test_an_nvcc_that_does_not_tell_its_version_is_given_up(fake, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    path = fake(answers=SLEEPS.replace("PIDS", repr(str(pids))))
    monkeypatch.setattr(process, "ASK_LIMIT_S", 2.0)
    begun = time.monotonic()
    with pytest.raises(ToolchainMissing, match=rf"{path} --version` did not answer within 2 s.*AUTOTILE_NVCC"):
        builder(tmp_path)
    assert time.monotonic() - begun < 10
    assert gone(pids_in(pids))


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ("sys.exit(2)", "status 2, saying: nothing"),
        ("sys.exit(0)", "status 0, saying: nothing"),
        ("print('libfoo.so: cannot open'); sys.exit(127)", "status 127, saying: libfoo.so: cannot open"),
        ("import os; os.abort()", "ended by SIGABRT"),
    ],
)
def test_an_nvcc_without_a_version_is_none(fake, tmp_path, answers, says):
    path = fake(answers=answers + "\n")
    with pytest.raises(ToolchainMissing, match=rf"{path} --version` .*{says}.*AUTOTILE_NVCC"):
        builder(tmp_path)


def test_an_nvcc_that_vanishes_is_missing(fake, tmp_path):
    path = fake()
    with builder(tmp_path) as made:
        path.unlink()
        with pytest.raises(ToolchainMissing, match=rf"{path} cannot be run"):
            made.build(SOURCE)


def test_another_version_builds_again(fake, tmp_path):
    fake(version="12.2")
    with builder(tmp_path) as made:
        made.build(SOURCE)
    fake(version="12.3")
    with builder(tmp_path) as made:
        assert made.compiler == "nvcc 12.3.88"
        assert not made.build(SOURCE).cached


@pytest.mark.parametrize("variable", nvcc_module.ENVIRONMENT_FLAGS)
def test_flags_from_the_environment_are_told_and_part_of_the_key(fake, tmp_path, monkeypatch, variable):
    fake()
    with builder(tmp_path) as made:
        assert made.flags == ""
        made.build(SOURCE)
    monkeypatch.setenv(variable, "-use_fast_math")
    with builder(tmp_path) as made:
        assert made.flags == f"{variable}=-use_fast_math"
        assert made.find(SOURCE) is None
        assert find_built(SOURCE, SM_90, made.compiler, tmp_path / "home") is None
        made.build(SOURCE)
        assert find_built(SOURCE, SM_90, made.compiler, tmp_path / "home") is not None


def test_flags_of_two_variables_do_not_pose_as_one(fake, tmp_path, monkeypatch):
    fake()
    prepend, append, _ = nvcc_module.ENVIRONMENT_FLAGS
    monkeypatch.setenv(prepend, f"-G {append}=-g")
    with builder(tmp_path) as made:
        one = made.flags
    monkeypatch.setenv(prepend, "-G")
    monkeypatch.setenv(append, "-g")
    with builder(tmp_path) as made:
        assert made.flags != one


def test_one_source_submitted_twice_at_once_compiles_once(fake, tmp_path):
    log = tmp_path / "log"
    fake(f"import time\nopen({str(log)!r}, 'a').write('x')\ntime.sleep(0.5)\ncompiled()")
    with builder(tmp_path) as made:
        futures = [made.submit(SOURCE) for _ in range(4)]
        assert len({future.result().path for future in futures}) == 1
    assert log.read_text() == "x"
