"""The real nvcc, without a GPU."""

import pytest

from autotile.build import Builder
from autotile.build.nvcc import find_nvcc
from autotile.build.ptxas import parse_usage
from autotile.devices.gpus import gpu_table
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

try:
    find_nvcc()
except ToolchainMissing:
    pytest.skip("nvcc is not here", allow_module_level=True)

pytestmark = pytest.mark.nvcc
SM_90 = Target("cuda", "sm_90")
COPY = """
#include <cuda_fp16.h>
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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with Builder(SM_90, tmp_path_factory.mktemp("home"), jobs=2, compiler="nvcc") as builder:
        yield builder


def test_reports_what_ptxas_counts(built):
    binary = built.build(Source("copy", "copy", COPY))
    assert binary.path.read_bytes().startswith(b"\x7fELF")
    assert 0 < binary.registers < 64
    assert binary.static_shared_bytes == 128
    assert binary.spill_bytes == 0
    assert built.compiler.startswith("nvcc ")


def test_headers_and_templates_beside_a_c_entry(built):
    text = """
#include <cuda_fp16.h>
template <typename T, int N> struct Sum {
    static __device__ T of(const T *a) { T s = a[0]; for (int i = 1; i < N; ++i) s = __hadd(s, a[i]); return s; }
};
extern "C" __global__ void halves(const __half *a, __half *b) { b[threadIdx.x] = Sum<__half, 4>::of(a + threadIdx.x); }
"""
    binary = built.build(Source("halves", "halves", text))
    assert b".text.halves\0" in binary.path.read_bytes()  # by its plain name, as the driver looks for it
    assert binary.registers


def test_equal_code_has_equal_digests(built):
    first = built.build(Source("copy", "copy", COPY))
    commented = built.build(Source("copy", "copy", "// a comment\n\n" + COPY))
    changed = built.build(Source("copy", "copy", COPY.replace("x + x", "x * x")))
    assert commented.path != first.path
    assert commented.digest == first.digest
    assert changed.digest != first.digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('extern "C" __global__ void k() { foo(); }', r'kernel\.cu\(1\): error: identifier "foo" is undefined'),
        ("#include <nowhere.h>", "nowhere.h: No such file"),
        ('extern "C" __global__ void k(int *o) { asm volatile("foo.bar %0;" : "=r"(o[0])); }', "kernel.ptx, line"),
        (
            TOO_MUCH_SHARED,
            "uses too much shared data",
        ),
    ],
)
def test_the_first_error_is_the_message(built, text, says):
    with pytest.raises(CompileError, match=says):
        built.build(Source("k", "k", text))


def test_without_a_host_compiler_it_is_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-ccbin /nonexistent/g++")
    with (
        Builder(SM_90, tmp_path, compiler="nvcc") as builder,
        pytest.raises(ToolchainMissing, match=r"/nonexistent/g\+\+.*-ccbin"),
    ):
        builder.build(Source("copy", "copy", COPY))


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_static_shared_memory_beyond_48_kib_is_refused_on_every_arch(tmp_path, arch):
    with (
        Builder(Target("cuda", arch), tmp_path, compiler="nvcc") as builder,
        pytest.raises(CompileError, match="too much shared data"),
    ):
        builder.build(Source("k", "k", TOO_MUCH_SHARED))


def test_the_comparer_compiles_for_every_arch_that_nvcc_knows(tmp_path):
    from autotile.assets import DATA_DIR

    source = Source("compare", "compare", (DATA_DIR / "compare.cu").read_text())
    for arch in ("sm_80", "sm_90"):
        assert arch in {gpu.arch for gpu in gpu_table().values()}
        with Builder(Target("cuda", arch), tmp_path, compiler="nvcc") as builder:
            assert builder.build(source).spill_bytes == 0


def test_usage_is_the_entrys_own():
    text = """
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 99 registers, 1024 bytes smem
ptxas info    : Compiling entry function 'mine' for 'sm_90'
ptxas info    : Function properties for helper
    0 bytes stack frame, 400 bytes spill stores, 400 bytes spill loads
ptxas info    : Function properties for mine
    0 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 42 registers, used 1 barriers, 2048+16 bytes smem, 400 bytes cmem[0]
"""
    usage = parse_usage(text, "mine")
    assert (usage.registers, usage.spill_bytes, usage.static_shared_bytes) == (42, 40, 2064)
    assert parse_usage(text, "absent").registers is None
