"""Where records live between runs.

    HOME/devices/<device>/device.json                            the device's exact name, arch and kind
    HOME/devices/<device>/<kernel>/<problem>.records.jsonl       every trial, a line each, only ever appended to
    HOME/devices/<device>/<kernel>/<problem>.best.json           the one to serve, replaced in one step

Binaries are not kept here: they can be built again, and live in the build cache.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotile.assets import home_dir
from autotile.errors import StoreError
from autotile.store import journal
from autotile.store.names import device_folder, device_prefix, path_name
from autotile.store.ranking import Over, estimated, supersedes
from autotile.store.serial import Unreadable, from_line, parse, pretty, to_line, to_object
from autotile.types import Problem, Record

RECORDS = ".records.jsonl"
BEST = ".best.json"
DEVICE = "device.json"

_FULL = {errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC}


@dataclass(frozen=True)
class DeviceEntry:
    """A device that the store has records of. `folder` is None in memory."""

    name: str
    arch: str
    kind: str
    folder: Path | None = None


class RecordStore(Protocol):
    """What a search, the runtime and the reports need of a store, on disk or in memory."""

    def append(self, record: Record) -> None: ...
    def extend(self, records: Iterable[Record]) -> None: ...
    def records(
        self, kernel: str | None = None, problem: Problem | None = None, device: str | None = None
    ) -> list[Record]: ...
    def save_best(self, record: Record, *, over: Over | None = None) -> bool: ...
    def withdraw(self, record: Record) -> bool: ...
    def best(self, kernel: str, problem: Problem, device: str, arch: str | None = None) -> Record | None: ...
    def bests(self, kernel: str | None = None, device: str | None = None) -> list[Record]: ...
    def devices(self) -> list[DeviceEntry]: ...
    def writable(self) -> str | None: ...


def kind_of(record: Record) -> str:
    """`emulator` or `cuda`, unless the record's extra `device_kind` says otherwise."""
    return dict(record.extra).get("device_kind", "emulator" if estimated(record) else "cuda")


class Store:
    """The store on disk. Nothing is created before the first write. Safe for many processes and threads at once.

    Every write raises StoreError where the disk refuses; FallbackStore goes on in memory.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.home = Path(home) if home is not None else home_dir()

    @property
    def root(self) -> Path:
        return self.home / "devices"

    # ---- writing -----------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Keeps a trial; it is on disk when this returns. Raises StoreError."""
        self.extend([record])

    def extend(self, records: Iterable[Record]) -> None:
        """Keeps trials, in order, with one write a journal. Raises StoreError."""
        groups: dict[Path, list[Record]] = {}
        for record in records:
            groups.setdefault(self._path(record, RECORDS), []).append(record)
        for path, group in groups.items():
            with _telling(path):
                self._describe_device(path, group[0])
                journal.append(path, b"".join(to_line(record) for record in group))

    def save_best(self, record: Record, *, over: Over | None = None) -> bool:
        """Makes the record the one to serve, if it supersedes the stored one (see ranking.py); says whether it did.

        A stored one for which `over` is true gives way whatever its time. Raises StoreError.
        """
        if not supersedes(record, None):
            return False
        path, trials = self._path(record, BEST), self._path(record, RECORDS)
        with _telling(path):
            self._describe_device(path, record)
            # The journal's lock guards the best too: best.json itself is replaced, so a lock on it would not last.
            with journal.opened(trials) as descriptor, journal.locked(descriptor):
                if not supersedes(record, self._serve(path), over):
                    return False
                journal.write_atomically(path, pretty(to_object(record)).encode())
        return True

    def withdraw(self, record: Record) -> bool:
        """Takes a saved best out of service, if it still is that one; says whether it was. Raises StoreError."""
        path, trials = self._path(record, BEST), self._path(record, RECORDS)
        if self._serve(path) != record:  # nothing is opened for writing where there is nothing to do
            return False
        with _telling(path), journal.opened(trials) as descriptor, journal.locked(descriptor):
            if self._serve(path) != record:
                return False
            path.unlink()
        return True

    def writable(self) -> str | None:
        """Why nothing can be written, or None when it can; tried by writing and removing a small file."""
        probe = self.home / f".writable-{os.getpid()}"
        try:
            with _telling(self.home):
                journal.write_atomically(probe, bytes(4096))
                probe.unlink()
        except StoreError as error:
            return str(error)
        return None

    # ---- reading -----------------------------------------------------------------------------------------------

    def records(
        self, kernel: str | None = None, problem: Problem | None = None, device: str | None = None
    ) -> list[Record]:
        """The trials, in the order of each journal. Unreadable lines are passed over with one StoreWarning a file."""
        found: list[Record] = []
        for path in self._files(RECORDS, problem.kernel if problem else kernel, problem, device):
            with _telling(path, "read"):
                found += journal.read(path)
        return [
            record
            for record in found
            if (kernel is None or record.problem.kernel == kernel)
            and (problem is None or record.problem == problem)
            and (device is None or record.identity.device == device)
        ]

    def best(self, kernel: str, problem: Problem, device: str, arch: str | None = None) -> Record | None:
        """The record to serve on a device, or None. Reads one small file, however large the store.

        Without `arch`, a device whose name stands for several architectures answers with its newest record.
        A best.json that cannot be read is as good as none, and costs one StoreWarning: the journal does not say which
        of its trials were proven, and the next search crowns one again without measuring anew.
        """
        name = path_name(problem.key) + BEST
        folders = [self.root / device_folder(device, arch)] if arch is not None else self._device_folders(device)
        found = [self._serve(folder / path_name(kernel) / name) for folder in folders]
        fitting = [record for record in found if record and record.problem == problem and problem.kernel == kernel]
        return max(fitting, key=lambda record: record.created, default=None)

    def bests(self, kernel: str | None = None, device: str | None = None) -> list[Record]:
        """Every best record, in the order of device, kernel and problem."""
        found = [self._serve(path) for path in self._files(BEST, kernel, None, device)]
        return [record for record in found if record and (kernel is None or record.problem.kernel == kernel)]

    def devices(self) -> list[DeviceEntry]:
        """The devices that there are records of."""
        return [entry for folder in self._device_folders() if (entry := self._device_entry(folder)) is not None]

    # ---- files -------------------------------------------------------------------------------------------------

    def _path(self, record: Record, suffix: str) -> Path:
        folder = self.root / device_folder(record.identity.device, record.identity.arch)
        return folder / path_name(record.problem.kernel) / (path_name(record.problem.key) + suffix)

    def _device_folders(self, device: str | None = None) -> list[Path]:
        prefix = "" if device is None else device_prefix(device)
        return [folder for folder in _folders(self.root) if folder.name.startswith(prefix)]

    def _files(self, suffix: str, kernel: str | None, problem: Problem | None, device: str | None) -> Iterator[Path]:
        for folder in self._device_folders(device):
            for inner in [folder / path_name(kernel)] if kernel is not None else _folders(folder):
                if problem is not None:
                    yield inner / (path_name(problem.key) + suffix)
                else:
                    yield from (path for path in _listed(inner) if path.name.endswith(suffix))

    def _describe_device(self, path: Path, record: Record) -> None:
        file = path.parent.parent / DEVICE
        if not file.exists():
            identity = record.identity
            entry = {"schema_version": 1, "name": identity.device, "arch": identity.arch, "kind": kind_of(record)}
            journal.write_atomically(file, pretty(entry).encode())

    def _device_entry(self, folder: Path) -> DeviceEntry | None:
        try:
            match parse((folder / DEVICE).read_bytes()):
                case {"name": str() as name, "arch": str() as arch, "kind": str() as kind}:
                    return DeviceEntry(name, arch, kind, folder)
        except (OSError, Unreadable):
            pass
        for path in (path for inner in _folders(folder) for path in _listed(inner) if path.name.endswith(RECORDS)):
            with _telling(path, "read"):
                for record in journal.read(path)[:1]:  # the records know their device too
                    return DeviceEntry(record.identity.device, record.identity.arch, kind_of(record), folder)
        return None

    def _serve(self, path: Path) -> Record | None:
        """The record of a best.json; None where there is no file, or one that cannot be read."""
        with _telling(path, "read"):
            try:
                return from_line(path.read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                return None
            except Unreadable as fault:
                journal.warn(f"{path}: {fault}; it counts as not there until a search saves a best again")
                return None


def _listed(folder: Path) -> list[Path]:
    """The folder's entries, sorted; none where it is missing. Raises StoreError where it may not be read."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(_told(folder, "read", error)) from error


def _folders(folder: Path) -> list[Path]:
    with _telling(folder, "read"):  # a folder that may be listed but not entered
        return [path for path in _listed(folder) if path.is_dir()]


@contextmanager
def _telling(path: Path, verb: str = "write") -> Iterator[None]:
    """The system's refusals as StoreError, with the path, the reason and the way out."""
    try:
        yield
    except OSError as error:
        raise StoreError(_told(path, verb, error)) from error


def _told(path: Path, verb: str, error: OSError) -> str:
    where = error.filename if isinstance(error.filename, str) else path
    way_out = "free some space, or " if error.errno in _FULL else ""
    return f"cannot {verb} {where}: {error.strerror or error}; {way_out}set AUTOTILE_HOME to a folder you can write"
