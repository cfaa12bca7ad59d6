"""Running a compiler so that nothing of it is left: its whole process group is killed on timeout and on close.

nvcc and g++ are drivers that start cicc, ptxas or cc1plus; killing the driver alone would leave those running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.errors import CompileError

_WAKE_S = 0.1
"""How often a wait for a compiler looks whether it should go on."""
CLOSE_S = 1.0
"""Longest that closing waits for what it killed to be gone."""


class CompileTimeout(CompileError):
    """The compiler took longer than it may."""


@dataclass(frozen=True)
class Finished:
    """Exit status, and stdout and stderr as one text."""

    status: int
    text: str


class ProcessPool:
    """The compilers that are running now. Not a limit on their number: the builder's threads are."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Condition()
        self._closed = False

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        text: str | None = None,
    ) -> Finished:
        """Runs one command to its end, with `text` as its input.

        Raises CompileTimeout after `timeout_s` seconds, CompileError when the pool is closed meanwhile, OSError when
        the command cannot be started.
        """
        with self._lock:
            if self._closed:
                raise CompileError("the builder was closed")
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        try:
            said = self._communicate(process, text, time.monotonic() + timeout_s)
        except subprocess.TimeoutExpired:
            raise CompileTimeout(
                f"{Path(command[0]).name} was stopped after {timeout_s:g} s: this variant takes too long to compile"
            ) from None
        finally:
            kill_group(process)
            with process:  # reaps it and closes its pipe
                pass
            with self._lock:
                self._running.discard(process)
                self._lock.notify_all()
        if self._closed:
            raise CompileError("the builder was closed while this variant was compiling")
        return Finished(process.returncode, said)

    def _communicate(self, process: subprocess.Popen[str], text: str | None, deadline: float) -> str:
        """What the process says until it ends; what it said so far, perhaps nothing, when the pool is closed.

        Looks up now and then: a daemon that a compiler leaves behind in another session (as a compiler cache does)
        survives the kill and keeps the pipe open.
        """
        while True:
            left = deadline - time.monotonic()
            try:
                said, _ = process.communicate(text, timeout=max(0.0, min(_WAKE_S, left)))
                return said
            except subprocess.TimeoutExpired:
                if self._closed:
                    return ""
                if left <= 0:
                    raise
                text = None  # it keeps what it has not written yet

    def close(self) -> None:
        """Kills what is running, and waits until it is gone (CLOSE_S at most); later runs are refused."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            kill_group(process)
        with self._lock:
            self._lock.wait_for(lambda: not self._running, timeout=CLOSE_S)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kills a compiler that has not been reaped, and every process it started. Does nothing to one that has ended."""
    if process.returncode is not None:  # its number may belong to somebody else by now
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:  # pragma: no cover (Windows)
        process.kill()
