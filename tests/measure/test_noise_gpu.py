"""The same kernel as two variants: the times of a GPU must call it the same."""

from __future__ import annotations

from functools import partial

import pytest

from autotile.build import Builder
from autotile.devices.select import open_device
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.measure.noise import verdict
from autotile.measure.timing import interleaved

pytestmark = pytest.mark.gpu


LARGE = [("transpose", {"rows": 8192, "cols": 8192}), ("matmul", {"m": 2048, "n": 2048, "k": 2048})]
SMALL = ("transpose", {"rows": 1024, "cols": 1024})
"""Six microseconds: the timer's ticks are half a percent of it."""


@pytest.mark.parametrize(("name", "sizes"), [*LARGE, SMALL])
def test_a_kernel_is_as_fast_as_itself(name: str, sizes: dict[str, int]) -> None:
    device, kernel = open_device("cuda"), load_kernel(name)
    problem = kernel.problem(sizes)
    variant = make_variant(kernel, problem, kernel.configuration())
    with Builder(device.target) as builder:
        binary = builder.build(variant.source)
        with device.stage(make_workload(kernel, problem)) as stage:
            times = partial(stage.times_ms, device.load(binary), variant.launch)
            first, second = interleaved([times, times], rounds=16)
    assert verdict(first, second) == "same"
    if (name, sizes) in LARGE:
        assert abs(first.time_ms / second.time_ms - 1) < 0.01


def test_clocks_are_read() -> None:
    clocks = open_device("cuda").clocks()
    assert clocks is not None
    assert 100 <= clocks.sm_mhz <= 5000
