"""Folders for work in progress, named for the process that made them, and swept once that process is gone."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import time
from pathlib import Path

from autotile.types import digest

ABANDONED_S = 24 * 3600.0
"""Age from which a folder is nobody's, where it cannot be seen whether its process lives."""

_NAME = re.compile(r"[a-z]+-(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-\w+")


@functools.cache
def _place() -> str:
    """Where process numbers mean what they mean here: this machine, and in it this container."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return digest(f"{platform.node()} {namespace}")[:8]


def prefix(kind: str) -> str:
    """How the names of this process's folders of a kind (`build`, `entry`, …) begin."""
    return f"{kind}-{_place()}-{os.getpid()}-"


def sweep(folder: Path, *kinds: str) -> None:
    """Removes what processes that were killed left in a folder; what cannot be removed stays, without a word.

    A folder stays while its process lives. Other machines share the folder over a network: what they made, and what
    bears no process's number, is removed when it is older than ABANDONED_S.
    """
    with contextlib.suppress(OSError):
        for found in list(folder.iterdir()):
            if found.name.partition("-")[0] in kinds and _is_abandoned(found):
                shutil.rmtree(found, ignore_errors=True)


def _is_abandoned(found: Path) -> bool:
    name = _NAME.fullmatch(found.name)
    if name is not None and name["place"] == _place() and os.name == "posix":
        return not _lives(int(name["pid"]))
    try:
        return time.time() - found.stat().st_mtime > ABANDONED_S
    except OSError:
        return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True
