"""A GPU that can be opened in a measuring process and goes wrong there, for the configurations that it is told.

Measuring processes import this module: it imports no more than they need.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from fakes import SIZE, FakeDevice, Values, formula

from autotile.build import guard
from autotile.devices.base import Check
from autotile.errors import LaunchError

SLOW_S = 3600.0


@dataclass(frozen=True)
class FaultyGpu:
    """Opens a device on which `widths` (of the kernel `walk`) fail as named. `log` gets a line for each context made.

    illegal     an illegal address: the launch fails and so does every later one in the process
    refused     too many resources: the launch fails, the context stays
    hang        a kernel without end
    stuck       the same, in a call that no thread of the process can leave: only a kill from outside ends it
    slow        a kernel that takes 0.3 s a check
    killed      the process is killed from outside
    exit        the process ends by itself
    wrong, nan, half     wrong results, NaN, an output half written
    race        right in every other run
    moves       right, with another error in every run
    elsewhere   the same, on other problems than the searched one
    late        right when it is checked, wrong when it is timed
    zero, negative, not_a_time, too_fast     times that cannot be
    """

    widths: tuple[tuple[int, str], ...]
    log: Path

    def __call__(self) -> FakeDevice:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        return _Faulty(dict(self.widths))


class _Faulty(FakeDevice):
    def __init__(self, faults: dict[int, str]) -> None:
        super().__init__(time_ms=self._time, on_check=self._act)
        self._faults = faults
        self._runs = 0

    def _fault(self, values: Values) -> str:
        return self._faults.get(int(values["width"]), "")

    def _act(self, values: Values, n: int) -> Check | None:
        self._runs += 1
        if self.poisoned:
            raise LaunchError(f"cannot be used any more: {self.poisoned}")
        match self._fault(values):
            case "illegal":
                self.poisoned = "an illegal memory access was encountered"
                raise LaunchError(self.poisoned)
            case "refused":
                raise LaunchError("128 registers × 1024 threads > 65536")
            case "hang":
                time.sleep(SLOW_S)
            case "stuck":
                ctypes.PyDLL(None).sleep(int(SLOW_S))  # keeps the interpreter's lock
            case "slow":
                time.sleep(0.3)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(7)
            case "wrong" | "nan" | "half":
                return Check(float("inf"), 5, f"5 elements are wrong: {self._fault(values)}")
            case "race" if self._runs % 2:
                return Check(float("inf"), 1, "1 element is wrong")
            case "elsewhere" if n == SIZE:
                return None
            case "moves" | "elsewhere":
                return Check(0.1 * (self._runs % 7), 0)
        return None

    def check_timed_of(self, values: Values) -> Check:
        return Check(float("inf"), 3, "3 elements are wrong") if self._fault(values) == "late" else Check(0.0, 0)

    def _time(self, values: Values) -> float:
        return {"zero": 0.0, "negative": -1.0, "not_a_time": float("nan"), "too_fast": 1e-9}.get(
            self._fault(values), formula(values)
        )


def faulty_device(log: Path, **widths: str) -> FakeDevice:
    """The device as the searching process holds it: it opens the faulty one elsewhere (`w32="hang"`)."""
    device = FakeDevice()
    device.reopen = FaultyGpu(tuple((int(name[1:]), fault) for name, fault in widths.items()), log)
    return device


@contextlib.contextmanager
def no_orphans(seconds: float = 5.0) -> Iterator[None]:
    """Fails when a process that was started inside is still there `seconds` after."""
    before = set(children())
    yield
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and set(children()) - before:
        time.sleep(0.02)
    assert set(children()) <= before, [psutil.Process(pid).cmdline() for pid in set(children()) - before]


def contexts(log: Path) -> int:
    """How many contexts were made, as `log` tells: none while the first process writes its line."""
    return log.read_text(encoding="utf-8").count("\n") if log.exists() else 0


def kill(pids: list[int]) -> None:
    """Kills processes from outside and waits until none of them runs (a zombie may stay)."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and set(pids) & set(children()):
        time.sleep(0.005)


def children() -> list[int]:
    """Processes below this one, but for the one that watches over compilers as long as this process lives."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE and guard._WATCH not in child.cmdline():
                found.append(child.pid)
    return found


__all__ = ["SIZE", "FaultyGpu", "children", "contexts", "faulty_device", "kill", "no_orphans"]
