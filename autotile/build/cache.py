"""Content-addressed cache of built variants: `<home>/binaries/<first 2 hex digits>/<key>/{kernel.*, meta.json}`.

An entry appears by one rename of a finished folder, so that readers see all of it or nothing, and two processes that
build the same variant both succeed. `meta.json` keeps the binary's length and SHA-256: an entry that a crash or a full
disk damaged is a miss, and the next build replaces it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotile.build import leftovers
from autotile.types import digest

META = "meta.json"
LAYOUT = 1
"""Version of the folder's layout; part of every key."""


class BuildCacheWarning(UserWarning):
    """The cache of binaries cannot be kept where it should be; builds go on in a temporary folder."""


@dataclass(frozen=True)
class Meta:
    """What is known of a built binary beside its bytes. Registers and spilled bytes are a thread's."""

    file: str
    length: int
    sha256: str
    digest: str
    entry: str
    compiler: str
    arch: str
    registers: int | None
    spill_bytes: int | None
    static_shared_bytes: int | None
    build_s: float


def cache_key(text: str, entry: str, flags: str, compiler: str, arch: str) -> str:
    """SHA-256 of all that decides the machine code. Fields are told apart, so that none can pose as another."""
    return digest(json.dumps([LAYOUT, text, entry, flags, compiler, arch]))


class BinaryCache:
    """The folder `<home>/binaries`, or a temporary one where that cannot be written (one BuildCacheWarning).

    Opening it removes the unfinished work of processes that were killed.
    """

    def __init__(self, home: Path) -> None:
        self._root = home / "binaries"
        self._fallen_back = False
        try:
            (self._root / "tmp").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._root / "tmp"):
                pass
        except OSError as error:
            self._fall_back(error)
        leftovers.sweep(self._root / "tmp", "build", "entry", "damaged")
        leftovers.sweep(self._root, "building")  # the emulator's runtime

    @property
    def root(self) -> Path:
        return self._root

    def folder(self, key: str) -> Path:
        return self._root / key[:2] / key

    def workdir(self) -> tempfile.TemporaryDirectory[str]:
        """A fresh folder for a compiler's files, on the file system of the cache; removed at the end of its `with`."""
        try:
            return self._workdir()
        except OSError as error:
            self._fall_back(error)
            return self._workdir()

    def _workdir(self) -> tempfile.TemporaryDirectory[str]:
        prefix = leftovers.prefix("build")
        return tempfile.TemporaryDirectory(dir=self._root / "tmp", prefix=prefix, ignore_cleanup_errors=True)

    def find(self, key: str) -> tuple[Path, Meta] | None:
        """The binary's path and facts; None when it is not there or damaged."""
        folder = self.folder(key)
        try:
            fields = json.loads((folder / META).read_text(encoding="utf-8"))
            meta = Meta(**fields)
            data = (folder / meta.file).read_bytes()
        except (OSError, ValueError, TypeError):
            return None
        if len(data) != meta.length or hashlib.sha256(data).hexdigest() != meta.sha256:
            return None
        return folder / meta.file, meta

    def publish(self, key: str, name: str, data: bytes, **facts: Any) -> tuple[Path, Meta]:
        """Puts a built file into the cache. Where another process was first, its entry is kept and returned."""
        meta = Meta(file=name, length=len(data), sha256=hashlib.sha256(data).hexdigest(), **facts)
        try:
            return self._rename_into_place(key, name, data, meta)
        except OSError as error:
            self._fall_back(error)
            return self._rename_into_place(key, name, data, meta)

    def _rename_into_place(self, key: str, name: str, data: bytes, meta: Meta) -> tuple[Path, Meta]:
        folder = self.folder(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self._root / "tmp", prefix=leftovers.prefix("entry")))
        try:
            (fresh / name).write_bytes(data)
            (fresh / META).write_text(json.dumps(asdict(meta), indent=1), encoding="utf-8")
            for _ in range(8):
                try:
                    fresh.rename(folder)
                    return folder / name, meta
                except OSError as error:
                    # A folder that is not empty stands there: another process was first, or a damaged entry.
                    if not folder.is_dir():
                        raise error
                found = self.find(key)
                if found is not None:
                    return found
                with contextlib.suppress(OSError):  # another process may clear the same damaged entry
                    damaged = tempfile.mkdtemp(dir=self._root / "tmp", prefix=leftovers.prefix("damaged"))
                    os.rename(folder, damaged)
                    shutil.rmtree(damaged, ignore_errors=True)
            raise OSError(f"{folder} cannot be replaced")
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _fall_back(self, error: OSError) -> None:
        if self._fallen_back:
            raise error  # the temporary folder cannot be written either
        self._fallen_back = True
        instead = Path(tempfile.mkdtemp(prefix="autotile-binaries-"))
        atexit.register(shutil.rmtree, instead, ignore_errors=True)  # not before: binaries outlive their builder
        warnings.warn(
            f"binaries cannot be kept in {self._root} ({error.strerror or error}); this run keeps them in {instead} "
            "and compiles again next time. Set AUTOTILE_HOME to a folder that can be written.",
            BuildCacheWarning,
            stacklevel=2,
        )
        self._root = instead
        (self._root / "tmp").mkdir(parents=True, exist_ok=True)
