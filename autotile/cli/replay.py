"""`autotile search` on recorded times: what is said at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotile.devices.replay.device import ReplayDevice
    from autotile.tuner import SearchResult


def replay_lines(result: SearchResult, device: ReplayDevice) -> Iterator[str]:
    """What a replayed search ends with."""
    from autotile.cli.text import STOPPED, time_of
    from autotile.report.rates import rate

    recording = device.recording
    outcomes = ", ".join(f"{count} {word}" for word, count in sorted(result.outcomes.items(), key=lambda o: -o[1]))
    yield f"\n{result.kernel.name} {result.problem.label} on {result.device.name}"
    for name, record in result.named.items():
        yield f"  {name:<16} {time_of(record) if record.ok else record.message}"
    yield f"  {len(result.records)} trials ({outcomes or 'none'}) of {result.space_size}. {STOPPED[result.stopped_by]}."
    if result.best is None:
        yield "  none of them was right"
    else:
        speed = f", {rate(result.kernel, result.problem, result.best.time_ms)}" if recording.own else ""
        yield f"  best: {time_of(result.best)}{speed}"
        yield f"        {result.best.configuration.label}"
        ratio = result.best.time_ms / recording.best_ms
        yield f"  {ratio:.3f} times the best of the recording, {recording.best_ms:.4g} ms"
    where = (
        f"{'estimated for' if recording.estimated else 'recorded on'} {recording.device or 'a GPU it does not name'}"
    )
    yield f"  Replayed: the times are those in {recording.path}, {where}. Nothing was run, and nothing is saved."
    yield f"  These trials took {result.phases.total_s:.1f} s when they were recorded."
