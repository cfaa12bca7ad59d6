"""Launches of several functions in a row on the emulator, their scratch memory, and arguments that are not there."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated import Build, clean, line_of, randoms, zeros

from autotile.devices.base import Workload
from autotile.devices.emulator import EmulatedProgram, compile_host, find_host_compiler
from autotile.devices.emulator.device import EmulatedStage, EmulatorDevice, run
from autotile.devices.emulator.estimate import LAUNCH_MS, estimate
from autotile.devices.emulator.work import Work
from autotile.errors import LaunchError
from autotile.types import SCRATCH, Launch, LaunchStep

TEXT = """
extern "C" __global__ void kernel_turn(PARAMETERS);
extern "C" __global__ void kernel_turn(PARAMETERS) {
  __shared__ float tile[32][33];
  for (int y = 0; y < 32; y += 8) tile[threadIdx.y + y][threadIdx.x] = a[(threadIdx.y + y) * 32 + threadIdx.x];
  __syncthreads();
  for (int y = 0; y < 32; y += 8)
    scratch[(threadIdx.y + y) * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y + y];  // turn
}
extern "C" __global__ void kernel(PARAMETERS) {
  extern __shared__ float row[];
  __shared__ float own[4];
  if (threadIdx.x == 0) own[0] = scale;
  row[threadIdx.x] = scratch[blockIdx.x * 32 + threadIdx.x];  // main
  __syncthreads();
  c[blockIdx.x * 32 + threadIdx.x] = row[threadIdx.x] * own[0] + (bias ? bias[threadIdx.x] : 0);
}
extern "C" __global__ void kernel_raise(PARAMETERS) {
  __shared__ float ones[8];
  if (threadIdx.x < 8) ones[threadIdx.x] = 1;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] += ones[i % 8];
}
""".replace("PARAMETERS", "const float* a, const float* bias, float* c, float scale, int n, float* scratch")
TURN = LaunchStep("_turn", (1, 1, 1), (32, 8, 1))
RAISE = LaunchStep("_raise", (2, 1, 1), (64, 1, 1))
LAUNCH = Launch((32, 1, 1), (32, 1, 1), 128, 4096, (TURN,), (RAISE,))


def workload(bias: Any = None) -> Workload:
    a = np.asarray(randoms(32, 32))
    inputs = {"a": a} if bias is None else {"a": a, "bias": bias}
    right = a.T.astype(np.float64) * 1.5 + 1 + (0 if bias is None else bias)
    return Workload(
        ("a", None if bias is None else "bias", "c", np.float32(1.5), 1024, SCRATCH), inputs,
        {"c": ((32, 32), np.dtype(np.float32))}, {"c": right}, {"c": 1e-5},
    )  # fmt: skip


def staged(bias: Any = None) -> EmulatedStage:
    return EmulatorDevice().stage(workload(bias))


def test_steps_run_in_order_and_share_scratch_memory(build: Build) -> None:
    assert staged().check(build(TEXT), LAUNCH).ok
    assert staged(np.asarray(randoms(32))).check(build(TEXT), LAUNCH).ok
    for launch in (replace(LAUNCH, before=()), replace(LAUNCH, after=())):
        assert staged().check(build(TEXT), launch).wrong
    for launch in (replace(LAUNCH, before=(), after=(RAISE, TURN)), replace(LAUNCH, before=(TURN, RAISE), after=())):
        assert staged().check(build(TEXT), launch).wrong


def test_scratch_that_no_step_wrote_gives_wrong_results(build: Build) -> None:
    text = TEXT.replace("scratch[(threadIdx.y", "if (n < 0) scratch[(threadIdx.y")
    check = staged().check(build(text), LAUNCH)
    assert check.wrong
    assert "nan" in check.detail


def test_a_fault_of_a_step_ends_the_launch(build: Build) -> None:
    short = replace(LAUNCH, scratch_bytes=4092)
    check = staged().check(build(TEXT), short)
    assert f"out-of-bounds store at line {line_of(TEXT, '// turn')} by thread 255" in check.detail
    assert "4 bytes 0 bytes past the end of argument 5 (4092 bytes)" in check.detail
    none = staged().check(build(TEXT), replace(LAUNCH, scratch_bytes=0)).detail
    assert "out-of-bounds store" in none
    late = replace(LAUNCH, before=(), after=(RAISE,), scratch_bytes=2048)
    assert f"load at line {line_of(TEXT, '// main')}" in staged().check(build(TEXT), late).detail


def test_a_call_runs_the_steps_with_scratch_of_its_own(build: Build) -> None:
    a, c = randoms(32, 32), zeros(32, 32)
    EmulatorDevice().call(build(TEXT), LAUNCH, [a, None, c, np.float32(2), 1024, SCRATCH])
    assert np.allclose(c, a.T * 2 + 1, atol=1e-5)
    with pytest.raises(LaunchError, match="argument 3 is float64, but the kernel takes a 4-byte float"):
        EmulatorDevice().call(build(TEXT), LAUNCH, [a, None, c, np.float64(2), 1024, SCRATCH])


def test_the_estimate_covers_the_steps(build: Build) -> None:
    works: list[Work] = []
    arguments = [randoms(32, 32), None, zeros(32, 32), np.float32(1), 1024, SCRATCH]
    run(build(TEXT), LAUNCH, arguments, EmulatorDevice().info, "trace", works=works)
    assert [work.blocks for work in works] == [32, 1, 2]  # main, turn, raise
    assert [work.store_requests for work in works] == [32, 32, 32]
    assert works[0].load_requests >= 32  # clang passes over a load in front of a store
    assert works[0].shared_bytes == 128 + 16  # the steps have an array in common with each other, not with the main one
    main, *steps = (
        estimate([work], EmulatorDevice().info, flops=0, least_bytes=4096, dtype="float32") for work in works
    )
    whole = estimate(works, EmulatorDevice().info, flops=0, least_bytes=4096, dtype="float32")
    assert whole.time_ms > main.time_ms + 2 * LAUNCH_MS
    assert dict(whole.units_ms)["LSU"] == pytest.approx(sum(dict(one.units_ms)["LSU"] for one in (main, *steps)))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_static_shared_memory_is_each_functions_own(
    compiler: str, tmp_path: Any, cache_dir: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    monkeypatch.setenv("AUTOTILE_CXX", compiler)
    compile_host(TEXT, "kernel", tmp_path / "k.so", find_host_compiler(), cache_dir=cache_dir)
    with EmulatedProgram(tmp_path / "k.so") as program:
        assert program.static_shared_bytes == 16
        assert program.static_shared_bytes_of("_turn") >= 32 * 33 * 4
        most = replace(LAUNCH, shared_bytes=227 * 1024 - 16)
        assert staged().check(program, most).ok
        with pytest.raises(LaunchError, match=r"\(232448 dynamic, 16 static\)"):
            staged().check(program, replace(most, shared_bytes=227 * 1024))


def test_a_step_that_the_text_does_not_have(build: Build) -> None:
    other = TEXT + 'extern "C" __global__ void kernel_other(float* c) {}\n__global__ void kernel_mangled(int) {}\n'
    for suffix in ("_none", "_other", "_mangled"):
        launch = replace(LAUNCH, after=(LaunchStep(suffix, (1, 1, 1), (1, 1, 1)),))
        with pytest.raises(LaunchError, match=f"no function 'kernel{suffix}' to launch"):
            staged().check(build(other), launch)
    assert staged().check(build(other), LAUNCH).ok


def test_the_limits_of_a_launch_hold_for_its_steps(build: Build) -> None:
    wide = LaunchStep("_raise", (1, 1, 1), (2048, 1, 1))
    with pytest.raises(LaunchError, match="block"):
        staged().check(build(TEXT), replace(LAUNCH, after=(wide,)))


def test_a_step_in_clusters(build: Build) -> None:
    text = TEXT.replace(
        'extern "C" __global__ void kernel_raise(', 'extern "C" __global__ __cluster_dims__(2, 1, 1) void kernel_raise('
    )
    program = build(text)
    assert (program.cluster(), program.cluster("_raise")) == ((1, 1, 1), (2, 1, 1))
    assert staged().check(program, LAUNCH).ok
    with pytest.raises(LaunchError, match=r"thread block clusters, which .*4090.* does not have"):
        EmulatorDevice("rtx4090").stage(workload()).check(program, LAUNCH)


ZFILL = """
#include <cuda_pipeline.h>
extern "C" __global__ void kernel(const float* in, float* out, int columns) {
  __shared__ __align__(16) float4 s[4];
  const int i = threadIdx.x, left = max(0, min(16, (columns - 4 * i) * 4));
  __pipeline_memcpy_async(&s[i], left ? in + 4 * i : nullptr, 16, 16 - left);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __stcs(reinterpret_cast<float4*>(out) + i, s[i]);
}
"""


def test_a_copy_whose_tail_is_zero(build: Build) -> None:
    for columns in range(17):
        data, out = randoms(columns) + 10, zeros(16)
        assert clean(build(ZFILL).launch((1, 1, 1), (4, 1, 1), 0, [data, out, columns], "check"))
        assert (out[:columns] == data).all()
        assert (out[columns:] == 0).all()


MATH = """
extern "C" __global__ void __launch_bounds__(1) kernel(const float* x, const double2* y, float* f, double* d) {
  const float4 v = __ldcs(reinterpret_cast<const float4*>(x));
  const double2 w = __ldg(y);
  f[0] = erff(v.x), f[1] = tanhf(v.x), f[2] = expf(v.y), f[3] = fmaxf(v.x, 0.0f), f[4] = fminf(v.x, v.y);
  f[5] = __fmaf_rn(v.x, v.y, v.z), f[6] = fmaf(v.x, v.y, v.z), f[7] = fma(v.x, v.y, v.z), f[8] = fabsf(v.z);
  d[0] = erf(w.x), d[1] = tanh(w.x), d[2] = exp(w.y), d[3] = fmax(w.x, 0.0), d[4] = fma(w.x, w.y, 1.0);
  d[5] = __fma_rn(w.x, w.y, 1.0);
  __stcs(f + 9, 1), __stcg(d + 6, 1);
}
"""


def test_functions_of_an_epilogue(build: Build) -> None:
    x, y, f, d = randoms(4), randoms(2).astype(np.float64), zeros(10), zeros(7, dtype=np.float64)
    y = np.ascontiguousarray(y)
    assert clean(build(MATH).launch((1, 1, 1), (1, 1, 1), 0, [x, y, f, d], "check"))
    a, b, c = (float(v) for v in x[:3])
    fused = np.float32(a * b + c)
    assert f.tolist() == pytest.approx(
        [math.erf(a), math.tanh(a), math.exp(b), max(a, 0), min(a, b), fused, fused, fused, abs(c), 1], rel=1e-6
    )
    assert d.tolist() == pytest.approx(
        [math.erf(y[0]), math.tanh(y[0]), math.exp(y[1]), max(y[0], 0), y[0] * y[1] + 1, y[0] * y[1] + 1, 1], rel=1e-12
    )
