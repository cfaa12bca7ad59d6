"""A problem's data, kept in a folder, so that a measuring process that had to be started again need not make them anew.

The reference of a large matmul takes a CPU seconds; reading it back takes milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import threading
from pathlib import Path

from autotile.devices.base import Workload
from autotile.kernels import Kernel
from autotile.measure.workload import make_workload
from autotile.types import Problem

MOST_KEPT_BYTES = 2 << 30
"""Larger data are made anew."""


_latest: list[tuple[str, Workload]] = []
"""The last that was made or read, at most one: a session that begins next need not read it back."""


_writers: list[threading.Thread] = []
"""What may still be writing: a folder that is emptied waits for it."""


def kept_workload(kernel: Kernel, problem: Problem, seed: int, scratch: Path | None) -> Workload:
    """`make_workload`, through a file in `scratch`. A file that cannot be written or read costs time alone.

    The file is written in the background: nobody needs it before this process is lost.
    """
    if scratch is None:
        return make_workload(kernel, problem, seed)
    path = scratch / f"{_name(kernel, problem, seed)}.workload"
    for name, latest in _latest:
        if name == path.name:
            return latest
    _latest.clear()
    with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError), path.open("rb") as file:
        found = pickle.load(file)  # autotile's own process wrote it, into a folder that only this user can read
        if isinstance(found, Workload):
            _latest.append((path.name, found))
            return found
    made = make_workload(kernel, problem, seed)
    _latest.append((path.name, made))
    if _nbytes(made) <= MOST_KEPT_BYTES:
        _writers.append(threading.Thread(target=_write, args=(made, path), daemon=True))
        _writers[-1].start()
    return made


def _name(kernel: Kernel, problem: Problem, seed: int) -> str:
    return hashlib.sha256(f"{kernel.folder}\n{problem.key}\n{seed}".encode()).hexdigest()[:16]


def _write(made: Workload, path: Path) -> None:
    partial = path.with_suffix(".partial")
    try:
        with partial.open("wb") as file:
            pickle.dump(made, file, protocol=5)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()


def forget_workloads(scratch: Path | None) -> None:
    """Removes what was kept of a problem that is done with."""
    _latest.clear()
    while _writers:
        _writers.pop().join()
    for path in [] if scratch is None else scratch.glob("*.workload"):
        with contextlib.suppress(OSError):
            path.unlink()


def _nbytes(workload: Workload) -> int:
    bounds = [bound for bound in workload.bound.values() if not isinstance(bound, float)]
    arrays = (*workload.inputs.values(), *workload.reference.values(), *workload.before.values(), *bounds)
    return sum(array.nbytes for array in {id(array): array for array in arrays}.values())  # in place, one is both
