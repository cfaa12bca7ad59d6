"""Which of two records is the one to keep. One rule, for the store on disk and the one in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import reduce

from autotile.types import Record

Over = Callable[[Record], bool]


def servable(record: Record) -> bool:
    """Whether a record could be a best one at all: it went well, and its time is a time."""
    return record.ok and 0 < record.time_ms < float("inf")


def estimated(record: Record) -> bool:
    return record.identity.estimated or (record.measurement is not None and record.measurement.estimated)


def supersedes(record: Record, stored: Record | None, over: Over | None = None) -> bool:
    """Whether `record` takes the place of the stored best.

    A failed record never does, nor an estimate that of a measurement. A measurement takes an estimate's. Of two with
    one identity the faster stays. Where driver, compiler, flags, template or schema differ the times are not
    comparable: the newer stays. A stored one for which `over` is true gives way whatever its time.
    """
    if not servable(record):
        return False
    if stored is None or not servable(stored):
        return True
    if estimated(record) != estimated(stored):
        return estimated(stored)
    if over is not None and over(stored):
        return True
    if record.identity == stored.identity:
        return record.time_ms < stored.time_ms
    return _not_older(record, stored)


def best_of(records: Iterable[Record]) -> Record | None:
    """The one that stays when the records are offered in order; None where none went well."""

    def keep(stored: Record | None, record: Record) -> Record | None:
        return record if supersedes(record, stored) else stored

    return reduce(keep, records, None)


def _not_older(record: Record, stored: Record) -> bool:
    """By the time of creation; a record that comes later in the journal is the newer where either does not say."""
    mine, theirs = _moment(record.created), _moment(stored.created)
    return mine is None or theirs is None or mine >= theirs


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
