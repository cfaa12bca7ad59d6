"""What makes a variant slow, each cause with its cure and what the estimate would lose without it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autotile.devices.emulator.estimate import HIDING_WARPS, LAUNCH_MS
from autotile.devices.memory import SECTOR_BYTES
from autotile.insight.explanation import Finding, Pattern
from autotile.insight.facts import Facts
from autotile.insight.patterns import WAVEFRONT
from autotile.insight.roofline import ARITHMETIC
from autotile.insight.words import plural, size

SHORT_TAIL = 0.05
"""Less of the GPU's time that is spent on the last blocks alone is usual."""

CLEAR_WASTE, CLEAR_SHARE = 0.5, 20.0
"""What wastes so much of so large a share (per cent) of its kind is told, however little time it may cost."""

FEW_WARPS = 0.5
"""Of those that a multiprocessor could hold: fewer are a finding where waiting is what takes longest."""

FEW_BYTES = 32
"""A thread that loads less has little under way."""

REPEATED = 4.0
"""So many times the least bytes, and more, is read again and again."""

MANY_LOADS = 32
"""A thread that waits for so many loads would wait less for fewer of them."""

_LESS = {
    "registers": "fewer registers a thread (a smaller register tile)",
    "shared memory": "less shared memory a block (smaller tiles, fewer stages)",
    "blocks": "more threads a block",
    "threads": "blocks whose threads divide the multiprocessor's",
}


def causes_of(facts: Facts) -> Iterator[Finding]:
    """In no order, and however little they cost."""
    yield from _from_patterns(facts)
    yield from _from_traffic(facts)
    yield from _from_launch(facts)
    yield from _from_registers(facts)


def _from_patterns(facts: Facts) -> Iterator[Finding]:
    for p in facts.patterns:
        if not p.fix:
            continue
        waste = 1.0 - p.ideal_per_request / max(p.per_request, 1e-9)
        factors = {"LSU": 1 - waste * p.passes / max(facts.passes, 1e-9)}
        if p.space == "global":
            factors["L2"] = 1 - waste * p.percent_of_cost / 100
        unit = "sectors" if p.space == "global" else "wavefronts"
        array = "shared memory" if p.space == "shared" else f"`{p.array}`" if p.array else "global memory"
        what = f"loads from {array}" if p.op == "load" else f"stores to {array}"
        yield Finding(
            f"{place(p)}: {what}: {p.words}. These are {p.percent_of_cost:.0f} % of all {unit}.",
            p.fix,
            p.line,
            facts.saved_ms(factors),
            wasteful=waste >= CLEAR_WASTE and p.percent_of_cost >= CLEAR_SHARE,
        )


def place(pattern: Pattern) -> str:
    """`Line 12, `a[i] = b[j];``"""
    step = f" of {pattern.entry.strip('_')}" if pattern.entry else ""
    calls = ", from line ".join(str(line) for line in pattern.called_from)
    step += f" (called from line {calls})" if calls else ""
    return line_text(pattern.line, pattern.code, step)


def line_text(line: int | None, code: str, step: str = "") -> str:
    where = "An unknown line" if line is None else f"Line {line}"
    return f"{where}{step}{f', `{code}`' if code else ''}"


def _from_traffic(facts: Facts) -> Iterator[Finding]:
    """Bytes that are asked for again and again, however well each request lies."""
    found = [p for p in facts.patterns if p.space == "global" and p.op == "load"]
    needed = sum(p.requests * min(p.lanes * p.access_bytes, p.ideal_per_request * SECTOR_BYTES) for p in found)
    times = needed / facts.roofline.least_bytes if facts.roofline.least_bytes else 0.0
    if times >= REPEATED:
        share = sum(p.passes for p in found) / max(facts.passes, 1e-9)
        loads = sum(p.requests * p.lanes for p in found)
        waiting = {"latency": 1 / times} if facts.waited_loads >= MANY_LOADS else {}
        again = (
            f" A thread loads {2 * loads / facts.roofline.flops:.2g} elements for each multiply-add."
            if facts.roofline.flops
            else ""
        )
        cure = (
            "larger tiles load each element fewer times"
            if facts.shared_bytes
            else "let a block load a tile into shared memory once, and its threads read it there"
        )
        yield Finding(
            f"The same elements are loaded again and again: {size(needed)} in all, {times:.0f} times the "
            f"{size(facts.roofline.least_bytes)} that the work needs.{again}",
            cure,
            weight_ms=facts.saved_ms({"L2": 1 / times, "LSU": 1 - share * (1 - 1 / times)} | waiting),
        )
    multiply_adds = facts.roofline.flops / 2 / facts.device.warp_size
    wavefronts = sum(
        p.requests * (p.ideal_per_request if p.fix else p.per_request) for p in facts.patterns if p.space == "shared"
    )
    a_clock = (
        facts.roofline.peak_tflops * 1e3 / (2 * facts.device.warp_size * facts.device.clock_ghz * facts.device.sm_count)
    )
    if facts.roofline.bound == ARITHMETIC and wavefronts / multiply_adds * a_clock > 1:
        each = wavefronts / multiply_adds
        yield Finding(
            f"Shared memory takes {each:.2g} wavefronts{WAVEFRONT} for each multiply-add of a warp. A multiprocessor "
            f"does one wavefront a clock, where it could do {a_clock:.0f} multiply-adds.",
            "let each thread compute several elements (4×4, 8×8) in registers, so that a value, once loaded, serves "
            "several of them",
            weight_ms=facts.saved_ms({"LSU": 1 - wavefronts / max(facts.passes, 1e-9) * (1 - 1 / (each * a_clock))}),
        )


def _from_launch(facts: Facts) -> Iterator[Finding]:
    time_ms, blocks, multiprocessors = facts.roofline.time_ms, facts.launch.blocks, facts.device.sm_count
    share = blocks / multiprocessors
    idle = 1 - share / math.ceil(share)
    if share < 1:
        yield Finding(
            f"The launch has {plural(blocks, 'block')} for {multiprocessors} multiprocessors: "
            f"{100 * idle:.0f} % of the GPU has nothing to do.",
            "smaller tiles, or several blocks that share one tile's work",
            weight_ms=time_ms * idle,
        )
    elif idle > SHORT_TAIL:
        yield Finding(
            f"{blocks} blocks do not divide among {multiprocessors} multiprocessors: in the end {100 * idle:.0f} % of "
            "the GPU's time is spent waiting for the last ones.",
            "smaller tiles, or other numbers of them",
            weight_ms=time_ms * idle,
        )
    yield from _from_waiting(facts)
    launches = 1 + len(facts.launch.steps)
    if launches * LAUNCH_MS > time_ms / 4:
        steps = "the launch takes" if launches == 1 else f"{launches} launches, one after the other, take"
        yield Finding(
            f"The problem is small: {steps} ≈{1e3 * launches * LAUNCH_MS:.0f} µs (estimate).",
            "do several such problems in one launch (a batch)"
            f"{', or do without the steps around it' if launches > 1 else ''}",
            weight_ms=launches * LAUNCH_MS,
        )
    yield from _from_occupancy(facts, share)


def _from_occupancy(facts: Facts, share: float) -> Iterator[Finding]:
    """`share` is a multiprocessor's of the blocks."""
    o = facts.occupancy
    warps = min(o.warps, math.ceil(share) * (o.warps // max(1, o.blocks)))
    full = share > o.blocks
    few_ms = facts.roofline.time_ms * (1 - warps / HIDING_WARPS) if 0 < warps < HIDING_WARPS else 0.0
    if full and facts.busiest == "latency" and 0 < warps <= FEW_WARPS * o.most_warps:
        few_ms = max(few_ms, facts.saved_ms({"latency": warps / o.most_warps}))
    if few_ms:
        cure = " or ".join(_LESS[name] for name in o.limited_by if name in _LESS) if full else ""
        yield Finding(
            f"A multiprocessor holds only {warps} of {o.most_warps} warps: while some wait for memory there are too "
            "few others to go on.",
            cure or "more blocks, or more threads in each",
            weight_ms=few_ms,
        )
    if facts.few_lanes:
        whole = facts.launch.threads % facts.device.warp_size == 0
        factor = facts.lanes / facts.device.warp_size
        yield Finding(
            f"Requests have {facts.lanes:.3g} of a warp's {facts.device.warp_size} lanes taking part, in the mean; the "
            "others idle.",
            "give all lanes of a warp some of the work, so that none has to be left out by an `if`"
            if whole
            else f"blocks of whole warps, whose threads are a multiple of {facts.device.warp_size}",
            weight_ms=facts.saved_ms({"L2": factor, "LSU": factor, "issue": factor, "latency": factor}),
        )


def _from_registers(facts: Facts) -> Iterator[Finding]:
    """What should be in registers and is not; the emulator, and so the estimate, sees nothing of it."""
    if facts.spill_bytes:
        yield Finding(
            "The compiler ran out of registers and keeps some of each thread's values in memory (they spill): its code "
            f"has stores and loads of {facts.spill_bytes} bytes for that.",
            "fewer elements a thread, or a bound on registers that is less tight",
        )
    if facts.local_arrays:
        (line, code), *others = facts.local_arrays
        more = (
            f" (so with line{'s' * (len(others) > 1)} {', '.join(str(other) for other, _ in others)})" if others else ""
        )
        yield Finding(
            f"{line_text(line, code)}{more}: an array of each thread's own lies in local memory, which is as far away "
            "as global memory: registers have no addresses, so an array is kept in them only if the compiler knows "
            "every index.",
            "let all indices be constants: loops of known length that are unrolled, no index from memory or a thread's "
            "number",
            line,
        )


def _from_waiting(facts: Facts) -> Iterator[Finding]:
    """Few bytes under way, where waiting for them is what takes longest."""
    threads = facts.launch.blocks * facts.launch.threads
    bytes_a_thread = sum(
        p.requests * p.lanes * p.access_bytes for p in facts.patterns if p.space == "global" and p.op == "load"
    ) / max(1, threads)
    several = facts.launch.blocks >= facts.device.sm_count
    if facts.busiest == "latency" and several and not facts.few_lanes and 0 < bytes_a_thread < FEW_BYTES:
        yield Finding(
            f"A thread loads {bytes_a_thread:.2g} bytes in its whole life and waits for them: too few are on their way "
            "at once to keep memory busy.",
            "fewer threads that load several elements each, one after the other, before they use the first; or loads "
            "of 16 bytes",
            weight_ms=facts.saved_ms({"latency": bytes_a_thread / FEW_BYTES}),
        )
