"""Where variants run: in this process, or (see remote.py) in one that may die of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from autotile.devices.base import Device
from autotile.devices.replay.device import ReplayDevice
from autotile.kernels import Kernel
from autotile.measure.limits import Limits, Watch, unwatched
from autotile.measure.scratch import forget_workloads, kept_workload
from autotile.measure.session import TIME_SEED, Contestant, Session, Trial, open_session
from autotile.measure.timing import TimingPlan
from autotile.measure.variant import Proof, Variant, require_still
from autotile.measure.workload import make_workload
from autotile.types import Binary, Measurement, Problem


class Bench(Protocol):
    """Checks and times variants, of one problem at a time. Use as a context manager, or `close()`.

    Every method that runs a variant raises VariantError when the variant fails; the bench is ready for the next then,
    unless `lost` says otherwise.
    """

    @property
    def lost(self) -> str | None:
        """Why nothing more can run here; None while all is well."""
        ...

    @property
    def overlaps(self) -> bool:
        """Whether `trial` may be called from a thread while this one goes on; `abandon` then ends it."""
        ...

    def abandon(self) -> None:
        """Breaks off the trial that another thread is waiting for, which fails; nothing where there is none."""
        ...

    def make(self, kernel: Kernel, problem: Problem) -> None:
        """Makes a problem's data and their reference ahead of `begin`, which may have to wait for its comparer."""
        ...

    def begin(self, kernel: Kernel, problem: Problem, comparer: Binary | None) -> None:
        """Puts a problem's data on the device; those of the one before go. `comparer`: see Device.comparer."""
        ...

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        """Checks, then times (see Session.trial)."""
        ...

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        """Times the best variants once more, in turns."""
        ...

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        """Checks a variant of the problem so many times more (see Session.recheck)."""
        ...

    def prove(self, proof: Proof, binary: Binary, comparer: Binary | None, runs: int) -> float:
        """Checks a variant on another problem, `runs` times on each of the proof's inputs.

        Gives the largest error over its bound. Raises WrongResult naming the problem.
        """
        ...

    def end(self) -> None:
        """Frees the problem's data."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Bench: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalBench:
    """Runs variants in this process. A kernel that hangs or faults takes the process, or its device, with it."""

    overlaps = False

    def __init__(
        self,
        device: Device,
        watch: Watch = unwatched,
        scratch: Path | None = None,
        plan: TimingPlan | None = None,
    ) -> None:
        self.device, self._watch, self._scratch, self._plan = device, watch, scratch, plan
        self._open: Session | None = None

    @property
    def lost(self) -> str | None:
        return self.device.poisoned

    def make(self, kernel: Kernel, problem: Problem) -> None:
        self.end()
        if self._scratch is not None and not self.device.info.estimated:
            self._watch("making the problem's data", 0)
            kept_workload(kernel, problem, TIME_SEED, self._scratch)

    def begin(self, kernel: Kernel, problem: Problem, comparer: Binary | None) -> None:
        self._leave()
        self._watch("making the problem's data", 0)
        session = open_session(self.device, kernel, problem, comparer, self._watch, self._scratch, self._plan)
        self._open = session.__enter__()

    @property
    def _session(self) -> Session:
        assert self._open is not None, "no problem was begun"
        return self._open

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        return self._session.trial(variant, binary, best_ms)

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        return self._session.finals(contestants)

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        return self._session.recheck(variant, binary, runs)

    def prove(self, proof: Proof, binary: Binary, comparer: Binary | None, runs: int) -> float:
        variant, worst = proof.variant, 0.0
        program = self.device.load(binary)
        for inputs in proof.inputs:
            self._watch("making the problem's data", 0)
            workload = make_workload(variant.kernel, variant.problem, inputs.seed, inputs.kind, inputs.over)
            placed = replace(workload, offset=proof.offset or workload.offset)
            with self.device.stage(placed, comparer) as stage:
                checks = []
                for _ in range(1 if self.device.info.estimated else runs):  # the emulator repeats itself
                    self._watch("checking", 1)
                    checks.append(stage.check(program, variant.launch))
            over = ", its output over an input" if inputs.over else ""
            where = f"on {variant.problem.label}, {inputs.kind} data{over}: "
            worst = max(worst, require_still(checks, variant.kernel, where))
        return worst

    def abandon(self) -> None:
        return None

    def end(self) -> None:
        if self._open is not None:
            self._leave()
            forget_workloads(self._scratch)

    def _leave(self) -> None:
        session, self._open = self._open, None
        if session is not None:
            session.__exit__(None, None, None)

    def close(self) -> None:
        self.end()

    def __enter__(self) -> LocalBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_bench(device: Device, limits: Limits, plan: TimingPlan | None = None) -> Bench:
    """A bench in a process of its own, or in this one for a device that cannot be opened elsewhere; a replay's."""
    if isinstance(device, ReplayDevice):
        from autotile.measure.replayed import ReplayBench

        return ReplayBench(device)
    if device.reopen is None or os.name == "nt":  # a connection is not passed on like that on Windows
        return LocalBench(device, plan=plan)
    from autotile.measure.remote import RemoteBench

    return RemoteBench(device.reopen, limits, expected=device.info, plan=plan)
