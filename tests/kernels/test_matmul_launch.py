"""Matmul's launch and its text count alike: blocks that pack and gather, and the scratch memory that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Check
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.measure import Variant, make_variant, make_workload
from autotile.space import violations
from autotile.types import Launch

KERNEL, DEVICE = load_kernel("matmul"), EmulatorDevice()
WAVE = DEVICE.info.sm_count
RING: dict[str, Any] = {"staging": "dynamic", "stages": 3, "vector": 4, "block_m": 32, "block_n": 32}
PACKED = {**RING, "pack_a": True, "pack_b": True}
SHARED: dict[str, dict[str, Any]] = {
    "parts": {**RING, "parts": 4, "pack_b": True},
    "wave": {**RING, "wave": WAVE, "pack_a": True},
    "packed": PACKED,
    "cluster": {**PACKED, "cluster": 2, "slices": 2},
    "cluster of a wave": {**RING, "cluster": 2, "min_blocks": 2, "wave": WAVE, "store_rows": True},
}
ODD = 4
SEED = 3


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def variant_of(values: Mapping[str, Any], sizes: Mapping[str, int]) -> Variant:
    problem, configuration = KERNEL.problem(sizes), KERNEL.configuration(values)
    assert violations(KERNEL, problem, DEVICE.info, configuration) == ()
    return make_variant(KERNEL, problem, configuration)


def check(builder: Builder, variant: Variant, launch: Launch | None = None, over: bool = False) -> Check:
    """The scratch memory lies between guards and holds a poison, so both too little and unwritten parts show."""
    with DEVICE.stage(make_workload(KERNEL, variant.problem, SEED, over=over)) as stage:
        return stage.check(DEVICE.load(builder.build(variant.source)), launch or variant.launch)


@pytest.mark.parametrize("number", range(ODD))
@pytest.mark.parametrize("point", SHARED)
def test_odd_sizes_are_right(builder: Builder, point: str, number: int) -> None:
    random = np.random.default_rng([SEED, number, *point.encode()])
    sizes = {name: int(random.choice([random.integers(1, 40), random.integers(1, 300)])) for name in "mnk"}
    asked = {**sizes, "batch": 1 + number % 3, "a_turned": int(random.integers(2)), "addend": number // 2}
    variant = variant_of(SHARED[point], {**asked, "b_turned": int(random.integers(2))})
    found = check(builder, variant, over=bool(number // 2))
    assert found.ok, f"{variant.problem.label}: {found.detail}"


@pytest.mark.parametrize("sizes", [(300, 444, 40), (32, 32, 8), (31, 33, 200)], ids=str)
@pytest.mark.parametrize("values", [{"wave": WAVE}, {"parts": 66}, {"parts": 2}], ids=str)
def test_tiles_of_more_and_of_less_than_a_wave_are_right(
    builder: Builder, values: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """A wave and some tiles; more parts than steps; parts that begin in one tile and end in the next."""
    variant = variant_of({**RING, **values}, dict(zip("mnk", sizes, strict=True)))
    found = check(builder, variant)
    assert found.ok, found.detail


TURNS = [{}, {"a_turned": 1, "b_turned": 1}]


@pytest.mark.parametrize("turned", TURNS, ids=str)
def test_no_block_and_no_byte_is_too_many(builder: Builder, turned: dict[str, int]) -> None:
    """Each of them does something: with one less the result is wrong, or a fault."""
    packed = variant_of(PACKED, {"m": 65, "n": 70, "k": 33, "batch": 2, **turned})
    launch = packed.launch
    (step,) = launch.before
    assert check(builder, packed, launch).ok
    fewer = replace(step, grid=replace_x(step.grid, step.grid[0] - 1))
    assert check(builder, packed, replace(launch, before=(fewer,))).wrong
    assert "out-of-bounds" in check(builder, packed, replace(launch, scratch_bytes=launch.scratch_bytes - 16)).detail


def test_no_block_of_the_gather_is_too_many(builder: Builder) -> None:
    cut = variant_of({**RING, "parts": 4}, {"m": 65, "n": 33, "k": 70})
    (step,) = cut.launch.after
    assert check(builder, cut).ok
    fewer = replace(step, grid=replace_x(step.grid, step.grid[0] - 1))
    assert check(builder, cut, replace(cut.launch, after=(fewer,))).wrong


def replace_x(grid: tuple[int, int, int], x: int) -> tuple[int, int, int]:
    return x, grid[1], grid[2]


def test_scratch_memory_is_what_the_parts_and_the_packed_operands_take() -> None:
    """By hand: 2 matrices; 2×3 tiles in 4 parts each, a slot for each part and tile; 20 rows of 40 and 68."""
    sizes = {"m": 37, "n": 66, "k": 20, "batch": 2}
    tile = 32 * 32 * 4
    both = variant_of({**PACKED, "parts": 4}, sizes).launch.scratch_bytes
    assert both == 2 * ((6 * 4 + 6) * tile + 20 * (40 + 68) * 4)
    assert variant_of(PACKED, sizes).launch.scratch_bytes == 2 * 20 * (40 + 68) * 4
    assert variant_of(RING, sizes).launch.scratch_bytes == 0


def test_more_matrices_than_a_side_of_the_grid_holds() -> None:
    launch = variant_of(SHARED["parts"], {"m": 1, "n": 1, "k": 1, "batch": 70000}).launch
    for grid in (launch.grid, launch.before[0].grid, launch.after[0].grid):
        assert grid[1:] == (32768, 3)
