"""A pipeline, with compilers that a test ends by hand and a bench that does as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from autotile.errors import Crashed
from autotile.tuner.pipeline import Outcome, Pipeline

SOON_S = 5.0
"""What should happen at once has happened by then, on any machine."""


class Compilers:
    """One future for each text, which a test ends."""

    def __init__(self, jobs: int = 2) -> None:
        self.jobs = jobs
        self.futures: dict[str, Future[Any]] = {}

    def submit(self, source: str) -> Future[Any]:
        return self.futures.setdefault(source, Future())

    def built(self, *texts: str) -> None:
        for text in texts:
            self.futures[text].set_result(f"binary of {text}")


class Hours:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


class Site:
    """A pipeline and all that it works with. `hold` makes trials (or preparing) wait until `go` is set."""

    def __init__(self, overlaps: bool = True, jobs: int = 2, prepared: bool = True) -> None:
        self.compilers, self.overlaps = Compilers(jobs), overlaps
        self.go, self.prepared = threading.Event(), threading.Event()
        self.go.set()
        if prepared:
            self.prepared.set()
        self.measured: list[str] = []
        self.now = self.most = 0
        self.abandoned = False
        self.faults: dict[str, Exception] = {}
        self.settled: set[str] = set()
        self.clock: Hours | None = None
        self.trial_s = 0.0
        """How far a trial puts the clock forward."""
        self.pipeline: Pipeline[str] = Pipeline(
            self.compilers,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.prepare,
            self.measure,
            lambda variant, binary: str(binary) in self.settled,
        )

    def prepare(self) -> None:
        self.prepared.wait(SOON_S)
        if "prepare" in self.faults:
            raise self.faults["prepare"]

    def measure(self, variant: Any, binary: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        self.measured.append(variant.source)
        self.go.wait(SOON_S)
        self.now -= 1
        if self.clock is not None:
            self.clock.now_s += self.trial_s
        if self.abandoned:
            raise Crashed("abandoned")
        if variant.source in self.faults:
            raise self.faults[variant.source]
        return f"trial of {variant.source}"

    def abandon(self) -> None:
        self.abandoned = True
        self.prepared.set()
        self.go.set()

    def submit(self, *texts: str) -> None:
        for text in texts:
            self.pipeline.submit(text, SimpleNamespace(source=text))  # type: ignore[arg-type]

    def outcomes(self, count: int) -> list[Outcome[str]]:
        """The next so many, in the order in which they come."""
        found: list[Outcome[str]] = []
        deadline = time.monotonic() + SOON_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} after {SOON_S} s"
            found += self.pipeline.next(0.1)
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SOON_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.001)


@contextmanager
def site(overlaps: bool = True, jobs: int = 2, prepared: bool = True) -> Iterator[Site]:
    """Closed at the end, whatever still runs."""
    made = Site(overlaps, jobs, prepared)
    try:
        yield made
    finally:
        made.pipeline.close(abandon=True)
