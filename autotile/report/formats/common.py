"""What the formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from autotile.errors import AutotileError
from autotile.kernels import Kernel
from autotile.report.rates import rate
from autotile.store import best_of, estimated
from autotile.types import Identity, Launch, LaunchStep, Problem, Record

Kernels: TypeAlias = Callable[[str], Kernel]
Place: TypeAlias = tuple[str, str, bool]
"""Device name, architecture, and whether times there are estimates: what is never mixed."""


class ExportWarning(UserWarning):
    """Something was left out of an export; the message says what and why."""


def by_device(records: Iterable[Record]) -> dict[Place, list[Record]]:
    """Records grouped by place, in the order of device and architecture, measured before estimated."""
    groups: dict[Place, list[Record]] = {}
    for record in records:
        place = (record.identity.device, record.identity.arch, estimated(record))
        groups.setdefault(place, []).append(record)
    return dict(sorted(groups.items()))


def winners(records: Iterable[Record]) -> list[Record]:
    """The best record of each problem, in order of kernel and problem; problems without one are left out."""
    groups: dict[Problem, list[Record]] = {}
    for record in records:
        groups.setdefault(record.problem, []).append(record)
    found = [best for group in groups.values() if (best := best_of(group)) is not None]
    return sorted(found, key=_order)


def _order(record: Record) -> tuple[object, ...]:
    problem = record.problem
    return problem.kernel, problem.sizes, problem.options, problem.switches, problem.dtype


def launch_lines(launch: Launch, entry: str) -> list[str]:
    """What is launched in which order, where there is more than the main function; empty for most kernels."""
    lines = [f"before: {_step_words(step, entry)}" for step in launch.before]
    lines += [f"after: {_step_words(step, entry)}" for step in launch.after]
    return lines + ([f"scratch: {launch.scratch_bytes} bytes"] if launch.scratch_bytes else [])


def _step_words(step: LaunchStep, entry: str) -> str:
    return f"{entry}{step.entry_suffix}, grid {step.grid}, block {step.block}"


def one_line(text: str) -> str:
    """The text without line breaks and other control characters: it may go into a comment or a table."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def rate_of(record: Record, kernels: Kernels) -> str:
    """The record's rate; a dash where its kernel is gone, or has other dimensions now."""
    try:
        return rate(kernels(record.problem.kernel), record.problem, record.time_ms)
    except (AutotileError, KeyError):
        return "–"


def provenance(identity: Identity) -> str:
    flags = f", {identity.flags}" if identity.flags else ""
    return one_line(f"driver {identity.driver}, {identity.compiler}{flags}")
