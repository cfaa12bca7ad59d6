"""Builds variants, several at a time, and never one twice."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Protocol

from autotile.assets import home_dir
from autotile.build import nvcc
from autotile.build.cache import BinaryCache, Meta, cache_key
from autotile.build.nvcc import set_in_environment
from autotile.build.process import CLOSE_S, ProcessPool
from autotile.errors import ToolchainMissing
from autotile.types import Binary, Source, Target

COMPILE_TIMEOUT_S = 120.0
"""Longest that one variant may compile, unless the search says otherwise; what takes longer is one failed variant."""


class Compiler(Protocol):
    """One toolchain for one target. `version` and `flags` are part of a binary's key."""

    @property
    def binary_name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def flags(self) -> str: ...

    @property
    def users_flags(self) -> str:
        """Those of `flags` that the user sets in the environment, as `NAME=value`; "" for none."""

    def compile(
        self, source: Source, workdir: Path, processes: ProcessPool, timeout_s: float
    ) -> tuple[Path, nvcc.Usage]: ...


class Builder:
    """Turns sources into binaries for one target.

    Each task of the pool waits for one compiler process: `jobs` threads are a pool of `jobs` processes (default: the
    CPUs that this process may use). Use as a context manager, or `close()`: compilers that still run are killed.
    A variant may compile for `timeout_s` seconds.

    Raises ToolchainMissing when made without a compiler for the target.
    """

    def __init__(
        self,
        target: Target,
        home: Path | None = None,
        jobs: int | None = None,
        *,
        timeout_s: float = COMPILE_TIMEOUT_S,
    ) -> None:
        self.target = target
        self.jobs = jobs or available_cpus()
        self._timeout_s = timeout_s
        self._cache = BinaryCache(home or home_dir())
        self._compiler, self._digest = _compiler_for(target, self._cache.root)
        self._processes = ProcessPool()
        self._pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="autotile-build")
        self._pending: dict[str, Future[Binary]] = {}
        self._lock = threading.Lock()

    @property
    def compiler(self) -> str:
        """Name and version of the compiler, such as `nvcc 13.0.88`: part of a result's identity."""
        return self._compiler.version

    @property
    def flags(self) -> str:
        """The user's own flags, from the environment, such as `NVCC_APPEND_FLAGS=-use_fast_math`; "" for none.

        Part of a result's identity, as they are of a binary's key.
        """
        return self._compiler.users_flags

    def find(self, source: Source) -> Binary | None:
        """The binary, if it was built before; starts nothing."""
        found = self._cache.find(self._key(source))
        return None if found is None else _binary(self.target, *found, cached=True)

    def build(self, source: Source) -> Binary:
        """The binary, from the cache or compiled now in this thread.

        Raises CompileError when the compiler refuses the source, crashes on it or (CompileTimeout) takes too long,
        ToolchainMissing when no source could be compiled.
        """
        cached = self.find(source)
        if cached is not None:
            return cached
        started = time.perf_counter()
        with self._cache.workdir() as folder:
            output, usage = self._compiler.compile(source, Path(folder), self._processes, self._timeout_s)
            path, meta = self._cache.publish(
                self._key(source),
                output,
                digest=self._digest(output),
                entry=source.entry,
                compiler=self.compiler,
                arch=self.target.arch,
                registers=usage.registers,
                spill_bytes=usage.spill_bytes,
                static_shared_bytes=usage.static_shared_bytes,
                build_s=time.perf_counter() - started,
            )
        return _binary(self.target, path, meta, cached=False)

    def submit(self, source: Source) -> Future[Binary]:
        """Like `build`, in the pool. The same source submitted twice at once is compiled once."""
        key = self._key(source)
        with self._lock:
            pending = self._pending.get(key)
            if pending is not None:
                return pending
            future = self._pool.submit(self.build, source)
            self._pending[key] = future
        future.add_done_callback(lambda _: self._forget(key))
        return future

    def close(self) -> None:
        """Cancels what waits and kills what runs. Does not wait for work that a kill does not end."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._processes.close()
        with self._lock:
            running = [future for future in self._pending.values() if not future.done()]
        wait(running, timeout=CLOSE_S / 2)

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self, key: str) -> None:
        with self._lock:
            self._pending.pop(key, None)

    def _key(self, source: Source) -> str:
        return cache_key(source.text, source.entry, self._compiler.flags, self._compiler.version, self.target.arch)


def compiler_at_hand(target: Target) -> str | None:
    """The compiler that would build for a target, if that can be known without starting nvcc; else None."""
    if target.kind != "host":
        return None
    try:
        return _compiler_for(target, home_dir())[0].version
    except ToolchainMissing:
        return None


def flags_at_hand(target: Target) -> str:
    """The user's own flags (see Builder.flags) that a build for a target would take now. Starts nothing."""
    if target.kind == "cuda":
        return set_in_environment(nvcc.ENVIRONMENT_FLAGS)
    from autotile.build import host  # the emulator's toolchain is needed for its own target only

    return set_in_environment(host.ENVIRONMENT_FLAGS)


def find_built(source: Source, target: Target, compiler: str, home: Path | None = None) -> Binary | None:
    """What `compiler` (such as `nvcc 13.0.88`) built of a source for a GPU, from the cache alone.

    No compiler is looked for or started: a machine without one can run what it was given. None for host targets.
    """
    if target.kind != "cuda":
        return None
    key = cache_key(source.text, source.entry, nvcc.flags_of(target), compiler, target.arch)
    found = BinaryCache(home or home_dir()).find(key)
    return None if found is None else _binary(target, *found, cached=True)


def _binary(target: Target, path: Path, meta: Meta, *, cached: bool) -> Binary:
    return Binary(
        path=path,
        entry=meta.entry,
        digest=meta.digest,
        target=target,
        compiler=meta.compiler,
        registers=meta.registers,
        spill_bytes=meta.spill_bytes,
        static_shared_bytes=meta.static_shared_bytes,
        build_s=meta.build_s,
        cached=cached,
    )


def _compiler_for(target: Target, cache_dir: Path) -> tuple[Compiler, Callable[[Path], str]]:
    if target.kind == "cuda":
        return nvcc.Nvcc(target), nvcc.code_digest
    if target.kind == "host":
        from autotile.build import host  # the emulator's toolchain is needed for its own target only

        return host.HostCompiler(target, cache_dir), host.code_digest
    raise ToolchainMissing(f"no compiler is known for the target {target.kind!r} ({target.arch})")


def available_cpus() -> int:
    """CPUs that this process may use: fewer than the machine's in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
