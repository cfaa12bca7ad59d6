"""The measuring process: a bench at the other end of a connection. See remote.py for who starts it.

It answers one request at a time, says when a step begins that may take long, and is gone as soon as the other end is,
whatever it is doing: it leaves no orphan, not even one that waits for a kernel without end.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import queue
import shutil
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autotile.devices.base import Device
from autotile.devices.info import DeviceInfo
from autotile.measure.bench import LocalBench
from autotile.measure.timing import TimingPlan

CLOSE = "close"
"""The request after which the process ends as any program does, its device's own clean-up included."""


LAST_RESORT_S = 7 * 24 * 3600.0
"""Longest that the last resort waits: the timer takes no more than some weeks."""


def main(descriptor: int, scratch: str) -> None:
    """Serves requests from the connection `descriptor` until it is closed."""
    os.dup2(2, 1)  # stdout is for the user's data: what kernels print is not
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the other end, which then closes this one
    _Worker(Connection(descriptor), Path(scratch)).serve()


class _Worker:
    def __init__(self, connection: Connection, scratch: Path) -> None:
        self._connection, self._scratch = connection, scratch
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._bench: LocalBench | None = None

    def serve(self) -> None:
        threading.Thread(target=self._receive, daemon=True).start()
        while True:
            request = self._requests.get()
            try:
                name, arguments, limit_s = pickle.loads(request)
                if name == CLOSE:
                    break
                # A last resort that needs no interpreter: should this process be stuck beyond reach of the thread
                # above, and the other end be gone, so that nobody kills it.
                faulthandler.dump_traceback_later(min(2 * limit_s + 60, LAST_RESORT_S), exit=True)
                self._send("step", "beginning", 0)  # who dies before this is said was at rest
                answer: tuple[Any, ...] = ("ok", self._answer(name, arguments))
            except Exception as error:  # whatever it is goes to the other end, and is raised there
                answer = ("error", _picklable(error), traceback.format_exc())
            finally:
                faulthandler.cancel_dump_traceback_later()
            self._send(*answer, None if self._bench is None else self._bench.lost)
        if self._bench is not None:
            self._bench.close()

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "open":
            return self._opened(*arguments)
        assert self._bench is not None, "the device was not opened"
        return getattr(self._bench, name)(*arguments)

    def _opened(self, opener: Callable[[], Device], plan: TimingPlan | None) -> DeviceInfo:
        device = opener()
        self._bench = LocalBench(device, lambda step, launches: self._send("step", step, launches), self._scratch, plan)
        return device.info

    def _receive(self) -> None:
        """Runs beside the work, so that the end of the other side is noticed whatever the work is at."""
        while True:
            try:
                self._requests.put(self._connection.recv_bytes())
            except (EOFError, OSError):
                shutil.rmtree(self._scratch, ignore_errors=True)  # where the other side was killed, nobody else will
                os._exit(0)

    def _send(self, *message: Any) -> None:
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception's own pickling may fail in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
