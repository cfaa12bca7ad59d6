"""The finals: the best are timed again in turns, and the first that proves right on other sizes is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from autotile.errors import VariantError
from autotile.measure import Session, Variant, prove
from autotile.tuner.workshop import Workshop
from autotile.types import OF_TRIALS, PROVEN, Binary, Measurement, Record

FINALISTS = 5
"""How many of the best are timed again."""


@dataclass(frozen=True)
class Finalist:
    """A right variant with its record so far."""

    record: Record
    variant: Variant
    binary: Binary

    @property
    def measurement(self) -> Measurement:
        """Its time so far."""
        assert self.record.measurement is not None, "only right records have a time"
        return self.record.measurement


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

    A race's winner is flattered by noise: what counts, and is kept, is the time of the finals. A saved best gives way,
    even to a slower one, if it is `outdated` or was itself timed again here. What stays is marked as proven, and as the
    best of so many `trials`.
    """
    workshop.listener.finals(len(finalists))
    timed = list(finalists)
    if retime and timed:
        measurements = session.finals([(f.variant, f.binary, f.measurement) for f in finalists])
        timed = [
            replace(f, record=replace(f.record, measurement=m)) for f, m in zip(finalists, measurements, strict=True)
        ]
    again = {finalist.record.configuration for finalist in finalists}
    failed: list[Record] = []
    for finalist in sorted(timed, key=lambda f: f.record.time_ms):
        try:
            worst = prove(workshop.device, workshop.builder, finalist.variant)
        except VariantError as error:
            workshop.listener.note(f"the finalist {finalist.record.configuration.label} failed its proof: {error}")
            failed.append(replace(finalist.record, outcome=error.outcome, message=str(error), measurement=None))
            workshop.store.append(failed[-1])
            continue
        proven = _marked(replace(finalist.record, max_error=max(worst, finalist.record.max_error or 0.0)), trials)
        if not workshop.store.save_best(proven, over=lambda stored: outdated(stored) or stored.configuration in again):
            _keep_faster(proven, workshop, trials)
        return proven, failed
    return None, failed


def _keep_faster(slower: Record, workshop: Workshop, trials: int) -> None:
    """The saved best, of a search of another part of the space, stays; that it beat these trials too is noted in it."""
    workshop.listener.note("a faster one is on record for this problem already, and stays the one that is loaded")
    saved = workshop.store.best(slower.problem.kernel, slower.problem, slower.identity.device)
    if saved is not None and of_trials(saved) < trials:
        workshop.store.save_best(_marked(saved, trials), over=lambda stored: stored == saved)


def of_trials(best: Record) -> int:
    """The number of trials that a saved best is the best of; 0 where it does not say."""
    noted = dict(best.extra).get(OF_TRIALS, "")
    return int(noted) if noted.isdigit() else 0


def _marked(record: Record, trials: int) -> Record:
    """A proven record, with the number of trials that it is the best of."""
    kept = tuple(entry for entry in record.extra if entry != PROVEN and entry[0] != OF_TRIALS)
    return replace(record, extra=(*kept, PROVEN, (OF_TRIALS, str(trials))))
