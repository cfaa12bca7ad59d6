"""One variant for one problem: its source and its launch; the problems on which it proves itself; what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotile.codegen import render
from autotile.devices.base import Check
from autotile.devices.info import MAX_GRID
from autotile.dtypes import element_type
from autotile.errors import LaunchError, WrongResult
from autotile.kernels import Kernel
from autotile.measure.workload import Kind
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
    launch = kernel.launch_of(problem, configuration)
    for axis, blocks, most in zip("xyz", launch.grid, MAX_GRID, strict=True):
        if not 1 <= blocks <= most:
            raise LaunchError(f"the grid has {blocks} blocks along {axis}; CUDA allows 1 to {most}")
    return Variant(kernel, problem, configuration, render(kernel, problem, configuration, alignment), launch)


@dataclass(frozen=True)
class Inputs:
    """Which data a check uses: a seed and a kind (see workload.py)."""

    seed: int
    kind: Kind


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


@dataclass(frozen=True)
class Proof:
    """One of the problems on which a winner has to hold, with the inputs to try.

    Arrays lie `offset_bytes` behind an aligned address: the text for unaligned ones meets such.
    """

    variant: Variant
    inputs: tuple[Inputs, ...]
    offset_bytes: int = 0


def proofs_of(variant: Variant) -> list[Proof]:
    """The problems on which a winner proves itself.

    These are the kernel's odd sizes, each with the text for aligned and the one for unaligned arrays, and problems of
    many blocks along each dimension, where an index of blocks, a group of tiles or a long loop goes wrong. Where none
    of them has the very text that was measured (a trait may be of large sizes alone), its own problem is one of them.
    """
    proofs = list(_odd_proofs(variant))
    many = [make_variant(variant.kernel, problem, variant.configuration) for problem in many_blocks(variant)]
    proofs += [Proof(other, MANY_INPUTS) for other in many]
    if all(proof.variant.source.text != variant.source.text for proof in proofs):
        proofs.append(Proof(variant, PROOF_INPUTS))
    return proofs


def _odd_proofs(variant: Variant) -> Iterator[Proof]:
    kernel, configuration = variant.kernel, variant.configuration
    itemsize = element_type(variant.problem.dtype).itemsize
    for problem in kernel.proof_problems(variant.problem):
        aligned = make_variant(kernel, problem, configuration)
        yield Proof(aligned, PROOF_INPUTS)
        unaligned = make_variant(kernel, problem, configuration, itemsize)
        if unaligned.source.text != aligned.source.text:
            yield Proof(unaligned, PROOF_INPUTS, itemsize)


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
