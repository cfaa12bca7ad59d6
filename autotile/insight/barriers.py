"""What the barriers of a traced launch kept apart."""

from __future__ import annotations

from collections.abc import Mapping

from autotile.devices.emulator.report import Protection
from autotile.insight.explanation import Barrier
from autotile.measure.traced import TracedEntry

NOTHING = (
    "here no warp reads or overwrites what another has touched before it; other sizes, or other blocks of a cluster, "
    "may need it (without it, the emulator tells of a race where there is one)"
)


def barriers_of(entry: TracedEntry, code: Mapping[int, str]) -> tuple[Barrier, ...]:
    """In the order of the source, whose lines' code `code` is."""
    return tuple(
        Barrier(entry.entry, line or None, code.get(line, ""), passes / entry.traced_blocks, _protects(entry, line))
        for line, passes in sorted(entry.barriers)
    )


def _protects(entry: TracedEntry, line: int) -> tuple[str, ...]:
    found = sorted(
        (p for p in entry.protections if p.barrier_line == line), key=lambda p: (-p.count, p.op, str(p.first_line))
    )
    return tuple(dict.fromkeys(_sentence(p) for p in found)) or (NOTHING,)


def _sentence(p: Protection) -> str:
    first, second = _line(p.first_line), _line(p.line)
    if p.op == "read-after-write":
        return f"what {first} stores is there before {second} reads it"
    if p.op == "write-after-read":
        return f"all have read it in {first} before {second} overwrites it"
    return f"what {first} stores is there before {second} stores over it"


def _line(line: int | None) -> str:
    return "an unknown line" if line is None else f"line {line}"
