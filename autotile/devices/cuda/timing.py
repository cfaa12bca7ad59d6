"""Launches timed by events: behind a flush of the L2, which also keeps the GPU busy while the host queues them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

FLUSHES = (1, 4, 16)
"""Before a launch: at first, and where the host was slower than that."""


class Stopwatch:
    """Times launches on one stream; `flush(run)` queues one flush before a launch of that number."""

    def __init__(self, driver: Any, flush: Callable[[int], None]) -> None:
        self._driver, self._flush = driver, flush
        self.events: list[Any] = []

    def need_events(self, count: int) -> None:
        while len(self.events) < count:
            self.events.append(self._driver.Event())

    def times_ms(
        self, runs: int, queue: Callable[[int], None], before: Callable[[int], None], stream: Any
    ) -> tuple[float, ...]:
        """So many launches, `queue(run)` each, and what has to come `before` each one's flush.

        All is queued before anything is waited for, so that the gaps between launches are not Python's. Where the GPU
        reached a launch before the host had queued it, its time holds what the GPU waited for: it is taken again,
        behind more flushes.
        """
        self.need_events(2 * runs)
        due: Sequence[int] = range(runs)
        for flushes in FLUSHES:
            due = [run for run in due if self._too_early(run, flushes, queue, before, stream)]
            stream.synchronize()
            if not due:
                break
        return tuple(float(self.events[2 * run + 1].time_since(self.events[2 * run])) for run in range(runs))

    def _too_early(
        self, run: int, flushes: int, queue: Callable[[int], None], before: Callable[[int], None], stream: Any
    ) -> bool:
        """Queues a launch between its two events. Gives whether the GPU was there before it was queued."""
        begin, end = self.events[2 * run : 2 * run + 2]
        before(run)
        for _ in range(flushes):
            self._flush(run)
        begin.record(stream)
        queue(run)
        there = bool(begin.query())
        end.record(stream)
        return there
