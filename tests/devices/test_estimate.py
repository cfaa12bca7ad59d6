"""The estimate: each thing it knows moves it the right way, it is never below the data sheet, and it puts the steps of
the transpose's story in the order in which they were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.emulator.estimate import estimate
from autotile.devices.emulator.work import Work
from autotile.devices.gpus import find_gpu, gpu_table
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.measure.traced import trace_variant

H200 = find_gpu("h200")
STORY = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "nvidia-h200" / "transpose_story.json"
MOVED = 1 << 28
COPY = Work(
    blocks=8192, threads=256, shared_bytes=0, cluster_blocks=1,
    load_requests=2.0**20, load_sectors=2.0**22, load_passes=2.0**20, store_requests=2.0**20, store_sectors=2.0**22,
    store_passes=2.0**20, stored_bytes=2.0**27, loaded_sectors=2.0**22, stored_sectors=2.0**22, load_run_bytes=4096.0,
    store_run_bytes=4096.0, loads=16.0,
)  # fmt: skip


def time_ms(work: Work = COPY, flops: int = 0, dtype: str = "float32", **other: Any) -> float:
    return estimate([work], H200, flops=flops, least_bytes=MOVED, dtype=dtype, **other).time_ms


@pytest.mark.parametrize(
    "slower",
    [
        {"load_run_bytes": 64.0},
        {"store_run_bytes": 64.0},
        {"stored_bytes": 2.0**24, "store_passes": 2.0**23, "store_sectors": 2.0**24},
        {"shared_requests": 2.0**23, "shared_wavefronts": 2.0**28},
        {"load_sectors": 2.0**26, "load_passes": 2.0**24, "reuses": (0.0,) * 20 + (2.0**26 - 2.0**22,)},
        {"loads": 4096.0},
        {"waits": 4096.0},
        {"cluster_blocks": 8, "blocks": 1 << 20},
        {"shared_bytes": 200 << 10, "loads": 512.0, "threads": 32},
    ],
    ids=str,
)
def test_what_costs_costs(slower: dict[str, Any]) -> None:
    assert time_ms(replace(COPY, **slower)) > 1.03 * time_ms()


def test_what_helps_helps() -> None:
    short = replace(COPY, store_run_bytes=64.0)
    assert time_ms(replace(short, stores_joined=1.0)) < time_ms(short)
    waiting = replace(COPY, waits=4096.0)
    assert time_ms(replace(waiting, depth=3.0)) < 0.6 * time_ms(waiting)
    again = replace(COPY, load_sectors=2.0**26, load_passes=2.0**20)
    near, far = ((2.0**26 - 2.0**22, *(0.0,) * 20), (*(0.0,) * 20, 2.0**26 - 2.0**22))
    assert time_ms(replace(again, reuses=near)) < 0.5 * time_ms(replace(again, reuses=far))


def test_registers_limit_the_blocks_that_wait_side_by_side() -> None:
    waiting = replace(COPY, loads=512.0)
    assert time_ms(waiting, registers=32) == time_ms(waiting)
    assert time_ms(waiting, registers=255) > 3 * time_ms(waiting)


@pytest.mark.parametrize("name", gpu_table())
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_never_below_the_data_sheet(name: str, dtype: str) -> None:
    info = find_gpu(name)
    flops = 10**12
    found = estimate([COPY], info, flops=flops, least_bytes=MOVED, dtype=dtype).time_ms
    assert found > MOVED / (info.bandwidth_gbs * 1e6)
    assert found > flops / (info.fp32_tflops * 1e9) * (2 if dtype == "float64" else 1)


def test_the_storys_steps_come_in_the_order_in_which_they_were_measured(build_home: Path) -> None:
    kernel, device = load_kernel("transpose"), EmulatorDevice()
    problem = kernel.problem({"rows": 4096, "cols": 4096}, "float32")
    measured, estimated = [], []
    with Builder(device.target, build_home) as builder:
        for step in json.loads(STORY.read_text(encoding="utf-8"))["steps"]:
            at_4096 = step["by_shape"]["4096x4096"]
            variant = make_variant(kernel, problem, kernel.configuration(at_4096["configuration"]))
            trace = trace_variant(device, variant, builder.build(variant.source), budget_s=0.01)
            measured.append(at_4096["median_ms"])
            estimated.append(trace.estimate(variant, H200).time_ms)
    assert estimated == pytest.approx(measured, rel=0.25)
    slow = [time for time in sorted(zip(measured, estimated, strict=True)) if time[0] > 0.06]
    assert [time for _, time in slow] == sorted(
        time for _, time in slow
    )  # tile33, strided reads, tile32, strided writes
