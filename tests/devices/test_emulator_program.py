"""The emulator against numpy, against counters measured on a GPU, and against kernels with one known fault each."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulated import Build, clean, kernel, line_of, only, randoms, without, zeros

from autotile.devices.emulator import (
    EmulatedProgram,
    HostToolchain,
    Report,
    compile_host,
    device_buffer,
    find_host_compiler,
    flags_identity,
    refuse_unsupported,
)
from autotile.errors import CompileError, LaunchError, ToolchainMissing, UnsupportedByEmulator

DATA = Path(__file__).parent.parent / "data" / "emulator"
MATMUL = (DATA / "matmul_tile.cu").read_text()
RING = (DATA / "ring.cu").read_text()


# ------------------------------------------------------------------------------------------------------------- results


def run_matmul(
    program: EmulatedProgram, m: int, n: int, k: int, mode: Any = "check", order: Any = "forward"
) -> tuple[Report, float]:
    a, b, c = randoms(m, k), randoms(k, n, seed=1), device_buffer(np.full((m, n), np.nan, np.float32))
    grid = (-(-n // 32), -(-m // 32), 1)
    report = program.launch(grid, (32, 32, 1), 0, [a, b, c, np.int32(m), np.int32(n), np.int32(k)], mode, order)
    error = float(np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max())
    return report, error


@pytest.mark.parametrize("traced", [True, False])
def test_matmul_equals_numpy(build: Build, traced: bool) -> None:
    program = build(MATMUL, "matmul", traced)
    assert program.static_shared_bytes == 2 * 32 * 32 * 4
    for shape in ((64, 64, 64), (33, 65, 17), (1, 1, 1)):
        for order in ("forward", "backward"):
            report, error = run_matmul(program, *shape, mode="check" if traced else "run", order=order)
            assert clean(report)
            assert error < 1e-4


def test_check_needs_a_traced_build(build: Build) -> None:
    with pytest.raises(LaunchError, match="traced=True"):
        run_matmul(build(MATMUL, "matmul", False), 32, 32, 32)


TRANSPOSE = """
extern "C" __global__ void transpose(const float* in, float* out, int width, int height) {
  __shared__ float tile[32][PITCH];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < width && y + j < height) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];  // fill
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < height && y + j < width) out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];  // empty
}
"""


@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 32.0), (33, 1.0)])
def test_transpose_and_its_bank_conflicts(build: Build, pitch: int, wavefronts: float) -> None:
    source = f"#define PITCH {pitch}{TRANSPOSE}"
    program = build(source, "transpose")
    a, out = randoms(64, 96), zeros(96, 64)
    report = program.launch((3, 2, 1), (32, 8, 1), 0, [a, out, np.int32(96), np.int32(64)], "trace")
    assert clean(report)
    assert (out == a.T).all()
    found = {(x.line, x.op, x.space): x for x in report.accesses}
    fill, empty = line_of(source, "// fill"), line_of(source, "// empty")
    assert found[empty, "load", "shared"].per_request == wavefronts
    assert found[empty, "load", "shared"].ideal_per_request == 1.0
    assert found[fill, "store", "shared"].per_request == 1.0
    assert found[fill, "load", "global"].per_request == 4.0
    assert found[empty, "store", "global"].total == 6 * 32 * 4


@pytest.mark.parametrize(
    ("index", "sectors"), [("i", 4.0), ("i + 1", 5.0), ("i * 32", 32.0), ("i * 3", 12.0), ("0", 1.0)]
)
def test_sectors_of_a_load(build: Build, index: str, sectors: float) -> None:
    source = kernel("const float* in, float* out", f"int i = threadIdx.x;\nout[i] = in[{index}];")
    report = build(source).launch((1, 1, 1), (32, 1, 1), 0, [zeros(32 * 32 + 1), zeros(32)], "trace")
    load, store = report.accesses
    assert clean(report)
    assert (load.op, load.per_request, load.lanes) == ("load", sectors, 32.0)
    assert (store.per_request, store.ideal_per_request, store.worst) == (4.0, 4.0, 4)


def test_member_of_twelve_byte_structures(build: Build) -> None:
    source = kernel(
        "const P* in, float* out", "P p = in[threadIdx.x];\nout[threadIdx.x] = p.x;", "struct P { float x, y, z; };"
    )
    report = build(source).launch((1, 1, 1), (32, 1, 1), 0, [zeros(96), zeros(32)], "trace")
    assert {a.per_request for a in report.accesses if a.op == "load"} == {12.0}


@pytest.mark.parametrize(
    ("vector", "width"),
    [("float4", 16), ("uint4", 16), ("double2", 16), ("float2", 8), ("ulonglong2", 16), ("ushort4", 8), ("uchar4", 4),
     ("ushort2", 4), ("char4", 4), ("uchar2", 2), ("__half2", 4), ("double4", 16)],
)  # fmt: skip
def test_a_vector_is_one_access(build: Build, vector: str, width: int) -> None:
    body = f"""
    __shared__ {vector} tile[32];
    int i = threadIdx.x;
    {vector} local[2];
    local[0] = in[i];
    tile[i ^ 1] = local[0];
    __syncthreads();
    local[1] = *reinterpret_cast<const {vector}*>(reinterpret_cast<const unsigned char*>(tile) + i * sizeof({vector}));
    out[i] = local[1];"""
    data = np.arange(32 * 32, dtype=np.uint8).reshape(32, 32)
    given = device_buffer(data)
    out = zeros(32, 32, dtype=np.uint8)
    source = kernel(f"const {vector}* in, {vector}* out", body, "#include <cuda_fp16.h>")
    report = build(source).launch((1, 1, 1), (32, 1, 1), 0, [given, out], "trace")
    assert clean(report)
    assert {a.access_bytes for a in report.accesses} == {width}
    size = {"double4": 32}.get(vector, width)
    taken = given.reshape(-1)[: 32 * size].reshape(32, size)
    assert (out.reshape(-1)[: 32 * size].reshape(32, size) == taken[np.arange(32) ^ 1]).all()


def test_by_value_arguments_keep_their_dtype(build: Build) -> None:
    source = kernel("double* out, double x, float y, long long n, unsigned char c, bool flag",
                    "out[0] = x; out[1] = y; out[2] = n; out[3] = c; out[4] = flag;")  # fmt: skip
    program = build(source)
    out = zeros(5, dtype=np.float64)
    program.launch(
        (1, 1, 1), (1, 1, 1), 0, [out, np.float64(1 / 3), 0.5, -(2**40), np.uint8(200), np.bool_(True)], "check"
    )
    assert out.tolist() == [1 / 3, 0.5, -(2.0**40), 200, 1]
    for wrong, message in (
        ([out, np.float32(1), 0.5, 1, 1, 1], "argument 1 is float32, but the kernel takes a 8-byte float"),
        ([out, 1.0, 0.5, 1, 300, 1], "argument 4 is 300"),
        ([1, 1.0, 0.5, 1, 1, 1], "argument 0 is 1, but the kernel takes a pointer"),
        ([out, 1.0, 0.5, out, 1, 1], "argument 3 is an array"),
        ([out], "1 arguments were given to a kernel that takes 6"),
        ([np.zeros((4, 4))[:, :2], 1.0, 0.5, 1, 1, 1], "not C-contiguous"),
    ):
        with pytest.raises(LaunchError, match=message):
            program.launch((1, 1, 1), (1, 1, 1), 0, wrong, "check")


def test_warp_functions_and_atomics(build: Build) -> None:
    body = """
    int i = threadIdx.x, v = in[i];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    out[i] = v;
    out[32 + i] = __shfl_down_sync(0xffffffffu, in[i], 3);
    out[64 + i] = __shfl_up_sync(0xffffffffu, in[i], 2, 8);
    out[96 + i] = __shfl_sync(0xffffffffu, in[i], 5, 16);
    unsigned odd = __ballot_sync(0xffffffffu, in[i] & 1);
    if (i < 7) atomicAdd(&out[128], __popc(odd));
    out[129 + i] = __syncthreads_count(in[i] > 10);
    atomicMax(&out[161], in[i]);"""
    values = np.random.default_rng(0).integers(0, 100, 32).astype(np.int32)
    out = zeros(162, dtype=np.int32)
    clean(
        build(kernel("const int* in, int* out", body)).launch(
            (1, 1, 1), (32, 1, 1), 0, [device_buffer(values), out], "check"
        )
    )
    lane = np.arange(32)
    assert (out[:32] == values.sum()).all()
    assert (out[32:64] == values[np.where(lane + 3 < 32, lane + 3, lane)]).all()
    assert (out[64:96] == values[np.where(lane % 8 >= 2, lane - 2, lane)]).all()
    assert (out[96:128] == values[lane // 16 * 16 + 5]).all()
    assert out[128] == 7 * (values % 2).sum()
    assert (out[129:161] == (values > 10).sum()).all()
    assert out[161] == values.max()


def test_bit_functions(build: Build) -> None:
    body = """
    out[0] = __funnelshift_l(x, y, 12); out[1] = __funnelshift_r(x, y, 12); out[2] = __byte_perm(x, y, 0x7041);
    out[3] = __byte_perm(0x80u, 0, 0x0008); out[4] = __brev(1u); out[5] = __clz(1); out[6] = min(3, 2) + max(1u, 7u);"""
    x, y = 0x12345678, 0x9ABCDEF0
    both, out = y << 32 | x, zeros(7, dtype=np.uint32)
    build(kernel("unsigned* out, unsigned x, unsigned y", body)).launch((1, 1, 1), (1, 1, 1), 0, [out, x, y], "run")
    assert out[:3].tolist() == [both << 12 >> 32 & 0xFFFFFFFF, both >> 12 & 0xFFFFFFFF, 0x9A78F056]
    assert out[3:].tolist() == [0x808080FF, 1 << 31, 31, 9]


@pytest.mark.parametrize(
    ("dtype", "header", "to", "back"),
    [(np.float16, "cuda_fp16.h", "__float2half_rn", "__half2float"),
     (ml_dtypes.bfloat16, "cuda_bf16.h", "__float2bfloat16_rn", "__bfloat162float")],
)  # fmt: skip
def test_sixteen_bit_conversions_are_exact(build: Build, dtype: Any, header: str, to: str, back: str) -> None:
    body = f"""
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto h = {to}(in[i]);
    out[i] = *reinterpret_cast<unsigned short*>(&h);
    again[i] = {back}(h);
    auto s = h + h * h;
    sums[i] = *reinterpret_cast<unsigned short*>(&s);"""
    program = build(
        kernel(
            "const float* in, unsigned short* out, float* again, unsigned short* sums, int n",
            body,
            f"#include <{header}>",
        )
    )
    every = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
    steps = np.random.default_rng(0).integers(0, 2**32, 60000, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        ties = (every[:-1].astype(np.float64) + every[1:].astype(np.float64)) / 2
        floats: Any = np.concatenate(
            [every, steps, ties.astype(np.float32), np.float32([0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520])]
        )
        given = device_buffer(floats)
        expected = given.astype(dtype)
        n = len(floats)
        out, again, sums = zeros(n, dtype=np.uint16), zeros(n), zeros(n, dtype=np.uint16)
        program.launch((-(-n // 256), 1, 1), (256, 1, 1), 0, [given, out, again, sums, n], "run")
        nan = np.isnan(expected.astype(np.float32))
        assert (out[~nan] == expected.view(np.uint16)[~nan]).all()
        assert np.isnan(out[nan].view(dtype).astype(np.float32)).all()
        assert np.array_equal(again[~nan], expected.astype(np.float32)[~nan])
        product = expected + (expected * expected)
        bad = np.isnan(product.astype(np.float32))
        assert (sums[~bad] == product.view(np.uint16)[~bad]).all()


# ------------------------------------------------------------------------------------------------------------ barriers


def test_second_barrier_removed(build: Build) -> None:
    source = without(MATMUL, "// second barrier")
    report, _ = run_matmul(build(source, "matmul"), 64, 64, 64)
    fill_b, use = line_of(source, "// fill b"), line_of(source, "// use")
    races = {(d.op, d.other_line, d.line): d for d in only(report, "shared_race")}
    race = races["write-after-read", use, fill_b]
    assert race.across_warps
    assert race.block == race.other_block == 0
    assert race.message.startswith(
        f"shared-memory race (write-after-read) between line {use} and line {fill_b}: threads "
    )
    assert "a __syncthreads() is missing between them" in race.message
    assert ("read-after-write", fill_b, use) in races


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_first_barrier_removed(build: Build, order: Any) -> None:
    source = without(MATMUL, "// first barrier")
    report, error = run_matmul(build(source, "matmul"), 64, 64, 64, order=order)
    assert not error < 1e-3
    assert only(report, "uninitialised_shared")[0].line == line_of(source, "// use")
    assert {d.kind for d in report.diagnostics} == {"shared_race", "uninitialised_shared"}


def test_return_before_a_barrier(build: Build) -> None:
    body = """
    __shared__ float s[64];
    int i = threadIdx.x;
    if (i >= n) return;
    s[i] = out[i];
    __syncthreads();  // barrier
    out[i] = s[(i + 1) % n];"""
    source = kernel("float* out, int n", body)
    report = build(source).launch((1, 1, 1), (64, 1, 1), 0, [zeros(64), 40], "check")
    (found,) = report.diagnostics
    assert (found.kind, found.line) == ("barrier_divergence", line_of(source, "// barrier"))
    assert "40 of 64 threads wait there" in found.message


def test_a_barrier_in_each_branch(build: Build) -> None:
    source = kernel(
        "float* out", "if (threadIdx.x < 16) {\n__syncthreads();\n} else {\n__syncthreads();\n}\nout[threadIdx.x] = 1;"
    )
    report = build(source).launch((1, 1, 1), (64, 1, 1), 0, [zeros(64)], "check")
    (found,) = report.diagnostics
    assert (found.kind, found.line, found.other_line) == ("barrier_divergence", 4, 6)


WARP_EXCHANGE = """
    __shared__ int s[64];
    int i = threadIdx.x;
    s[i] = i;
    __syncwarp();
    int v = s[i ^ 1];
    __syncwarp();  // second
    s[i] = v;
    __syncthreads();
    out[i] = s[i];"""


def test_missing_syncwarp(build: Build) -> None:
    source = kernel("int* out", WARP_EXCHANGE)
    out = zeros(64, dtype=np.int32)
    clean(build(source).launch((1, 1, 1), (64, 1, 1), 0, [out], "check"))
    assert (out == np.arange(64) ^ 1).all()
    faulty = without(source, "// second")
    races = build(faulty).launch((1, 1, 1), (64, 1, 1), 0, [out], "check").diagnostics
    assert {(d.kind, d.op, d.across_warps) for d in races} == {
        ("shared_race", "write-after-read", False), ("shared_race", "read-after-write", False)
    }  # fmt: skip
    race = races[0]
    assert {race.line, race.other_line} == {line_of(faulty, "s[i ^ 1]"), line_of(faulty, "s[i] = v")}
    assert "__syncwarp()" in race.message


def test_a_mask_whose_lanes_never_come(build: Build) -> None:
    source = kernel("int* out", "if (threadIdx.x < 16) __syncwarp();\nelse __syncthreads();\nout[threadIdx.x] = 1;")
    report = build(source).launch((1, 1, 1), (32, 1, 1), 0, [zeros(32, dtype=np.int32)], "check")
    assert [(d.kind, d.line) for d in report.diagnostics] == [("deadlock", 3)]


# -------------------------------------------------------------------------------------------------- asynchronous copies


def run_ring(build: Build, stages: int, *defines: str) -> tuple[Report, bool]:
    source = "\n".join([*(f"#define {d}" for d in (f"STAGES {stages}", *defines)), RING])
    tiles = 8
    data, out = randoms(tiles, 128), zeros(32)
    report = build(source, "ring").launch((1, 1, 1), (32, 1, 1), stages * 512, [data, out, np.int32(tiles)], "check")
    lanes = (np.arange(32)[:, None] + 32 * np.arange(4) + 17) % 128
    return report, bool(np.allclose(out, data[:, lanes].sum(axis=(0, 2)), atol=1e-4))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_ring_of_asynchronous_copies(build: Build, stages: int) -> None:
    report, right = run_ring(build, stages)
    assert clean(report)
    assert right


@pytest.mark.parametrize("define", ["NO_WAIT", "PENDING (STAGES - 1)"])
def test_a_wait_that_is_missing_or_too_weak(build: Build, define: str) -> None:
    report, right = run_ring(build, 3, define)
    assert not right
    uses = {d.line for d in report.diagnostics if d.kind in ("uninitialised_shared", "shared_race")}
    source = f"#define STAGES 3\n#define {define}\n{RING}"
    assert line_of(source, "// use") in uses


def test_a_stage_overwritten_while_others_read_it(build: Build) -> None:
    report, _ = run_ring(build, 2, "EARLY", "PENDING 1")
    source = f"#define STAGES 2\n#define EARLY\n#define PENDING 1\n{RING}"
    assert line_of(source, "// copy") in {d.line for d in only(report, "shared_race")} | {
        d.other_line for d in only(report, "shared_race")
    }


def test_a_copy_in_flight_is_read(build: Build) -> None:
    body = """
    __shared__ __align__(16) float s[32];
    int i = threadIdx.x;
    s[i] = 0;
    __syncthreads();
    __pipeline_memcpy_async(&s[i], in + i, 4);  // copy
    __pipeline_commit();
    __syncthreads();
    out[i] = s[i ^ 1];  // use
    __pipeline_wait_prior(0);"""
    source = kernel("const float* in, float* out", body, "#include <cuda_pipeline.h>")
    report = build(source).launch((1, 1, 1), (32, 1, 1), 0, [randoms(32), zeros(32)], "check")
    (race,) = (d for d in only(report, "shared_race") if d.op == "read-before-wait")
    assert (race.line, race.other_line) == (line_of(source, "// use"), line_of(source, "// copy"))
    assert "__pipeline_wait_prior()" in race.message


def test_zfill_and_the_sizes_of_copies(build: Build) -> None:
    body = """
    __shared__ __align__(16) float s[8];
    __pipeline_memcpy_async(s, in, 16, 8);
    __pipeline_memcpy_async(s + 4, in + offset, size, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    for (int i = 0; i < 8; ++i) out[i] = s[i];"""
    program = build(kernel("const float* in, float* out, int offset, int size", body, "#include <cuda_pipeline.h>"))
    out = zeros(8)
    data = device_buffer(np.float32([1, 2]))
    clean(program.launch((1, 1, 1), (1, 1, 1), 0, [data, out, 1 << 20, 16], "check"))
    assert out.tolist() == [1, 2, 0, 0, 0, 0, 0, 0]
    (found,) = program.launch((1, 1, 1), (1, 1, 1), 0, [data, out, 0, 12], "check").diagnostics
    assert found.kind == "bad_copy_size"


@pytest.mark.parametrize(
    ("target", "source", "kind"),
    [(1, 0, "misaligned"), (0, 1, "misaligned"), (0, 60, "out_of_bounds"), (62, 0, "out_of_bounds")],
)
def test_faulty_copies(build: Build, target: int, source: int, kind: str) -> None:
    body = """
    __shared__ __align__(16) float s[64];
    __pipeline_memcpy_async(s + target, in + source, 16);
    __pipeline_wait_prior(0);
    in[0] = s[target];"""
    program = build(kernel("float* in, int target, int source", body, "#include <cuda_pipeline.h>"))
    (found,) = program.launch((1, 1, 1), (1, 1, 1), 0, [zeros(61), target, source], "run").diagnostics
    assert (found.kind, found.line) == (kind, 5)


# --------------------------------------------------------------------------------------------------------------- bounds


def test_a_row_too_far(build: Build) -> None:
    source = MATMUL.replace("b[(k0 + ty) * n + col]", "b[(k0 + ty + 1) * n + col]")
    report, _ = run_matmul(build(source, "matmul"), 64, 64, 64)
    found = report.diagnostics[0]
    assert (found.kind, found.op, found.line) == ("out_of_bounds", "load", line_of(source, "// fill b"))
    assert "4 bytes 0 bytes past the end of argument 1 (16384 bytes)" in found.message


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("mode", ["run", "check"])
def test_a_wild_pointer_stops_the_launch(build: Build, traced: bool, mode: Any) -> None:
    if not traced and mode == "check":
        return
    program = build(
        kernel("float* out, long long far", "out[threadIdx.x] = 1;\nout[far] = 2;\nout[threadIdx.x] = 3;"),
        traced=traced,
    )
    for far in (1 << 40, -(1 << 44)):
        out = zeros(64)
        (found,) = program.launch((4, 1, 1), (64, 1, 1), 0, [out, far], mode).diagnostics
        assert (found.kind, found.line, found.count) == ("out_of_bounds", 4 if traced else found.line, 1)
        assert out[0] == 1


@pytest.mark.parametrize(("index", "kind"), [(64, "out_of_bounds"), (-1, "out_of_bounds"), (63, None)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_bounds_of_shared_memory(build: Build, index: int, kind: str | None, dynamic: bool) -> None:
    declaration = "extern __shared__ alignas(16) float s[];" if dynamic else "__shared__ float s[64];"
    source = kernel("float* out, int index", f"{declaration}\ns[index] = 1;\nout[0] = s[index];")
    report = build(source).launch((1, 1, 1), (1, 1, 1), 256 if dynamic else 0, [zeros(1), index], "check")
    assert [(d.kind, d.line) for d in report.diagnostics] == ([(kind, 4)] if kind else [])


def test_misaligned_vector(build: Build) -> None:
    source = kernel("float* p, int offset", "float4 v = *reinterpret_cast<float4*>(p + offset);\np[0] = v.x + v.w;")
    program = build(source)
    (found,) = program.launch((1, 1, 1), (1, 1, 1), 0, [zeros(16), 2], "check").diagnostics
    assert (found.kind, found.line) == ("misaligned", 3)
    assert "16 bytes at byte 8 of argument 0" in found.message
    clean(program.launch((1, 1, 1), (1, 1, 1), 0, [zeros(16), 4], "check"))


def test_read_only_arguments(build: Build) -> None:
    data = zeros(4)
    data.flags.writeable = False
    (found,) = build(kernel("float* p", "p[1] = 2;")).launch((1, 1, 1), (1, 1, 1), 0, [data], "run").diagnostics
    assert found.kind == "read_only_write"


def test_unwritten_shared_memory_is_poisoned(build: Build) -> None:
    source = kernel(
        "float* out",
        "int i = threadIdx.x;\n__shared__ float s[32]; if (i) s[i] = 0;\n__syncthreads();\nout[i] = s[i];",
    )
    out = zeros(32)
    (found,) = build(source).launch((1, 1, 1), (32, 1, 1), 0, [out], "check").diagnostics
    assert (found.kind, found.line, found.thread, found.count) == ("uninitialised_shared", 6, 0, 1)
    assert np.isnan(out[0])
    assert (out[1:] == 0).all()


def test_of_what_nobody_wrote_the_first_is_told_with_its_place(build: Build) -> None:
    source = kernel(
        "float* out",
        "int i = threadIdx.x;\n__shared__ float s[64]; if (i < 40) s[i] = 0;\n__syncthreads();\nout[i] = s[i];",
    )
    (found,) = build(source).launch((1, 1, 1), (64, 1, 1), 0, [zeros(64)], "check").diagnostics
    assert (found.thread, found.count) == (40, 24)
    assert "at byte 160 of" in found.message


# ---------------------------------------------------------------------------------------------------------------- races


@pytest.mark.parametrize("element", ["unsigned char", "__half"])
def test_narrow_elements_are_no_race(build: Build, element: str) -> None:
    body = f"""
    __shared__ {element} tile[32][34];
    for (int y = threadIdx.y; y < 32; y += 8) tile[y][threadIdx.x] = in[y * 32 + threadIdx.x];
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += 8) out[y * 32 + threadIdx.x] = tile[threadIdx.x][y];"""
    source = kernel(f"const {element}* in, {element}* out", body, "#include <cuda_fp16.h>")
    dtype = np.float16 if element == "__half" else np.uint8
    data = device_buffer(np.random.default_rng(0).integers(0, 200, (32, 32)).astype(dtype))
    out = zeros(32, 32, dtype=dtype)
    clean(build(source).launch((1, 1, 1), (32, 8, 1), 0, [data, out], "check"))
    assert (out == data.T).all()
    racing = without(source, "__syncthreads();")
    assert only(build(racing).launch((1, 1, 1), (32, 8, 1), 0, [data, out], "check"), "shared_race")


def test_two_blocks_write_one_place(build: Build) -> None:
    source = kernel("float* out", "out[threadIdx.x + blockIdx.x * 31] = blockIdx.x;")
    (race,) = build(source).launch((2, 1, 1), (32, 1, 1), 0, [zeros(64)], "check").diagnostics
    assert (race.kind, race.op, race.line, race.other_line) == ("global_race", "write-after-write", 3, 3)
    assert (race.thread, race.block, race.other_thread, race.other_block, race.count) == (0, 1, 31, 0, 1)


def test_a_block_reads_what_another_writes(build: Build) -> None:
    source = kernel(
        "float* p",
        "int i = blockIdx.x * 32 + threadIdx.x;\nfloat left = i ? p[i - 1] : 0;\n__syncthreads();\np[i] = left;",
    )
    report = build(source).launch((4, 1, 1), (32, 1, 1), 0, [zeros(128)], "check")
    (race,) = report.diagnostics
    assert (race.kind, race.op, race.line, race.other_line, race.count) == ("global_race", "read-after-write", 4, 6, 3)


def test_ordered_global_accesses_are_no_race(build: Build) -> None:
    body = """
    int i = threadIdx.x, block = blockIdx.x;
    partial[block * 32 + i] = i;
    __syncthreads();
    float sum = partial[block * 32 + (i + 1) % 32];
    atomicAdd(total, sum);
    __threadfence();
    __shared__ bool last;
    if (i == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && i < gridDim.x) out[i] = partial[i * 32 + 1];"""
    out, total = zeros(4), zeros(1)
    source = kernel("float* partial, float* total, int* done, float* out", body)
    clean(build(source).launch((4, 1, 1), (32, 1, 1), 0, [zeros(128), total, zeros(1, dtype=np.int32), out], "check"))
    assert total[0] == 4 * 31 * 16
    assert (out == 1).all()


# ------------------------------------------------------------------------------------------------------------ stopping


@pytest.mark.parametrize(
    "body",
    [
        "while (true) out[0] += 1;",
        "while (true) __syncthreads();",
        "volatile unsigned s = seed;\nwhile (s != 7) s = s & ~1u;\nout[0] = s;",
    ],
)
def test_endless_loops_are_stopped(build: Build, body: str) -> None:
    report = build(kernel("float* out, unsigned seed", body)).launch(
        (1, 1, 1), (1, 1, 1), 0, [zeros(1), 0], "check", limit_s=0.2
    )
    (found,) = report.diagnostics
    assert found.kind == "timeout"
    assert report.run_s < 2


def test_faults_of_arithmetic_and_stack(build: Build) -> None:
    division = kernel("int* p", "p[0] = p[1] / p[2];\nvolatile int keep = 0;")
    (found,) = build(division).launch((1, 1, 1), (1, 1, 1), 0, [zeros(3, dtype=np.int32)], "check").diagnostics
    assert (found.kind, found.line) == ("division_by_zero", 3)
    (found,) = (
        build(kernel("int* p", "assert(p[0] == 1);"))
        .launch((1, 1, 1), (1, 1, 1), 0, [zeros(3, dtype=np.int32)], "run")
        .diagnostics
    )
    assert (found.kind, found.line) == ("trap", 3)


def test_only_the_given_blocks_run(build: Build) -> None:
    out = zeros(6)
    build(kernel("float* out", "out[blockIdx.x + 3 * blockIdx.y] = 1;")).launch(
        (3, 2, 1), (1, 1, 1), 0, [out], "run", blocks=[1, 5]
    )
    assert out.tolist() == [0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("grid", "block", "shared_bytes", "message"),
    [((1, 1, 1), (2048, 1, 1), 0, "block"), ((1, 1, 1), (64, 32, 1), 0, "2048 threads"),
     ((0, 1, 1), (1, 1, 1), 0, "grid"), ((1, 1, 1), (1, 1, 1), 240_000, "240000 bytes of dynamic")],
)  # fmt: skip
def test_launches_that_a_gpu_would_refuse(build: Build, grid: Any, block: Any, shared_bytes: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        build(kernel("", "")).launch(grid, block, shared_bytes, [], "run")


# ------------------------------------------------------------------------------------------------------------- building


@pytest.mark.parametrize(
    ("text", "name"),
    [('asm volatile("trap;");', "the PTX instruction trap"), ("asm", "inline PTX"), ("#include <mma.h>", "wmma"),
     ("auto all = cg::this_grid();", "cooperative groups"),
     ("cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);", "cooperative groups"),
     ("#include <cooperative_groups/reduce.h>", "cooperative groups"),
     ("unsigned x = __clusterRelativeBlockRank();", "clusters"),
     ("__shared__ cuda::barrier<cuda::thread_scope_block> b;", "cuda::barrier"),
     ("void __cluster_dims__(2, 1, 1) f();", "clusters"),
     ("f(const __grid_constant__ CUtensorMap map)", "tensor maps"),
     ("cudaTextureObject_t t;", "textures"), ("child<<<1, 1>>>();", "from a kernel"),
     ("auto p = cuda::make_pipeline();", "cuda::pipeline"), ("__device__ int counter = 0;", "writable global")],
)  # fmt: skip
def test_unsupported_constructs_are_named(text: str, name: str) -> None:
    with pytest.raises(UnsupportedByEmulator, match=f"kernel.cu:3: the emulator cannot run .*{name}"):
        refuse_unsupported(f"// asm in a comment\n/* <<<\n*/ {text}\n")


@pytest.mark.parametrize(
    "text",
    ['// asm("x")\n', 'const char* s = "asm <<<";\n', "#ifndef AUTOTILE_EMULATOR\nasm();\n#endif\n",
     "#ifdef AUTOTILE_EMULATOR\nint a;\n#else\n#if 1\nasm();\n#endif\n#endif\n",
     "#if !defined(AUTOTILE_EMULATOR)\nasm();\n#else\nint b;\n#endif\n",
     "static __device__ const float t[2] = {1, 2};\n__device__ constexpr int n = 3;\n",
     "__device__ __forceinline__ float f(float x) { return x; }\n"],
)  # fmt: skip
def test_what_the_emulator_does_not_see_is_not_refused(text: str) -> None:
    refuse_unsupported(text)


def test_compile_errors_name_the_line(toolchain: HostToolchain, cache_dir: Path, tmp_path: Path) -> None:
    def error(source: str, entry: str = "kernel") -> str:
        with pytest.raises(CompileError) as raised:
            compile_host(source, entry, tmp_path / "k.so", toolchain, cache_dir=cache_dir)
        assert not (tmp_path / "k.so").exists()
        assert not list(tmp_path.glob(".k*"))
        return str(raised.value)

    assert error(kernel("float* out", "\nout[0] = missing;")).startswith("kernel.cu:4: ")
    assert "missing" in error(kernel("float* out", "\nout[0] = missing;"))
    assert "no kernel named 'other'" in error(kernel("", ""), "other")
    assert "undefined" in error("void elsewhere();" + kernel("", "elsewhere();"))
    assert error('static_assert(1 == 2, "tile");').startswith("kernel.cu:1: ")


def test_a_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("AUTOTILE_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ToolchainMissing, match=r"apt install g\+\+|xcode-select --install"):
        find_host_compiler()
    monkeypatch.setenv("AUTOTILE_CXX", "no-such-compiler")
    with pytest.raises(ToolchainMissing, match="AUTOTILE_CXX names 'no-such-compiler'"):
        find_host_compiler()
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\necho fake 1.0\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    monkeypatch.setenv("AUTOTILE_CXX", "fake")
    assert find_host_compiler().version_text == "fake 1.0"


def test_the_identity_names_compiler_and_flags(toolchain: HostToolchain) -> None:
    identity = flags_identity(toolchain)
    assert toolchain.version_text in identity
    assert "-fsanitize=thread" in identity


def test_a_library_of_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "k.so"
    path.write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(LaunchError, match="delete it"):
        EmulatedProgram(path)


@pytest.mark.parametrize("length", [40, 70, 4096, -1])
def test_a_truncated_library_is_refused_before_it_is_loaded(
    toolchain: HostToolchain, cache_dir: Path, tmp_path: Path, length: int
) -> None:
    path = tmp_path / "k.so"
    compile_host(kernel("", ""), "kernel", path, toolchain, cache_dir=cache_dir)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(LaunchError, match="truncated"):
        EmulatedProgram(path)


def stand_in(folder: Path, script: str) -> HostToolchain:
    """A compiler that is a shell script."""
    path = folder / "cxx"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return HostToolchain(str(path), f"stand-in {folder.name}")


@pytest.fixture(scope="session")
def breaking(toolchain: HostToolchain, tmp_path_factory: pytest.TempPathFactory) -> tuple[HostToolchain, Path]:
    """A compiler that compiles the runtime, and then does what the script at the path says."""
    folder = tmp_path_factory.mktemp("breaking")
    script = folder / "then.sh"
    return stand_in(folder, f'case "$*" in *" -c "*) exec {toolchain.path} "$@";; esac\n. {script}'), script


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "echo 'ld: cannot find -lm' >&2; echo 'collect2: error: ld returned 1 exit status' >&2; exit 1",
            "cannot find",
        ),
        ("echo \"cxx: error: unrecognized command-line option '-mfma'\" >&2; exit 1", "unrecognized"),
        ("echo 'cxx: internal compiler error: in main, at x.c:1' >&2; exit 4", "internal compiler error"),
        ("echo 'kernel.cu:1:1: fatal error: error writing to /tmp/a.s: No space left on device' >&2; exit 1", "space"),
        ("printf 'error: \\377\\376' >&2; exit 1", "empty kernel: error: \ufffd\ufffd"),
        ("exit 0", "without a library"),
        ("while [ $# -gt 1 ]; do [ $1 = -o ] && echo nonsense > $2; shift; done", "cannot load"),
    ],
)
def test_a_fault_of_the_machine_is_no_fault_of_the_source(
    breaking: tuple[HostToolchain, Path], cache_dir: Path, tmp_path: Path, script: str, says: str
) -> None:
    broken, path = breaking
    path.write_text(script)
    with pytest.raises(ToolchainMissing, match=says):
        compile_host(kernel("", ""), "kernel", tmp_path / "k.so", broken, cache_dir=cache_dir)
    assert not list(tmp_path.glob("*k.so*"))


def test_a_variable_that_was_never_written_is_not_zero(
    toolchain: HostToolchain, cache_dir: Path, tmp_path: Path
) -> None:
    source = kernel("const float* x, float* out", "float acc;\nfor (int i = 0; i < 8; i++) acc += x[i];\nout[0] = acc;")
    built = compile_host(source, "kernel", tmp_path / "k.so", toolchain, cache_dir=cache_dir)
    if not any("auto-var-init" in flag for flag in built.flags):
        pytest.skip(f"{toolchain.version_text} cannot fill variables")
    x, out = device_buffer(np.ones(8, np.float32)), zeros(1)
    with EmulatedProgram(built.shared_object) as program:
        program.launch((1, 1, 1), (1, 1, 1), 0, [x, out], "run")
    assert not abs(float(out[0])) < 1e6


def test_a_compiler_that_is_gone(toolchain: HostToolchain, tmp_path: Path) -> None:
    gone = HostToolchain(str(tmp_path / "gone"), "gone 1.0")
    with pytest.raises(ToolchainMissing, match="gone"):
        compile_host(kernel("", ""), "kernel", tmp_path / "k.so", gone, cache_dir=tmp_path)


def test_a_damaged_runtime_is_compiled_again(
    toolchain: HostToolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_it() -> None:
        compile_host(kernel("", ""), "kernel", tmp_path / "k.so", toolchain, cache_dir=tmp_path)

    compile_it()
    (folder,) = tmp_path.glob("runtime-*")
    data = (folder / "runtime.o").read_bytes()
    (folder / "runtime.o").write_bytes(data[: len(data) // 2])
    with pytest.raises(ToolchainMissing, match="damaged"):  # this process looked at it before; now it knows
        compile_it()
    compile_it()
    assert (folder / "runtime.o").read_bytes() == data
    (folder / "end.o").unlink()
    monkeypatch.setattr("autotile.devices.emulator.toolchain._VERIFIED", set())
    compile_it()
    assert (folder / "end.o").is_file()
    assert not list(tmp_path.glob("building-*"))


def test_a_version_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTILE_CXX", stand_in(tmp_path, "printf 'cxx \\377 1.0\\n'").path)
    assert find_host_compiler().version_text == "cxx \ufffd 1.0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_forked_during_a_launch_can_launch(build: Build) -> None:
    program = build(kernel("float* out", "while (out[0] == 0.0f) { }"))
    quick = build(kernel("float* out", "out[0] = 1.0f;"))
    launch = ((1, 1, 1), (1, 1, 1), 0)
    busy = threading.Thread(target=lambda: program.launch(*launch, [zeros(1)], "run", limit_s=0.5))
    busy.start()
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            out = zeros(1)
            quick.launch(*launch, [out], "run")
            os._exit(0 if out[0] == 1 else 3)
        finally:
            os._exit(4)
    busy.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    clean(quick.launch(*launch, [zeros(1)], "run"))


DECLARATIONS: Sequence[str] = (
    "extern __shared__ float s[];",
    "extern __shared__ __align__(16) float s[];",
    "__shared__ extern float s[];",
    "extern __align__(128) __shared__ float s[];",
    "extern __shared__ alignas(16) unsigned char raw[]; float* s = reinterpret_cast<float*>(raw);",
    "extern __shared__ float4 quads[]; float* s = (float*)quads;",
    "__shared__ alignas(128) float s[64];",
    "__shared__ __align__(16) float s[64];",
    "static __shared__ float s[64];",
)


@pytest.mark.parametrize("scope", ["kernel", "template"])
def test_declarations_of_shared_memory(build: Build, scope: str) -> None:
    sources = []
    for number, declaration in enumerate(DECLARATIONS):
        body = f"{declaration}\nint i = threadIdx.x;\ns[i] = i;\n__syncthreads();\nout[i + {64 * number}] = s[63 - i];"
        head = "template <int N>\n" if scope == "template" else ""
        sources.append(
            f"{head}static __device__ __forceinline__ void f{number}(float* out) {{\n{body}\n__syncthreads();\n}}"
        )
    suffix = "<1>" if scope == "template" else ""
    calls = "\n".join(f"f{number}{suffix}(out);" for number in range(len(DECLARATIONS)))
    out = zeros(len(DECLARATIONS), 64)
    program = build(kernel("float* out", calls, "\n".join(sources)))
    clean(program.launch((1, 1, 1), (64, 1, 1), 256, [out], "check"))
    assert (out == np.arange(63, -1, -1)).all()
    assert program.static_shared_bytes >= 3 * 256
