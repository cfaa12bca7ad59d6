"""The finals: the best are timed again in turns, and the first that proves right on other sizes is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autotile.errors import VariantError
from autotile.measure import Session, Variant, prove
from autotile.tuner.workshop import Workshop
from autotile.types import OF_TRIALS, PROVEN, Binary, Record

FINALISTS = 5
"""How many of the best are timed again."""


@dataclass(frozen=True)
class Finalist:
    """A right variant with its record so far."""

    record: Record
    variant: Variant
    binary: Binary


def distinct_best(records: Iterable[Record], count: int = FINALISTS) -> list[Record]:
    """The fastest right records, one for each machine code and launch."""
    chosen: dict[object, Record] = {}
    for record in sorted((r for r in records if r.ok), key=lambda r: r.time_ms):
        chosen.setdefault((record.binary_digest, record.launch), record)
    return list(chosen.values())[:count]


def crown(
    finalists: Sequence[Finalist],
    session: Session,
    workshop: Workshop,
    outdated: Callable[[Record], bool],
    trials: int,
    retime: bool = True,
) -> tuple[Record | None, list[Record]]:
    """Saves the fastest finalist that holds. Returns its record (None when none does), and those that failed.

    A race's winner is flattered by noise: what counts, and is kept, is the time of the finals. A saved best that is
    `outdated` gives way even to a slower one. It is marked as proven, and as the best of so many `trials`.
    """
    workshop.listener.finals(len(finalists))
    timed = list(finalists)
    if retime and timed:
        measurements = session.finals([(f.variant, f.binary) for f in finalists])
        timed = [
            replace(f, record=replace(f.record, measurement=m)) for f, m in zip(finalists, measurements, strict=True)
        ]
    failed: list[Record] = []
    for finalist in sorted(timed, key=lambda f: f.record.time_ms):
        try:
            worst = prove(workshop.device, workshop.builder, finalist.variant)
        except VariantError as error:
            workshop.listener.note(f"the finalist {finalist.record.configuration.label} failed its proof: {error}")
            failed.append(replace(finalist.record, outcome=error.outcome, message=str(error), measurement=None))
            workshop.store.append(failed[-1])
            continue
        proven = replace(
            finalist.record,
            max_error=max(worst, finalist.record.max_error or 0.0),
            extra=(*finalist.record.extra, PROVEN, (OF_TRIALS, str(trials))),
        )
        if not workshop.store.save_best(proven, over=partial(_wins, proven, outdated)):
            workshop.listener.note(
                "a faster one is on record for this problem already, and stays the one that is loaded"
            )
        return proven, failed
    return None, failed


def _wins(record: Record, outdated: Callable[[Record], bool], stored: Record) -> bool:
    return outdated(stored) or record.identity != stored.identity or record.time_ms < stored.time_ms
