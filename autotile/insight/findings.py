"""What costs, and what to change, in the order of its weight in the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from autotile.devices.emulator.estimate import HIDING_WARPS, LAUNCH_MS, joined_ms
from autotile.devices.emulator.report import Diagnostic
from autotile.devices.info import DeviceInfo
from autotile.devices.memory import SECTOR_BYTES
from autotile.insight.explanation import Finding, Occupancy, Pattern, Roofline
from autotile.insight.patterns import TERMS, WAVEFRONT
from autotile.insight.roofline import ARITHMETIC
from autotile.insight.sharing import size
from autotile.types import Launch

LEAST_WEIGHT, UNKNOWN_WEIGHT = 0.03, 0.05
"""Of the estimate: what weighs less is no finding, and where what it does not hold is told among the others."""

SHORT_TAIL = 0.05
"""Less of the GPU's time that is spent on the last blocks alone is usual."""

CLEAR_WASTE, CLEAR_SHARE = 0.5, 20.0
"""What wastes so much of so large a share (per cent) of its kind is told, however little time it may cost."""

FEW_BYTES = 32
"""A thread that loads less has little under way."""

REPEATED = 4.0
"""So many times the least bytes, and more, is read again and again."""

_UNITS = {
    "DRAM": "the GPU's memory (DRAM), the slower, the shorter the pieces that a block asks for",
    "L2": "the way to the L2 cache, by which all sectors come that the first cache does not hold",
    "LSU": "the load/store units, which take a pass for each wavefront and for each line of 128 bytes of a request",
    "arithmetic": "arithmetic, at the data sheet's peak without tensor cores",
    "issue": "issuing instructions, of which a scheduler starts one a clock",
    "latency": "waiting: for memory, at barriers, for blocks to start and to end",
}


@dataclass(frozen=True)
class Facts:
    """All that findings are made of."""

    device: DeviceInfo
    launch: Launch
    patterns: tuple[Pattern, ...]
    units_ms: Mapping[str, float]
    alone: float
    occupancy: Occupancy
    roofline: Roofline
    shared_bytes: int
    spill_bytes: int
    local_at: str = ""
    """Where the machine code keeps an array in local memory; empty where it does not, or only what was spilled."""
    local_line: int | None = None

    def saved_ms(self, factors: Mapping[str, float]) -> float:
        """What the estimate would lose if these units had so much less to do (a factor of 0 to 1 each): units overlap,
        so that only a busy one counts."""
        before = joined_ms(self.units_ms, self.alone)
        after = joined_ms({name: ms * factors.get(name, 1.0) for name, ms in self.units_ms.items()}, self.alone)
        return self.roofline.time_ms * (1 - after / before) if before else 0.0

    @property
    def passes(self) -> float:
        return sum(p.passes for p in self.patterns)

    @property
    def busiest(self) -> str:
        return max(self.units_ms, key=lambda name: self.units_ms[name])


def findings_of(facts: Facts, diagnostics: Iterable[Diagnostic] = ()) -> tuple[Finding, ...]:
    """Faults alone, if there are any; else accesses that waste most of what they move, then what else costs, by its
    weight; last what bounds the variant in any case."""
    faults = [Finding(f"It is wrong: {found.message}.", line=found.line) for found in telling(diagnostics)]
    if faults:
        return tuple(faults)  # what it costs does not matter

    def weight(finding: Finding) -> float:
        """Of the estimate."""
        return UNKNOWN_WEIGHT if finding.weight_ms is None else finding.weight_ms / facts.roofline.time_ms

    found = [*_from_patterns(facts), *_from_traffic(facts), *_from_launch(facts), *_from_registers(facts)]
    weighty = sorted(
        (f for f in found if f.wasteful or weight(f) >= LEAST_WEIGHT), key=lambda f: (not f.wasteful, -weight(f))
    )
    return tuple(_once([*weighty, _bound(facts, nothing_else=not weighty)]))


def telling(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One for each pair of lines, and of a race not also that it reads what nobody has written yet."""
    found: dict[frozenset[int | None], Diagnostic] = {}
    for each in diagnostics:  # in the order of their weight
        lines = frozenset((each.line, each.other_line)) if each.other_line is not None else frozenset((each.line,))
        raced = each.kind == "uninitialised_shared" and any(each.line in known for known in found)
        if not raced:
            found.setdefault(lines, each)
    return list(found.values())


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
    step += f" (called from line {pattern.called_from[-1]})" if pattern.called_from else ""
    return line_text(pattern.line, pattern.code, step)


def line_text(line: int | None, code: str, step: str = "") -> str:
    where = "An unknown line" if line is None else f"Line {line}"
    return f"{where}{step}{f', `{code}`' if code else ''}"


def _from_traffic(facts: Facts) -> Iterator[Finding]:
    """Bytes that are asked for again and again, however well each request lies."""
    found = [p for p in facts.patterns if p.space == "global"]
    needed = sum(p.requests * p.ideal_per_request * SECTOR_BYTES for p in found)
    times = needed / max(facts.roofline.least_bytes, 1)
    if times >= REPEATED:
        share = sum(p.passes for p in found) / max(facts.passes, 1e-9)
        loads = sum(p.requests * p.lanes for p in found if p.op == "load")
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
            weight_ms=facts.saved_ms({"L2": 1 / times, "LSU": 1 - share * (1 - 1 / times)}),
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
            f"The launch has {blocks} {'block' if blocks == 1 else 'blocks'} for {multiprocessors} multiprocessors: "
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
    o = facts.occupancy
    warps = min(o.warps, math.ceil(share) * (o.warps // max(1, o.blocks)))
    if 0 < warps < HIDING_WARPS:
        cure = " or ".join(_LESS[name] for name in o.limited_by if name in _LESS) if share > o.blocks else ""
        yield Finding(
            f"A multiprocessor holds only {warps} of {o.most_warps} warps: while some wait for memory there are too "
            "few others to go on.",
            cure or "more blocks, or more threads in each",
            weight_ms=time_ms * (1 - warps / HIDING_WARPS),
        )


def _from_registers(facts: Facts) -> Iterator[Finding]:
    """What should be in registers and is not; the emulator, and so the estimate, sees nothing of it."""
    if facts.spill_bytes:
        yield Finding(
            f"The compiler ran out of registers: {facts.spill_bytes} bytes of each thread's values go to memory and "
            "back (they spill).",
            "fewer elements a thread, or a bound on registers that is less tight",
        )
    if facts.local_at:
        yield Finding(
            f"{facts.local_at}: an array of each thread's own lies in local memory, which is as far away as global "
            "memory: registers have no addresses, so an array is kept in them only if the compiler knows every index.",
            "let all indices be constants: loops of known length that are unrolled, no index from memory or a thread's "
            "number",
            facts.local_line,
        )


def _from_waiting(facts: Facts) -> Iterator[Finding]:
    """Few bytes under way, where waiting for them is what takes longest."""
    threads = facts.launch.blocks * facts.launch.threads
    bytes_a_thread = sum(
        p.requests * p.lanes * p.access_bytes for p in facts.patterns if p.space == "global" and p.op == "load"
    ) / max(1, threads)
    several = facts.launch.blocks >= facts.device.sm_count
    if facts.busiest == "latency" and several and 0 < bytes_a_thread < FEW_BYTES:
        yield Finding(
            f"A thread loads {bytes_a_thread:.2g} bytes in its whole life and waits for them: too few are on their way "
            "at once to keep memory busy.",
            "fewer threads that load several elements each, one after the other, before they use the first; or loads "
            "of 16 bytes",
            weight_ms=facts.saved_ms({"latency": bytes_a_thread / FEW_BYTES}),
        )


_LESS = {
    "registers": "fewer registers a thread (a smaller register tile)",
    "shared memory": "less shared memory a block (smaller tiles, fewer stages)",
    "blocks": "more threads a block",
    "threads": "blocks whose threads divide the multiprocessor's",
}


def _bound(facts: Facts, nothing_else: bool) -> Finding:
    name, r = facts.busiest, facts.roofline
    unit = _UNITS.get(name, name)
    opening = "Nothing weighty is wrong. " if nothing_else else ""
    ceiling = "memory's bandwidth" if r.bound == "memory" else "peak arithmetic"
    about = "≈" if r.estimated else ""
    return Finding(
        f"{opening}What bounds it is {unit}: that alone would take ≈{facts.units_ms[name]:.3g} ms (estimate) of "
        f"{about}{r.time_ms:.3g} ms. The ceiling for this problem, {ceiling}, allows {r.attainable_ms:.3g} ms."
    )


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each term is explained where it comes first."""
    said: set[str] = set()

    def told(sentence: str) -> str:
        for term in TERMS:
            if term in sentence:
                first, _, rest = sentence.partition(term)
                sentence = first + ("" if term in said else term) + rest.replace(term, "")
                said.add(term)
        return sentence

    for finding in findings:
        yield replace(finding, words=told(finding.words), cure=told(finding.cure))
