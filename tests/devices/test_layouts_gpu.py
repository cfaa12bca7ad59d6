"""Gaps and in place on a real GPU (`pytest -m gpu`), beside what tests/measure/test_layouts.py runs on both devices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.devices.base import Check
from autotile.devices.cuda import CudaDevice, open_cuda
from autotile.devices.cuda.device import open_unguarded
from autotile.errors import ToolchainMissing
from autotile.kernels import load_kernel
from autotile.measure.sanitize import TOOLS, find_sanitizer, sanitize
from autotile.measure.trace import Tracer
from autotile.measure.variant import Variant, make_variant
from autotile.measure.workload import make_workload

pytestmark = pytest.mark.gpu
KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
GAPS = {"rows": 300, "cols": 500, "batch": 2, "in_pitch": 513, "out_pitch": 640, "in_step": 301, "offset": 1}
WITHIN = {"rows": 700, "cols": 700, "in_pitch": 701, "out_pitch": 701, "in_place": 1}
CASES = {"padded_copy": GAPS, "square": WITHIN}


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return open_cuda(0)


@pytest.fixture(scope="module")
def builder(device: CudaDevice, build_home: Path) -> Iterator[Builder]:
    with Builder(device.target, build_home) as made:
        yield made


def variant_of(name: str, dtype: str = "float32") -> Variant:
    kernel = load_kernel(name, KERNELS)
    return make_variant(kernel, kernel.problem(CASES[name], dtype), kernel.configuration())


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_many_timed_launches_each_find_what_they_need(
    device: CudaDevice, builder: Builder, name: str, guarded: bool, dtype: str
) -> None:
    other, variant = device if guarded else open_unguarded(0), variant_of(name, dtype)
    program = other.load(builder.build(variant.source))
    with other.stage(make_workload(variant.kernel, variant.problem), builder.build(other.comparer)) as stage:
        for _ in range(3):
            found = stage.check(program, variant.launch)
            assert (found.ok, found.max_error) == (True, 0.0), found.detail
            times = stage.times_ms(program, variant.launch, 20)
            assert all(0 < time_ms < 10 for time_ms in times)
            assert stage.check_timed() == Check(0.0, 0)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CASES)
def test_the_sanitizer_finds_nothing(device: CudaDevice, builder: Builder, name: str, tool: str) -> None:
    try:
        sanitizer = find_sanitizer()
    except ToolchainMissing as error:
        pytest.skip(str(error))
    found = sanitize(tool, sanitizer, device, builder, variant_of(name))
    assert found.clean, found.words
    assert found.problems >= 4


@pytest.mark.parametrize("name", CASES)
def test_the_emulator_traces_them_too(device: CudaDevice, name: str) -> None:
    variant, tracer = variant_of(name), Tracer(device, jobs=1)
    try:
        assert tracer.trace(variant.kernel, variant.problem, variant) == "yes"
    finally:
        tracer.close()
