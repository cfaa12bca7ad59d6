"""Interrupts a search while it runs."""

from __future__ import annotations

import os
import signal
import threading

from autotile.tuner import Silent
from autotile.types import Record


class Interrupter(Silent):
    """Sends this process an interrupt, or several, so many seconds after a trial: the `after`-th.

    With the sampler `grid` the widest three of `TWELVE` come last: if these hang, the ninth is the last to be told.
    """

    def __init__(self, *delays_s: float, after: int = 9) -> None:
        self.after = after
        self.timers = [threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT)) for delay_s in delays_s]

    def tried(self, record: Record, best: Record | None, count: int) -> None:
        if count == self.after:
            for timer in self.timers:
                timer.start()
