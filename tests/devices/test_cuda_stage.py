"""What a stage on a GPU does to memory, in gaps and in place, on a driver whose memory is this process's own."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotile.assets import DATA_DIR
from autotile.build import Builder
from autotile.devices.base import Check, Workload
from autotile.devices.cuda.packing import Pointer
from autotile.devices.cuda.stage import FLOAT_TYPES, GUARD_BYTES, INPUT_SETS, CudaStage
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.errors import LaunchError
from autotile.kernels import Kernel, load_kernel
from autotile.measure.placed import logical
from autotile.measure.workload import make_workload
from autotile.types import Launch, Source

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
COPY, SQUARE = (load_kernel(name, KERNELS) for name in ("padded_copy", "square"))
LAUNCH = Launch((1, 1, 1), (1, 1, 1))
GAPS = {"rows": 5, "cols": 7, "batch": 2, "in_pitch": 10, "out_pitch": 9, "in_step": 6, "out_step": 8}
Body = Callable[[Array, Array], None]


class Block(int):
    """An address; what lies there is held by the driver until it is freed."""

    driver: Driver

    def free(self) -> None:
        del self.driver.held[self]


class Driver:
    """Queues nothing: each call is done at once, so that what is not in order shows."""

    def __init__(self, free_bytes: int = 1 << 30) -> None:
        self.held: dict[int, Any] = {}
        self.free_bytes = free_bytes
        self.said: list[str] = []
        self.early: list[bool] = []
        self.asked_after: list[str] = []

    def mem_get_info(self) -> tuple[int, int]:
        return self.free_bytes, self.free_bytes

    def mem_alloc(self, nbytes: int) -> Block:
        memory = ctypes.create_string_buffer(nbytes)
        block = Block(ctypes.addressof(memory))
        block.driver, self.held[block] = self, memory
        return block

    def memset_d8_async(self, at: int, value: int, nbytes: int, stream: Any) -> None:
        assert nbytes > 0
        self.said.append("flush" if nbytes >= 64 << 20 else "set")
        if self.said[-1] == "set":
            ctypes.memset(at, value, nbytes)

    def memcpy_dtod(self, to: int, source: int, nbytes: int) -> None:
        ctypes.memmove(to, source, nbytes)

    def memcpy_dtod_async(self, to: int, source: int, nbytes: int, stream: Any) -> None:
        self.said.append("copy")
        ctypes.memmove(to, source, nbytes)

    def memcpy_htod(self, to: int, array: Array) -> None:
        ctypes.memmove(to, array.ctypes.data, array.nbytes)

    def memcpy_dtoh(self, array: Array, source: int) -> None:
        ctypes.memmove(array.ctypes.data, source, array.nbytes)

    def Stream(self) -> Any:  # noqa: N802
        return self

    def Event(self) -> Any:  # noqa: N802
        return self

    def record(self, stream: Any) -> None:
        self.said.append("event")

    def query(self) -> bool:
        """Whether the GPU has come to where the event was recorded: as `early` says in turn, then never."""
        self.asked_after.append(self.said[-1])
        return self.early.pop(0) if self.early else False

    def synchronize(self) -> None: ...

    def time_since(self, other: Any) -> float:
        return 1.0


class Device:
    info = find_gpu("h200")

    def __init__(self, guard_bytes: int = GUARD_BYTES) -> None:
        self.guard_bytes = guard_bytes

    def active(self) -> Any:
        return contextlib.nullcontext()


def view(address: int, nbytes: int) -> Array:
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


class Comparer:
    """compare.cu for words."""

    def launch_raw(self, grid: Any, block: Any, layout: str, values: Any, stream: Any) -> None:
        output, reference, _, _, size, kind, outcome = values
        words = [view(at, size * (kind - 16)).reshape(size, -1) for at in (output, reference)]
        wrong = np.flatnonzero((words[0] != words[1]).any(axis=1))
        if wrong.size:
            found = np.array([wrong.size, wrong[0], np.array(np.inf).view(np.uint64)], np.uint64)
            ctypes.memmove(outcome, found.ctypes.data, 24)


class Program:
    """A kernel in numpy: gets input and output by index, as they lie in memory."""

    def __init__(self, workload: Workload, kernel: Kernel, problem: Any, body: Body) -> None:
        self._workload, self._body = workload, body
        self._shapes = {a.name: kernel.layout_of(a, problem) for a in kernel.arrays}
        self.addresses: list[tuple[int, int]] = []

    def bound(self, launch: Launch, arguments: list[Any], stream: Any) -> Callable[[], None]:
        return lambda: self.launch(launch, arguments, stream)

    def launch(self, launch: Launch, arguments: list[Any], stream: Any) -> None:
        stream.said.append("launch")
        at = {n: p.address for n, p in zip(self._workload.arguments, arguments, strict=True) if isinstance(p, Pointer)}
        self.addresses.append((at["in"], at["out"]))
        dtype = self._workload.outputs["out"][1]
        arrays = [
            logical(view(at[name], self._shapes[name].extent * dtype.itemsize).view(dtype), self._shapes[name])
            for name in ("in", "out")
        ]
        self._body(*arrays)


class Lab:
    def __init__(
        self,
        kernel: Kernel,
        sizes: dict[str, int],
        dtype: str = "float32",
        guard: int = GUARD_BYTES,
        compared: bool = True,
    ) -> None:
        self.kernel, self.problem = kernel, kernel.problem(sizes, dtype)
        self.workload, self.driver = make_workload(kernel, self.problem), Driver()
        device: Any = Device(guard)
        comparer: Any = Comparer() if compared else None
        self.stage = CudaStage(device, self.driver, self.workload, comparer)

    def program(self, body: Body) -> Any:
        return Program(self.workload, self.kernel, self.problem, body)


def copy(given: Array, out: Array) -> None:
    out[...] = given


def turn(given: Array, out: Array) -> None:
    out[...] = given.T.copy()


def beyond_each_row(given: Array, out: Array) -> None:
    copy(given, out)
    np.lib.stride_tricks.as_strided(out, (2, 5, 8), out.strides)[0, 1, 7] += 1


def into_the_guard(given: Array, out: Array) -> None:
    copy(given, out)
    np.lib.stride_tricks.as_strided(out, (2, 5, 8), out.strides)[1, 4, 7] = 1


def all_but_one(given: Array, out: Array) -> None:
    for batch, row, col in np.ndindex(out.shape):
        if (batch, row, col) != (1, 2, 3):
            out[batch, row, col] = given[batch, row, col]


FAULTS: list[tuple[Body, str]] = [
    (beyond_each_row, r"between the rows of its output 'out'.* 16 elements behind"),
    (into_the_guard, r"wrote 4 bytes after the end of its output 'out'"),
    (all_but_one, r"first at \[1, 2, 3\]"),
]


@pytest.mark.parametrize("guard", [GUARD_BYTES, 0])
@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
def test_a_right_kernel_passes_on_rows_with_gaps(dtype: str, compared: bool, guard: int) -> None:
    lab = Lab(COPY, {**GAPS, "offset": 3}, dtype, guard, compared)
    with lab.stage as stage:
        program = lab.program(copy)
        assert stage.check(program, LAUNCH) == Check(0.0, 0, launch_ms=1.0)
        assert stage.times_ms(program, LAUNCH, 7) == (1.0,) * 7
        assert stage.check_timed() == Check(0.0, 0)
    assert not lab.driver.held


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize(("body", "says"), FAULTS)
def test_a_wrong_kernel_is_told_where(body: Body, says: str, compared: bool) -> None:
    lab = Lab(COPY, GAPS, compared=compared)
    with lab.stage as stage:
        found = stage.check(lab.program(body), LAUNCH)
        assert not found.ok
        assert re.search(says, found.detail), found.detail
        assert ("never written" in found.detail) == (compared and body is all_but_one)
        assert stage.check(lab.program(copy), LAUNCH).ok


def test_in_place_both_arguments_have_one_address_and_each_launch_finds_the_input() -> None:
    lab = Lab(SQUARE, {"rows": 9, "cols": 9, "in_pitch": 11, "out_pitch": 11, "in_place": 1})
    with lab.stage as stage:
        program = lab.program(turn)
        assert stage.check(program, LAUNCH).ok
        assert stage.times_ms(program, LAUNCH, 8) == (1.0,) * 8
        assert stage.check_timed() == Check(0.0, 0)
        assert all(given == out for given, out in program.addresses)
        assert len(set(program.addresses)) == INPUT_SETS
        said = " ".join(lab.driver.said)
    assert said.count("copy flush event launch event") == 8, "the copy is outside of the timed span, before the flush"
    assert not lab.driver.held


def test_a_launch_that_the_gpu_waited_for_is_timed_again_behind_more_flushes() -> None:
    lab = Lab(COPY, GAPS)
    with lab.stage as stage:
        lab.driver.early, lab.driver.said = [False, True, False, True, True, False], []
        program = lab.program(copy)
        assert stage.times_ms(program, LAUNCH, 4) == (1.0,) * 4
        timed = "flush event launch event"
        assert " ".join(lab.driver.said).removeprefix("set set copy " * 3) == " ".join(
            [timed] * 4 + ["flush flush flush " + timed] * 2 + ["flush " * 15 + timed]
        ), "all four, then the second and the fourth, then the second"
        assert set(lab.driver.asked_after) == {"launch"}, "asked before, the GPU could still come too early"
        assert program.addresses[4:] == [program.addresses[1], program.addresses[3], program.addresses[1]], "their sets"
        assert stage.check_timed() == Check(0.0, 0)


def test_a_host_that_is_always_slower_still_gets_times() -> None:
    lab = Lab(COPY, GAPS)
    with lab.stage as stage:
        lab.driver.early, lab.driver.said = [True] * 99, []
        assert stage.times_ms(lab.program(copy), LAUNCH, 2) == (1.0,) * 2
        assert lab.driver.said.count("launch") == 6


def test_in_place_a_kernel_that_leaves_all_as_it_was_fails() -> None:
    lab = Lab(SQUARE, {"rows": 9, "cols": 9, "in_place": 1})
    with lab.stage as stage:
        found = stage.check(lab.program(lambda given, out: None), LAUNCH)
        assert found.wrong == 72
        assert "(never written)" in found.detail
        assert stage.check(lab.program(turn), LAUNCH).ok


def test_in_place_what_is_wrong_when_timed_is_seen() -> None:
    lab = Lab(SQUARE, {"rows": 9, "cols": 9, "in_place": 1})
    launches: list[int] = []

    def tires(given: Array, out: Array) -> None:
        launches.append(1)
        if len(launches) < 9:
            turn(given, out)

    with lab.stage as stage:
        program = lab.program(tires)
        assert stage.check(program, LAUNCH).ok
        stage.times_ms(program, LAUNCH, 8)
        assert not stage.check_timed().ok
        assert stage.check(lab.program(turn), LAUNCH).ok


def test_an_input_beside_one_in_place_may_not_change() -> None:
    lab = Lab(SQUARE, {"rows": 9, "cols": 9})

    def spoils(given: Array, out: Array) -> None:
        turn(given, out)
        given[0, 0] += 1

    with lab.stage as stage:
        assert "wrote to its input 'in'" in stage.check(lab.program(spoils), LAUNCH).detail


def test_in_place_takes_one_array_a_set_and_two_beside() -> None:
    """Where the memory is short: the reference, what lies there before, and as many sets as fit."""
    lab = Lab(SQUARE, {"rows": 512, "cols": 512, "in_place": 1})
    flush, array = 2 * Device.info.l2_bytes, 512 * 512 * 4 + 2 * GUARD_BYTES
    for sets in (1, 2, 3):
        driver = Driver((flush + (2 + sets) * (array + 512)) * 16 // 15 + 64)
        device: Any = Device()
        with CudaStage(device, driver, lab.workload, None) as stage:
            assert stage.input_sets == sets


# ---- scratch memory -------------------------------------------------------------------------------------------------

AFFINE = load_kernel("affine", KERNELS)
WORKING = Launch((1, 1, 1), (1, 1, 1), scratch_bytes=4 * 5 * 7)


class Affine:
    """The kernel of affine without a bias, in numpy; `spoil` may do what it wants to its scratch memory."""

    def __init__(self, workload: Workload, spoil: Callable[[int], None] = lambda at: None) -> None:
        self.workload, self.spoil = workload, spoil
        self.scratch: list[int] = []
        self.found: list[bytes] = []
        self.arguments: list[Any] = []

    def bound(self, launch: Launch, arguments: list[Any], stream: Any) -> Callable[[], None]:
        return lambda: self.launch(launch, arguments, stream)

    def launch(self, launch: Launch, arguments: list[Any], stream: Any) -> None:
        self.arguments = arguments
        x, out, work = (arguments[i].address for i in (0, 3, 10))
        self.scratch.append(work)
        if launch.scratch_bytes:
            self.found.append(bytes(view(work, 4 * 5 * 7)))
            ctypes.memmove(work, x, 4 * 5 * 7)
            self.spoil(work)
        values = view(work if launch.scratch_bytes else x, 4 * 5 * 7).view(np.float32)
        view(out, 4 * 5 * 7).view(np.float32)[...] = arguments[8] * values


def affine_stage(driver: Driver, guard: int = GUARD_BYTES) -> tuple[Any, Workload]:
    workload, device = make_workload(AFFINE, AFFINE.problem({"m": 5, "n": 7})), Device(guard)
    return CudaStage(device, driver, workload, None), workload  # type: ignore[arg-type]


@pytest.mark.parametrize("guard", [GUARD_BYTES, 0])
def test_a_launch_has_the_scratch_memory_it_asks_for_poisoned_as_outputs_are(guard: int) -> None:
    driver = Driver()
    made, workload = affine_stage(driver, guard)
    with made as stage:
        program = Affine(workload)
        assert stage.check(program, WORKING).ok
        assert program.found == [bytes([poison]) * 140 for poison in (0xFF, 0xA5)]
        assert len(set(program.scratch)) == 1
        assert [type(value) for value in program.arguments[8:10]] == [np.float32, np.float32]
        assert program.arguments[1:3] == [None, None], "what is not there is null"
        held = len(driver.held)
        assert stage.check(program, replace(WORKING, scratch_bytes=1 << 20)).ok
        assert len(driver.held) == held, "a larger one is in place of the smaller"
        assert stage.times_ms(program, WORKING, 4) == (1.0,) * 4
        assert stage.check_timed().ok
        assert stage.check(program, LAUNCH).ok
        assert program.scratch[-1] == 0
    assert not driver.held


@pytest.mark.parametrize(("offset", "says"), [(140, "1 bytes after the end"), (-1, "1 bytes before the start")])
def test_what_is_written_beside_the_scratch_memory_is_found(offset: int, says: str) -> None:
    made, workload = affine_stage(Driver())

    def spoil(at: int) -> None:
        ctypes.memset(at + offset, 0, 1)

    with made as stage:
        program = Affine(workload, spoil)
        assert f"wrote {says} of its scratch memory" in stage.check(program, WORKING).detail


def test_sets_of_the_data_make_room_for_scratch_memory_and_a_launch_that_has_none_is_refused() -> None:
    driver = Driver()
    made, workload = affine_stage(driver)
    with made as stage:
        assert stage.input_sets == INPUT_SETS
        held, free = len(driver.held), driver.free_bytes

        def free_bytes() -> tuple[int, int]:
            """A set that goes, two allocations, makes room for 1 MiB."""
            left = ((held - len(driver.held)) // 2 << 20) + 4096
            return left, left

        driver.mem_get_info = free_bytes  # type: ignore[method-assign]
        assert stage.check(Affine(workload), replace(WORKING, scratch_bytes=1_500_000)).ok
        assert stage.input_sets == 1
        assert stage.times_ms(Affine(workload), replace(WORKING, scratch_bytes=1_500_000), 4) == (1.0,) * 4
        with pytest.raises(LaunchError, match=r"works in 95 MiB of scratch memory .* 1 MiB free"):
            stage.check(Affine(workload), replace(WORKING, scratch_bytes=100_000_000))
        assert stage.check(Affine(workload), LAUNCH).ok
        assert free == driver.free_bytes
    assert not driver.held


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float8_e5m2"])
def test_each_array_lies_as_many_elements_of_its_own_off(dtype: str) -> None:
    dots = load_kernel("dots", KERNELS)
    made = make_workload(dots, dots.problem({"m": 3, "n": 5, "k": 4, "wide": True, "added": True, "offset": 3}, dtype))
    stage = CudaStage(Device(0), Driver(), made, None)  # type: ignore[arg-type]
    with stage:
        for held in stage._sets:
            lies = {name: (address - min(stage._driver.held, key=lambda at: (at > address, address - at)))
                    for name, address in held.items()}  # fmt: skip
            own = made.inputs["x"].dtype.itemsize
            assert lies == {"x": 3 * own, "y": 3 * own, "addend": 12, "out": 12}


@pytest.mark.parametrize(("dtype", "kind"), [(ml_dtypes.float8_e4m3fn, 5), (ml_dtypes.float8_e5m2, 6)])
def test_the_comparer_knows_every_float_of_8_bits(build_home: Path, dtype: Any, kind: int) -> None:
    """On the emulator: compare.cu reads them without the host's help."""
    assert FLOAT_TYPES[np.dtype(dtype).name] == kind
    device, every = EmulatorDevice(), np.arange(256, dtype=np.uint8)
    text = (DATA_DIR / "compare.cu").read_text(encoding="utf-8")
    with Builder(device.target, build_home, jobs=1) as builder:
        program = device.load(builder.build(Source("compare", "compare", text)))
    for change, expected in ((0.0, [0, 2**64 - 1]), (1.0, [1, 17])):
        reference = every.view(dtype).astype(np.float64)
        reference[17] += change
        found = np.array([0, 2**64 - 1, 0], np.uint64)
        bound, count = np.float64(1e-9), np.int64(256)
        arguments = [every, reference, None, bound, count, np.int32(kind), found]
        assert not program.launch((1, 1, 1), (256, 1, 1), 0, arguments, "check").diagnostics
        assert found[:2].tolist() == expected
