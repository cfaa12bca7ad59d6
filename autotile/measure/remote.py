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
import math
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from autotile.build.leftovers import prefix, sweep
from autotile.devices.base import Device
from autotile.devices.info import DeviceInfo
from autotile.errors import Crashed, EnvironmentalError, VariantError
from autotile.kernels import Kernel
from autotile.measure.limits import BEGIN_LIMIT_S, Limits
from autotile.measure.process import CLOSE_S, DiedAtRest, MeasuringProcess
from autotile.measure.session import Contestant, Trial
from autotile.measure.timing import TimingPlan
from autotile.measure.variant import Proof, Variant
from autotile.types import Binary, Measurement, Problem

SCRATCH = "autotiledata"
"""How the names of scratch folders begin; a process that was killed together with its other end leaves one behind."""

MOST_LOST_STARTS = 3
"""Times in a row that a process may be lost before it is ready; then the device itself is at fault."""


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
        self._process: MeasuringProcess | None = None
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
        except DiedAtRest:  # nothing of the request was run: it is no fault of the variant's
            if self._abandoned:
                raise
            return self._ask_once(name, arguments, limit_s)

    def _ask_once(self, name: str, arguments: tuple[Any, ...], limit_s: float) -> Any:
        process = self._prepared()
        with self._dropping():
            return process.ask(name, arguments, self._limits.launch_s, limit_s)

    def _prepared(self) -> MeasuringProcess:
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

    def _started(self) -> MeasuringProcess:
        with self._starting:
            if self._closed:
                raise Crashed("the bench was closed meanwhile")
            if self._process is None:
                self._ready = False
                self._process = MeasuringProcess(self._command, self._scratch)
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
