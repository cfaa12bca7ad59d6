"""A store for when the disk takes nothing: the same face, gone when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from autotile.store.ranking import Over, supersedes
from autotile.store.store import DeviceEntry, kind_of
from autotile.types import Problem, Record

Place = tuple[str, str, Problem]
"""Where a best stands: device, architecture and problem."""


class MemoryStore:
    """Records in memory, by the rules of the store on disk. Safe for many threads.

    Of `bests` there is one for each problem on a device; they are served as they are.
    """

    def __init__(self, records: Iterable[Record] = (), bests: Iterable[Record] = ()) -> None:
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._bests: dict[Place, Record] = {place_of(record): record for record in bests}
        self.extend(records)

    def append(self, record: Record) -> None:
        self.extend([record])

    def extend(self, records: Iterable[Record]) -> None:
        with self._lock:
            self._records += records

    def records(
        self, kernel: str | None = None, problem: Problem | None = None, device: str | None = None
    ) -> list[Record]:
        with self._lock:
            kept = list(self._records)
        return [
            record
            for record in kept
            if (kernel is None or record.problem.kernel == kernel)
            and (problem is None or record.problem == problem)
            and (device is None or record.identity.device == device)
        ]

    def save_best(self, record: Record, *, over: Over | None = None) -> bool:
        place = place_of(record)
        with self._lock:
            replaced = supersedes(record, self._bests.get(place), over)
            if replaced:
                self._bests[place] = record
        return replaced

    def withdraw(self, record: Record) -> bool:
        place = place_of(record)
        with self._lock:
            served = self._bests.get(place) == record
            if served:
                del self._bests[place]
        return served

    def best(self, kernel: str, problem: Problem, device: str, arch: str | None = None) -> Record | None:
        fitting = [
            record
            for record in self.bests(kernel, device)
            if record.problem == problem and arch in (None, record.identity.arch)
        ]
        return max(fitting, key=lambda record: record.created, default=None)

    def bests(self, kernel: str | None = None, device: str | None = None) -> list[Record]:
        with self._lock:
            saved = list(self._bests.values())
        return [
            record
            for record in saved
            if (kernel is None or record.problem.kernel == kernel)
            and (device is None or record.identity.device == device)
        ]

    def devices(self) -> list[DeviceEntry]:
        with self._lock:
            kept = (*self._bests.values(), *self._records)
        found = {
            (record.identity.device, record.identity.arch): DeviceEntry(
                record.identity.device, record.identity.arch, kind_of(record)
            )
            for record in kept
        }
        return [found[place] for place in sorted(found)]

    def writable(self) -> str | None:
        return None


def place_of(record: Record) -> Place:
    return record.identity.device, record.identity.arch, record.problem
