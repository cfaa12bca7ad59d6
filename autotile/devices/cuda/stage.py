"""One problem's data on a GPU: checked there, timed there."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from autotile.devices.base import Array, Check, Workload, compare, is_exact, wide_dtype, wrong_words
from autotile.devices.cuda.packing import Pointer
from autotile.devices.cuda.program import CudaProgram
from autotile.devices.cuda.scratch import Scratch
from autotile.devices.cuda.timing import Stopwatch
from autotile.errors import EnvironmentalError, LaunchError
from autotile.types import SCRATCH, Launch

if TYPE_CHECKING:
    from autotile.devices.cuda.device import CudaDevice

INPUT_SETS = 3
"""Copies of the data at different addresses, used in turn: no launch finds what the one before left in a cache."""

POISON = (0xFF, 0xA5)
"""Bytes that outputs hold before a check. Twice, with different ones: what a kernel never writes differs in one run."""

GUARD_BYTES = 1024
"""Poisoned bytes before and after each output, where a kernel that misses its bounds leaves a trace."""

LEAST_FLUSH_BYTES = 64 << 20
FLOAT_TYPES = {"float16": 1, "bfloat16": 2, "float32": 3, "float64": 4, "float8_e4m3fn": 5, "float8_e5m2": 6}
EXACT = 16
"""`type` of compare.cu: see there."""


class CudaStage:
    """A workload on the device. Made by `CudaDevice.stage`; memory is taken on entering and freed on leaving."""

    def __init__(self, device: CudaDevice, driver: Any, workload: Workload, comparer: CudaProgram | None) -> None:
        self._device, self._driver, self._workload, self._comparer = device, driver, workload, comparer
        self._guard_bytes = device.guard_bytes
        self._memory: list[Any] = []
        self._sets: list[dict[str, int]] = []
        self._set_memory: list[list[Any]] = []
        self._scratch = Scratch(driver, device.guard_bytes)
        self._expected: dict[str, tuple[int, int]] = {}
        self._before: dict[str, int] = {}
        self._flush = self._flush_bytes = self._outcome = self._timed_sets = 0
        self._watch = Stopwatch(driver, self._flush_l2)
        self._stream: Any = None

    @property
    def input_sets(self) -> int:
        """Copies of the data; fewer than INPUT_SETS where the memory is short."""
        return len(self._sets)

    def __enter__(self) -> CudaStage:
        try:
            with self._device.active():
                self._allocate()
                self._fill()
        except BaseException:
            self._free()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free()

    def check(self, program: CudaProgram, launch: Launch, fillings: int = 2) -> Check:
        """Runs the program on so many kinds of poison and compares on the device. Raises LaunchError."""
        with self._device.active():
            self._need_scratch(launch)
            worst, launch_ms = 0.0, 0.0
            for poison in POISON[-fillings:]:
                found = self._check_once(program, launch, poison)
                if not found.ok:
                    # A kernel that is wrong may have written anywhere: over inputs, or over the reference itself.
                    self._fill()
                    return found
                worst, launch_ms = max(worst, found.max_error), found.launch_ms
                changed = self._changed_input()  # after each run: a second one could undo what the first did
                if changed:
                    self._fill()
                    return Check(worst, 0, f"the kernel wrote to its input {changed!r}")
            return Check(worst, 0, launch_ms=launch_ms)

    def times_ms(self, program: CudaProgram, launch: Launch, runs: int) -> tuple[float, ...]:
        """Times by events, as they are read: 0 or negative ones too. Raises LaunchError."""
        with self._device.active():
            self._need_scratch(launch)
            sets = range(len(self._sets))
            queues = [program.bound(launch, self._arguments(number, launch), self._stream) for number in sets]
            self._timed_sets = min(runs, len(queues))
            for number in range(self._timed_sets):
                self._poison(number, POISON[0])

            def before(run: int) -> None:
                for name in self._workload.takes_place:  # the launch before left a result where the input was
                    self._put_before(run % len(queues), name)

            return self._watch.times_ms(runs, lambda run: queues[run % len(queues)](), before, self._stream)

    def _flush_l2(self, run: int) -> None:
        self._driver.memset_d8_async(self._flush, run % 256, self._flush_bytes, self._stream)

    def _need_scratch(self, launch: Launch) -> None:
        """Takes the memory that the launch works in, guards around it, giving up sets of the data where it is short.

        Raises LaunchError where it does not suffice.
        """
        if launch.scratch_bytes <= self._scratch.nbytes:
            return
        self._scratch.free()
        needed = _padded(launch.scratch_bytes + 2 * self._guard_bytes)
        while (free := self._free_bytes()) < needed:
            if len(self._sets) == 1:
                raise LaunchError(
                    f"the launch works in {launch.scratch_bytes >> 20} MiB of scratch memory on "
                    f"{self._device.info.name}, which has {max(0, free) >> 20} MiB free beside the problem's data"
                )
            self._sets.pop()
            for allocation in self._set_memory.pop():
                allocation.free()
        self._scratch.take(launch.scratch_bytes)

    def _free_bytes(self) -> int:
        return int(self._driver.mem_get_info()[0]) * 15 // 16  # the rest is for the modules and CUDA itself

    def check_timed(self) -> Check:
        """Compares what each set of the last `times_ms` holds now: a kernel may be right alone and wrong in a row."""
        worst = 0.0
        with self._device.active():
            for number in range(self._timed_sets):
                for name in self._workload.outputs:
                    found = self._compare(name, POISON[0], number)
                    if not found.ok:
                        self._fill()
                        return found
                    worst = max(worst, found.max_error)
        return Check(worst, 0)

    def output(self, name: str) -> Array:
        """What the last check left in an output, on the host."""
        with self._device.active():
            return self._host_output(name, 0)

    def _allocate(self) -> None:
        info = self._device.info
        self._stream = self._driver.Stream()
        self._flush_bytes = max(LEAST_FLUSH_BYTES, 2 * info.l2_bytes)
        fixed = {name: _reference_of(self._workload, name) for name in self._workload.outputs}
        fixed_bytes = self._flush_bytes + sum(
            _padded(array.nbytes) + (_padded(bound.nbytes) if isinstance(bound, np.ndarray) else 0)
            for array, bound in fixed.values()
        )
        fixed_bytes += sum(_padded(array.nbytes) for array in self._workload.before.values())
        sizes, places = self._sizes(), self._workload.takes_place
        leads = {name: self._guard_bytes + self._workload.offset_bytes(name) for name in sizes}
        set_bytes = sum(
            _padded(leads[name] + nbytes + self._guard_bytes) for name, nbytes in sizes.items() if name not in places
        )
        free = self._free_bytes()
        sets = min(INPUT_SETS, (free - fixed_bytes) // max(set_bytes, 1))
        if sets < 1:
            raise EnvironmentalError(
                f"the problem needs {(fixed_bytes + set_bytes) >> 20} MiB on {info.name}, which has {free >> 20} MiB "
                "free; take a smaller problem, or end what else uses the GPU"
            )
        self._flush = self._alloc(self._flush_bytes)
        self._outcome = self._alloc(24)
        for name, (reference, bound) in fixed.items():
            bounds = self._alloc(bound.nbytes) if isinstance(bound, np.ndarray) else 0
            self._expected[name] = (self._alloc(reference.nbytes), bounds)
        self._before = {name: self._alloc(array.nbytes) for name, array in self._workload.before.items()}
        for _ in range(sets):
            self._set_memory.append([])
            own = {
                name: self._alloc(leads[name] + nbytes + self._guard_bytes, self._set_memory[-1]) + leads[name]
                for name, nbytes in sizes.items()
                if name not in places
            }
            self._sets.append(own | {output: own[source] for output, source in places.items()})

    def _sizes(self) -> dict[str, int]:
        """Bytes of each input and output, the gaps between rows included."""
        sizes = {name: array.nbytes for name, array in self._workload.inputs.items()}
        for name, (shape, dtype) in self._workload.outputs.items():
            sizes[name] = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return sizes

    def _alloc(self, nbytes: int, held: list[Any] | None = None) -> int:
        allocation = self._driver.mem_alloc(max(nbytes, 1))
        (self._memory if held is None else held).append(allocation)
        return int(allocation)

    def _fill(self) -> None:
        """Copies inputs, references, bounds, and what outputs hold before a launch, from the host."""
        for name, array in self._workload.inputs.items():
            self._upload(self._sets[0][name], array)
            for other in self._sets[1:]:
                if array.nbytes:
                    self._driver.memcpy_dtod(other[name], self._sets[0][name], array.nbytes)
        for name, array in self._workload.before.items():
            if name in self._workload.takes_place:  # the input itself, which is there now
                self._driver.memcpy_dtod(self._before[name], self._sets[0][name], array.nbytes)
            else:
                self._upload(self._before[name], array)
        for name, (reference_at, bound_at) in self._expected.items():
            reference, bound = _reference_of(self._workload, name)
            self._upload(reference_at, reference)
            if isinstance(bound, np.ndarray):
                self._upload(bound_at, bound)

    def _free(self) -> None:
        try:
            with self._device.active():
                self._watch.events.clear()
                self._stream = None
                self._scratch.free()
                for held in (*self._set_memory, self._memory):
                    while held:
                        held.pop().free()
        except LaunchError:  # the context is gone, and its memory with it
            self._memory.clear()
            self._scratch.forget()
        self._set_memory.clear()
        self._sets.clear()

    def _arguments(self, number: int, launch: Launch) -> list[Any]:
        addresses: Mapping[str, int] = self._sets[number]
        scratch = Pointer(self._scratch.address(launch))
        return [
            scratch if argument is SCRATCH else Pointer(addresses[argument]) if isinstance(argument, str) else argument
            for argument in self._workload.arguments
        ]

    def _check_once(self, program: CudaProgram, launch: Launch, poison: int) -> Check:
        sizes = self._sizes()
        self._poison(0, poison)
        self._scratch.poison(launch, poison, self._stream)
        self._watch.need_events(2)
        begin, end = self._watch.events[:2]
        begin.record(self._stream)
        program.launch(launch, self._arguments(0, launch), self._stream)
        end.record(self._stream)
        self._stream.synchronize()
        worst, launch_ms = 0.0, max(0.0, float(end.time_since(begin)))
        for name in self._workload.outputs:
            found = self._compare(name, poison)
            if not found.ok:
                return found
            worst = max(worst, found.max_error)
            outside = self._wrote_outside(f"output {name!r}", self._sets[0][name], sizes[name], poison)
            if outside:
                return Check(worst, 0, outside)
        if launch.scratch_bytes:
            outside = self._wrote_outside("scratch memory", self._scratch.address(launch), launch.scratch_bytes, poison)
            if outside:
                return Check(worst, 0, outside)
        return Check(worst, 0, launch_ms=launch_ms)

    def _poison(self, number: int, poison: int) -> None:
        """Fills the outputs of a set, and the guards around them."""
        sizes, guard = self._sizes(), self._guard_bytes
        for name in self._workload.outputs:
            start = self._sets[number][name]
            if name not in self._before:
                self._driver.memset_d8_async(start - guard, poison, sizes[name] + 2 * guard, self._stream)
                continue
            for side in (start - guard, start + sizes[name]) if guard else ():
                self._driver.memset_d8_async(side, poison, guard, self._stream)
            self._put_before(number, name)

    def _put_before(self, number: int, name: str) -> None:
        """What the workload says that an output's memory holds before a launch."""
        nbytes = self._workload.before[name].nbytes
        self._driver.memcpy_dtod_async(self._sets[number][name], self._before[name], nbytes, self._stream)

    def _compare(self, name: str, poison: int, number: int = 0) -> Check:
        shape, dtype = self._workload.outputs[name]
        size = int(np.prod(shape, dtype=np.int64))
        bound = self._workload.bound[name]
        kind = EXACT + dtype.itemsize if is_exact(bound) else FLOAT_TYPES.get(dtype.name, 0)
        if self._comparer is None or kind == 0:
            layout = self._workload.layouts.get(name)
            return compare(self._host_output(name, number), self._workload.reference[name], bound, layout, name)
        scalar = 0.0 if isinstance(bound, np.ndarray) and bound.ndim else float(bound)
        wrong, first, worst = self._run_comparer(self._sets[number][name], self._expected[name], scalar, size, kind)
        return Check(worst, wrong, self._wrong_words(name, wrong, first, poison, number) if wrong else "")

    def _wrong_words(self, name: str, wrong: int, first: int, poison: int, number: int) -> str:
        """A sentence about an output's first wrong element, and whether the kernel left it alone."""
        given = self._workload
        shape, dtype = given.outputs[name]
        index = np.unravel_index(first, shape)
        got = np.empty(1, dtype)
        self._download(self._sets[number][name] + first * dtype.itemsize, got)
        held = given.before[name][index].tobytes() if name in given.before else bytes([poison]) * dtype.itemsize
        unwritten = " (never written)" if got.tobytes() == held else ""
        values = f"{got[0]}{unwritten} instead of {given.reference[name][index]}"
        return wrong_words(name, shape, given.layouts.get(name), wrong, first, values)

    def _run_comparer(
        self, output: int, expected: tuple[int, int], bound: float, size: int, kind: int
    ) -> tuple[int, int, float]:
        """Number of wrong elements, index of the first, largest error over its bound."""
        assert self._comparer is not None
        self._upload(self._outcome, np.array([0, 2**64 - 1, 0], np.uint64))
        self._comparer.launch_raw(
            (min(max(-(-size // 256), 1), 8 * self._device.info.sm_count), 1, 1),
            (256, 1, 1),
            "PPPdqiP",
            (output, *expected, bound, size, kind, self._outcome),
            self._stream,
        )
        self._stream.synchronize()
        result = np.empty(3, np.uint64)
        self._download(self._outcome, result)
        return int(result[0]), int(result[1]), struct.unpack("d", result[2].tobytes())[0]

    def _wrote_outside(self, what: str, start: int, nbytes: int, poison: int) -> str:
        guard = np.empty(self._guard_bytes, np.uint8)
        for side, address in (
            ("before the start", start - self._guard_bytes),
            ("after the end", start + nbytes),
        ):
            self._download(address, guard)
            count = int(np.count_nonzero(guard != poison))
            if count:
                return f"the kernel wrote {count} bytes {side} of its {what}"
        return ""

    def _changed_input(self) -> str:
        """Name of an input that the kernel wrote to, seen by comparing with the next set; empty when there is none."""
        if self._comparer is None or len(self._sets) < 2:
            return ""
        for name, array in self._workload.inputs.items():
            if name in self._workload.takes_place.values():
                continue  # an output lies there, which was compared
            expected = (self._sets[1][name], 0)
            if self._run_comparer(self._sets[0][name], expected, 0.0, array.nbytes, EXACT + 1)[0]:
                return name
        return ""

    def _host_output(self, name: str, number: int) -> Array:
        shape, dtype = self._workload.outputs[name]
        result = np.empty(shape, dtype)
        self._download(self._sets[number][name], result)
        return result

    def _upload(self, address: int, array: Array) -> None:
        if array.nbytes:
            self._driver.memcpy_htod(address, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def _download(self, address: int, out: Array) -> None:
        if out.nbytes:
            self._driver.memcpy_dtoh(out.reshape(-1).view(np.uint8), address)


def _padded(nbytes: int) -> int:
    """Bytes that an allocation takes: CUDA gives out memory in blocks of 512 bytes and more."""
    return -(-nbytes // 512) * 512


def _reference_of(workload: Workload, name: str) -> tuple[Array, Array | float]:
    """Reference and bound as the comparer reads them: the output's own dtype where the bound is 0, else float64."""
    shape, dtype = workload.outputs[name]
    bound = workload.bound[name]
    if is_exact(bound):
        return np.ascontiguousarray(workload.reference[name], dtype), 0.0
    reference = np.ascontiguousarray(workload.reference[name], wide_dtype(dtype))
    if np.ndim(bound) == 0:
        return reference, float(bound)
    return reference, np.ascontiguousarray(np.broadcast_to(np.asarray(bound, np.float64), shape))
