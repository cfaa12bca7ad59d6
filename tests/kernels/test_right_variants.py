"""No right variant is rejected: random feasible configurations, on inputs of every kind and on sides that are odd.

A few on the emulator each time; many of each kernel on a GPU (`pytest -m gpu`), where a check may not be so strict that
it throws away the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from samples import drawn

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.select import open_device
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.measure import Variant, make_variant
from autotile.measure.workload import KINDS, Kind, make_workload
from autotile.space import violations
from autotile.types import Problem

FEW = 6
MANY = {"matmul_tensor": 50}  # of kernels that have more problems here, or take a compiler longer; 150 of any other
SEED = 7

EMULATOR = EmulatorDevice()


def random_variants(device: Device, kernel: Kernel, problem: Problem, count: int, seed: int) -> list[Variant]:
    """Of feasible configurations, none twice."""
    chosen = drawn(kernel, problem, device.info, count, SEED + seed)
    return [make_variant(kernel, problem, configuration) for configuration in chosen]


# ---- on the emulator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(EMULATOR.target, build_home, jobs=1) as made:
        yield made


def mixed(kernel: Kernel, number: int) -> Variant:
    """The `number`th of a series: types in turn, sides drawn; a third have rows of whole words."""
    random = np.random.default_rng([SEED, number])
    sides = random.integers(9, 80, len(kernel.dimensions))
    sides = sides | 1 if number % 3 else sides // 16 * 16 + 16
    sizes = dict(zip(kernel.dimensions, (int(side) for side in sides), strict=True))
    if kernel.in_place and number % 3 == 2:
        sizes = {**dict.fromkeys(kernel.dimensions, sizes[kernel.dimensions[0]]), "in_place": 1, "offset": 1}
    on = [switch.name for switch in kernel.switches if random.integers(3) == 0]
    dtype = kernel.dtypes[5 * number % len(kernel.dtypes)]
    problem = kernel.problem(sizes | dict.fromkeys(on, 1), dtype)
    while violations(kernel, problem, EMULATOR.info, kernel.configuration()):
        on.pop()  # relu and gelu are not asked for together
        problem = kernel.problem(sizes | dict.fromkeys(on, 1), dtype)
    return random_variants(EMULATOR, kernel, problem, 1, number)[0]


@pytest.mark.parametrize("number", range(FEW))
@pytest.mark.parametrize("name", kernel_folders())
def test_a_random_variant_is_right_on_all_inputs(builder: Builder, name: str, number: int) -> None:
    variant = mixed(load_kernel(name), number)
    program = EMULATOR.load(builder.build(variant.source))
    for kind in KINDS:
        with EMULATOR.stage(make_workload(variant.kernel, variant.problem, number, kind)) as stage:
            check = stage.check(program, variant.launch)
        assert check.ok, f"{variant.problem.label}, {kind} inputs, {variant.configuration.label}: {check.detail}"
        assert 0 <= check.max_error <= 1


# ---- on a GPU -------------------------------------------------------------------------------------------------------

# An odd problem, and one whose rows hold whole words, for the text with vector loads; then what else a kernel has.
LARGE: dict[str, tuple[dict[str, int], ...]] = {
    "matmul": (
        {"m": 257, "n": 130, "k": 129},
        {"m": 256, "n": 144, "k": 272},
        {"m": 300, "n": 260, "k": 600, "a_turned": 1, "addend": 1, "bias": 1, "relu": 1},
        {"m": 131, "n": 516, "k": 130, "b_turned": 1, "gelu": 1, "batch": 2, "c_pitch": 520, "offset": 1},
        {"m": 1, "n": 1000, "k": 3000, "addend": 1},
        {"m": 2100, "n": 2060, "k": 40},  # tiles of several waves
        {"m": 64, "n": 33, "k": 4000, "bias": 1},
    ),
    "matmul_tensor": (
        {"m": 512, "n": 768, "k": 640},
        {"m": 257, "n": 130, "k": 129},
        {"m": 304, "n": 264, "k": 600, "a_turned": 1, "addend": 1, "bias": 1, "relu": 1},
        {"m": 131, "n": 516, "k": 130, "b_turned": 1, "gelu": 1, "batch": 2, "c_pitch": 520, "offset": 1, "wide": 1},
        {"m": 2100, "n": 2064, "k": 72},  # tiles of several waves
        {"m": 16, "n": 1000, "k": 3000, "addend": 1},
    ),
    "transpose": (
        {"rows": 515, "cols": 259},
        {"rows": 528, "cols": 272},
        {"rows": 515, "cols": 259, "batch": 2, "in_pitch": 264, "out_pitch": 531, "offset": 1},
        {"rows": 389, "cols": 389, "in_place": 1},
    ),
}


def wrong_ones(device: Device, builder: Builder, variants: list[Variant], kind: Kind) -> list[str]:
    """The labels of those that are not right, all of one problem. Their binaries are being built."""
    comparer = None if device.comparer is None else builder.build(device.comparer)
    found = []
    with device.stage(make_workload(variants[0].kernel, variants[0].problem, SEED, kind), comparer) as stage:
        for variant in variants:
            check = stage.check(device.load(builder.build(variant.source)), variant.launch)
            if not check.ok:
                found.append(f"{variant.configuration.label}: {check.detail}")
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("name", kernel_folders())
def test_many_random_variants_are_right_on_a_gpu(name: str, build_home: Path) -> None:
    device, kernel = open_device("cuda"), load_kernel(name)
    dtype, many = kernel.dtypes[0], MANY.get(name, 150)
    any_ = kernel.problem(dict.fromkeys(kernel.dimensions, 1), dtype)
    asked = LARGE.get(name, tuple(problem.asked for problem in kernel.proof_problems(any_)[-2:]))
    problems = [kernel.problem(sizes, dtype) for sizes in asked]
    groups = [random_variants(device, kernel, problem, many, 0) for problem in problems]
    assert {len(group) for group in groups} == {many}
    with Builder(device.target, build_home) as builder:  # a pool of as many processes as there are CPUs
        for built in [builder.submit(variant.source) for group in groups for variant in group]:
            built.result()
        wrong = {
            f"{group[0].problem.label}, {kind} inputs": wrong_ones(device, builder, group, kind)
            for group in groups
            for kind in KINDS
        }
    assert not any(wrong.values()), "\n".join(f"{where}: {what}" for where, all_ in wrong.items() for what in all_)
