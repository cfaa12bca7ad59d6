"""Files that survive: an append-only journal of lines, and small files replaced in one step.

A line is durable when `append` returns: one write on an O_APPEND descriptor, then fsync. Writers take turns through a
lock on the journal itself (which the kernel drops when its holder dies). Functions here raise OSError.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotile.store.bulk import from_lines
from autotile.store.serial import Unreadable
from autotile.types import Record

_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_LISTED_LINES = 5
"""Most lines that a warning names."""
_PATIENCE = 100
"""Times, 5 ms apart, that a reader asks for the lock."""


class StoreWarning(UserWarning):
    """Part of the store could not be read and was passed over; the message names the file and the lines."""


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int, to_read: bool) -> None:
        os.lseek(descriptor, 2**31 - 2, os.SEEK_SET)  # Windows' locks bar reading, so lock a byte beyond the end
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK if to_read else msvcrt.LK_LOCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 2**31 - 2, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int, to_read: bool) -> None:
        # flock belongs to the open file, so threads of one process keep each other out too
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB if to_read else fcntl.LOCK_EX)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[bool]:
    """Holds the file's lock; yields whether there is one (some network file systems have none: best effort there)."""
    try:
        _lock(descriptor, to_read=False)
        held = True
    except OSError:
        held = False
    try:
        yield held
    finally:
        if held:
            _unlock(descriptor)


def _settled_size(descriptor: int) -> int:
    """The file's bytes with no writer half way, so that half a line is not taken for a torn one.

    −1 (read what there is) after a while: a stopped process may hold the lock, and so may the reader's own caller.
    """
    for _ in range(_PATIENCE):
        try:
            _lock(descriptor, to_read=True)
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            break
        else:
            size = os.fstat(descriptor).st_size
            _unlock(descriptor)
            return size
    return -1


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of the journal for appending; the file and its folders are made where missing."""
    flags = os.O_RDWR | os.O_APPEND | _BINARY
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        make_folder(path.parent)
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        _sync_folder(path.parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def append(path: Path, lines: bytes) -> None:
    """Adds whole lines (each ends in a newline), durably. A torn last line is closed off first.

    Raises OSError, and then the journal is as it was, as far as the file system lets it.
    """
    with opened(path) as descriptor:
        with locked(descriptor) as alone:
            size = os.fstat(descriptor).st_size
            if size and _byte_at(descriptor, size - 1) != b"\n":
                lines = b"\n" + lines
            try:
                _write_all(descriptor, lines)
            except OSError:
                if alone:  # a full disk takes part of a line: give the part back
                    _shorten(descriptor, size)
                raise
        try:
            os.fsync(descriptor)  # outside the lock: many writers' syncs become one
        except OSError:  # a disk that is only now found full (NFS, quotas): what is not durable was not written
            with locked(descriptor) as alone:
                if alone and os.fstat(descriptor).st_size == size + len(lines):
                    _shorten(descriptor, size)
            raise


def _shorten(descriptor: int, size: int) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, size)


def _byte_at(descriptor: int, offset: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)  # appending ignores the position
    return os.read(descriptor, 1)


def _write_all(descriptor: int, data: bytes) -> None:
    """One write in all but name: the rest follows only where the system took a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def snapshot(path: Path) -> bytes:
    """The journal's bytes; empty where there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _BINARY)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    with os.fdopen(descriptor, "rb") as file:
        size = _settled_size(descriptor)
        file.seek(0)
        return file.read(size)


def read(path: Path) -> list[Record]:
    """The records of a journal, in order. What cannot be read is skipped, with one StoreWarning for the file."""
    records: list[Record] = []
    faults: list[tuple[int, Unreadable]] = []
    for number, found in enumerate(from_lines(snapshot(path).split(b"\n")), 1):
        if isinstance(found, Record):
            records.append(found)
        elif found is not None:
            faults.append((number, found))
    if faults:
        warn(f"{path}: {_account(faults)}; the other records were read")
    return records


def warn(message: str) -> None:
    """A StoreWarning, attributed to the caller of the store."""
    warnings.warn(message, StoreWarning, stacklevel=4)


def _account(faults: Sequence[tuple[int, Unreadable]]) -> str:
    """`skipped line 3: not JSON (…); skipped lines 5, 6 written by record schema 99; this autotile reads 1`."""
    kinds: dict[int | None, list[tuple[int, Unreadable]]] = {}
    for number, fault in faults:
        kinds.setdefault(fault.version, []).append((number, fault))
    parts = []
    for some in kinds.values():
        numbers = ", ".join(str(number) for number, _ in some[:_LISTED_LINES])
        more = f" and {len(some) - _LISTED_LINES} more" if len(some) > _LISTED_LINES else ""
        parts.append(f"skipped line{'s' if len(some) > 1 else ''} {numbers}{more}: {some[0][1]}")
    return "; ".join(parts)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the file in one step: readers see the old or the new one, after a crash too."""
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        _replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _replace(temporary: Path, path: Path) -> None:
    for _ in range(20):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            if os.name != "nt":
                raise
            time.sleep(0.01)  # Windows refuses while somebody reads the file, which takes no longer than this
    os.replace(temporary, path)


def make_folder(path: Path) -> None:
    """The folder and its parents, each entered durably into its own parent."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there, and its entries are journalled
        return
    with contextlib.suppress(OSError):  # some file systems refuse to sync a folder; the file itself is synced
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
