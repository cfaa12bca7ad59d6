"""One measuring process and the connection to it: starting it, asking it, ending it. What it does is in worker.py."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autotile.build.process import signal_name
from autotile.errors import Crashed, TimedOut
from autotile.measure.worker import CLOSE

START = "import sys; sys.path[:] = {path!r}; from autotile.measure.worker import main; main({descriptor}, {scratch!r})"
"""The measuring process imports from where this one does, and from nowhere else (not from its current folder)."""

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

AT_REST = "at rest"
"""What a process is at until it says that it has taken a request up."""

LONGEST_POLL_S = 3600.0
"""The system's calls take no wait of weeks."""

CLOSE_S = 5.0
"""How long a process that was asked to end may take; then it is killed."""


class MeasuringProcess:
    """One measuring process and the connection to it."""

    def __init__(self, command: Sequence[str], scratch: Path) -> None:
        self.opened = False
        self.busy = False
        """Whether a request has no answer yet."""
        self.spoilt: str | None = None
        """What ended the device's context over there."""
        self._letting_go = threading.Lock()
        here, there = map(_above_standard, Pipe())
        start = START.format(path=_import_path(), descriptor=there.fileno(), scratch=str(scratch))
        with there:
            self._process = subprocess.Popen(
                [*command, sys.executable, *_interpreter_flags(), "-c", start],
                stdin=subprocess.DEVNULL,
                stderr=None if _is_open(2) else subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self._connection: Connection = here

    def ask(self, name: str, arguments: tuple[Any, ...], launch_limit_s: float, limit_s: float) -> Any:
        """Sends a request and waits for its answer.

        Raises what was raised over there; TimedOut when it takes too long, Crashed when the process dies.
        """
        self.busy = True
        try:
            self._connection.send((name, arguments, limit_s))
        except OSError:
            raise self._died_at_rest() from None
        begun = time.monotonic()
        step, step_limit_s, step_begun = AT_REST, math.inf, begun
        while True:
            now = time.monotonic()
            left_s = min(begun + limit_s - now, step_begun + step_limit_s - now)
            try:
                answered = self._connection.poll(min(max(0.0, left_s), LONGEST_POLL_S))
            except (OSError, TypeError):  # closed here meanwhile, by another thread
                raise self._crashed(step) from None
            if not answered:
                if left_s > LONGEST_POLL_S:
                    continue
                whole = time.monotonic() - begun >= limit_s
                raise self._timed_out(step, limit_s if whole else step_limit_s, whole)
            try:
                message = self._connection.recv()
            except (EOFError, ConnectionResetError):
                raise (self._died_at_rest() if step == AT_REST else self._crashed(step)) from None
            except (OSError, TypeError):  # as above
                raise self._crashed(step) from None
            if message[0] != "step":
                break
            step, step_begun = message[1], time.monotonic()
            step_limit_s = launch_limit_s * message[2] if message[2] else math.inf
        self.busy = False
        self.spoilt = message[-1]
        if message[0] == "error":
            error: Exception = message[1]
            raise error from _Elsewhere(message[2])
        return message[1]

    def interrupt(self) -> None:
        """Ends the process and all that it started, now. Who waits for its answer hears that it has died."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Ends the process, and lets go of it."""
        self.interrupt()
        with self._letting_go:  # from another thread too: closed twice at once, it would close what is not ours
            self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)  # a device may take its time to let go of a kernel that was running

    def close(self, patience_s: float) -> None:
        """Lets the process end by itself, if it is at rest; kills it otherwise."""
        if not self.busy:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._connection.send((CLOSE, (), 0.0))
                self._process.wait(patience_s)
        self.kill()

    def _timed_out(self, step: str, limit_s: float, whole: bool) -> TimedOut:
        if whole:
            return TimedOut(
                f"the trial had not ended after {limit_s:g} s (it was {step}); its process was killed. "
                "search.trial_limit allows more (with --fresh, which measures anew)"
            )
        return TimedOut(
            f"the kernel had not ended after {limit_s:g} s of {step}; its process was killed. "
            "search.launch_limit allows more (with --fresh, which measures anew)"
        )

    def _died_at_rest(self) -> DiedAtRest:
        return DiedAtRest(str(self._crashed(AT_REST)))

    def _crashed(self, step: str) -> Crashed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        status = self._process.returncode
        how = f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by {signal_name(-status)}"
            if -status == signal.SIGKILL:
                how += " (from outside, or for want of memory)"
        return Crashed(f"the measuring process {how} while {step}")


class DiedAtRest(Crashed):
    """The process was gone before it took the request up, whether or not the request could still be sent."""


def _import_path() -> list[str]:
    """Where this process imports from, in whole paths; autotile's own home is there, however it was found."""
    given = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    return [*given, PACKAGE_PARENT]


def _interpreter_flags() -> list[str]:
    flags = sys.flags
    chosen = (("-I", flags.isolated), ("-E", flags.ignore_environment), ("-s", flags.no_user_site))
    return [flag for flag, on in chosen if on]


def _above_standard(connection: Connection) -> Connection:
    """The same connection, not in the place of a standard stream that was closed: what is printed would go into it."""
    if connection.fileno() > 2:
        return connection
    with connection:
        return Connection(fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Elsewhere(Exception):
    """Shows the traceback of the other process under the error that came from it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"in the measuring process:\n{self.text}"
