"""Recordings by hand, and the benchmarks' folder as a place to import from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from autotile.devices.replay.recording import Recording
from autotile.types import OK

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

Made = Callable[..., Recording]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def made() -> Made:
    """A recording of one parameter whose rows have these times (ms; None failed) and costs (s; half is compiling)."""

    def make(times_ms: Sequence[float | None], costs_s: Sequence[float] | float = 1.0) -> Recording:
        count = len(times_ms)
        half_ms = np.full(count, 1e3) * np.asarray(costs_s) / 2
        return Recording(
            path=Path("toy.json"),
            kernel="toy",
            device="Toy GPU",
            problem="",
            sizes=(),
            names=("n",),
            domains=(tuple(range(count)),),
            codes=np.arange(count, dtype=np.int32)[:, None],
            time_ms=np.asarray([math.nan if time is None else time for time in times_ms]),
            outcomes=tuple("launch_error" if time is None else OK for time in times_ms),
            messages=tuple("too large" if time is None else "" for time in times_ms),
            compile_ms=half_ms,
            other_ms=half_ms,
        )

    return make
