"""Loads a compiled kernel and launches it on the CPU."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import struct
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from autotile.devices.emulator import abi
from autotile.devices.emulator.arguments import PackedArguments, pack_arguments
from autotile.devices.emulator.lines import LineTable
from autotile.devices.emulator.report import Copies, Report
from autotile.devices.emulator.results import (
    MemoryMap,
    collect_accesses,
    collect_diagnostics,
    collect_footprints,
    collect_protections,
)
from autotile.errors import LaunchError, UnsupportedByEmulator

Mode = Literal["run", "check", "trace"]
Order = Literal["forward", "backward"]
Dim3: TypeAlias = "tuple[int, int, int]"
Widths: TypeAlias = "Mapping[tuple[int, str, str], int]"
"""By line, op and space: the widest access, in bytes, of the GPU's machine code (see build/sass.py)."""

Argument: TypeAlias = "npt.NDArray[Any] | np.generic | int | float | None"

MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS_PER_BLOCK = 1024
MAX_SHARED_BYTES = 227 * 1024
MAX_CLUSTER_BLOCKS = 8
DEFAULT_LIMIT_S = 60.0

_GUARD_BYTES = 64 * 1024
_DEVICE_ALIGNMENT = 256
_LEVELS = {"run": 0, "check": 1, "trace": 2}
# A launch catches this process's faults while it lasts, so two programs cannot run at the same time either. Reentrant,
# because a collection of garbage during a report may close another program.
_LAUNCHING = threading.RLock()
if hasattr(os, "register_at_fork"):  # a fork waits for a launch to end: the child has no thread that would end it
    os.register_at_fork(
        before=_LAUNCHING.acquire, after_in_parent=_LAUNCHING.release, after_in_child=_LAUNCHING.release
    )


def device_buffer(array: npt.ArrayLike, offset_bytes: int = 0) -> npt.NDArray[Any]:
    """A copy of an array as cudaMalloc would place it, aligned to 256 bytes, or so many bytes behind.

    On either side lie 64 KiB that no argument owns, so that an index a row off is out of bounds, not in a neighbour.
    """
    given = np.asarray(array)
    raw = np.empty(given.nbytes + 2 * _GUARD_BYTES + _DEVICE_ALIGNMENT + offset_bytes, np.uint8)
    start = _GUARD_BYTES + -(raw.ctypes.data + _GUARD_BYTES) % _DEVICE_ALIGNMENT + offset_bytes
    placed: npt.NDArray[Any] = raw[start : start + given.nbytes].view(given.dtype).reshape(given.shape)
    placed[...] = given
    return placed


@dataclass(frozen=True)
class _Entry:
    """A `__global__` function of a program. `fits`: it takes what the kernel takes."""

    number: int
    name: str
    cluster: Dim3
    fits: bool
    static_shared_bytes: int


class EmulatedProgram:
    """A kernel in a shared object of `compile_host`. Raises LaunchError where this machine cannot load it.

    Launches are serialised by a lock. Close it, or use it in a `with`, to give its memory back.
    """

    def __init__(self, shared_object: Path) -> None:
        self._library = _load(shared_object)
        self._finalizer = weakref.finalize(self, _close, self._library)
        self._lines = LineTable(shared_object)
        count = ctypes.c_uint32.in_dll(self._library, "autotile_parameter_count").value
        described = self._library.autotile_parameters()
        self._parameters = tuple((described[i].kind, described[i].bytes) for i in range(count))
        self._entries = self._read_entries()
        self.traced = bool(ctypes.c_uint32.in_dll(self._library, "autotile_instrumented").value)
        self.static_shared_bytes = int(self._library.autotile_static_shared_bytes(0))

    def __enter__(self) -> EmulatedProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._finalizer()

    def _read_entries(self) -> tuple[_Entry, ...]:
        table = (abi.EntryPoint * 1).in_dll(self._library, "autotile_entries")
        first = ctypes.cast(table, ctypes.POINTER(abi.EntryPoint))
        entries: list[_Entry] = []
        while first[len(entries)].name is not None:
            found, number = first[len(entries)], len(entries)
            cluster = (max(1, found.cluster[0]), max(1, found.cluster[1]), max(1, found.cluster[2]))
            shared = int(self._library.autotile_static_shared_bytes(number))
            entries.append(_Entry(number, found.name.decode(), cluster, bool(found.fits), shared))
        return tuple(entries)

    def cluster(self, entry_suffix: str = "") -> Dim3:
        """Blocks of a cluster of the kernel, or of one of its steps; (1, 1, 1) for a kernel without clusters."""
        return self._entry(entry_suffix).cluster

    def static_shared_bytes_of(self, entry_suffix: str) -> int:
        """Static shared memory of a block of the kernel (suffix "") or of one of its steps."""
        return self._entry(entry_suffix).static_shared_bytes

    def _entry(self, suffix: str) -> _Entry:
        """Raises LaunchError for a step that the text does not have."""
        name = self._entries[0].name + suffix
        for entry in self._entries:
            if entry.name == name and entry.fits:
                return entry
        raise LaunchError(
            f'the text has no function {name!r} to launch: write it as extern "C" __global__, with the parameters of '
            f"{self._entries[0].name!r}"
        )

    def launch(
        self,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        arguments: Sequence[Argument],
        mode: Mode,
        order: Order = "forward",
        blocks: Sequence[int] | None = None,
        limit_s: float = DEFAULT_LIMIT_S,
        entry_suffix: str = "",
        widths: Widths | None = None,
        first_lines: Mapping[int, int] | None = None,
    ) -> Report:
        """Runs the kernel on its arguments in place and says what it found.

        An array is a device buffer: C-contiguous, its bounds exactly its own bytes. A numpy scalar is passed by value
        with exactly its dtype; an int or float takes the parameter's type; None is a null pointer. Every mode checks
        barriers; "run" adds bounds and alignment (not in a build without tracing), "check" races and unwritten shared
        memory, "trace" counts sectors and wavefronts as well. `order` turns the order of blocks and threads round;
        `blocks` are the linear numbers of the blocks to run, None for all; a cluster runs as a whole. After `limit_s`
        the launch stops with a diagnostic "timeout", after a fault with the fault's own. `entry_suffix` names a step.
        `widths` are those of the GPU's machine code, by line, op and space: 8, 16 or 32 bytes, the widest on that
        line; `first_lines` says of a line which other one its statement began on, whose widths are then its own.
        Mode "trace" counts requests as wide as that where a warp's lanes all go on right behind their last access of
        the line, with no barrier between; only with addr2line, on Linux. Raises LaunchError for a launch that CUDA
        refuses.
        """
        entry = self._entry(entry_suffix)
        self._check_launch(entry, grid, block, shared_bytes, blocks, mode, limit_s)
        if blocks is not None:
            blocks = list(dict.fromkeys(number - number % entry.cluster[0] for number in blocks))
        packed = pack_arguments(arguments, self._parameters)
        widenings = self._widenings(widths or {}, first_lines or {})
        numbers = None if blocks is None else np.ascontiguousarray(blocks, dtype=np.int64)
        request = abi.LaunchRequest(
            grid=grid, block=block, shared_bytes=shared_bytes, level=_LEVELS[mode], backward=order == "backward",
            buffer_count=len(packed.buffers), buffers=packed.buffers, arguments=packed.pointers,
            blocks=None if numbers is None else numbers.ctypes.data, block_count=0 if numbers is None else len(numbers),
            limit_s=limit_s, entry=entry.number, cluster_blocks=entry.cluster[0],
            widenings=widenings, widening_count=len(widenings),
        )  # fmt: skip
        with _LAUNCHING:
            started = time.perf_counter()
            status = self._library.autotile_launch(ctypes.byref(request))
            run_s = time.perf_counter() - started
            if status != abi.LAUNCHED:
                raise LaunchError(
                    f"the emulator could not reserve the stacks of {np.prod(block)} threads: no memory left"
                )
            return self._report(packed, entry, shared_bytes, run_s)

    def _report(self, packed: PackedArguments, entry: _Entry, shared_bytes: int, run_s: float) -> Report:
        places = self._library.autotile_shared_places()
        memory = MemoryMap(
            tuple((index, array.ctypes.data, array.nbytes) for index, array in packed.arrays),
            (places.fixed, entry.static_shared_bytes),
            (places.dynamic, shared_bytes),
            (places.windows or 0, places.window_stride) if entry.cluster[0] > 1 else (0, 0),
        )
        count = ctypes.c_uint64()
        first = self._library.autotile_diagnostics(ctypes.byref(count))
        diagnostics = collect_diagnostics(first[: count.value], self._lines, memory)
        first = self._library.autotile_sites(ctypes.byref(count))
        accesses = collect_accesses(first[: count.value], self._lines, memory)
        first = self._library.autotile_protections(ctypes.byref(count))
        protections = collect_protections(first[: count.value], self._lines)
        first = self._library.autotile_barriers(ctypes.byref(count))
        barriers = tuple(sorted((barrier.line, barrier.passes) for barrier in first[: count.value]))
        loaded, stored = collect_footprints(self._library.autotile_footprints())
        copies = self._library.autotile_copy_counts().contents
        return Report(
            diagnostics, accesses, run_s, protections, barriers, loaded, stored,
            Copies(copies.copies, copies.waits, copies.left, copies.atomics, copies.dropped),
            tuple(self._library.autotile_reuses()[: abi.REUSE_BUCKETS]),
        )  # fmt: skip

    def _widenings(self, widths: Widths, first_lines: Mapping[int, int]) -> ctypes.Array[abi.Widening]:
        """What the runtime needs to know of `widths`: every call for an access on those lines, by its place."""
        widest: dict[tuple[int, str, str], int] = {}
        for (line, op, space), size in widths.items():
            key = (first_lines.get(line, line), op, space)
            widest[key] = max(size, widest.get(key, 0))
        by_line: dict[int, list[tuple[int, str, str, int]]] = {}
        for group, ((line, op, space), size) in enumerate(widest.items(), start=1):
            by_line.setdefault(line, []).append((group, op, space, size))

        def of_call(pc: int) -> list[tuple[int, str, str, int]]:
            line = self._lines.line(pc)
            return [] if line is None else by_line.get(first_lines.get(line, line), [])

        pcs: list[int] = []
        if widths:
            with _LAUNCHING:
                count = ctypes.c_uint64()
                pcs = sorted(self._library.autotile_call_sites(ctypes.byref(count))[: count.value])
            self._lines.resolve(pcs)
        entries = [
            abi.Widening(pc, op == "store", space == "shared", group, size)
            for pc in pcs
            for group, op, space, size in of_call(pc)
        ]
        return (abi.Widening * len(entries))(*entries)

    def _check_launch(
        self,
        entry: _Entry,
        grid: Dim3,
        block: Dim3,
        shared_bytes: int,
        blocks: Sequence[int] | None,
        mode: Mode,
        limit_s: float,
    ) -> None:
        if not self._finalizer.alive:
            raise LaunchError("this emulated program has been closed; load it again")
        for name, given, most in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
            if len(given) != 3 or not all(1 <= size <= limit for size, limit in zip(given, most, strict=False)):
                raise LaunchError(f"the {name} {tuple(given)} is outside 1 to {most}")
        threads = block[0] * block[1] * block[2]
        if threads > MAX_THREADS_PER_BLOCK:
            raise LaunchError(f"a block of {threads} threads: at most {MAX_THREADS_PER_BLOCK} are possible")
        _check_cluster(entry, grid)
        if not 0 <= shared_bytes <= MAX_SHARED_BYTES - entry.static_shared_bytes:
            raise LaunchError(
                f"{shared_bytes} bytes of dynamic and {entry.static_shared_bytes} of static shared memory: "
                f"a block has at most {MAX_SHARED_BYTES}"
            )
        total = grid[0] * grid[1] * grid[2]
        if blocks is not None and not all(0 <= number < total for number in blocks):
            raise LaunchError(f"a block number is outside the grid of {total} blocks")
        if mode != "run" and not self.traced:
            raise LaunchError(f"mode {mode!r} needs a traced build: compile with traced=True")
        if not limit_s > 0:
            raise LaunchError(f"limit_s is {limit_s}: it must be above 0")


def _check_cluster(entry: _Entry, grid: Dim3) -> None:
    x, y, z = entry.cluster
    if x * y * z > MAX_CLUSTER_BLOCKS:
        raise LaunchError(
            f"a cluster of {x * y * z} blocks: at most {MAX_CLUSTER_BLOCKS} run on every GPU with clusters"
        )
    if y * z > 1:
        raise UnsupportedByEmulator(
            f"the emulator runs clusters of blocks along x, not {entry.cluster}: run this variant on a GPU"
        )
    if grid[0] % x:
        raise LaunchError(f"a grid of {grid[0]} blocks along x cannot be divided into clusters of {x}")


def _load(shared_object: Path) -> ctypes.CDLL:
    try:
        _refuse_truncated(shared_object)
        library = ctypes.CDLL(str(shared_object.resolve()))
        version = ctypes.c_uint32.in_dll(library, "autotile_abi").value
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"{shared_object} cannot be loaded on this machine ({error}). It was built on another or is damaged: "
            "delete it, and build it again here."
        ) from error
    if version != abi.VERSION:
        _ctypes.dlclose(library._handle)
        raise LaunchError(f"{shared_object} was built by another version of the emulator: delete it and build it again")
    abi.declare(library)
    return library


def _refuse_truncated(shared_object: Path) -> None:
    """Raises ValueError for an ELF file shorter than its table of sections says: loading it could be a SIGBUS.

    The table is the last thing in a file. What is no 64-bit ELF file is left to the loader.
    """
    with shared_object.open("rb") as file:
        header = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if header[:5] != b"\x7fELF\x02":
        return
    if len(header) < 64:
        raise ValueError("it is truncated")
    order = "<" if header[5] == 1 else ">"
    (offset,) = struct.unpack_from(f"{order}Q", header, 40)
    entry_bytes, entries = struct.unpack_from(f"{order}HH", header, 58)
    if size < offset + entry_bytes * entries:
        raise ValueError(f"it is truncated: {size} bytes of {offset + entry_bytes * entries}")


def _close(library: ctypes.CDLL) -> None:
    with _LAUNCHING:
        library.autotile_release()
        _ctypes.dlclose(library._handle)
