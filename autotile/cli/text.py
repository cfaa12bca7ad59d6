"""How numbers and results read on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from autotile.tuner import SearchResult
from autotile.types import Measurement, Problem, Record


def time_of(record: Record) -> str:
    return time_text(record.measurement)


def time_text(measurement: Measurement | None) -> str:
    """`2.741 ms`, or `≈2.741 ms (estimate)`: an estimate never looks like a measurement."""
    if measurement is None:
        return "–"
    value = f"{measurement.time_ms:.4g} ms"
    return f"≈{value} (estimate)" if measurement.estimated else value


def load_line(problem: Problem, device: str = "auto", templates: Sequence[Path] = (), asked_as: str = "") -> str:
    """The line of Python that loads the winner of a search on `device` with extra `templates`; by the kernel's public
    name where it was asked for so."""
    name = asked_as or problem.kernel
    options: dict[str, object] = {**problem.asked, "dtype": problem.dtype}
    if device != "auto":
        options["device"] = device
    if templates:
        options["templates"] = [str(folder) for folder in templates]
    given = ", ".join(
        f"{name}={value if isinstance(value, bool) else json.dumps(value)}" for name, value in options.items()
    )
    return f"{name} = autotile.load({json.dumps(name)}, {given})"


def phases_line(result: SearchResult) -> str:
    p = result.phases
    return (
        f"{p.total_s:.1f} s: data and reference {p.data_s:.1f}, asking {p.ask_s:.1f}, "
        f"checking {p.check_s:.1f}, timing {p.measure_s:.1f}, "
        f"loading {p.other_s:.1f}, waiting for compilers {p.idle_s:.1f}, finals and proof {p.finals_s:.1f}; "
        f"compilers ran {p.build_s:.1f} s beside them"
    )


STOPPED = {
    "trials": "the number of trials is reached",
    "time": "the time is up",
    "gain": "no gain is expected any more (search.effort says when)",
    "exhausted": "the space is exhausted: every feasible configuration has been tried",
    "points": "every point has been tried",
    "device_lost": "nothing more can be measured on this device; run again to go on",
    "edited": "the kernel's folder was edited meanwhile",
    "toolchain_lost": "nothing more can be built",
    "interrupted": "interrupted",
}


def memory_line(record: Record) -> str:
    """What the emulator counted of a variant's memory accesses; empty where it did not."""
    counted = dict(record.extra)
    parts = [f"{float(counted[key]):.2f} {what}" for key, what in MEMORY_COUNTS.items() if key in counted]
    return f"a request: {', '.join(parts)}" if parts else ""


MEMORY_COUNTS = {
    "sectors_a_load_request": "sectors loaded",
    "sectors_a_store_request": "sectors stored",
    "wavefronts_a_shared_load": "wavefronts of shared loads",
    "wavefronts_a_shared_store": "wavefronts of shared stores",
}
