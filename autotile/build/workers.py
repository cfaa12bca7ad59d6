"""Warm worker processes: each answers one request after another, and is replaced when it dies or takes too long.

A message, either way, is a line of JSON that tells the lengths of the bytes behind it. Messages of a worker begin with
MARK: what comes before one was printed, by a library or on the way to a crash, and is kept as text.

Like a compiler's process (process.py), a worker leads a group of its own that the watcher (guard.py) knows: none
outlives this process, however that ends. A worker also ends by itself when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.build import guard
from autotile.build.process import CLOSE_S, CompileTimeout, Finished, kill_group
from autotile.errors import CompileError, ToolchainMissing

MARK = b"\0autotile "
START_LIMIT_S = 60.0
"""Longest that a worker may take to be ready: many may start at once, from a slow disk."""
_END_S = 1.0
"""How long a worker that closed its output may take to be gone, so that its own status is seen."""
_LONGEST_POLL_S = 3600.0
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Reply:
    """A worker's answer: its fields, and the parts that came behind them."""

    fields: Mapping[str, Any]
    parts: Sequence[bytes]


def message(fields: Mapping[str, Any], *parts: bytes) -> bytes:
    return b"".join([json.dumps({**fields, "lengths": [len(part) for part in parts]}).encode(), b"\n", *parts])


class _Worker:
    """One process and its pipes. Used by one thread at a time, but for `kill`."""

    def __init__(self, command: Sequence[str]) -> None:
        self.hello: Reply | None = None
        self._released = False
        self._heard = bytearray()
        self._process = subprocess.Popen(
            guard.wrap(command),
            cwd="/",  # where a relative #include finds nothing by chance
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=guard.errors_to(),
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)  # one that does not read must not stop us

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: bytes, limit_s: float) -> Reply:
        """Sends a request (none: b"") and waits for an answer. Raises TimeoutError, or EOFError when it has ended."""
        deadline = time.monotonic() + limit_s
        unsent = memoryview(request)
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if unsent:
            poll.register(self._to, select.POLLOUT)
        while (reply := self._parsed()) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            for descriptor, _ in poll.poll(min(left_s, _LONGEST_POLL_S) * 1e3):
                if descriptor == self._from:
                    self._listen()
                else:
                    unsent = self._send(unsent)
                    if not unsent:
                        poll.unregister(self._to)
        return reply

    def _listen(self) -> None:
        heard = os.read(self._from, _CHUNK_BYTES)
        if not heard:
            raise EOFError
        self._heard += heard

    def _send(self, unsent: memoryview) -> memoryview:
        try:
            return unsent[os.write(self._to, unsent[:_CHUNK_BYTES]) :]
        except BrokenPipeError:  # it has ended: its last words are still to be heard
            return unsent[:0]

    def _parsed(self) -> Reply | None:
        start = self._heard.find(MARK)
        end = self._heard.find(b"\n", start + len(MARK)) if start >= 0 else -1
        if end < 0:
            return None
        fields = json.loads(self._heard[start + len(MARK) : end])
        at, parts = end + 1, []
        for length in fields["lengths"]:
            parts.append(bytes(self._heard[at : at + length]))
            at += length
        if len(self._heard) < at:
            return None
        self._heard.clear()
        return Reply(fields, parts)

    def kill(self) -> None:
        if self._process.returncode is None:  # else its number may belong to somebody else by now
            kill_group(self._process.pid)

    def end(self, within_s: float = 0.0) -> Finished:
        """Kills it, unless it ends by itself in time, and reaps it: how it ended, and its last words."""
        with self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
            self.kill()
            self._process.wait()
        if not self._released:  # only once: the number may be of another worker by now
            self._released = True
            guard.release(self._process.pid)
        return Finished(self._process.returncode, self._heard.partition(MARK)[0].decode(errors="replace"))


class WorkerPool:
    """Workers of one command, named `name` in messages. Not a limit on their number: who asks at once is."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._command, self._name = list(command), name
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._lock = threading.Condition()
        self._closed = False

    def start(self, count: int) -> None:
        """Starts workers until there are `count`; does not wait for them to be ready."""
        with self._lock:
            while len(self._all) < count and not self._closed:
                self._idle.insert(0, self._started())  # those that are ready are taken first, from the other end

    def hello(self) -> Mapping[str, Any]:
        """What a worker says of itself once it is ready. Raises ToolchainMissing when none can be."""
        worker = self._ready()
        self._give_back(worker)
        assert worker.hello is not None
        return worker.hello.fields

    def ask(self, fields: Mapping[str, Any], payload: bytes, timeout_s: float) -> Reply | Finished:
        """One worker's answer, or how the worker ended over it. One killed from outside is no fault of the request's:
        that is asked once more (where memory ran out over it, it will again).

        Raises CompileTimeout after `timeout_s` seconds, CompileError when the pool is closed meanwhile,
        ToolchainMissing when no worker gets ready.
        """
        request = message(fields, payload)
        ended = self._ask_once(request, timeout_s)
        if isinstance(ended, Finished) and ended.status == -signal.SIGKILL:
            return self._ask_once(request, timeout_s)
        return ended

    def _ask_once(self, request: bytes, timeout_s: float) -> Reply | Finished:
        worker = self._ready()
        try:
            reply = worker.ask(request, timeout_s)
        except EOFError:
            finished = self._lose(worker, within_s=_END_S)
            if self._closed:
                raise CompileError("the builder was closed while this variant was compiling") from None
            return finished
        except TimeoutError:
            self._lose(worker)
            with self._lock:
                workers = len(self._all)
            self.start(workers + 1)
            raise CompileTimeout.after(self._name, timeout_s) from None
        except BaseException:  # its answer would come later, as if to the next request
            self._lose(worker)
            raise
        self._give_back(worker)
        return reply

    def close(self) -> None:
        """Kills all workers, and waits until they are gone (CLOSE_S at most); later requests are refused."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in self._all:
                worker.kill()
        for worker in idle:
            self._lose(worker)
        with self._lock:
            self._lock.wait_for(lambda: not self._all, timeout=CLOSE_S)

    def _started(self) -> _Worker:
        try:
            worker = _Worker(self._command)
        except OSError as error:
            raise ToolchainMissing(
                f"{self._name}'s worker (`{self._command[0]}`) cannot be started: {error}"
            ) from error
        self._all.add(worker)
        return worker

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise CompileError("the builder was closed")
            while self._idle:
                worker = self._idle.pop()
                if worker.hello is None or worker.alive:
                    return worker
                self._all.discard(worker)  # somebody killed it
                worker.end()
            return self._started()

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                return
        self._lose(worker)

    def _lose(self, worker: _Worker, within_s: float = 0.0) -> Finished:
        try:
            return worker.end(within_s)
        finally:
            with self._lock:
                self._all.discard(worker)
                self._lock.notify_all()

    def _ready(self) -> _Worker:
        """A worker that has said hello. One that ends before (somebody may have killed it) is tried again, once."""
        for last in (False, True):
            worker = self._take()
            try:
                self._greet(worker)
                return worker
            except ToolchainMissing:
                self._lose(worker)
                if last:
                    raise
            except BaseException:
                self._lose(worker)
                raise
        raise AssertionError("the last try returns or raises")

    def _greet(self, worker: _Worker) -> None:
        if worker.hello is not None:
            return
        try:
            worker.hello = worker.ask(b"", START_LIMIT_S)
        except TimeoutError:
            raise ToolchainMissing(f"{self._name}'s worker was not ready after {START_LIMIT_S:g} s") from None
        except EOFError:
            done = worker.end(_END_S)
            if self._closed:
                raise CompileError("the builder was closed") from None
            raise ToolchainMissing(f"{self._name}'s worker did not get ready: it {ending(done)}") from None


def ending(done: Finished) -> str:
    """`was ended by SIGSEGV`, `ended with status 1, saying: …`."""
    how = f"was ended by {done.crash}" if done.crash else f"ended with status {done.status}"
    return f"{how}, saying: {done.text.strip()}" if done.text.strip() else how
