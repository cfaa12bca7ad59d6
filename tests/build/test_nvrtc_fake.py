"""What NVRTC may do to us, with stand-ins for its workers."""

import os
import sys
from pathlib import Path

import pytest
from processes import gone, needs_proc, pids_in

from autotile.build import Builder, find_built
from autotile.build import nvcc as nvcc_module
from autotile.build import nvrtc as nvrtc_module
from autotile.build.process import CompileTimeout
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
SOURCE = Source("copy", "copy", 'extern "C" __global__ void copy() {}')
OTHER = Source("other", "other", "another text")


def builder(tmp_path: Path, **options) -> Builder:
    return Builder(SM_90, tmp_path / "home", **{"jobs": 2, "compiler": "nvrtc"} | options)


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """A machine without any CUDA; its empty folder."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    for name in ("AUTOTILE_NVRTC", "AUTOTILE_NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(nvcc_module, "USUAL_PLACE", folder / "bin")
    monkeypatch.setattr(nvrtc_module, "_loaders_name", lambda: None)
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def test_missing_says_where_it_looked_and_how_to_set_it(nothing, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(nothing / "toolkit"))
    with pytest.raises(ToolchainMissing, match=r"CUDA_HOME .*toolkit.*nvcc's toolkit.*loader.*pip.*AUTOTILE_NVRTC"):
        nvrtc_module.find_nvrtc()


@pytest.mark.parametrize(
    "place", ["lib64/libnvrtc.so", "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"]
)
def test_found_in_toolkits_and_in_both_layouts_of_wheels(nothing, place):
    """A toolkit has more than one name for its library; the other files of the folders are not it."""
    path = nothing / place
    path.parent.mkdir(parents=True)
    for name in (path.name, f"{path.name}.0.88", "libnvrtc-builtins.so.1", "libnvrtc.alt.so.1"):
        (path.parent / name).write_text("")
    assert nvrtc_module.find_nvrtc() == path


def test_the_loaders_own_search_comes_last(nothing, monkeypatch):
    monkeypatch.setattr(nvrtc_module, "_loaders_name", lambda: "libnvrtc.so.13")
    assert nvrtc_module.find_nvrtc() == Path("libnvrtc.so.13")


def test_headers_are_the_librarys_own_where_it_has_any(nothing):
    wheel, toolkit = nothing / "nvidia" / "cu13", nothing
    for root in (wheel, toolkit):
        (root / "include").mkdir(parents=True)
    library = wheel / "lib" / "libnvrtc.so.13"
    assert nvrtc_module.find_headers(library) is None
    (toolkit / "include" / nvrtc_module.HEADER).write_text("")
    assert nvrtc_module.find_headers(library) == toolkit / "include"
    (wheel / "include" / nvrtc_module.HEADER).write_text("")
    assert nvrtc_module.find_headers(library) == wheel / "include"


def test_a_named_library_that_is_not_there_is_never_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTILE_NVRTC", str(tmp_path / "gone.so"))
    with pytest.raises(ToolchainMissing, match=r"looked at AUTOTILE_NVRTC \(.*gone\.so: not there\)\. Install"):
        builder(tmp_path)


def test_relative_paths_are_from_here(fake_nvrtc, tmp_path, monkeypatch):
    """The workers run in another folder."""
    fake_nvrtc()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTILE_NVRTC", "cuda/lib64")
    with builder(tmp_path) as made:
        assert made.build(SOURCE)
        assert str(tmp_path / "cuda" / "include") in made._compiler.options()[-1]
    assert nvrtc_module.find_nvrtc() == tmp_path / "cuda" / "lib64" / "libnvrtc.so.12"


def test_builds_and_caches_without_leaving_files(fake_nvrtc, tmp_path):
    fake_nvrtc("compiled(code=text.encode())")
    with builder(tmp_path) as made:
        assert made.compiler == "NVRTC 12.2.140"
        assert made.find(SOURCE) is None
        first = made.build(SOURCE)
        assert first.path.read_text() == SOURCE.text
        assert made.build(SOURCE).cached
        assert made.submit(SOURCE).result().path == first.path
        assert not list((tmp_path / "home" / "binaries" / "tmp").iterdir())


def test_reads_ptxas_in_the_log(fake_nvrtc, tmp_path):
    log = "Compiling entry function 'copy' for 'sm_90a'\nptxas info : Used 42 registers, 16 bytes smem"
    fake_nvrtc(f"compiled({log!r} if 'copy' in text else '')")
    with builder(tmp_path) as made:
        binary, unknown = made.build(SOURCE), made.build(OTHER)
    assert (binary.registers, binary.static_shared_bytes) == (42, 16)
    assert unknown.registers is None


def test_options_are_those_of_nvcc_and_the_users_come_last(fake_nvrtc, tmp_path, monkeypatch):
    fake_nvrtc("compiled(code=' '.join(fields['options']).encode())")
    monkeypatch.setenv("AUTOTILE_NVRTC_FLAGS", "--use_fast_math -DX='1 2'")
    with builder(tmp_path) as made:
        options = made.build(SOURCE).path.read_text()
    include = tmp_path / "cuda" / "include"
    assert options == f"-std=c++17 --ptxas-options=-v -arch=sm_90a -I{include} --use_fast_math -DX=1 2"


def test_workers_stay_and_warm_up_starts_them_all(fake_nvrtc, tmp_path):
    log = tmp_path / "log"
    fake_nvrtc(hello=f"open({str(log)!r}, 'a').write('x')\nanswer({{'version': '12.2', 'archs': []}})")
    with builder(tmp_path, jobs=3) as made:
        made.build(SOURCE)
        made.build(OTHER)
        assert log.read_text() == "x"
        made.warm_up()
        for future in [made.submit(Source("k", "k", str(number))) for number in range(12)]:
            future.result()
    assert log.read_text() == "xxx"


REFUSALS = {
    ("NVRTC_ERROR_COMPILATION", 'kernel.cu(1): error: identifier "foo" is undefined'): (
        CompileError,
        "refused copy .*foo",
    ),
    ("NVRTC_ERROR_COMPILATION", 'kernel.cu(1): error: cannot open source file "cstdint"'): (CompileError, "cuda/std"),
    ("NVRTC_ERROR_INTERNAL_ERROR", ""): (CompileError, r"refused copy \(copy\): NVRTC_ERROR_INTERNAL_ERROR"),
    ("NVRTC_ERROR_INVALID_OPTION", "nvrtc: error: unrecognized option --foo"): (
        ToolchainMissing,
        "--foo.*_NVRTC_FLAGS=",
    ),
    ("NVRTC_ERROR_BUILTIN_OPERATION_FAILURE", ""): (ToolchainMissing, "BUILTIN.*AUTOTILE_NVRTC"),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_whose_fault_a_refusal_is(fake_nvrtc, tmp_path, monkeypatch, said):
    fake_nvrtc(f"refused{said!r}")
    kind, says = REFUSALS[said]
    if "FLAGS" in says:
        monkeypatch.setenv("AUTOTILE_NVRTC_FLAGS", "--foo")
    with builder(tmp_path) as made, pytest.raises(kind, match=says):
        made.build(SOURCE)


def test_missing_cuda_headers_are_the_machines_fault(fake_nvrtc, nothing, tmp_path):
    fake_nvrtc("refused('NVRTC_ERROR_COMPILATION', 'kernel.cu(1): error: cannot open source file \"cuda_fp16.h\"')")
    (tmp_path / "cuda" / "include" / nvrtc_module.HEADER).unlink()
    with builder(tmp_path) as made:
        assert made.compiler == "NVRTC 12.2.140 without headers"
        with pytest.raises(ToolchainMissing, match=r"no cuda_fp16\.h.*nvidia-cuda-runtime"):
            made.build(SOURCE)


def test_a_library_that_gives_no_cubin_is_too_old(fake_nvrtc, tmp_path):
    fake_nvrtc("compiled(code=b'')")
    with builder(tmp_path) as made, pytest.raises(ToolchainMissing, match=r"no cubin.*AUTOTILE_NVRTC"):
        made.build(SOURCE)


def test_too_much_static_shared_memory_is_refused(fake_nvrtc, tmp_path):
    fake_nvrtc("compiled(\"Compiling entry function 'copy' for\\nUsed 8 registers, 64000 bytes smem\")")
    with builder(tmp_path) as made, pytest.raises(CompileError, match="too much shared data: 64000"):
        made.build(SOURCE)


@pytest.mark.parametrize("hello", ["answer({'error': 'libfoo.so: cannot open'})", "sys.exit('libfoo.so: cannot open')"])
def test_a_library_that_cannot_be_loaded_is_missing(fake_nvrtc, tmp_path, hello):
    library = fake_nvrtc(hello=hello)
    with pytest.raises(ToolchainMissing, match=r"libfoo\.so: cannot open.*AUTOTILE_NVRTC") as raised:
        builder(tmp_path)
    assert str(library) in str(raised.value)


def test_an_arch_it_does_not_know_names_both(fake_nvrtc, tmp_path):
    fake_nvrtc()
    for _ in range(2):  # the second time from what is known of the library
        with pytest.raises(ToolchainMissing, match=r"NVRTC 12\.2\.140 .*sm_120.*sm_80, sm_90"):
            Builder(Target("cuda", "sm_120"), tmp_path / "home", compiler="nvrtc")


def test_a_crash_costs_one_variant(fake_nvrtc, tmp_path):
    fake_nvrtc("if 'copy' in text: os.kill(os.getpid(), signal.SIGSEGV)\ncompiled()")
    with builder(tmp_path) as made:
        with pytest.raises(
            CompileError, match=r"NVRTC crashed on copy .*ended by SIGSEGV; its options .*-std="
        ) as raised:
            made.submit(SOURCE).result()
        assert raised.value.outcome == "compile_error"
        assert not made.submit(OTHER).result().cached


SLEEPS = """if 'copy' in text:
    open(PIDS, "w").write(f"{os.getpid()}\\n")
    time.sleep(3600)
compiled()"""


@needs_proc
def test_a_timeout_leaves_no_process_and_harms_no_other(fake_nvrtc, tmp_path):
    pids = tmp_path / "pids"
    fake_nvrtc(SLEEPS.replace("PIDS", repr(str(pids))))
    with builder(tmp_path, timeout_s=1) as made:
        with pytest.raises(CompileTimeout, match=r"NVRTC was stopped after 1 s.*search\.compile_limit") as raised:
            made.build(SOURCE)
        assert raised.value.outcome == "compile_timeout"
        assert gone(pids_in(pids))
        assert made.build(OTHER)


@needs_proc
def test_closing_kills_what_runs(fake_nvrtc, tmp_path):
    pids = tmp_path / "pids"
    fake_nvrtc(SLEEPS.replace("PIDS", repr(str(pids))))
    made = builder(tmp_path)
    future = made.submit(SOURCE)
    running = pids_in(pids)
    made.close()
    assert gone(running)
    with pytest.raises(CompileError, match="closed"):
        future.result(timeout=5)


def test_another_version_builds_again(fake_nvrtc, tmp_path):
    fake_nvrtc()
    with builder(tmp_path) as made:
        made.build(SOURCE)
    fake_nvrtc(version="12.3.52")
    with builder(tmp_path) as made:
        assert made.compiler == "NVRTC 12.3.52 with headers of 12.2"
        assert not made.build(SOURCE).cached


def test_flags_from_the_environment_are_told_and_part_of_the_key(fake_nvrtc, tmp_path, monkeypatch):
    fake_nvrtc()
    for name in nvcc_module.ENVIRONMENT_FLAGS:
        monkeypatch.setenv(name, "-G")  # nvcc's own: nothing to NVRTC
    with builder(tmp_path) as made:
        assert made.flags == ""
        made.build(SOURCE)
    monkeypatch.setenv("AUTOTILE_NVRTC_FLAGS", "--use_fast_math")
    with builder(tmp_path) as made:
        assert made.flags == "AUTOTILE_NVRTC_FLAGS=--use_fast_math"
        assert made.find(SOURCE) is None
        assert find_built(SOURCE, SM_90, made.compiler, tmp_path / "home") is None
        made.build(SOURCE)
        assert find_built(SOURCE, SM_90, made.compiler, tmp_path / "home") is not None


def test_a_second_builder_waits_for_no_worker(fake_nvrtc, tmp_path):
    library = fake_nvrtc()
    builder(tmp_path).close()
    stamp = library.stat().st_mtime_ns
    fake_nvrtc(hello="time.sleep(3600)")
    os.utime(library, ns=(stamp, stamp))
    builder(tmp_path).close()
