"""Recordings that other tuners wrote: Kernel Tuner's cache files, and the T4 format for exchange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotile.devices.replay.rows import Row, Table
from autotile.errors import UsageError
from autotile.types import OK

FAILURES = {
    "InvalidConfig": "launch_error",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "launch_error",
    "ErrorConfig": "failed",
}
"""Kernel Tuner's words, which stand in place of a time (its `util.py`), as outcomes."""

INVALIDITY = {
    "correct": OK,
    "compile": "compile_error",
    "runtime": "launch_error",
    "constraints": "launch_error",
    "correctness": "wrong_result",
    "timeout": "timeout",
}
"""T4's words, as outcomes. `constraints` is a variant that was refused before it ran."""

T4_VERSION = "1.0.0"

_COSTS = ("verification_time", "benchmark_time", "strategy_time", "framework_time")
"""What an evaluation cost beside `compile_time`, ms."""

_T4_COSTS = ("framework", "search_algorithm", "validation")

_NO_TIME_MS = 1e20
"""What older caches have in place of the time of a failure."""

_UNITS_MS = {
    **dict.fromkeys(("milliseconds", "miliseconds", "millisecond", "ms"), 1.0),
    **dict.fromkeys(("seconds", "second", "s"), 1e3),
    **dict.fromkeys(("microseconds", "microsecond", "us", "µs"), 1e-3),
    **dict.fromkeys(("nanoseconds", "nanosecond", "ns"), 1e-6),
}


def from_kernel_tuner(document: Mapping[str, Any], name: str) -> Table:
    """The table of a cache file; `name` is the file's, for where the document names no kernel.

    Raises UsageError for a row without a time or without one of the parameters.
    """
    names = tuple(str(key) for key in document["tune_params_keys"])
    rows = []
    for key, entry in document["cache"].items():
        missing = [wanted for wanted in (*names, "time") if not isinstance(entry, dict) or wanted not in entry]
        if missing:
            raise UsageError(f"the entry {key!r} lacks {', '.join(missing)}")
        time_ms, outcome, message = _time(entry["time"], 1.0)
        other_ms = sum(_number(entry.get(cost)) for cost in _COSTS)
        values = tuple(entry[wanted] for wanted in names)
        rows.append(Row(values, time_ms, outcome, _number(entry.get("compile_time")), other_ms, message))
    declared = document.get("tune_params")
    problem, sizes = _problem(document.get("problem_size"))
    return Table(
        kernel=str(document.get("kernel_name") or name),
        device=str(document.get("device_name") or ""),
        problem=problem,
        sizes=sizes,
        names=names,
        rows=rows,
        declared=declared if isinstance(declared, dict) else {},
    )


def from_t4(document: Mapping[str, Any], name: str) -> Table:
    """The table of a T4 file, which names neither kernel nor device nor problem: the kernel is called as the file is.

    T4 does not say what timing cost in all: the sum of its raw runtimes stands in for it, a few ms less than a cache
    file of the same search has. Raises UsageError for a result that is not one, and for an unknown unit of time.
    """
    unit_ms = _unit_ms(document.get("metadata"))
    names: tuple[str, ...] = ()
    rows = []
    for number, result in enumerate(document["results"], 1):
        match result:
            case {"configuration": dict() as configuration, "times": dict() as times, "invalidity": str() as word}:
                pass
            case _:
                raise UsageError(f"result {number} lacks configuration, times or invalidity")
        names = names or tuple(configuration)
        if set(configuration) != set(names):
            raise UsageError(f"result {number} has other parameters than the first")
        runtimes = times.get("runtimes")
        measured = [_number(run) for run in runtimes] if isinstance(runtimes, list) else []
        time_ms, outcome, message = _t4_time(result, word, measured, unit_ms)
        other = sum(_number(times.get(cost)) for cost in _T4_COSTS) + sum(measured)
        values = tuple(configuration[wanted] for wanted in names)
        compile_ms = _number(times.get("compilation")) * unit_ms
        rows.append(Row(values, time_ms, outcome, compile_ms, other * unit_ms, message))
    return Table(kernel=name, device="", problem="", sizes=(), names=names, rows=rows)


def _t4_time(result: Mapping[str, Any], word: str, measured: list[float], unit_ms: float) -> tuple[float, str, str]:
    """Time, outcome and reason: the measurement called `time`, or the mean of the raw ones where there is none."""
    listed = result.get("measurements")
    found = [m for m in listed if isinstance(m, dict) and m.get("name") == "time"] if isinstance(listed, list) else []
    value: Any = sum(measured) / len(measured) if measured else math.nan
    if found:
        value = found[0].get("value")
        unit_ms = _UNITS_MS.get(str(found[0].get("unit")).lower(), unit_ms)
    outcome = INVALIDITY.get(word, "failed")
    if outcome == OK:
        return _time(value, unit_ms)
    return math.nan, outcome, value if isinstance(value, str) else word


def _time(found: Any, unit_ms: float) -> tuple[float, str, str]:
    """Time in ms, outcome, and the reason of a failure, of what stands where the time does."""
    if isinstance(found, str):
        return math.nan, FAILURES.get(found, "failed"), found
    time_ms = _number(found) * unit_ms
    if 0 < time_ms < _NO_TIME_MS:
        return time_ms, OK, ""
    return math.nan, "failed", f"a time of {found!r} is none"


def _number(found: Any) -> float:
    """A finite number as it is, anything else as 0."""
    fits = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
    return float(found) if fits else 0.0


def _unit_ms(metadata: Any) -> float:
    unit = metadata.get("timeunit", "ms") if isinstance(metadata, dict) else "ms"
    if str(unit).lower() not in _UNITS_MS:
        raise UsageError(f"the unit of time {unit!r} is unknown; known: {', '.join(_UNITS_MS)}")
    return _UNITS_MS[str(unit).lower()]


def _problem(size: Any) -> tuple[str, tuple[int, ...]]:
    """A problem's text and its extents (none where they are not whole numbers)."""
    sides = size if isinstance(size, list) else [] if size is None else [size]
    whole = all(type(side) is int and side > 0 for side in sides)
    return "×".join(map(str, sides)), tuple(sides) if whole else ()
