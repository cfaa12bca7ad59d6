"""A bench in a process of its own, which is started again when a variant has ended it.

    this process                                   the measuring process (worker.py)
    RemoteBench.trial(variant) ── request ──────►  LocalBench.trial(variant)
                               ◄── "beginning" ──  the request was taken up: what ends the process now is its fault
                               ◄── "checking" ───  before each step that launches
                               ◄── answer ───────  the result, or the error to raise

A step that takes longer than its launches may, a trial that takes longer than a trial may, a process that dies: each
ends the process, and is a VariantError here. The next request finds a fresh one, with a clean context on the device and
the problem's data on it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from autotile.build.leftovers import prefix, sweep
from autotile.devices.base import Device
from autotile.devices.info import DeviceInfo
from autotile.errors import Crashed, EnvironmentalError, TimedOut, VariantError
from autotile.kernels import Kernel
from autotile.measure.limits import BEGIN_LIMIT_S, Limits
from autotile.measure.session import Contestant, Trial
from autotile.measure.timing import TimingPlan
from autotile.measure.variant import Proof, Variant
from autotile.measure.worker import CLOSE
from autotile.types import Binary, Measurement, Problem

START = "import sys; sys.path[:] = {path!r}; from autotile.measure.worker import main; main({descriptor}, {scratch!r})"
"""The measuring process imports from where this one does, and from nowhere else (not from its current folder)."""

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

SCRATCH = "autotiledata"
"""How the names of scratch folders begin; a process that was killed together with its other end leaves one behind."""

AT_REST = "at rest"
"""What a process is at until it says that it has taken a request up."""

MOST_LOST_STARTS = 3
"""Times in a row that a process may be lost before it is ready; then the device itself is at fault."""

LONGEST_POLL_S = 3600.0
"""The system's calls take no wait of weeks."""

CLOSE_S = 5.0
"""How long a process that was asked to end may take; then it is killed."""


class RemoteBench:
    """Implements Bench. `opener` opens the device over there; `command` goes before the process's command line, and
    has `close_s` seconds to end. `expected` is what the opened device must say of itself.

    The process is started at once, beside whatever this one does until it needs an answer.
    """

    def __init__(
        self,
        opener: Callable[[], Device],
        limits: Limits,
        command: Sequence[str] = (),
        close_s: float = CLOSE_S,
        expected: DeviceInfo | None = None,
        plan: TimingPlan | None = None,
    ) -> None:
        self.lost: str | None = None
        self._close_s, self._expected, self._plan = close_s, expected, plan
        self._opener, self._limits, self._command = opener, limits, tuple(command)
        sweep(Path(tempfile.gettempdir()), SCRATCH)
        self._scratch = Path(tempfile.mkdtemp(prefix=prefix(SCRATCH)))
        self._problem: tuple[Kernel, Problem, Binary | None] | None = None
        self._ready = False
        self._lost_starts = 0
        self._abandoned = self._closed = False
        self._starting = threading.Lock()
        self._process: _Process | None = None
        self._started()

    overlaps = True

    def abandon(self) -> None:
        self._abandoned = True
        process = self._process
        if process is not None and process.busy:
            process.interrupt()

    def make(self, kernel: Kernel, problem: Problem) -> None:
        self._problem, self._ready, self._abandoned = None, False, False
        process = self._prepared()
        with self._dropping():
            process.ask("make", (kernel, problem), math.inf, BEGIN_LIMIT_S)

    def begin(self, kernel: Kernel, problem: Problem, comparer: Binary | None) -> None:
        """Raises EnvironmentalError when no measuring process can be made ready (see `lost`)."""
        self._problem, self._ready = (kernel, problem, comparer), False
        self._abandoned = False
        self._prepared()

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        trial: Trial = self._ask("trial", variant, binary, best_ms)
        return trial

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        measurements: list[Measurement] = self._ask("finals", list(contestants), parts=len(contestants))
        return measurements

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        return float(self._ask("recheck", variant, binary, runs))

    def prove(self, proof: Proof, binary: Binary, comparer: Binary | None, runs: int) -> float:
        return float(self._ask("prove", proof, binary, comparer, runs, parts=len(proof.inputs)))

    def end(self) -> None:
        self._problem = None
        ready, self._ready = self._ready, False
        if ready and self._process is not None:
            with contextlib.suppress(VariantError), self._dropping():  # what died holds no data any more
                self._process.ask("end", (), self._limits.launch_s, self._limits.trial_s)

    def close(self) -> None:
        with self._starting:  # a trial that another thread is waiting for may be about to start a successor
            self._closed = True
        if self._process is not None:
            self._process.close(self._close_s)
            self._process = None
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> RemoteBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- asking --------------------------------------------------------------------------------------------------

    def _ask(self, name: str, *arguments: Any, parts: int = 1) -> Any:
        """One request, of so many parts that may each take as long as a trial."""
        limit_s = parts * self._limits.trial_s
        self._abandoned = False
        try:
            return self._ask_once(name, arguments, limit_s)
        except _DiedAtRest:  # nothing of the request was run: it is no fault of the variant's
            if self._abandoned:
                raise
            return self._ask_once(name, arguments, limit_s)

    def _ask_once(self, name: str, arguments: tuple[Any, ...], limit_s: float) -> Any:
        process = self._prepared()
        with self._dropping():
            return process.ask(name, arguments, self._limits.launch_s, limit_s)

    def _prepared(self) -> _Process:
        """A process with the device open and the problem's data on it.

        Raises EnvironmentalError when there is none to be had.
        """
        while not self._ready or self._process is None:
            process = self._started()
            fault: VariantError | None = None
            try:
                with self._dropping():
                    if not process.opened:
                        self._require_expected(process.ask("open", (self._opener, self._plan), math.inf, BEGIN_LIMIT_S))
                        process.opened = True
                    if self._problem is not None:
                        process.ask("begin", self._problem, math.inf, BEGIN_LIMIT_S)
                fault = None if process.spoilt is None else Crashed(f"its device was spoilt: {process.spoilt}")
            except VariantError as error:  # of no variant: none has run yet
                fault = error
                self._drop()
            if fault is None:
                self._ready, self._lost_starts = True, 0
                return process
            if self._abandoned:
                raise fault
            self._lost_starts += 1
            if self._lost_starts >= MOST_LOST_STARTS:
                self.lost = str(fault)
                raise EnvironmentalError(
                    f"the measuring process could not be made ready {self._lost_starts} times: {fault}"
                ) from fault
        return self._process

    def _require_expected(self, opened: DeviceInfo) -> None:
        """Raises EnvironmentalError when a device's number means another device over there."""
        if self._expected is not None and opened != self._expected:
            raise EnvironmentalError(
                f"the measuring process opened {opened.name} ({opened.arch}) where {self._expected.name} "
                f"({self._expected.arch}) was meant; leave CUDA_VISIBLE_DEVICES as it was when this process started"
            )

    def _started(self) -> _Process:
        with self._starting:
            if self._closed:
                raise Crashed("the bench was closed meanwhile")
            if self._process is None:
                self._ready = False
                self._process = _Process(self._command, self._scratch)
            return self._process

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Gives up a process that is lost, whose device is spoilt, or that was left in the middle of a request."""
        try:
            yield
        except VariantError:
            if self._process is not None and (self._process.spoilt is not None or self._process.busy):
                self._drop()
            raise
        except BaseException:  # an interrupt, say: the answer would come later, as if to the next request
            if self._process is not None and self._process.busy:
                self._drop()
            raise
        if self._process is not None and self._process.spoilt is not None:
            self._drop()

    def _drop(self) -> None:
        """Ends the process, and starts its successor already; one that runs under a checker may finish its report."""
        process, self._process, self._ready = self._process, None, False  # first: an interrupt may end what follows
        if process is not None and self._command:
            process.close(self._close_s)
        elif process is not None:
            process.kill()
        if not self._command and not self._abandoned:
            with contextlib.suppress(Crashed):
                self._started()


class _Process:
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

    def _died_at_rest(self) -> _DiedAtRest:
        return _DiedAtRest(str(self._crashed(AT_REST)))

    def _crashed(self, step: str) -> Crashed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        status = self._process.returncode
        how = f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was killed by {_signal_name(-status)}"
            if -status == signal.SIGKILL:
                how += " (from outside, or for want of memory)"
        return Crashed(f"the measuring process {how} while {step}")


class _DiedAtRest(Crashed):
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
