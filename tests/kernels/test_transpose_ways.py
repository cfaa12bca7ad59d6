"""The transpose on the emulator: every way of moving elements, for every size of element, and problems at random."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from samples import WAYS, problems_of, sparingly, way_of

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.space import build_space
from autotile.types import Configuration, Problem

KERNEL = load_kernel("transpose")
DEVICE = EmulatorDevice()
STAGINGS = KERNEL.parameter("staging").values
DTYPES = ("int8", "float16", "float32", "float64", "complex128")  # one of each size
EACH = 2  # configurations of each way
SIDES = (16, 32, 64, 128)  # of tiles: larger ones take the host's compiler seconds
DRAWN = 40  # problems at random
PARTS = 8
SEED = 11

Case = tuple[Problem, Configuration]


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def require_right(builder: Builder, problem: Problem, configuration: Configuration) -> None:
    """On both orders of threads; a single diagnostic fails it."""
    variant = make_variant(KERNEL, problem, configuration)
    program = DEVICE.load(builder.build(variant.source))
    with DEVICE.stage(make_workload(KERNEL, problem, SEED)) as stage:
        check = stage.check(program, variant.launch)
    assert check.ok, f"{problem.label}, {configuration.label}: {check.detail}"


def of_staging(problem: Problem, staging: object, count: int, random: np.random.Generator) -> list[Configuration]:
    """`count` feasible ones at most, equally likely."""
    space = build_space(KERNEL, problem, DEVICE.info, {"staging": (staging,), "tile_rows": SIDES, "tile_cols": SIDES})
    return [space.configuration(int(row)) for row in random.permutation(len(space))[:count]]


@lru_cache
def of_each_way(dtype: str) -> dict[tuple[str, ...], list[Case]]:
    """EACH cases of every way that any problem has, on different problems where more than one has it."""
    random = np.random.default_rng(SEED)
    found: dict[tuple[str, ...], list[Case]] = {}
    for problem in problems_of(KERNEL, dtype):
        for staging in STAGINGS:
            for configuration in of_staging(problem, staging, 30, random):
                found.setdefault(way_of(KERNEL, problem, configuration), []).append((problem, configuration))
    return {way: [cases[i] for i in random.permutation(len(cases))[:EACH]] for way, cases in found.items()}


@pytest.mark.parametrize(("staging", "dtype"), sparingly(product(STAGINGS, DTYPES), 4, lambda case: True))
def test_every_way_is_right(builder: Builder, dtype: str, staging: str) -> None:
    cases = [case for way, cases in of_each_way(dtype).items() if way[0] == staging for case in cases]
    assert len(cases) >= EACH
    for problem, configuration in cases:
        require_right(builder, problem, configuration)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_ways_are_all_there_and_no_others(dtype: str) -> None:
    found = of_each_way(dtype)
    assert set(found) == WAYS[element_type(dtype).itemsize]
    assert {len(cases) for cases in found.values()} == {EACH}


# ---- at random ------------------------------------------------------------------------------------------------------


def side(random: np.random.Generator) -> int:
    """Any number up to 150, or one near a multiple of 16."""
    if random.random() < 0.5:
        return int(random.integers(1, 151))
    return int(16 * random.integers(1, 10) + random.choice([-1, 0, 0, 0, 1, 4, 8]))


def drawn(number: int) -> Case:
    """The `number`th of a series: stagings and types in turn, all else by chance."""
    random = np.random.default_rng([SEED, number])
    staging, dtype = STAGINGS[number % len(STAGINGS)], DTYPES[number % len(DTYPES)]
    rows, cols = side(random), side(random)
    in_place = staging in ("tile", "turned") and random.random() < 0.3
    if staging in ("flat_in", "flat_out"):
        rows, cols = (4 * rows, cols % 40 + 1) if staging == "flat_in" else (rows % 40 + 1, 4 * cols)
    if in_place:
        cols = rows
    gaps = [int(random.choice([0, 0, 1, 8, 16])) for _ in range(4)]
    if in_place:
        gaps[1], gaps[3] = gaps[0], gaps[2]
    asked = {
        "rows": rows,
        "cols": cols,
        "batch": int(random.choice([1, 1, 2, 3])),
        "offset": int(random.choice([0, 0, 1, 3])),
        "in_pitch": cols + gaps[0] * (staging != "flat_in"),
        "out_pitch": rows + gaps[1] * (staging != "flat_out"),
        "in_step": rows + gaps[2],
        "out_step": cols + gaps[3],
        "in_place": in_place,
    }
    problem = KERNEL.problem(asked, dtype)
    (configuration,) = of_staging(problem, staging, 1, random)
    return problem, configuration


@pytest.mark.parametrize("part", range(PARTS))
def test_a_random_problem_is_right(builder: Builder, part: int) -> None:
    for number in range(part, DRAWN, PARTS):
        require_right(builder, *drawn(number))


def test_the_random_problems_differ() -> None:
    cases = [drawn(number) for number in range(DRAWN)]
    assert {(c["staging"], element_type(p.dtype).itemsize) for p, c in cases} == {
        (staging, element_type(dtype).itemsize) for staging in STAGINGS for dtype in DTYPES
    }
    said = [dict(problem.options) for problem, _ in cases]
    for name in ("batch", "in_pitch", "out_pitch", "in_step", "out_step", "offset", "in_place"):
        assert 3 <= sum(name in options for options in said) <= DRAWN - 3, name
    assert len({way_of(KERNEL, *case) for case in cases}) >= len(cases) // 3
