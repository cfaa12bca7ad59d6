"""A trace's accesses as patterns: of the whole launch, with the line of the source and words for their shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotile.devices.emulator.report import Access, Space
from autotile.devices.emulator.source import code_lines
from autotile.dtypes import element_type
from autotile.insight.explanation import Pattern
from autotile.insight.patterns import describe
from autotile.kernels import Input, Output
from autotile.measure.traced import Trace, TracedEntry
from autotile.measure.variant import Variant

SHARED = "shared memory"
WORD_BYTES = 16


def patterns_of(trace: Trace, variant: Variant) -> tuple[Pattern, ...]:
    """Of all functions of the launch: the costliest of global memory first, then the costliest of shared memory."""
    code = code_lines(variant.source.text)
    found = [pattern for entry in trace.entries for pattern in _of_entry(entry, variant, code)]
    totals = {space: sum(_cost(p) for p in found if p.space == space) for space in ("global", "shared")}
    found = [replace(p, percent_of_cost=100.0 * _cost(p) / max(totals[p.space], 1e-9)) for p in found]
    return tuple(sorted(found, key=lambda p: (p.space, -p.percent_of_cost, p.line or 0)))


def _of_entry(entry: TracedEntry, variant: Variant, code: Mapping[int, str]) -> Iterator[Pattern]:
    widest = max((a.access_bytes for a in entry.accesses if a.space == "shared"), default=4)
    for access in entry.accesses:
        argument = _array_of(access, variant)
        kernel, problem = variant.kernel, variant.problem
        # Shared memory mostly holds what is multiplied, and scratch memory begins on an aligned address.
        element = kernel.element_of(argument, problem) if argument else element_type(problem.dtype)
        # An example's addresses have what they lie off a bound of 16 bytes (MemoryMap.relative): the rest is added.
        offset = problem.offset * element.itemsize // WORD_BYTES * WORD_BYTES if argument else 0
        # An array that is read in wide words keeps its rows on such: padding must not move them off.
        shape = describe(
            access,
            element.itemsize,
            offset_bytes=offset,
            row_unit_bytes=max(4, widest),
        )
        moved, scale = access.moved_bytes, entry.scale
        yield Pattern(
            entry=entry.entry,
            line=access.line,
            called_from=access.called_from,
            code=code.get(access.line or 0, ""),
            op=access.op,
            space=access.space,
            array=_array(access, variant),
            access_bytes=access.access_bytes,
            from_machine_code=access.from_machine_code,
            requests=access.requests * scale,
            lanes=access.lanes,
            per_request=access.per_request,
            ideal_per_request=access.ideal_per_request,
            worst=access.worst,
            passes=scale * (access.total if access.space == "shared" else access.line_count),
            used_percent=100.0 * min(1.0, access.used_bytes / moved) if moved else 0.0,
            percent_of_cost=0.0,
            shape=shape.name,
            words=shape.words,
            fix=shape.fix,
            addresses=tuple(address + offset for address in access.example),
        )


def _cost(pattern: Pattern) -> float:
    """Sectors, or wavefronts, of the launch."""
    return pattern.requests * pattern.per_request


def _array_of(access: Access, variant: Variant) -> Input | Output | None:
    """The problem's array that is accessed; None for scratch and shared memory."""
    argument = None if access.argument is None else variant.kernel.arguments[access.argument]
    return argument if isinstance(argument, (Input, Output)) else None


def _array(access: Access, variant: Variant) -> str:
    space: Space = access.space
    arguments = variant.kernel.arguments
    if space == "shared" or access.argument is None:
        return SHARED if space == "shared" else ""
    return arguments[access.argument].name
