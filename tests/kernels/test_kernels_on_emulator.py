"""Every kernel folder on the emulator: a sample of its space, over odd sizes, right and without a single diagnostic.

The sample holds the default, all presets, every value of every parameter, and rows drawn evenly from the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from samples import feasible, problems_of

from autotile.build import Builder
from autotile.devices.base import Workload
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.measure import make_variant, make_workload
from autotile.space import Space, build_space
from autotile.types import Configuration, Problem

SAMPLE = 48  # configurations of the kernel's first dtype, beside the default and the presets
OTHERS = 4  # of each other dtype, beside the default
PARTS = 8  # tests a sample is dealt to, so that several workers share it
FEWEST = 6  # problems for each drawn configuration, where there are more in all
SEED = 2

DEVICE = EmulatorDevice()


@lru_cache
def kernel_named(name: str) -> Kernel:
    return load_kernel(name)


@lru_cache
def space_of(name: str, dtype: str) -> Space:
    """The space of a plain problem: it holds all that other problems have."""
    kernel = kernel_named(name)
    return build_space(kernel, kernel.problem(dict.fromkeys(kernel.dimensions, 128), dtype), DEVICE.info)


@lru_cache
def workload_of(name: str, problem: Problem) -> Workload:
    return make_workload(kernel_named(name), problem, SEED)


def even(space: Space, count: int) -> list[int]:
    """Rows that are equally likely."""
    random = np.random.default_rng(SEED)
    return [int(row) for row in random.choice(len(space), min(count, len(space)), replace=False)]


@lru_cache
def broad(name: str, dtype: str) -> tuple[int, ...]:
    """SAMPLE rows: for each value of each parameter that any row has and none so far, one with it; then even ones."""
    space, random = space_of(name, dtype), np.random.default_rng(SEED)
    rows: list[int] = []
    for p, domain in enumerate(space.domains):
        for code in range(len(domain)):
            having = np.flatnonzero(space.codes[:, p] == code)
            if having.size and not (space.codes[rows, p] == code).any():
                rows.append(int(random.choice(having)))
    distinct = list(dict.fromkeys(rows + even(space, SAMPLE)))
    return tuple(distinct[:SAMPLE])


def require_right(builder: Builder, kernel: Kernel, problems: list[Problem], configuration: Configuration) -> None:
    """On those problems for which the configuration is feasible: each of its texts is built once, and serves all that
    have its traits."""
    suited = feasible(kernel, problems, DEVICE.info, configuration)
    assert suited, configuration.label
    for problem in suited:
        variant = make_variant(kernel, problem, configuration)
        program = DEVICE.load(builder.build(variant.source))
        with DEVICE.stage(workload_of(kernel.name, problem)) as stage:
            check = stage.check(program, variant.launch)  # on both orders of threads, and any diagnostic fails it
        assert check.ok, f"{problem.label}, {configuration.label}: {check.detail}"
        assert check.max_error <= 1.0


def in_turn(problems: list[Problem], number: int) -> list[Problem]:
    """FEWEST or more of them, others for the next number."""
    turns = max(1, len(problems) // FEWEST)
    return problems[number % turns :: turns]


@pytest.fixture(scope="session")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def named_points() -> list[tuple[str, str]]:
    return [(name, point) for name in kernel_folders() for point in ("default", *kernel_named(name).presets)]


def other_dtypes() -> list[tuple[str, int]]:
    """Kernel and bytes an element: types of one size may share their texts, so they share a test."""
    return [
        (name, itemsize)
        for name in kernel_folders()
        for itemsize in sorted({element_type(dtype).itemsize for dtype in kernel_named(name).dtypes[1:]})
    ]


@pytest.mark.parametrize(("name", "point"), named_points())
def test_the_default_and_the_presets_are_right(builder: Builder, name: str, point: str) -> None:
    kernel = kernel_named(name)
    configuration = kernel.configuration(kernel.presets.get(point))
    assert space_of(name, kernel.dtypes[0]).row_of(configuration) is not None, "a named point must be feasible"
    require_right(builder, kernel, problems_of(kernel, kernel.dtypes[0]), configuration)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", kernel_folders())
def test_a_sample_of_the_space_is_right(builder: Builder, name: str, part: int) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    problems = problems_of(kernel, dtype)
    for number in range(part, len(broad(name, dtype)), PARTS):
        configuration = space_of(name, dtype).configuration(broad(name, dtype)[number])
        require_right(builder, kernel, in_turn(problems, number), configuration)


@pytest.mark.parametrize(("name", "itemsize"), other_dtypes())
def test_other_dtypes_are_right(builder: Builder, name: str, itemsize: int) -> None:
    kernel = kernel_named(name)
    for dtype in kernel.dtypes[1:]:
        if element_type(dtype).itemsize != itemsize:
            continue
        space = space_of(name, dtype)
        default = kernel.configuration()
        assert space.row_of(default) is not None, f"the default must be feasible for {dtype}"
        problems = problems_of(kernel, dtype)
        for number, configuration in enumerate([default, *map(space.configuration, even(space, OTHERS))]):
            require_right(builder, kernel, in_turn(problems, number), configuration)


@pytest.mark.parametrize("name", kernel_folders())
def test_the_sample_is_wide_enough_to_mean_something(name: str) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    space, rows = space_of(name, dtype), list(broad(name, dtype))
    assert len(set(rows)) == min(SAMPLE, len(space))
    for p, parameter in enumerate(kernel.parameters):
        assert set(space.codes[rows, p]) == set(space.codes[:, p]), f"values of {parameter.name}"
    problems = problems_of(kernel, dtype)
    for trait in kernel.traits:
        for row in rows:
            suited = feasible(kernel, problems, DEVICE.info, space.configuration(row))
            traits = [kernel.traits_of(problem, space.configuration(row)) for problem in suited]
            if {seen[trait.name] for seen in traits} == {True, False}:
                break
        else:
            pytest.fail(f"no size shows both sides of the trait {trait.name}")
