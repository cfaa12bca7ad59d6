"""An explanation as a person reads it on a terminal: what is found first, then what it stands on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from autotile.insight.explanation import Explanation, Pattern
from autotile.insight.words import plural, size

WIDTH = 120
MOST_ACCESSES, LEAST_PERCENT = 12, 0.5
WORDS = (
    "A warp is 32 threads, its lanes, that execute each instruction together; what they ask of memory in one is a "
    "request. docs/memory.md of autotile explains these words, each with an example."
)


def text_of(explanation: Explanation) -> str:
    """Plain text, without a newline at its end. An estimate is marked ≈ and called one."""
    return "\n".join(_lines(explanation))


def _lines(e: Explanation) -> Iterator[str]:
    time = "WRONG" if e.wrong else time_text(e.roofline.time_ms, e.roofline.estimated)
    yield f"{e.kernel} {e.problem} on {e.device}: {time}"
    yield from _wrapped(" ".join(f"{name}={_value(value)}" for name, value in e.configuration), "  ")
    traced = "all" if e.traced_blocks == e.blocks else f"{e.traced_blocks} of {e.blocks}"
    blocks = f"{plural(e.blocks, 'block')} of {plural(e.threads, 'thread')}"
    yield f"  {blocks}; {traced} traced on the emulator, with the real sizes"
    yield ""
    yield "what is wrong" if e.wrong else "findings, by their weight"
    for number, finding in enumerate(e.findings, 1):
        yield from _wrapped(str(finding), f"  {number}. ", "     ")
    if e.changes:
        yield ""
        yield "what another value would do"
        for change in e.changes:
            yield from _wrapped(f"{change.name}={change.value}: {change.words}", "  ", "    ")
    yield ""
    yield from _accesses(e.patterns)
    yield ""
    yield from _figures(e)
    if e.barriers:
        yield "barriers"
        for barrier in e.barriers:
            where = "unknown line" if barrier.line is None else f"line {barrier.line}"
            words = f"{where}, {barrier.passes:.4g} times a block: {'; '.join(barrier.protects)}"
            yield from _wrapped(words, "  ", "    ")
    if e.profile:
        yield f"{'counted':<30} {'emulator':>12} {'Nsight Compute':>16}"
        for name, ours, theirs in e.profile:
            yield f"  {name.replace('_', ' '):<28} {_number(ours):>12} {_number(theirs):>16}"
    yield "notes"
    yield from _wrapped(WORDS, "  ", "    ")
    if e.notes:
        for note in e.notes:
            yield from _wrapped(note, "  ", "    ")


def _accesses(patterns: Iterable[Pattern]) -> Iterator[str]:
    """A table for each space, the costliest first."""
    found = list(patterns)
    for space, unit in (("global", "sectors"), ("shared", "wavefronts")):
        rows = [p for p in found if p.space == space]
        if not rows:
            continue
        yield f"{space} memory: {unit} a request of a warp, beside the fewest possible"
        yield f"  {'line':>8} {'access':<22} {'bytes':>5} {unit:>10} {'fewest':>7} {'share':>6}  pattern"
        told = [p for p in rows if p.percent_of_cost >= LEAST_PERCENT or p is rows[0]][:MOST_ACCESSES]
        for p in told:
            what = f"{p.op}{f' of {p.array}' if p.space == 'global' and p.array else ''}{p.entry and f' in {p.entry}'}"
            few = p.per_request <= 1.05 * p.ideal_per_request
            fine = "" if p.fix or p.shape == "unknown" else ", fine" if few else ", as usual"
            yield (
                f"  {_place(p):>8} {what:<22} {p.access_bytes:>5}{'*' if p.from_machine_code else ' '}"
                f"{p.per_request:>9.3g} {p.ideal_per_request:>7.3g} {p.percent_of_cost:>4.0f} %  {p.shape}"
                f"{fine}"
            )
        if len(rows) > len(told):
            yield f"  and {len(rows) - len(told)} more, each with less"
    if found:
        yield "  lines are those of `autotile render` for the same configuration"
    if any(p.called_from and p.percent_of_cost >= LEAST_PERCENT for p in found):
        yield "  a<b: line a, in a function that line b calls"
    if any(p.from_machine_code for p in found):
        yield "  * as wide as the GPU's machine code, which joins accesses of the source"


def _place(pattern: Pattern) -> str:
    """`79`, or `79<241` for what was called from line 241."""
    line = "?" if pattern.line is None else str(pattern.line)
    return f"{line}<{pattern.called_from[-1]}" if pattern.called_from else line


def _figures(e: Explanation) -> Iterator[str]:
    """Occupancy, roofline, traffic, units, shared memory and machine code: a few lines each."""
    o, r, t = e.occupancy, e.roofline, e.traffic
    registers = "registers not known" if o.registers is None else f"{o.registers} registers a thread"
    limits = ", ".join(f"{name} {most}" for name, most in o.limits)
    yield from _figure(
        "occupancy",
        f"{plural(o.blocks, 'block')} a multiprocessor, {o.warps} of {o.most_warps} warps ({o.percent:.0f} %), "
        f"limited by {' and '.join(o.limited_by)} (blocks by each: {limits}); {registers}; "
        f"{o.waves:.3g} waves of blocks",
    )
    work = f"{r.flops_a_byte:.3g} FLOP a byte" if r.flops else "no arithmetic"
    yield from _figure(
        "roofline",
        f"{work}: bound by {r.bound}; {r.bandwidth_gbs:.0f} GB/s and {r.peak_tflops:.3g} TFLOP/s allow "
        f"{r.attainable_ms:.3g} ms; {time_text(r.time_ms, r.estimated)} reaches {r.percent:.0f} % of that"
        if r.attainable_ms
        else "the kernel's definition tells of no bytes and no arithmetic",
    )
    units = ", ".join(f"{name} ≈{ms:.2g}" for name, ms in e.units_ms)
    yield from _figure("units", f"what each unit alone would take, ms (estimate): {units}")
    asked = f"threads ask for {size(t.asked_bytes)}, in sectors of {size(t.moved_bytes)}"
    if r.least_bytes:
        asked += f": {_times(t.times_least)} the {size(r.least_bytes)} that the work needs"
    if t.moved_bytes_a_flop is not None:
        asked += f", {t.moved_bytes_a_flop:.3g} bytes a FLOP"
    if t.baseline and t.baseline_moved_bytes is not None and t.moved_bytes:
        beside = t.baseline_moved_bytes / t.moved_bytes
        if abs(beside - 1) > 0.05:
            asked += f"; {t.baseline} moves {size(t.baseline_moved_bytes)}, {_times(beside)} as much"
    yield from _figure("traffic", asked)
    yield from _figure("shared", e.shared.words)
    if e.instructions:
        kinds = ", ".join(f"{count:.0f} {name}" for name, count in e.instructions)
        where = "" if e.loop_line is None else f" (of line {e.loop_line})"
        yield from _figure("machine", f"a pass of the hottest loop{where} has {kinds}")


def _figure(name: str, words: str) -> Iterator[str]:
    return _wrapped(words, f"{name:<11}", " " * 11)


def time_text(time_ms: float, estimated: bool) -> str:
    return f"≈{time_ms:.3g} ms (estimate)" if estimated else f"{time_ms:.4g} ms"


def _wrapped(words: str, first: str, rest: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(
        words, WIDTH, initial_indent=first, subsequent_indent=first if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio < 100 else f"{ratio:.0f} times"


def _value(value: bool | int | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
