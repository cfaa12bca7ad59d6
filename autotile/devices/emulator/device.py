"""The emulator as a device: runs on the CPU, checks everything, and estimates a named GPU's time."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from autotile.devices.base import Array, Check, Workload, compare
from autotile.devices.emulator.estimate import estimate
from autotile.devices.emulator.program import EmulatedProgram, Mode, Order, device_buffer
from autotile.devices.emulator.report import Report
from autotile.devices.emulator.work import Work, work_of
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.errors import LaunchError, TimedOut
from autotile.types import SCRATCH, Binary, Launch, LaunchStep, Source, Target

DEFAULT_GPU = "h200"
CLUSTER_CAPABILITY = 90
LAUNCH_LIMIT_S = 20.0
"""A kernel that runs longer than this on a small problem hangs."""


class EmulatorDevice:
    """Implements Device. `gpu` names the GPU whose limits apply and whose time is estimated."""

    def __init__(self, gpu: str = DEFAULT_GPU) -> None:
        modelled = find_gpu(gpu)
        self.info: DeviceInfo = replace(
            modelled, name=f"emulated {modelled.name}", kind="emulator", driver="none", estimated=True
        )
        self.reopen: Callable[[], EmulatorDevice] | None = partial(EmulatorDevice, gpu)
        self.target = Target("host", platform.machine())
        self.comparer: Source | None = None
        self.poisoned: str | None = None
        self.launch_limit_s = 3 * LAUNCH_LIMIT_S
        """A step of a check is two launches, each of which ends by itself at its limit, with words of its own."""

    def like(self, info: DeviceInfo) -> EmulatorDevice:
        """The same with the limits of another GPU, such as one that is there; it cannot be opened elsewhere."""
        other = copy(self)
        other.info = replace(info, name=f"emulated {info.name}", kind="emulator", driver="none", estimated=True)
        other.reopen = None
        return other

    def clocks(self) -> None:
        """It has none."""
        return

    def load(self, binary: Binary) -> EmulatedProgram:
        """Raises LaunchError for a binary that was not built for this CPU."""
        if binary.target != self.target:
            raise LaunchError(f"a binary for {binary.target.kind} {binary.target.arch} does not run on the emulator")
        return EmulatedProgram(binary.path)

    def stage(self, workload: Workload, comparer: Binary | None = None) -> EmulatedStage:
        return EmulatedStage(self, workload)

    def call(self, program: EmulatedProgram, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        """Runs with numpy arrays in place; ints are passed as 32-bit ints, numpy floats as they are, None as a null
        pointer, and SCRATCH as memory of the emulator's own. Raises LaunchError for a fault."""
        values = [np.int32(value) if isinstance(value, (int, np.integer)) else value for value in arguments]
        report = run(program, launch, values, self.info, "check")
        if report.diagnostics:
            raise LaunchError(report.diagnostics[0].message)


class EmulatedStage:
    """A workload in host memory, each array alone between guards, so that its bounds are exact."""

    def __init__(self, device: EmulatorDevice, workload: Workload) -> None:
        self._device, self._workload = device, workload
        offset, shared = workload.offset_bytes, workload.takes_place
        self._inputs = {name: device_buffer(array, offset(name)) for name, array in workload.inputs.items()}
        self._outputs = {
            name: self._inputs[shared[name]] if name in shared else device_buffer(np.empty(shape, dtype), offset(name))
            for name, (shape, dtype) in workload.outputs.items()
        }
        for name in self._inputs.keys() - set(shared.values()):
            read_only(self._inputs[name])

    def __enter__(self) -> EmulatedStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inputs, self._outputs = {}, {}

    def check(self, program: Any, launch: Launch, fillings: int = 2) -> Check:
        """In both orders of the threads, each on a poison of its own: a race or an unwritten element shows."""
        check = self._judge(self._run(program, launch, "check", poison=0xFF))
        return self._judge(self._run(program, launch, "check", poison=0xA5, order="backward")) if check.ok else check

    def check_timed(self) -> Check:
        """Nothing was launched to be timed that was not checked."""
        return Check(0.0, 0)

    def times_ms(self, program: Any, launch: Launch, runs: int) -> tuple[float, ...]:
        """The same estimate `runs` times over, for this very workload."""
        works: list[Work] = []
        self._run(program, launch, "trace", poison=0xFF, works=works)
        moved = sum(a.nbytes for a in (*self._inputs.values(), *self._outputs.values()))
        info = self._device.info
        estimated = estimate(
            works, info, flops=0, least_bytes=moved, dtype="float32", scratch_bytes=launch.scratch_bytes
        )  # fmt: skip
        return (estimated.time_ms,) * runs

    def _run(
        self,
        program: Any,
        launch: Launch,
        mode: Mode,
        poison: int,
        order: Order = "forward",
        works: list[Work] | None = None,
    ) -> Report:
        for name, array in self._outputs.items():
            if name in self._workload.before:
                array[...] = self._workload.before[name]
            else:
                array.view(np.uint8).fill(poison)
        arrays = {**self._inputs, **self._outputs}
        arguments = [
            arrays[a] if isinstance(a, str) else np.int32(a) if isinstance(a, int) else a
            for a in self._workload.arguments
        ]
        return run(program, launch, arguments, self._device.info, mode, order, poison, works)

    def _judge(self, report: Report) -> Check:
        for found in report.diagnostics[:1]:
            if found.kind == "timeout":  # says nothing of the kernel: this CPU may be slow, or busy
                raise TimedOut(found.message)
            return Check(float("inf"), 0, found.message)
        worst, given = Check(0.0, 0), self._workload
        for name, output in self._outputs.items():
            check = compare(output, given.reference[name], given.bound[name], given.layouts.get(name), name)
            if not check.ok:
                return check
            worst = max(worst, check, key=lambda c: c.max_error)
        return worst


def read_only(array: Array) -> Array:
    """The same array, to which a kernel's store is a fault."""
    array.flags.writeable = False
    return array


def run(
    program: EmulatedProgram,
    launch: Launch,
    arguments: Sequence[Any],
    device: DeviceInfo,
    mode: Mode,
    order: Order = "forward",
    poison: int = 0xFF,
    works: list[Work] | None = None,
) -> Report:
    """One launch with its steps, within the limits of the modelled GPU; scratch memory is new, and holds `poison`.

    The report is of all that ran: nothing runs after a fault. `works` gets what each function asked for, the main one's
    first. Raises LaunchError for what the GPU would refuse.
    """
    main = LaunchStep("", launch.grid, launch.block)
    steps = [(step, launch.shared_bytes if step is main else 0) for step in (*launch.before, main, *launch.after)]
    for step, shared_bytes in steps:
        _check_limits(program, step.entry_suffix, shared_bytes, device)
    scratch = _scratch(launch.scratch_bytes, poison)
    given = [scratch if argument is SCRATCH else argument for argument in arguments]
    report = Report((), (), 0.0)
    for step, shared_bytes in steps:
        one = program.launch(
            step.grid, step.block, shared_bytes, given, mode=mode, order=order, entry_suffix=step.entry_suffix,
            limit_s=max(LAUNCH_LIMIT_S - report.run_s, 1e-3),
        )  # fmt: skip
        report = Report(one.diagnostics, report.accesses + one.accesses, report.run_s + one.run_s)
        if works is not None:
            work = step_work(program, step, shared_bytes, one, math.prod(step.grid))
            works.insert(0 if step is main else len(works), work)
        if report.diagnostics:
            break
    return report


def step_work(
    program: EmulatedProgram, step: LaunchStep, shared_bytes: int, report: Report, traced_blocks: int
) -> Work:
    """What a function asks for in all its blocks, by the report of some; `shared_bytes` are dynamic."""
    return work_of(
        report, blocks=math.prod(step.grid), traced_blocks=traced_blocks, threads=step.threads,
        shared_bytes=shared_bytes + program.static_shared_bytes_of(step.entry_suffix),
        cluster_blocks=program.cluster(step.entry_suffix)[0],
    )  # fmt: skip


def _scratch(size: int, poison: int) -> Array | None:
    """Scratch memory, alone between guards, in words where it has whole ones: its races are looked for in such."""
    if not size:
        return None
    return device_buffer(np.full(size, poison, np.uint8)).view(np.uint8 if size % 4 else np.uint32)


def _check_limits(program: EmulatedProgram, entry_suffix: str, shared_bytes: int, device: DeviceInfo) -> None:
    static = program.static_shared_bytes_of(entry_suffix)
    if shared_bytes + static > device.shared_bytes_optin:
        raise LaunchError(
            f"needs {shared_bytes + static} bytes of shared memory ({shared_bytes} dynamic, {static} static), "
            f"{device.name} allows {device.shared_bytes_optin}"
        )
    if program.cluster(entry_suffix) != (1, 1, 1) and device.compute_capability < CLUSTER_CAPABILITY:
        raise LaunchError(f"it uses thread block clusters, which {device.name} ({device.arch}) does not have")
