"""Why a variant is as fast as it is: traces it on the emulator, reads its machine code, and says what that means."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.emulator.estimate import Estimate
from autotile.devices.emulator.source import code_lines
from autotile.devices.info import DeviceInfo
from autotile.devices.occupancy import residency
from autotile.errors import CompileError, LaunchError, UnsupportedByEmulator
from autotile.insight.accesses import patterns_of
from autotile.insight.barriers import barriers_of
from autotile.insight.changes import changes_of
from autotile.insight.explanation import Change, Explanation, Occupancy, Pattern
from autotile.insight.facts import Facts
from autotile.insight.findings import findings_of
from autotile.insight.machine import Machine, read_machine
from autotile.insight.roofline import roofline, traffic
from autotile.insight.sharing import shared_use
from autotile.measure.traced import Trace, trace_variant
from autotile.measure.variant import Variant, make_variant
from autotile.space import violations

CHANGES_S = 6.0
TRACE_S, BASELINE_S = 1.0, 0.2

CACHES = "Sectors and wavefronts are counted before any cache: what a cache still holds costs less than it seems here."


@dataclass(frozen=True)
class Evidence:
    """What was found out about a variant, before it is put into words."""

    trace: Trace
    estimated: Estimate
    machine: Machine
    static_shared_bytes: int
    baseline: tuple[Pattern, ...] | None
    changes: tuple[Change, ...]


def explain_variant(
    variant: Variant,
    device: DeviceInfo,
    *,
    changes: bool = True,
    budget_s: float = CHANGES_S,
    measured_ms: float | None = None,
    notes: tuple[str, ...] = (),
) -> Explanation:
    """On the GPU whose limits and data sheet `device` holds; whether it is there does not matter.

    `changes` says whether neighbours are tried too, for `budget_s` seconds at most. `measured_ms` is a time on record
    for this very GPU, which then stands in place of the estimate; `notes` come with the explanation's own.
    Raises ToolchainMissing without a C++ compiler, and CompileError, UnsupportedByEmulator or LaunchError for a variant
    that the emulator cannot run.
    """
    device = replace(device, name=device.name.removeprefix("emulated "))
    emulator = EmulatorDevice().like(device)
    suffixes = tuple(dict.fromkeys(step.entry_suffix for step in variant.launch.steps))
    with Builder(emulator.target) as builder, ThreadPoolExecutor(1) as beside:
        reading = beside.submit(read_machine, variant.source, device, suffixes)
        base = baseline_of(variant, device)
        for made in (variant, base):
            if made is not None:
                builder.submit(made.source)
        binary, machine = builder.submit(variant.source).result(), reading.result()
        trace = trace_variant(emulator, variant, binary, budget_s=TRACE_S, widths=machine.widths, edges=True)
        static_bytes = binary.static_shared_bytes or 0
        estimated = trace.estimate(variant, device, machine.registers)
        baseline = _baseline_patterns(base, emulator, builder)
        found: tuple[Change, ...] = ()
        if changes and not trace.diagnostics:
            plain = trace if machine.widths is None else trace_variant(emulator, variant, binary, budget_s=BASELINE_S)
            found = changes_of(variant, emulator, builder, plain, measured_ms or estimated.time_ms, budget_s)
    evidence = Evidence(trace, estimated, machine, static_bytes, baseline, found)
    return _put_together(variant, device, evidence, measured_ms, notes)


def baseline_of(variant: Variant, device: DeviceInfo) -> Variant | None:
    """The kernel's `baseline` preset for the problem; None where it has none, is it, or cannot take it."""
    kernel, problem = variant.kernel, variant.problem
    if not kernel.baseline:
        return None
    configuration = kernel.configuration(kernel.presets[kernel.baseline])
    if configuration == variant.configuration or violations(kernel, problem, device, configuration):
        return None
    return make_variant(kernel, problem, configuration)


def _baseline_patterns(base: Variant | None, device: EmulatorDevice, builder: Builder) -> tuple[Pattern, ...] | None:
    """None where there is nothing to compare with."""
    if base is None:
        return None
    try:
        binary = builder.submit(base.source).result()
        trace = trace_variant(device, base, binary, budget_s=BASELINE_S)
        return None if trace.diagnostics else patterns_of(trace, base)
    except (CompileError, LaunchError, UnsupportedByEmulator):
        return None


def _put_together(
    variant: Variant, device: DeviceInfo, evidence: Evidence, measured_ms: float | None, notes: tuple[str, ...]
) -> Explanation:
    kernel, problem, launch, trace, machine = (
        variant.kernel, variant.problem, variant.launch, evidence.trace, evidence.machine,
    )  # fmt: skip
    flops, least_bytes = kernel.flops_of(problem), kernel.bytes_of(problem)
    shared_bytes = launch.shared_bytes + evidence.static_shared_bytes
    code = code_lines(variant.source.text)
    time_ms = evidence.estimated.time_ms if measured_ms is None else measured_ms
    facts = Facts(
        device=device,
        launch=launch,
        patterns=patterns_of(trace, variant),
        units_ms=dict(evidence.estimated.units_ms),
        alone=evidence.estimated.alone,
        occupancy=occupancy_of(device, launch.threads, launch.blocks, shared_bytes, machine.registers),
        roofline=roofline(
            device, problem.dtype, flops, least_bytes, time_ms, measured_ms is None, variant.kernel.tensor_cores
        ),
        shared_bytes=shared_bytes,
        spill_bytes=machine.spill_bytes,
        waited_loads=trace.main.work.loads,
        local_arrays=tuple((line, code.get(line, "")) for line in machine.array_lines),
    )
    beside = ("", ()) if evidence.baseline is None else (kernel.baseline, evidence.baseline)
    return Explanation(
        kernel=kernel.name,
        problem=problem.label,
        configuration=tuple(variant.configuration.items()),
        device=device.name,
        blocks=launch.blocks,
        threads=launch.threads,
        traced_blocks=trace.main.traced_blocks,
        findings=findings_of(facts, trace.diagnostics, [argument.name for argument in kernel.arguments]),
        units_ms=evidence.estimated.units_ms,
        occupancy=facts.occupancy,
        roofline=facts.roofline,
        traffic=traffic(facts.patterns, flops, least_bytes, *beside),
        patterns=facts.patterns,
        barriers=tuple(barrier for entry in trace.entries for barrier in barriers_of(entry, code)),
        shared=shared_use(device, launch.threads, evidence.static_shared_bytes, launch.shared_bytes),
        instructions=machine.loop,
        changes=evidence.changes,
        profile=(),
        notes=(*notes, CACHES, *trace.notes, *machine.notes),
        wrong=bool(trace.diagnostics),
        loop_line=machine.loop_line,
    )


def occupancy_of(device: DeviceInfo, threads: int, blocks: int, shared_bytes: int, registers: int | None) -> Occupancy:
    """Of a launch of `blocks` blocks with `threads` threads and so much shared memory each."""
    resident = residency(device, threads, shared_bytes, registers)
    of_block = math.ceil(threads / device.warp_size)
    return Occupancy(
        blocks=resident.blocks,
        warps=resident.blocks * of_block,
        most_warps=device.max_threads_per_sm // device.warp_size,
        limits=resident.limits,
        limited_by=resident.limited_by,
        registers=registers,
        waves=blocks / max(1, resident.blocks * device.sm_count),
    )
