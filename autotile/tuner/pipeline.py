"""Compilers and the device side by side: variants are built ahead, and measured one at a time as they become ready.

    ask ──► building (a pool of compilers) ──► ready ──► measuring (one at a time) ──► told

Each variant that is asked for ahead is one more that is chosen without knowing how the ones before it went. So no more
are under way than it takes to keep the device busy: as many as are built in the time of one trial.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from autotile.build import Builder
from autotile.errors import VariantError
from autotile.measure import Bench, Trial, Variant
from autotile.types import Binary

SPARE = 2
"""Variants under way beside those that keep the device busy: compile times differ."""

REMEMBERED = 0.8
"""Weight of the past in the running means of what a build and a trial take."""

ABANDON_S = 0.1
"""Seconds after which a trial that still runs is broken off once more."""

Key = TypeVar("Key")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Outcome(Generic[Key]):
    """How one variant ended: not built, or built and failed, or measured; or built, and settled without the device.

    `wall_s`: how long the device was taken.
    """

    key: Key
    variant: Variant
    binary: Binary | None = None
    trial: Trial | None = None
    error: VariantError | None = None
    wall_s: float = 0.0


@dataclass
class _Building(Generic[Key]):
    key: Key
    variant: Variant
    future: Future[Binary]
    begun: float


@dataclass
class _Measuring(Generic[Key]):
    key: Key
    variant: Variant
    binary: Binary
    future: Future[tuple[Trial | VariantError, float]]


class Pipeline(Generic[Key]):
    """The variants under way in one search. `close` it; what has not ended by then is dropped.

    `prepare` makes the bench ready, `measure` checks and times a built variant; both are called in another thread where
    the bench allows it, so that asking and building go on meanwhile. `settled` says of a built variant, when its turn
    comes, that there is nothing to measure.
    """

    def __init__(
        self,
        builder: Builder,
        bench: Bench,
        prepare: Callable[[], None],
        measure: Callable[[Variant, Binary], Trial],
        settled: Callable[[Variant, Binary], bool],
    ) -> None:
        self._builder, self._bench, self._measure, self._settled = builder, bench, measure, settled
        self._building: list[_Building[Key]] = []
        self._ready: deque[tuple[Key, Variant, Binary]] = deque()
        self._measuring: _Measuring[Key] | None = None
        self._ended: list[Outcome[Key]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="autotile-measure") if bench.overlaps else None
        self._build_s = self._trial_s = 0.0
        self._closing = False
        self.idle_s = 0.0
        """Seconds in which the device waited for a compiler."""
        self.prepare_s = 0.0
        """Seconds that `prepare` took."""
        self._prepared: Future[float] | None = self._call(_timed(prepare))

    def __len__(self) -> int:
        return len(self._building) + len(self._ready) + len(self._ended) + (self._measuring is not None)

    @property
    def ready(self) -> bool:
        """Whether the bench has been made ready."""
        return self._prepared is None

    @property
    def wants_more(self) -> bool:
        """Whether one more should be asked for."""
        most = self._builder.jobs + SPARE
        if self._trial_s:
            most = min(most, math.ceil(self._build_s / self._trial_s) + SPARE)
        return len(self) < most

    def submit(self, key: Key, variant: Variant) -> None:
        """Begins to build a variant."""
        self._building.append(_Building(key, variant, self._builder.submit(variant.source), time.perf_counter()))
        self.keep_busy()

    def next(self, timeout_s: float | None = None) -> list[Outcome[Key]]:
        """Waits until one has ended, or the time is up, and gives those that have.

        The device's next begins with `keep_busy`: what is settled by then depends on what has become of these. Raises
        what is no variant's fault: EnvironmentalError, ToolchainMissing, a bug.
        """
        self.keep_busy()
        self._collect_measured()
        futures: list[Future[Any]] = [building.future for building in self._building]
        if self._prepared is not None:
            futures = [self._prepared]  # nothing can end before
        elif self._measuring is not None:
            futures.append(self._measuring.future)
        if not self._ended and futures:
            begun = time.perf_counter()
            wait(futures, timeout_s, return_when=FIRST_COMPLETED)
            if self._prepared is None and self._measuring is None:
                self.idle_s += time.perf_counter() - begun
            self.keep_busy()
            self._collect_measured()
        ended, self._ended = self._ended, []
        return ended

    def keep_busy(self) -> None:
        """Gives the device its next, if it is free and one is ready."""
        if self._prepared is not None:
            if not self._prepared.done():
                return
            self.prepare_s, self._prepared = self._prepared.result(), None
        self._collect_built()
        while self._measuring is None and self._ready:
            key, variant, binary = self._ready.popleft()
            if self._settled(variant, binary):
                self._ended.append(Outcome(key, variant, binary))
            else:
                self._measuring = _Measuring(key, variant, binary, self._begun(variant, binary))

    def last(self) -> list[Outcome[Key]]:
        """The trial that still runs, waited for; nothing where none does."""
        if self._measuring is not None:
            wait([self._measuring.future])
            self._collect_measured()
        ended, self._ended = self._ended, []
        return ended

    def close(self, abandon: bool = False) -> None:
        """Drops what is under way. The trial that runs is waited for, or broken off with `abandon`."""
        for building in self._building:
            building.future.cancel()
        self._closing = True
        if abandon:
            self._bench.abandon()
            running: list[Future[Any]] = [] if self._prepared is None else [self._prepared]
            running += [] if self._measuring is None else [self._measuring.future]
            while wait(running, ABANDON_S).not_done:  # it may have been about to begin
                self._bench.abandon()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    # ---- from one stage to the next ------------------------------------------------------------------------------

    def _collect_built(self) -> None:
        for building in [b for b in self._building if b.future.done()]:  # in the order of asking, so that seeds repeat
            self._building.remove(building)
            try:
                binary = building.future.result()
            except VariantError as error:
                self._ended.append(Outcome(building.key, building.variant, error=error))
                continue
            self._build_s = _mean(self._build_s, time.perf_counter() - building.begun)
            self._ready.append((building.key, building.variant, binary))

    def _begun(self, variant: Variant, binary: Binary) -> Future[tuple[Trial | VariantError, float]]:
        def run() -> tuple[Trial | VariantError, float]:
            if self._closing:
                raise CancelledError
            begun = time.perf_counter()
            try:
                outcome: Trial | VariantError = self._measure(variant, binary)
            except VariantError as error:
                outcome = error
            return outcome, time.perf_counter() - begun

        return self._call(run)

    def _call(self, work: Callable[[], Answer]) -> Future[Answer]:
        """In the thread for the device; where there is none, here and now."""
        if self._thread is not None:
            return self._thread.submit(work)
        future: Future[Answer] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # as a thread would hand it on: it is raised when the result is asked for
            future.set_exception(error)
        return future

    def _collect_measured(self) -> None:
        if self._measuring is None or not self._measuring.future.done():
            return
        ended, self._measuring = self._measuring, None
        outcome, wall_s = ended.future.result()
        self._trial_s = _mean(self._trial_s, wall_s)
        if isinstance(outcome, VariantError):
            self._ended.append(Outcome(ended.key, ended.variant, ended.binary, error=outcome, wall_s=wall_s))
        else:
            self._ended.append(Outcome(ended.key, ended.variant, ended.binary, outcome, wall_s=wall_s))


def _timed(work: Callable[[], None]) -> Callable[[], float]:
    def run() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return run


def _mean(mean: float, value: float) -> float:
    return value if mean == 0 else REMEMBERED * mean + (1 - REMEMBERED) * value
