"""The real NVRTC, without a GPU."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.build.nvcc import find_nvcc
from autotile.build.nvrtc import WORKER, Nvrtc, find_nvrtc
from autotile.build.nvrtc_worker import reads_data
from autotile.build.workers import MARK, message
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.cu"))
NAMED = os.environ.get("AUTOTILE_NVRTC")
try:
    _compiler = Nvrtc(SM_90)
    HEADERS = _compiler.headers
    _compiler.close()
except ToolchainMissing as error:
    if NAMED:
        raise
    pytest.skip(f"NVRTC is not here: {error}", allow_module_level=True)

needs_headers = pytest.mark.skipif(HEADERS is None, reason="CUDA's headers are not here")
COPY = """
template <typename T> __device__ T twice(T x) { return x + x; }
namespace { __device__ int calls; }
static __device__ __noinline__ float counted(float x) { ++calls; return x; }
extern "C" __global__ void copy(const float *a, float *b, int n) {
    __shared__ float row[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { row[threadIdx.x % 32] = a[i]; b[i] = counted(twice(row[threadIdx.x % 32])); }
}
"""
TOO_MUCH_SHARED = """
extern "C" __global__ void k(double *o) {
    __shared__ double s[8000];
    s[threadIdx.x] = o[0];
    __syncthreads();
    o[1] = s[9];
}
"""


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    if NAMED:
        monkeypatch.setenv("AUTOTILE_NVRTC", NAMED)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with Builder(SM_90, tmp_path_factory.mktemp("home"), jobs=2, compiler="nvrtc") as builder:
        yield builder


def test_reports_what_ptxas_counts(built):
    binary = built.build(Source("copy", "copy", COPY))
    assert binary.path.read_bytes().startswith(b"\x7fELF")
    assert 0 < binary.registers < 64
    assert (binary.static_shared_bytes, binary.spill_bytes) == (128, 0)
    assert built.compiler.startswith("NVRTC 1")


def test_equal_code_has_equal_digests(built):
    first = built.build(Source("copy", "copy", COPY))
    commented = built.build(Source("copy", "copy", "// a comment\n\n" + COPY))
    changed = built.build(Source("copy", "copy", COPY.replace("x + x", "x * x")))
    assert commented.path != first.path
    assert commented.digest == first.digest
    assert changed.digest != first.digest


def test_constants_count_only_where_the_code_shows_them(built):
    """NVRTC keeps constants that are not read; nvcc drops them, and equal code must not be timed twice."""
    text = "constexpr int A = 1; constexpr int B = 2;\n"
    text += 'extern "C" __global__ void k(int *o) { o[0] = A; }'
    same, changed = text.replace("B = 2", "B = 3"), text.replace("A = 1", "A = 3")
    digests = [built.build(Source("k", "k", one)).digest for one in (text, same, changed)]
    assert digests[0] == digests[1] != digests[2]
    table = '__device__ const int T[4] = {1, 2, 3, 4};\nextern "C" __global__ void k(int *o) { o[0] = T[o[1]]; }'
    digests = [built.build(Source("k", "k", one)).digest for one in (table, table.replace("3", "5"))]
    assert digests[0] != digests[1]


def test_a_variable_is_read_where_anything_names_it():
    head = (
        b".version 9.0\n// .globl k\n.global .align 4 .u32 BLOCK_M = 64;\n.visible .global .align 1 .b8 T[4] = {1};\n"
    )
    code = (
        b".visible .entry k(\n.param .u64 k_param_0\n)\n{\nmov.u64 %rd1, NAME;\nst.global.u32 [%rd1], BLOCK_M_2;\n}\n"
    )
    assert not reads_data(head + code)
    assert reads_data(head + code.replace(b"NAME", b"T"))
    assert reads_data(head + code.replace(b"NAME", b"BLOCK_M"))
    assert reads_data(head + b".global .u64 pointer = generic(T);\n" + code)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('extern "C" __global__ void k() { foo(); }', r'kernel\.cu\(1\): error: identifier "foo" is undefined'),
        ("#include <nowhere.h>", r"nowhere\.h.*AUTOTILE_COMPILER=nvcc"),
        ('extern "C" __global__ void k(int *o) { asm volatile("foo.bar %0;" : "=r"(o[0])); }', "ptx input, line"),
        (TOO_MUCH_SHARED, "uses too much shared data"),
    ],
)
def test_the_first_error_is_the_message(built, text, says):
    with pytest.raises(CompileError, match=says):
        built.build(Source("k", "k", text))


def test_a_wrong_flag_of_the_user_is_not_the_sources_fault(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOTILE_NVRTC_FLAGS", "--nonsense")
    with (
        Builder(SM_90, tmp_path, compiler="nvrtc") as builder,
        pytest.raises(ToolchainMissing, match="FLAGS=--nonsense"),
    ):
        builder.build(Source("copy", "copy", COPY))


def test_a_file_that_is_no_library_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "libnvrtc.so"
    path.write_text("no library")
    monkeypatch.setenv("AUTOTILE_NVRTC", str(path))
    with pytest.raises(ToolchainMissing, match=rf"{path}.*cannot be used.*AUTOTILE_NVRTC"):
        Builder(SM_90, tmp_path, compiler="nvrtc")


@needs_headers
def test_the_comparer_compiles(tmp_path):
    from autotile.assets import DATA_DIR

    source = Source("compare", "compare", (DATA_DIR / "compare.cu").read_text())
    for arch in ("sm_80", "sm_90"):
        with Builder(Target("cuda", arch), tmp_path, compiler="nvrtc") as builder:
            assert builder.build(source).spill_bytes == 0


@pytest.fixture(scope="module")
def compilers(tmp_path_factory):
    """Builders with each compiler, by arch."""
    try:
        find_nvcc()
    except ToolchainMissing:
        pytest.skip("nvcc is not here")
    home = tmp_path_factory.mktemp("both")
    pairs = {
        arch: [Builder(Target("cuda", arch), home, jobs=1, compiler=name) for name in ("nvcc", "nvrtc")]
        for arch in ("sm_80", "sm_90")
    }
    yield pairs
    for builders in pairs.values():
        for builder in builders:
            builder.close()


@needs_headers
@pytest.mark.nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_both_compilers_make_nearly_the_same_of_a_source(compilers, arch, path):
    """Their front ends differ a little, and so may their releases."""
    entry, text = path.stem.partition("-")[0], path.read_text()
    if arch == "sm_80" and "__cluster_dims__" in text:
        pytest.skip("sm_80 has no clusters")
    nvcc, nvrtc = (builder.build(Source(entry, entry, text)) for builder in compilers[arch])
    assert b".text.%s\0" % entry.encode() in nvrtc.path.read_bytes()  # by its plain name, as the driver looks for it
    assert abs(nvcc.registers - nvrtc.registers) <= max(4, nvcc.registers // 8)
    assert nvcc.static_shared_bytes == nvrtc.static_shared_bytes
    assert nvcc.spill_bytes == nvrtc.spill_bytes == 0


def test_a_worker_ends_with_its_input_even_in_the_midst_of_a_compile():
    """As when this process, and the watcher too, are killed."""
    body = "".join(f"x = sinf(x * {number}.5f) + o[(int)x];" for number in range(3000))
    text = f'extern "C" __global__ void k(float *o) {{ float x = o[0]; {body} o[1] = x; }}'
    command = [sys.executable, "-I", "-S", str(WORKER), str(find_nvrtc())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        head = process.stdout.readline()
        assert head.startswith(MARK)
        assert json.loads(head.removeprefix(MARK))["archs"]
        process.stdin.write(message({"options": ["-arch=sm_90a"]}, text.encode()))
        process.stdin.flush()
        time.sleep(0.5)
        assert not select.select([process.stdout], [], [], 0)[0]  # it is at it
        process.stdin.close()
        try:
            assert process.wait(timeout=3) == 0
        finally:
            process.kill()  # else a worker that stays would be waited for
        assert process.stdout.read() == b""
