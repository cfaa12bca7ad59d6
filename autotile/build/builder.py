"""Builds variants, several at a time, and never one twice."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType

from autotile.assets import home_dir
from autotile.build import choice
from autotile.build.cache import BinaryCache, Meta, cache_key
from autotile.build.compiler import Compiler, set_in_environment
from autotile.build.process import CLOSE_S, ProcessPool
from autotile.errors import ToolchainMissing
from autotile.types import Binary, Source, Target

COMPILE_TIMEOUT_S = 120.0
"""Longest that one variant may compile, unless the search says otherwise; what takes longer is one failed variant."""


class Builder:
    """Turns sources into binaries for one target.

    Each task of the pool waits for one compiler process: `jobs` threads are a pool of `jobs` processes (default: the
    CPUs that this process may use). Use as a context manager, or `close()`: compilers that still run are killed.
    A variant may compile for `timeout_s` seconds. `compiler` is `nvcc`, `nvrtc`, or `auto`: what AUTOTILE_COMPILER
    says, else the first of choice.PREFERENCE that can be used; it is for GPUs, and means nothing for other targets.

    With `line_info` a binary for GPUs also tells from which line each instruction came (see disassembler.py); for other
    targets it means nothing. Such a binary has a key of its own. Its machine code is the same, to the last byte of its
    sections `.text`, but its digest is another, and nvcc's another in each build: the file names the folder that it was
    made in. Such binaries are to be read, not to be measured, saved or compared.

    Raises ToolchainMissing when made without a compiler for the target, ArgumentValueError for a name that is none.
    """

    def __init__(
        self,
        target: Target,
        home: Path | None = None,
        jobs: int | None = None,
        *,
        timeout_s: float = COMPILE_TIMEOUT_S,
        compiler: str = choice.AUTO,
        line_info: bool = False,
    ) -> None:
        self.target = target
        self.jobs = jobs or available_cpus()
        self._timeout_s = timeout_s
        self._cache = BinaryCache(home or home_dir())
        self._compiler = _compiler_for(target, self._cache.root, compiler, line_info)
        self._processes = ProcessPool()
        self._pool = ThreadPoolExecutor(self.jobs, thread_name_prefix="autotile-build")
        self._pending: dict[str, Future[Binary]] = {}
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Starts what the compilers need to start, so that it goes on beside other work. Waits for nothing."""
        self._compiler.warm_up(self.jobs)

    @property
    def compiler(self) -> str:
        """Name and version of the compiler, such as `nvcc 13.0.88` or `NVRTC 13.0.88`: part of a result's identity."""
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
        built = self._compiler.compile(source, self._cache.workdir, self._processes, self._timeout_s)
        path, meta = self._cache.publish(
            self._key(source),
            built.name,
            built.data,
            digest=built.digest,
            entry=source.entry,
            compiler=self.compiler,
            arch=self.target.arch,
            registers=built.usage.registers,
            spill_bytes=built.usage.spill_bytes,
            static_shared_bytes=built.usage.static_shared_bytes,
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
        self._compiler.close()
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


def open_builder(target: Target, jobs: int | None = None, timeout_s: float = COMPILE_TIMEOUT_S) -> Builder:
    """The builder for a target; one that builds nothing for a replay's. Raises ToolchainMissing (see Builder)."""
    if target.kind == "replay":
        from autotile.build.replayed import ReplayBuilder  # it is a Builder itself

        return ReplayBuilder(target)
    return Builder(target, jobs=jobs, timeout_s=timeout_s)


def compiler_at_hand(target: Target) -> str | None:
    """The compiler that would build for a target, if that can be known without starting one for GPUs; else None."""
    if target.kind != "host":
        return None
    try:
        return _compiler_for(target, home_dir()).version
    except ToolchainMissing:
        return None


def flags_at_hand(target: Target) -> str:
    """The user's own flags (see Builder.flags) that a build for a target would take now. Starts nothing."""
    if target.kind == "cuda":
        return choice.users_flags()
    from autotile.build import host  # the emulator's toolchain is needed for its own target only

    return set_in_environment(host.ENVIRONMENT_FLAGS)


def find_built(source: Source, target: Target, compiler: str, home: Path | None = None) -> Binary | None:
    """What `compiler` (such as `nvcc 13.0.88` or `NVRTC 13.0.88`) built of a source for a GPU, from the cache alone.

    No compiler is looked for or started: a machine without one can run what it was given. None for host targets.
    """
    if target.kind != "cuda":
        return None
    key = cache_key(source.text, source.entry, choice.flags_of(target, compiler), compiler, target.arch)
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


def _compiler_for(target: Target, cache_dir: Path, compiler: str = choice.AUTO, line_info: bool = False) -> Compiler:
    if target.kind == "cuda":
        return choice.cuda_compiler(target, compiler, line_info)
    if target.kind == "host":
        from autotile.build import host  # the emulator's toolchain is needed for its own target only

        return host.HostCompiler(target, cache_dir)
    if target.kind == "replay":
        raise ToolchainMissing("a replay builds and runs nothing; use cuda:N or emulator")
    raise ToolchainMissing(f"no compiler is known for the target {target.kind!r} ({target.arch})")


def available_cpus() -> int:
    """CPUs that this process may use: fewer than the machine's in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
