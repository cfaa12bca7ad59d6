"""Tables for people: one a device, estimates in tables of their own."""

from __future__ import annotations

from collections.abc import Sequence

from autotile.report.formats.common import Kernels, by_device, launch_lines, one_line, provenance, rate_of
from autotile.types import Record


def page(records: Sequence[Record], kernels: Kernels) -> str:
    """A section a device. Failed trials are counted, not listed."""
    sections = [
        _section(device, arch, estimated, group, kernels)
        for (device, arch, estimated), group in by_device(records).items()
    ]
    return "\n".join(sections) if sections else "No records.\n"


def _section(device: str, arch: str, estimated: bool, records: Sequence[Record], kernels: Kernels) -> str:
    good = [record for record in records if record.ok]
    lines = [f"## {_cell(device)} ({_cell(arch)}{', estimated' if estimated else ''})", ""]
    if estimated:
        lines += ["Times are a model's estimates; nothing here was measured on a GPU.", ""]
    if good:
        time = "estimated time_ms" if estimated else "time_ms"
        work = "estimated rate" if estimated else "rate"
        lines += [f"| kernel | problem | {time} | {work} | configuration | tuned with |", "|---|---|--:|--:|---|---|"]
        lines += [_row(record, kernels) for record in good]
        lines.append("")
    if len(good) < len(records):
        lines += [f"{len(records) - len(good)} failed trials are not shown.", ""]
    return "\n".join(lines)


def _row(record: Record, kernels: Kernels) -> str:
    beside = [] if record.launch is None else launch_lines(record.launch, "…")
    cells = (
        record.problem.kernel,
        record.problem.label,
        f"{record.time_ms:.6g}",
        rate_of(record, kernels),
        "; ".join([record.configuration.label, *beside]),
        provenance(record.identity),
    )
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    """Text that stays in its cell, and stays text."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
