"""Every kernel folder on the emulator: a sample of its space, over odd sizes, right and without a single diagnostic.

The sample holds the default, all presets, every value of every parameter, and rows drawn evenly from the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Workload
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.measure import make_variant, make_workload
from autotile.space import Space, build_space
from autotile.types import Configuration

SAMPLE = 60  # configurations of the kernel's first dtype, beside the default and the presets
OTHERS = 8  # of each other dtype, beside the default
PARTS = 8  # tests a sample is dealt to, so that several workers share it
SEED = 2
MATMUL_SIZES = ((1, 1, 1), (31, 1, 64), (33, 65, 17), (100, 100, 100), (128, 128, 130))

DEVICE = EmulatorDevice()


@lru_cache
def kernel_named(name: str) -> Kernel:
    return load_kernel(name)


@lru_cache
def space_of(name: str, dtype: str) -> Space:
    """Rules do not depend on the sizes here: any problem has the same space."""
    kernel = kernel_named(name)
    return build_space(kernel, kernel.problem(dict.fromkeys(kernel.dimensions, 128), dtype), DEVICE.info)


@lru_cache
def workload_of(name: str, dtype: str, sizes: tuple[int, ...]) -> Workload:
    kernel = kernel_named(name)
    return make_workload(kernel, kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), dtype), SEED)


def sizes_of(kernel: Kernel) -> tuple[tuple[int, ...], ...]:
    """The odd sizes, and those where a single side is odd: vectors must be given up for any one of them."""
    odd = MATMUL_SIZES if kernel.name == "matmul" else kernel.check_sizes
    sides = range(len(kernel.dimensions))
    return (*odd, *(tuple(65 if side == other else 64 for other in sides) for side in sides))


def even(space: Space, count: int) -> list[int]:
    """Rows that are equally likely."""
    random = np.random.default_rng(SEED)
    return [int(row) for row in random.choice(len(space), min(count, len(space)), replace=False)]


@lru_cache
def broad(name: str, dtype: str) -> tuple[int, ...]:
    """SAMPLE rows: one for each value of each parameter that any row has, then even ones."""
    space, random = space_of(name, dtype), np.random.default_rng(SEED)
    rows = [
        int(random.choice(having))
        for p, domain in enumerate(space.domains)
        for code in range(len(domain))
        if (having := np.flatnonzero(space.codes[:, p] == code)).size
    ]
    distinct = list(dict.fromkeys(rows + even(space, SAMPLE)))
    return tuple(distinct[:SAMPLE])


def require_right(builder: Builder, kernel: Kernel, dtype: str, configuration: Configuration) -> None:
    """Each text of the configuration is built once; it serves all sizes that have its traits."""
    for sizes in sizes_of(kernel):
        problem = kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), dtype)
        variant = make_variant(kernel, problem, configuration)
        program = DEVICE.load(builder.build(variant.source))
        with DEVICE.stage(workload_of(kernel.name, dtype, sizes)) as stage:
            check = stage.check(program, variant.launch)  # on both orders of threads, and any diagnostic fails it
        assert check.ok, f"{problem.label}, {configuration.label}: {check.detail}"
        assert check.max_error <= 1.0


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
    require_right(builder, kernel, kernel.dtypes[0], configuration)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", kernel_folders())
def test_a_sample_of_the_space_is_right(builder: Builder, name: str, part: int) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    for row in broad(name, dtype)[part::PARTS]:
        require_right(builder, kernel, dtype, space_of(name, dtype).configuration(row))


@pytest.mark.parametrize(("name", "itemsize"), other_dtypes())
def test_other_dtypes_are_right(builder: Builder, name: str, itemsize: int) -> None:
    kernel = kernel_named(name)
    for dtype in kernel.dtypes[1:]:
        if element_type(dtype).itemsize != itemsize:
            continue
        space = space_of(name, dtype)
        default = kernel.configuration()
        assert space.row_of(default) is not None, f"the default must be feasible for {dtype}"
        for configuration in (default, *(space.configuration(row) for row in even(space, OTHERS))):
            require_right(builder, kernel, dtype, configuration)


@pytest.mark.parametrize("name", kernel_folders())
def test_the_sample_is_wide_enough_to_mean_something(name: str) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    space, rows = space_of(name, dtype), list(broad(name, dtype))
    assert len(set(rows)) == min(SAMPLE, len(space))
    for p, parameter in enumerate(kernel.parameters):
        assert set(space.codes[rows, p]) == set(space.codes[:, p]), f"values of {parameter.name}"
    problems = [kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), dtype) for sizes in sizes_of(kernel)]
    for trait in kernel.traits:
        for row in rows[:10]:
            traits = [kernel.traits_of(problem, space.configuration(row)) for problem in problems]
            if {seen[trait.name] for seen in traits} == {True, False}:
                break
        else:
            pytest.fail(f"no size shows both sides of the trait {trait.name}")
