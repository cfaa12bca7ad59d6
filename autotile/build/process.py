"""Running a compiler so that nothing of it is left: its whole process group is killed on timeout and on close.

nvcc and g++ are drivers that start cicc, ptxas or cc1plus; killing the driver alone would leave those running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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
        with contextlib.ExitStack() as stack, self._lock:
            if self._closed:
                raise CompileError("the builder was closed")
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL if text is None else stack.enter_context(_file_of(text)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        try:
            said = self._communicate(process, time.monotonic() + timeout_s)
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

    def _communicate(self, process: subprocess.Popen[str], deadline: float) -> str:
        """What the process says until it ends; what it said so far, perhaps nothing, when the pool is closed.

        Looks up now and then: a daemon that a compiler leaves behind in another session (as a compiler cache does)
        survives the kill and keeps the pipe open.
        """
        while True:
            left = deadline - time.monotonic()
            try:
                said, _ = process.communicate(timeout=max(0.0, min(_WAKE_S, left)))
                return said
            except subprocess.TimeoutExpired:
                if self._closed:
                    return ""
                if left <= 0:
                    raise

    def close(self) -> None:
        """Kills what is running, and waits until it is gone (CLOSE_S at most); later runs are refused."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            kill_group(process)
        with self._lock:
            self._lock.wait_for(lambda: not self._running, timeout=CLOSE_S)


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[IO[bytes]]:
    """A file, not a pipe: a `communicate` that is interrupted and called again would forget the rest of its input."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", errors="replace"))
        file.seek(0)
        yield file


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kills a compiler that has not been reaped, and every process it started. Does nothing to one that has ended."""
    if process.returncode is not None:  # its number may belong to somebody else by now
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:  # pragma: no cover (Windows)
        process.kill()
