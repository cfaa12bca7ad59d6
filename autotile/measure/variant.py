"""One variant for one problem: its source, its launch, its binary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.base import Check, Device
from autotile.devices.info import MAX_GRID
from autotile.dtypes import element_type
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
    """Checks a winner again on other problems, with other inputs. Returns the largest error over its bound.

    These are the kernel's odd sizes, each with the text for aligned and the one for unaligned arrays, and problems of
    many blocks along each dimension, where an index of blocks, a group of tiles or a long loop goes wrong.
    Raises WrongResult, naming the problem, for the first that is wrong.
    """
    worst = 0.0
    for other in _proof_variants(variant):
        for seed in seeds:
            check = check_once(device, builder, other, seed)
            require_right(check, f"on {other.problem.label}: ")
            worst = max(worst, check.max_error)
    return worst


def _proof_variants(variant: Variant) -> Iterator[Variant]:
    kernel, configuration = variant.kernel, variant.configuration
    itemsize = element_type(variant.problem.dtype).itemsize
    for sizes in kernel.proof_problems:
        problem = variant.problem.with_sizes(**dict(zip(kernel.dimensions, sizes, strict=True)))
        aligned = make_variant(kernel, problem, configuration)
        yield aligned
        unaligned = make_variant(kernel, problem, configuration, itemsize)
        if unaligned.source.text != aligned.source.text:
            yield unaligned
    for problem in many_blocks(variant):
        yield make_variant(kernel, problem, configuration)


MANY = 9
"""Blocks along a dimension in a proof: more than a group of 8, and than anything that is unrolled by hand."""

FEW = 3


def many_blocks(variant: Variant) -> list[Problem]:
    """Problems of MANY blocks' length along each dimension in turn (a loop's length counts), and FEW along the first
    two beside it, as multiples of the traced block, so that traits stay as they are."""
    base = variant.kernel.trace_problem(variant.problem, variant.configuration)
    names = variant.kernel.dimensions
    found = [base.with_sizes(**{name: MANY * base[name]}) for name in names]
    if len(names) > 1:
        first, second = names[:2]
        found.append(base.with_sizes(**{first: MANY * base[first], second: FEW * base[second]}))
        found.append(base.with_sizes(**{first: FEW * base[first], second: MANY * base[second]}))
    return found


def require_right(check: Check, where: str = "") -> None:
    """Raises WrongResult when a check failed."""
    if not check.ok:
        raise WrongResult(f"{where}{check.detail or f'{check.wrong} elements are wrong'}")
