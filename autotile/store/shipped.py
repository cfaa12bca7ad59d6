"""Results that ship with autotile: the bests of GPUs that it was tuned on, a file each, only ever read.

A file is what `autotile export --format json` wrote on that GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from autotile import assets
from autotile.store import journal
from autotile.store.serial import Unreadable, from_object, parse
from autotile.types import Problem, Record


class ShippedStore:
    """The bests of a folder's files, read once a process. A damaged file costs one StoreWarning, and serves what of it
    can be read."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = assets.tuned_dir() if folder is None else folder

    def best(self, kernel: str, problem: Problem, device: str, arch: str | None = None) -> Record | None:
        """The record to serve on a device, or None; the newest where several files have one."""
        fitting = [
            record
            for record in self.bests(kernel, device)
            if record.problem == problem and arch in (None, record.identity.arch)
        ]
        return max(fitting, key=lambda record: record.created, default=None)

    def bests(self, kernel: str | None = None, device: str | None = None) -> list[Record]:
        """Every record, in the order of the files."""
        return [
            record
            for path, stamp in self._files()
            for record in _records(path, stamp)
            if (kernel is None or record.problem.kernel == kernel)
            and (device is None or record.identity.device == device)
        ]

    def _files(self) -> Iterator[tuple[Path, int]]:
        """Each file, and when it last changed."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield path, path.stat().st_mtime_ns
            except OSError:  # gone since it was listed: an update of autotile is under way
                continue


@lru_cache(maxsize=64)
def _records(path: Path, stamp: int) -> tuple[Record, ...]:
    """The file's records; `stamp` tells one state of it from the next."""
    try:
        found = parse(path.read_bytes())
    except OSError as error:
        return _damaged(path, error.strerror or str(error))
    except Unreadable as fault:
        return _damaged(path, str(fault))
    match found:
        case {"devices": list() as devices}:
            lists = [device.get("records") if isinstance(device, dict) else None for device in devices]
        case _:
            return _damaged(path, "not a file that `autotile export --format json` wrote")
    objects: list[object] = []
    for some in lists:
        if not isinstance(some, list):
            return _damaged(path, "a device with records that are no list")
        objects += some
    records: list[Record] = []
    faults: list[Unreadable] = []
    for item in objects:
        try:
            records.append(from_object(item))
        except Unreadable as fault:
            faults.append(fault)
    if faults:
        _damaged(path, f"{len(faults)} of {len(objects)} records cannot be read, the first of them: {faults[0]}")
    return tuple(records)


def _damaged(path: Path, why: str) -> tuple[Record, ...]:
    journal.warn(f"{path}: {why}; install autotile again to have these results whole")
    return ()
