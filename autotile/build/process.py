"""Running a compiler so that nothing of it is left: its whole process group is killed at its end, however it comes.

nvcc and g++ are drivers that start cicc, ptxas or cc1plus; killing the driver alone would leave those running. What
this module cannot do because its own process was killed, `guard.py` does.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from autotile.build import guard
from autotile.errors import CompileError

_WAKE_S = 0.1
"""How often a wait for a compiler looks whether it should go on."""
CLOSE_S = 1.0
"""Longest that closing waits for what it killed to be gone."""
ASK_LIMIT_S = 15.0
"""Longest that a compiler may take to answer a question about itself, such as its version."""

_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Illegal instruction": signal.SIGILL,
    "Bus error": getattr(signal, "SIGBUS", signal.SIGSEGV),
    "Killed": getattr(signal, "SIGKILL", signal.SIGTERM),
}
_DIED = re.compile(r"died due to signal (\d+)")  # nvcc, of a part of it
_WORDS = re.compile(rf"\b({'|'.join(_SIGNALS)})(?= *(?:\(core dumped\)|signal terminated|$))", re.MULTILINE)


class CompileTimeout(CompileError):
    """The compiler took longer than it may."""

    outcome = "compile_timeout"

    @classmethod
    def after(cls, compiler: str, timeout_s: float) -> CompileTimeout:
        return cls(
            f"{compiler} was stopped after {timeout_s:g} s, the longest that a variant may compile. "
            "Unroll less, or allow more with search.compile_limit"
        )


@dataclass(frozen=True)
class Finished:
    """Exit status (negative: the signal that ended it), and stdout and stderr as one text."""

    status: int
    text: str

    @property
    def crash(self) -> str | None:
        """How the compiler, or a part that it started, came to a violent end, such as `SIGSEGV`; else None."""
        if self.status == 0:
            return None
        if died := _DIED.search(self.text):
            return _violent_end(int(died[1]))
        if self.status < 0:
            return _violent_end(-self.status)
        if said := _WORDS.search(self.text):  # a shell's words, or those of g++
            return _violent_end(_SIGNALS[said[1]])
        told = self.status - 128  # a shell's way to pass on that its command was ended by a signal
        return _violent_end(told) if not self.text.strip() and told in list(signal.Signals) else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _violent_end(number: int) -> str:
    short = " (short of memory? Fewer compilers at a time need less: --jobs)" if number == signal.SIGKILL else ""
    return signal_name(number) + short


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
        command = list(command)
        with contextlib.ExitStack() as stack, self._lock:
            if self._closed:
                raise CompileError("the builder was closed")
            process = subprocess.Popen(
                guard.wrap(command),
                cwd=cwd,
                env=None if environment is None else dict(environment),
                stdin=subprocess.DEVNULL if text is None else stack.enter_context(_file_of(text)),
                stdout=subprocess.PIPE,
                stderr=guard.errors_to(),
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        try:
            said = self._communicate(process, time.monotonic() + timeout_s)
        except subprocess.TimeoutExpired:
            raise CompileTimeout.after(Path(command[0]).name, timeout_s) from None
        finally:
            # After a normal end too: while anything is left of a group its number is nobody else's, even if the
            # compiler itself was reaped, and where nothing is left the number was freed this very moment.
            kill_group(process.pid)
            guard.release(process.pid)
            with process:  # reaps it and closes its pipe
                pass
            with self._lock:
                self._running.discard(process)
                self._lock.notify_all()
        if self._closed:
            raise CompileError("the builder was closed while this variant was compiling")
        error = guard.start_error(command, process.returncode, said)
        if error is not None:
            raise error
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
            if process.returncode is None:  # of one that has been reaped, the number may belong to somebody else by now
                kill_group(process.pid)
        with self._lock:
            self._lock.wait_for(lambda: not self._running, timeout=CLOSE_S)


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[IO[bytes]]:
    """A file, not a pipe: a `communicate` that is interrupted and called again would forget the rest of its input."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8", errors="replace"))
        file.seek(0)
        yield file


def kill_group(leader: int) -> None:
    """Kills a compiler, by its process's number, and every process that it started and that stayed in its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(leader, signal.SIGKILL)
        else:  # pragma: no cover (Windows)
            os.kill(leader, signal.SIGTERM)
