"""Switches, scalars, scratch memory and steps, run: on the emulator, and on a real GPU (`pytest -m gpu`)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.devices.cuda import CudaDevice, Pointer, open_cuda
from autotile.devices.select import open_device
from autotile.errors import LaunchError, WrongResult
from autotile.kernels import load_kernel
from autotile.measure.bench import LocalBench
from autotile.measure.prove import prove
from autotile.measure.variant import Variant, make_variant
from autotile.types import Binary, Source

AFFINE = load_kernel("affine", Path(__file__).resolve().parents[1] / "data" / "kernels")
ALL = {"x_turned": True, "added": True, "bias": True}


@pytest.fixture(scope="module", params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def builder(device: Device, build_home: Path) -> Iterator[Altering]:
    with Altering(device.target, build_home, jobs=1) as made:
        yield made


class Altering(Builder):
    """Builds every text with a part replaced: for proofs, too, it builds the mutant."""

    old = new = ""

    def submit(self, source: Source) -> Future[Binary]:
        return super().submit(
            replace(source, text=source.text.replace(self.old, self.new) if self.old else source.text)
        )


def variant_of(packed: bool, dtype: str = "float32", **stated: Any) -> Variant:
    problem = AFFINE.problem({"m": 700, "n": 900, **stated}, dtype)
    return make_variant(AFFINE, problem, AFFINE.configuration({"packed": packed}))


def tried(device: Device, builder: Altering, variant: Variant, old: str = "", new: str = "") -> float:
    """Checks, times and proves the variant, a part of its text replaced; gives the time in ms."""
    comparer = None if device.comparer is None else builder.build(device.comparer)
    assert old in variant.source.text
    builder.old, builder.new = old, new
    try:
        binary = builder.submit(variant.source).result()
        with LocalBench(device) as bench:
            bench.begin(AFFINE, variant.problem, comparer)
            time_ms = bench.trial(variant, binary).measurement.time_ms
            assert prove(bench, builder, device.info, variant, binary, comparer) <= 1
    finally:
        builder.old = builder.new = ""
    return time_ms


@pytest.mark.parametrize("dtype", AFFINE.dtypes)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("stated", [{}, ALL, {"added": True, "bias": True, "out_pitch": 1000, "offset": 1}])
def test_a_right_kernel_is_timed_and_proves_itself(
    device: Device, builder: Altering, stated: dict[str, Any], packed: bool, dtype: str
) -> None:
    assert 0 < tried(device, builder, variant_of(packed, dtype, **stated)) < 1


MUTANTS = {
    "alpha is left out": ("alpha * sum(", "sum("),
    "beta is left out": ("beta * sum(addend", "sum(addend"),
    "scratch memory is added to": ("work[i] =", "work[i] +="),
    "one too many is packed": ("i >= m * n", "i > m * n"),
    "half of the columns get no bias": ("for (int c = threadIdx.x; c < n", "for (int c = threadIdx.x / 2; c < n"),
    "a column too many": ("if (c >= n) return;\n    const size_t at", "if (c > n) return;\n    const size_t at"),
    "x is not turned": ("x[size_t(c) * x_pitch + r]", "x[size_t(r) * x_pitch + c]"),
    "the addend is read late": ("    sum value = ", "    out[at] = 0;\n    sum value = "),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_one_is_found(device: Device, builder: Altering, name: str) -> None:
    with pytest.raises(WrongResult):
        tried(device, builder, variant_of(True, **ALL, out_pitch=1000, x_pitch=1000), *MUTANTS[name])


def test_a_step_that_the_text_lacks_is_named(device: Device, builder: Altering) -> None:
    with pytest.raises(LaunchError, match="affine_pack"):
        tried(device, builder, variant_of(True), "affine_pack", "affine_fold")


@pytest.mark.gpu
def test_a_call_on_either_kind_of_stream_launches_its_steps(build_home: Path) -> None:
    device, variant = open_cuda(0), variant_of(True, x_turned=True, bias=True)
    assert isinstance(device, CudaDevice)
    with Builder(device.target, build_home) as builder:
        program = device.load(builder.build(variant.source))
    x, bias = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((900, 700), 900))
    blocks = [device.upload(array) for array in (x, bias, np.zeros((700, 900), np.float32))]
    work = device.upload(np.zeros(variant.launch.scratch_bytes, np.uint8))
    for stream in (None, 0, 2):  # pycuda's default stream, and the two that every process has, by handle
        device.write(int(blocks[2]), np.zeros((700, 900), np.float32))
        at = [Pointer(int(block)) for block in blocks]
        scalars = (np.float32(1.5), np.float32(0))
        arguments = [at[0], None, at[1], at[2], 700, 900, 700, 900, *scalars, Pointer(int(work))]
        device.call(program, variant.launch, arguments, stream)
        device.synchronize()
        out = np.empty((700, 900), np.float32)
        device.download(blocks[2], out)
        assert np.allclose(out, 1.5 * x.T + bias, atol=1e-5)
