"""One variant for one problem: its source and its launch; the problems on which it proves itself; what is right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotile.codegen import render
from autotile.devices.base import Check
from autotile.devices.info import MAX_GRID, DeviceInfo
from autotile.dtypes import element_type
from autotile.errors import LaunchError, UsageError, WrongResult
from autotile.kernels import Kernel
from autotile.measure.workload import Kind, takes_place
from autotile.space import violations
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
    kernel: Kernel, problem: Problem, configuration: Configuration, alignment: int | None = None
) -> Variant:
    """Renders the source and works out the launch. Raises LaunchError for a grid that no device takes."""
    launch = kernel.launch_of(problem, configuration, alignment)
    grids = [("", launch.grid), *((f" of {kernel.entry}{step.entry_suffix}", step.grid) for step in launch.steps)]
    for whose, grid in grids:
        for axis, blocks, most in zip("xyz", grid, MAX_GRID, strict=True):
            if not 1 <= blocks <= most:
                raise LaunchError(f"the grid{whose} has {blocks} blocks along {axis}; CUDA allows 1 to {most}")
    if launch.scratch_bytes < 0:
        raise LaunchError(f"the launch works in {launch.scratch_bytes} bytes of scratch memory; 0 is the least")
    return Variant(kernel, problem, configuration, render(kernel, problem, configuration, alignment), launch)


@dataclass(frozen=True)
class Inputs:
    """Which data a check uses: a seed and a kind, and whether outputs lie over inputs (see workload.py)."""

    seed: int
    kind: Kind
    over: bool = False


PROOF_RUNS = 3
"""Times that each check of a proof is run: an error that moves from run to run is a race."""

PROOF_INPUTS = (
    Inputs(1, "random"),
    Inputs(2, "random"),
    Inputs(3, "cancelling"),
    Inputs(4, "special"),
    Inputs(5, "scaled"),
)

MANY_INPUTS = PROOF_INPUTS[:2]
"""For problems of many blocks, which cost more: what goes wrong there has to do with places, not with values."""


OVER_INPUTS = (Inputs(6, "random", over=True), Inputs(7, "special", over=True))
"""For problems with an input that may be the output itself: a kernel that reads there what it has written shows."""


@dataclass(frozen=True)
class Proof:
    """One of the problems on which a winner has to hold, with the inputs to try.

    Arrays lie `offset` elements behind an aligned address, in place of the problem's own offset where it is not 0: the
    text for unaligned ones meets such.
    """

    variant: Variant
    inputs: tuple[Inputs, ...]
    offset: int = 0


def proofs_of(variant: Variant, device: DeviceInfo) -> list[Proof]:
    """The problems on which a winner proves itself.

    These are the kernel's odd sizes, each with the text for aligned and the one for unaligned arrays, and problems of
    many blocks along each dimension, where an index of blocks, a group of tiles or a long loop goes wrong. Where none
    of them has the very text that was measured (a trait may be of large sizes alone), its own problem is one of them.
    """
    proofs = list(_odd_proofs(variant, device))
    many = [problem for problem in many_blocks(variant) if serves(variant, problem, device)]
    proofs += [
        Proof(made, MANY_INPUTS + inputs_over(made, OVER_INPUTS[:1]))
        for made in (make_variant(variant.kernel, problem, variant.configuration) for problem in many)
    ]
    if all(proof.variant.source.text != variant.source.text for proof in proofs):
        proofs.append(Proof(variant, PROOF_INPUTS + inputs_over(variant)))
    return proofs


def inputs_over(variant: Variant, inputs: tuple[Inputs, ...] = OVER_INPUTS) -> tuple[Inputs, ...]:
    """`inputs` where an output may lie over an input of the variant's problem, which is not in place itself."""
    kernel, problem = variant.kernel, variant.problem
    return inputs if not problem.in_place and takes_place(kernel, problem, over=True) else ()


def _odd_proofs(variant: Variant, device: DeviceInfo) -> Iterator[Proof]:
    kernel, configuration = variant.kernel, variant.configuration
    itemsize = element_type(variant.problem.dtype).itemsize
    for problem in kernel.proof_problems(variant.problem):
        if not serves(variant, problem, device) or (device.estimated and kernel.bytes_of(problem) > MOST_TRACED_BYTES):
            continue
        aligned = make_variant(kernel, problem, configuration)
        yield Proof(aligned, PROOF_INPUTS + inputs_over(aligned))
        unaligned = make_variant(kernel, problem, configuration, itemsize)
        if unaligned.source.text != aligned.source.text and serves(variant, problem, device, itemsize):
            yield Proof(unaligned, PROOF_INPUTS, offset=1)


def serves(variant: Variant, problem: Problem, device: DeviceInfo, alignment: int | None = None) -> bool:
    """Whether the configuration is feasible for another problem too: what spans a row may have no room for a longer."""
    return not violations(variant.kernel, problem, device, variant.configuration, alignment=alignment)


MOST_TRACED_BYTES = 1 << 20
"""Larger proofs are for a GPU: the emulator, which watches every access, would take minutes for them."""

MANY = 9
"""Blocks along a dimension in a proof: more than a group of 8, and than anything that is unrolled by hand."""

FEW = 3


def many_blocks(variant: Variant) -> list[Problem]:
    """Problems of MANY blocks' length along each dimension in turn (a loop's length counts), and FEW along the first
    two beside it, as multiples of the traced block, so that traits stay as they are."""
    base = traced_problem(variant)
    if base is None:
        return []
    names = variant.kernel.dimensions
    growths = [{name: MANY} for name in names]
    if len(names) > 1:
        first, second = names[:2]
        growths += [{first: MANY, second: FEW}, {first: FEW, second: MANY}]
    grown = [grown_problem(variant.kernel, base, {n: base[n] * by for n, by in growth.items()}) for growth in growths]
    return list(dict.fromkeys(problem for problem in grown if problem is not None))


def traced_problem(variant: Variant) -> Problem | None:
    """The kernel's problem to trace. Where one in place must have equal sides (a square), those are whole multiples of
    each side, as traits may ask for; None where that cannot be either."""
    base = variant.kernel.trace_problem(variant.problem, variant.configuration)
    if can_be(variant.kernel, base):
        return base
    return _of_sides(variant.kernel, base, math.lcm(*(size for _, size in base.sizes)))


def grown_problem(kernel: Kernel, base: Problem, sizes: Mapping[str, int]) -> Problem | None:
    """`base` with some other sizes; with its largest all round where one in place must have equal sides; else None."""
    grown = base.with_sizes(**sizes)
    return grown if can_be(kernel, grown) else _of_sides(kernel, grown, max(size for _, size in grown.sizes))


def can_be(kernel: Kernel, problem: Problem) -> bool:
    """Whether the kernel takes the problem: in place, an output must lie as its input does."""
    if problem.in_place:
        try:
            kernel.problem(problem.asked, problem.dtype)
        except UsageError:
            return False
    return True


def _of_sides(kernel: Kernel, problem: Problem, side: int) -> Problem | None:
    square = problem.with_sizes(**dict.fromkeys(kernel.dimensions, side))
    return square if can_be(kernel, square) else None


def require_right(check: Check, where: str = "") -> None:
    """Raises WrongResult when a check failed."""
    if not check.ok:
        raise WrongResult(f"{where}{check.detail or f'{check.wrong} elements are wrong'}")


def require_still(checks: Sequence[Check], kernel: Kernel, where: str = "") -> float:
    """The largest error over its bound of several runs on the same inputs.

    Raises WrongResult when one is wrong, and when a kernel whose results should be equal to the last bit has another
    largest error in another run: what moves is a race, even while it stays within the bound.
    """
    wrong = [check for check in checks if not check.ok]
    if wrong:
        moves = f"in {len(wrong)} of {len(checks)} runs, which is a race: " if len(wrong) < len(checks) else ""
        require_right(wrong[0], where + moves)
    errors = {check.max_error for check in checks}
    if len(errors) > 1 and kernel.deterministic:
        raise WrongResult(
            f"{where}the result moves from run to run on the same inputs (largest error over its bound "
            f"{min(errors):.3g} to {max(errors):.3g}), which is a race"
        )
    return max(errors, default=0.0)
