"""A bench that answers from a recording: the time that was measured then, or the failure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType

from autotile import errors
from autotile.devices.replay.device import ReplayDevice
from autotile.errors import VariantError
from autotile.kernels import Kernel
from autotile.measure.session import Contestant, Trial
from autotile.measure.variant import Proof, Variant
from autotile.types import OK, Binary, Measurement, Problem

_ERRORS = {
    kind.outcome: kind
    for kind in (
        errors.CompileError,
        errors.LaunchError,
        errors.TimedOut,
        errors.Crashed,
        errors.UnsupportedByEmulator,
        errors.WrongResult,
        errors.ImplausibleTime,
    )
}


class ReplayBench:
    """Implements Bench. The same question has the same answer, always.

    `spent_s` adds up what the evaluations asked for cost when they were recorded, failures included.
    """

    lost: str | None = None
    overlaps = False

    def __init__(self, device: ReplayDevice) -> None:
        self._recording = device.recording
        self.spent_s = 0.0

    def make(self, kernel: Kernel, problem: Problem) -> None:
        return None

    def begin(self, kernel: Kernel, problem: Problem, comparer: Binary | None) -> None:
        return None

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        recording = self._recording
        row = recording.row_with(variant.configuration.values())
        assert row is not None, "the space of a replay holds what was recorded"
        cost_s = float(recording.cost_ms[row]) / 1e3
        self.spent_s += cost_s
        if recording.outcomes[row] != OK:
            error = failure(recording.outcomes[row], recording.messages[row])
            error.cost_s = cost_s
            raise error
        time_ms = float(recording.time_ms[row])
        measurement = Measurement(time_ms, time_ms, 0.0, 1, estimated=recording.estimated)
        return Trial(measurement, 0.0, 0.0, cost_s)

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        """The times as they are: they do not change when they are asked for again."""
        return [contestant.measurement for contestant in contestants]

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        raise _unprovable()

    def prove(self, proof: Proof, binary: Binary, comparer: Binary | None, runs: int) -> float:
        raise _unprovable()

    def abandon(self) -> None:
        return None

    def end(self) -> None:
        return None

    def close(self) -> None:
        return None

    def __enter__(self) -> ReplayBench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def failure(outcome: str, message: str) -> VariantError:
    """The error that had this outcome when it was recorded."""
    error = _ERRORS.get(outcome, VariantError)(message)
    error.outcome = outcome
    return error


def _unprovable() -> VariantError:
    return VariantError("a replay runs nothing, so it proves nothing")
