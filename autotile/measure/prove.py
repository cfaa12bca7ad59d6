"""A winner's proof: what it has to hold on before it is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from autotile.build import Builder
from autotile.devices.info import DeviceInfo
from autotile.errors import ImplausibleTime, VariantError, WrongResult
from autotile.measure.bench import Bench
from autotile.measure.variant import PROOF_RUNS, Variant, proofs_of
from autotile.types import Binary

RECHECK_RUNS = 5
"""Times that a winner is checked again on the real problem."""


Proven = TypeVar("Proven")


def fairly(attempt: Callable[[], Proven]) -> Proven:
    """Once more, in a fresh process, after what may not have been the variant's doing: a kill, a refusal, a limit.

    What was wrong, or faster than can be, is so: that is raised at once.
    """
    try:
        return attempt()
    except (WrongResult, ImplausibleTime):
        raise
    except VariantError:
        return attempt()


def prove(
    bench: Bench, builder: Builder, device: DeviceInfo, variant: Variant, binary: Binary, comparer: Binary | None
) -> float:
    """Checks a variant of the begun problem again, and on other problems. Gives the largest error over its bound.

    All that has to be built for it is built in the pool while the checks run. Raises VariantError for the first that
    fails, naming the problem and the data.
    """
    proofs = proofs_of(variant, device)
    futures = [builder.submit(proof.variant.source) for proof in proofs]
    worst = bench.recheck(variant, binary, RECHECK_RUNS)
    for proof, future in zip(proofs, futures, strict=True):
        worst = max(worst, bench.prove(proof, future.result(), comparer, PROOF_RUNS))
    return worst
