"""Every kernel folder on the emulator: a sample of its space, over odd sizes, right and without a single diagnostic.

The sample holds the default, all presets, every value of every parameter, and rows drawn evenly from the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path

import pytest
from samples import NOT_EMULATED, covering, drawn, elsewhere, emulated_points, feasible, problems_of, sparingly

from autotile.build import Builder
from autotile.devices.base import Workload
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.measure import make_variant, make_workload
from autotile.space import violations
from autotile.types import Configuration, Problem

SAMPLE = 40  # configurations of the kernel's first dtype, beside the default and the presets
OTHERS = 2  # of each other dtype, beside the default
PARTS = 8  # tests a sample is dealt to, so that several workers share it
FEWEST = {
    "matmul": 1,
    "matmul_tensor": 1,
    "transpose": 6,
}  # problems for each configuration, where there are more in all
SEED = 2

DEVICE = EmulatorDevice()


@lru_cache
def kernel_named(name: str) -> Kernel:
    return load_kernel(name)


def plain(name: str, dtype: str) -> Problem:
    """A problem whose space holds all that other problems have."""
    kernel = kernel_named(name)
    return kernel.problem(dict.fromkeys(kernel.dimensions, 128), dtype)


@lru_cache
def workload_of(name: str, problem: Problem) -> Workload:
    return make_workload(kernel_named(name), problem, SEED)


@lru_cache
def broad(name: str, dtype: str) -> tuple[Configuration, ...]:
    """Those that cover all values of the parameters, then even ones, SAMPLE or more."""
    kernel, problem = kernel_named(name), plain(name, dtype)
    found = covering(kernel, problem, DEVICE.info, SEED)
    distinct = list(dict.fromkeys(found + drawn(kernel, problem, DEVICE.info, SAMPLE, SEED)))
    return tuple(distinct[: max(SAMPLE, len(found))])


def require_right(
    builder: Builder, kernel: Kernel, problems: list[Problem], configuration: Configuration, number: int
) -> None:
    """On some of the problems for which it is feasible, others for the next number: each of its texts is built once,
    and serves all that have its traits."""
    suited = feasible(kernel, problems, DEVICE.info, configuration)
    assert suited, configuration.label
    for problem in in_turn(kernel.name, suited, number):
        variant = make_variant(kernel, problem, configuration)
        program = DEVICE.load(builder.build(variant.source))
        with DEVICE.stage(workload_of(kernel.name, problem)) as stage:
            check = stage.check(program, variant.launch)  # on both orders of threads, and any diagnostic fails it
        assert check.ok, f"{problem.label}, {configuration.label}: {check.detail}"
        assert check.max_error <= 1.0


def in_turn(name: str, problems: list[Problem], number: int) -> list[Problem]:
    """FEWEST or more of them, others for the next number."""
    turns = max(1, len(problems) // FEWEST.get(name, 6))
    return problems[number % turns :: turns]


@pytest.fixture(scope="session")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def named_points() -> list[tuple[str, str]]:
    return [(name, point) for name in kernel_folders() for point in emulated_points(kernel_named(name))]


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
    assert not violations(kernel, plain(name, kernel.dtypes[0]), DEVICE.info, configuration), "it must be feasible"
    number = emulated_points(kernel).index(point)
    require_right(builder, kernel, problems_of(kernel, kernel.dtypes[0]), configuration, number)


@pytest.mark.parametrize(
    ("name", "part"),
    sparingly(product(kernel_folders(), range(PARTS)), 6, lambda case: True),
)
def test_a_sample_of_the_space_is_right(builder: Builder, name: str, part: int) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    problems = problems_of(kernel, dtype)
    for number in range(part, len(broad(name, dtype)), PARTS):
        require_right(builder, kernel, problems, broad(name, dtype)[number], number)


@pytest.mark.parametrize(("name", "itemsize"), sparingly(other_dtypes(), 2, lambda case: case[0] != "matmul_tensor"))
def test_other_dtypes_are_right(builder: Builder, name: str, itemsize: int) -> None:
    kernel = kernel_named(name)
    for dtype in kernel.dtypes[1:]:
        if element_type(dtype).itemsize != itemsize:
            continue
        default, problem = kernel.configuration(), plain(name, dtype)
        assert not violations(kernel, problem, DEVICE.info, default), f"the default must be feasible for {dtype}"
        problems = problems_of(kernel, dtype)
        tried = [default, *drawn(kernel, problem, DEVICE.info, OTHERS, SEED)]
        for number, configuration in enumerate(tried, kernel.dtypes.index(dtype)):
            require_right(builder, kernel, problems, configuration, number)


@pytest.mark.parametrize("name", kernel_folders())
def test_the_sample_is_wide_enough_to_mean_something(name: str) -> None:
    kernel = kernel_named(name)
    dtype = kernel.dtypes[0]
    sample = broad(name, dtype)
    assert len(set(sample)) == len(sample) >= SAMPLE
    for parameter in kernel.parameters:
        missing = set(parameter.values) - {configuration[parameter.name] for configuration in sample}
        assert missing == elsewhere(kernel, parameter, DEVICE.info), f"values of {parameter.name}"
    problems = problems_of(kernel, dtype)
    unseen = {(trait.name, holds) for trait in kernel.traits for holds in (True, False)}
    for tried in (sample, [kernel.configuration(kernel.presets.get(point)) for point in emulated_points(kernel)]):
        for number, configuration in enumerate(tried):
            for problem in feasible(kernel, in_turn(name, problems, number), DEVICE.info, configuration):
                unseen -= set(kernel.traits_of(problem, configuration).items())
    assert unseen == NOT_EMULATED.get(name, set()), "traits whose text was not tried"
