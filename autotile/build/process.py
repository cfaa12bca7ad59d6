"""Running a compiler so that nothing of it is left: its whole process group is killed on timeout and on close.

nvcc and g++ are drivers that start cicc, ptxas or cc1plus; killing the driver alone would leave those running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.errors import CompileError


@dataclass(frozen=True)
class Finished:
    """Exit status, and stdout and stderr as one text."""

    status: int
    text: str


class ProcessPool:
    """The compilers that are running now. Not a limit on their number: the builder's threads are."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, command: Sequence[str], *, cwd: Path, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> Finished:
        """Runs one command to its end.

        Raises CompileError after `timeout_s` seconds or when the pool is closed meanwhile, OSError when the command
        cannot be started.
        """
        with self._lock:
            if self._closed:
                raise CompileError("the builder was closed")
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        try:
            text, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise CompileError(
                f"{Path(command[0]).name} was stopped after {timeout_s:g} s: this variant takes too long to compile"
            ) from None
        finally:
            kill_group(process)
            with process:  # reaps it and closes its pipe
                pass
            with self._lock:
                self._running.discard(process)
        if self._closed:
            raise CompileError("the builder was closed while this variant was compiling")
        return Finished(process.returncode, text)

    def close(self) -> None:
        """Kills what is running; later runs are refused."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            kill_group(process)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kills a compiler that has not been reaped, and every process it started. Does nothing to one that has ended."""
    if process.returncode is not None:  # its number may belong to somebody else by now
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:  # pragma: no cover (Windows)
        process.kill()
