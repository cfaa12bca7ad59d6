"""The store on disk, which goes on in memory when the disk takes no more: a disk that is full costs no search.

What the disk has refused waits in memory, place by place (a place is a problem on a device: one journal, one best).
Every write first offers the disk what waits, in order. Reads answer from the disk and from what waits, as if all of it
were on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from autotile.errors import StoreError
from autotile.store.memory import MemoryStore, Place, place_of
from autotile.store.names import device_folder, path_name
from autotile.store.ranking import Over, servable, supersedes
from autotile.store.store import DeviceEntry, Store
from autotile.types import Problem, Record

_CHUNK_RECORDS = 50
"""Most records that are offered to the disk at once: trying one that is still full costs little, however many wait."""


def in_memory(reason: str) -> str:
    """What the user is told when the disk refuses."""
    return f"{reason}. Until it can be written, results are kept in memory and lost at the end"


@dataclass
class _Waiting:
    """What the disk has not taken of one place. The bests on disk that `best` was to replace have `given_way`."""

    records: list[Record] = field(default_factory=list)
    best: Record | None = None
    given_way: tuple[Record, ...] = ()

    def gives_way(self, saved: Record) -> bool:
        return saved in self.given_way

    def served(self, saved: Record | None) -> Record | None:
        """Which stays, of the best that waits and the one on disk (another process may have saved a better one)."""
        waits = self.best is not None and supersedes(self.best, saved, self.gives_way)
        return self.best if waits else saved


class FallbackStore:
    """A store on disk whose writes do not fail. Safe for many threads; other processes see what is on disk.

    `note` hears when the disk begins to refuse (unless `refused` says that the user knows already), and when all that
    waited is on disk. Reading raises StoreError, as on disk.
    """

    def __init__(self, disk: Store, note: Callable[[str], None], refused: bool = False) -> None:
        self._disk, self._note = disk, note
        self._refused = refused
        self._reason = ""  # why the disk refused the write under way, if it did
        self._waiting: dict[Place, _Waiting] = {}
        # Reads take it too: between the disk and the memory, a record must be seen once. `over` may read: reentrant.
        self._lock = threading.RLock()

    # ---- writing -----------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Keeps a trial."""
        self.extend([record])

    def extend(self, records: Iterable[Record]) -> None:
        """Keeps trials, in order."""
        groups: dict[Place, list[Record]] = {}
        for record in records:
            groups.setdefault(place_of(record), []).append(record)
        if not groups:
            return
        with self._writing():
            for place, group in groups.items():
                waiting = self._waiting.get(place)
                in_turn = waiting is None or not waiting.records
                if not (in_turn and self._taken(group)):
                    self._waiting.setdefault(place, _Waiting()).records += group

    def save_best(self, record: Record, *, over: Over | None = None) -> bool:
        """As on disk, against the best of disk and memory. Raises StoreError when the one on disk cannot be read."""
        if not servable(record):
            return False
        place = place_of(record)
        with self._writing():
            waiting = self._waiting.get(place, _Waiting())
            if waiting.best is None:
                try:
                    return self._disk.save_best(record, over=over)
                except StoreError as error:
                    self._reason = str(error)
            saved = self._saved(place)
            if not supersedes(record, waiting.served(saved), over):
                return False
            waiting.best = record
            waiting.given_way += () if saved is None else (saved,)
            self._waiting[place] = waiting
        return True

    def withdraw(self, record: Record) -> bool:
        """As on disk. Raises StoreError when the best is on a disk that refuses: it would be served again."""
        with self._lock:
            waiting = self._waiting.get(place_of(record))
            if waiting is not None and waiting.best == record:
                waiting.best = None
                return True
            return self._disk.withdraw(record)

    def writable(self) -> str | None:
        """Why the disk takes nothing, or None when it does."""
        return self._disk.writable()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Offers the disk what waits, then lets the caller write; tells the user when the disk's mind has changed."""
        with self._lock:
            self._reason = ""
            for place in list(self._waiting):
                with suppress(StoreError):
                    self._flush(place)
            yield
            # A refusal that left nothing to keep (a best that was none) begins nothing, but ends nothing either.
            refused = bool(self._waiting) or (self._refused and self._reason != "")
            changed, self._refused = refused != self._refused, refused
            told = in_memory(self._reason) if self._refused else self._recovered()
        if changed:  # outside the lock, and last: a note may raise
            self._note(told)

    def _taken(self, group: Sequence[Record]) -> bool:
        try:
            self._disk.extend(group)
        except StoreError as error:
            self._reason = str(error)
            return False
        return True

    def _recovered(self) -> str:
        return f"{self._disk.home} can be written again, and all results so far are on disk"

    def _flush(self, place: Place) -> None:
        """Raises StoreError when the disk refuses still; what it did take by then waits no longer."""
        waiting = self._waiting[place]
        while waiting.records:
            self._disk.extend(waiting.records[:_CHUNK_RECORDS])
            del waiting.records[:_CHUNK_RECORDS]
        if waiting.best is not None:
            self._disk.save_best(waiting.best, over=waiting.gives_way)
        del self._waiting[place]

    # ---- reading -----------------------------------------------------------------------------------------------

    def records(
        self, kernel: str | None = None, problem: Problem | None = None, device: str | None = None
    ) -> list[Record]:
        """As on disk, what waits last. Raises StoreError."""
        with self._lock:
            return self._disk.records(kernel, problem, device) + self._in_memory().records(kernel, problem, device)

    def best(self, kernel: str, problem: Problem, device: str, arch: str | None = None) -> Record | None:
        """As on disk; one small file is read where nothing waits for the problem. Raises StoreError."""
        with self._lock:
            if not any(place[0] == device and place[2] == problem for place in self._waiting):
                return self._disk.best(kernel, problem, device, arch)
            return MemoryStore(bests=self.bests(kernel, device)).best(kernel, problem, device, arch)

    def bests(self, kernel: str | None = None, device: str | None = None) -> list[Record]:
        """As on disk. Raises StoreError."""
        with self._lock:
            saved = self._disk.bests(kernel, device)
            places = [place_of(record) for record in self._in_memory().bests(kernel, device)]
            if not places:
                return saved
            served = [self._waiting[place].served(self._saved(place)) for place in places]
            found = [record for record in saved if place_of(record) not in places]
            return sorted([*found, *(record for record in served if record is not None)], key=_order)

    def devices(self) -> list[DeviceEntry]:
        """As on disk; those that only memory knows come last. Raises StoreError."""
        with self._lock:
            saved = self._disk.devices()
            known = {(entry.name, entry.arch) for entry in saved}
            return saved + [entry for entry in self._in_memory().devices() if (entry.name, entry.arch) not in known]

    def _saved(self, place: Place) -> Record | None:
        device, arch, problem = place
        return self._disk.best(problem.kernel, problem, device, arch)

    def _in_memory(self) -> MemoryStore:
        """What waits, to be read like a store."""
        waiting = self._waiting.values()
        return MemoryStore(
            (record for some in waiting for record in some.records),
            (some.best for some in waiting if some.best is not None),
        )


def _order(record: Record) -> tuple[str, str, str]:
    device, arch, problem = place_of(record)
    return device_folder(device, arch), path_name(problem.kernel), path_name(problem.key)
