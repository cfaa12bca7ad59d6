"""The finals: the best are timed again in turns, and the first that proves right on other sizes is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from autotile.errors import VariantError
from autotile.measure import Contestant, Variant, fairly, prove
from autotile.measure.noise import verdict
from autotile.measure.trace import TRACED
from autotile.tuner.workshop import Workshop
from autotile.types import OF_TRIALS, PROVEN, Binary, Configuration, Measurement, Record

FINALISTS = 5
"""How many of the best come to the finals."""

CLOSE = 1.03
"""Those that took up to so many times as long as the best are timed again, as noise may have put them into the wrong
order. The others stand by, in case that none of them holds."""

DRIFT = "drift"
"""The entry of a winner's `extra`: the time of the search's first variant in the finals, over its time at the start."""

MOST_DRIFT = 0.1
"""A first variant that is slower or faster by more than this share at the end is worth a word."""

TIED = "tied"
"""The entry of a winner's `extra`: how many other finalists it cannot be told from."""


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

    @property
    def contestant(self) -> Contestant:
        return Contestant(self.variant, self.binary, self.measurement)


@dataclass(frozen=True)
class Crowned:
    """How the finals ended: the record that was proven (None when nothing held), and those that failed."""

    winner: Record | None
    failed: Sequence[Record]


def distinct_best(records: Iterable[Record], count: int = FINALISTS) -> list[Record]:
    """The fastest right records, one for each machine code and launch."""
    chosen: dict[object, Record] = {}
    for record in sorted((r for r in records if r.ok), key=lambda r: r.time_ms):
        chosen.setdefault((record.binary_digest, record.launch), record)
    return list(chosen.values())[:count]


def crown(
    finalists: Sequence[Finalist],
    workshop: Workshop,
    outdated: Callable[[Record], bool],
    trials: int,
    retime: bool = True,
    first: Finalist | None = None,
) -> Crowned:
    """Saves the fastest finalist that holds.

    A race's winner is flattered by noise: what counts, and is kept, is the time of the finals. `first`, the search's
    first variant, is timed beside them, to see whether the clocks held meanwhile. A saved best gives way, even to a
    slower one, if it is `outdated` or was itself timed again here. What stays is marked as proven, and as the best of
    so many `trials`.
    """
    workshop.listener.finals(len(finalists))
    if workshop.tracer is not None:
        workshop.tracer.prepare(finalist.variant for finalist in finalists)
    timed = sorted(finalists, key=_time_ms)
    stand_by: list[Finalist] = []
    if retime and finalists:
        most_ms = CLOSE * min(finalist.measurement.time_ms for finalist in finalists)
        close = [finalist for finalist in finalists if finalist.measurement.time_ms <= most_ms]
        stand_by = [finalist for finalist in timed if finalist not in close]
        anew = sorted(_timed_again(close, workshop, first), key=_time_ms)
        if stand_by and _time_ms(anew[0]) > _time_ms(stand_by[0]):  # it was luck, or the clocks moved: all are needed
            anew, stand_by = sorted(_timed_again(finalists, workshop, first), key=_time_ms), []
        timed = anew
    again = {finalist.record.configuration for finalist in timed}
    failed: list[Record] = []
    for finalist in (*timed, *stand_by):  # never by their times together: the clocks may have moved meanwhile
        try:
            proven = _proven(finalist, workshop, trials)
        except VariantError as error:
            workshop.listener.note(f"the finalist {finalist.record.configuration.label} failed its proof: {error}")
            failed.append(replace(finalist.record, outcome=error.outcome, message=str(error), measurement=None))
            workshop.store.append(failed[-1])
            continue
        rivals = [f.measurement for f in timed if f is not finalist and f.record not in failed]
        ties = sum(verdict(finalist.measurement, rival) == "same" for rival in rivals)
        proven = _noted(proven, TIED, str(ties)) if ties and retime else proven
        if not workshop.store.save_best(proven, over=partial(_gives_way, proven, outdated, again)):
            _keep_faster(proven, workshop, trials)
        return Crowned(proven, failed)
    return Crowned(None, failed)


def _time_ms(finalist: Finalist) -> float:
    return finalist.record.time_ms


def _gives_way(proven: Record, outdated: Callable[[Record], bool], again: set[Configuration], stored: Record) -> bool:
    """One of another identity does, whatever it says of its date: it would not be served as exact any more."""
    return outdated(stored) or stored.configuration in again or stored.identity != proven.identity


def _timed_again(finalists: Sequence[Finalist], workshop: Workshop, first: Finalist | None) -> list[Finalist]:
    """The finalists with the times of the finals; with those that they had, should one fail meanwhile."""
    control = first if first is not None and first not in finalists else None
    entered = [*finalists, control] if control is not None else list(finalists)
    try:
        measurements = workshop.bench.finals([finalist.contestant for finalist in entered])
    except VariantError as error:
        workshop.listener.note(f"the finals were broken off, and earlier times count: {error}")
        return list(finalists)
    timed = [replace(f, record=replace(f.record, measurement=m)) for f, m in zip(entered, measurements, strict=True)][
        : len(finalists)
    ]
    if first is None or first.measurement.estimated:
        return timed
    drift = measurements[entered.index(first)].time_ms / first.measurement.time_ms
    if abs(drift - 1) > MOST_DRIFT:
        workshop.listener.note(
            f"the first variant of this search took {drift:.2f} times as long at its end: the clocks moved meanwhile. "
            "The best were timed side by side, so their order holds"
        )
    return [replace(f, record=_noted(f.record, DRIFT, f"{drift:.4f}")) for f in timed]


def _proven(finalist: Finalist, workshop: Workshop, trials: int) -> Record:
    """The finalist's record, marked. Raises VariantError when it does not hold."""
    variant, tracer = finalist.variant, workshop.tracer
    with ThreadPoolExecutor(1) as beside:  # the emulator's opinion does not need the device
        traced = None
        if tracer is not None:
            traced = beside.submit(tracer.trace, variant.kernel, variant.problem, variant)
        worst = fairly(
            partial(
                prove,
                workshop.bench,
                workshop.builder,
                workshop.device.info,
                variant,
                finalist.binary,
                workshop.comparer(),
            )
        )
        record = replace(finalist.record, max_error=max(worst, finalist.record.max_error or 0.0))
        if traced is not None:
            record = _noted(record, TRACED, traced.result())
    return _marked(record, trials)


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


def _noted(record: Record, name: str, text: str) -> Record:
    return replace(record, extra=(*(entry for entry in record.extra if entry[0] != name), (name, text)))
