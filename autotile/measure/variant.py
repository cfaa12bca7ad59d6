"""One variant for one problem: its source, its launch, its binary."""

from __future__ import annotations

from dataclasses import dataclass

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.base import Check, Device
from autotile.devices.info import MAX_GRID
from autotile.errors import LaunchError, WrongResult
from autotile.kernels import Kernel
from autotile.kernels.definition import FRESH_ALIGNMENT
from autotile.measure.workload import make_workload
from autotile.types import Configuration, Launch, Problem, Source


@dataclass(frozen=True)
class Variant:
    """A configuration made concrete: what to build and how to launch it."""

    kernel: Kernel
    problem: Problem
    configuration: Configuration
    source: Source
    launch: Launch


def make_variant(
    kernel: Kernel, problem: Problem, configuration: Configuration, alignment: int = FRESH_ALIGNMENT
) -> Variant:
    """Renders the source and works out the launch. Raises LaunchError for a grid that no device takes."""
    launch = kernel.launch_of(problem, configuration)
    for axis, blocks, most in zip("xyz", launch.grid, MAX_GRID, strict=True):
        if not 1 <= blocks <= most:
            raise LaunchError(f"the grid has {blocks} blocks along {axis}; CUDA allows 1 to {most}")
    return Variant(kernel, problem, configuration, render(kernel, problem, configuration, alignment), launch)


def check_once(device: Device, builder: Builder, variant: Variant, seed: int) -> Check:
    """Builds (or finds) the variant, runs it on fresh inputs, and compares.

    Raises VariantError when it does not build, launch or finish.
    """
    binary = builder.build(variant.source)
    comparer = builder.build(device.comparer) if device.comparer is not None else None
    workload = make_workload(variant.kernel, variant.problem, seed)
    with device.stage(workload, comparer) as stage:
        return stage.check(device.load(binary), variant.launch)


def prove(device: Device, builder: Builder, variant: Variant, seeds: tuple[int, ...] = (1, 2)) -> float:
    """Checks a winner again on the kernel's other sizes, with other inputs. Returns the largest error over its bound.

    Raises WrongResult, naming the size, for the first that is wrong.
    """
    worst = 0.0
    dimensions = variant.kernel.dimensions
    for sizes in variant.kernel.proof_problems:
        problem = variant.problem.with_sizes(**dict(zip(dimensions, sizes, strict=True)))
        other = make_variant(variant.kernel, problem, variant.configuration)
        for seed in seeds:
            check = check_once(device, builder, other, seed)
            require_right(check, f"on {problem.label}: ")
            worst = max(worst, check.max_error)
    return worst


def require_right(check: Check, where: str = "") -> None:
    """Raises WrongResult when a check failed."""
    if not check.ok:
        raise WrongResult(f"{where}{check.detail or f'{check.wrong} elements are wrong'}")
