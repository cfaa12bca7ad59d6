"""autotile's own records as a recording: a store's journal, an export, or a T4 file that autotile wrote."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autotile.devices.replay.rows import Row, Table
from autotile.errors import UsageError
from autotile.types import OK, SCHEMA_VERSION, Problem

T4_KEY = "autotile"
"""Under a T4 file's metadata: what autotile needs to read its own results back."""

T4_WORDS = {
    OK: "correct",
    "compile_error": "compile",
    "wrong_result": "correctness",
    "implausible": "correctness",
    "timeout": "timeout",
}
"""Outcomes as T4 calls them; every other is `runtime`."""


def is_record(found: Any) -> bool:
    """Whether an object looks like one of autotile's records (store/serial.py has their form)."""
    return isinstance(found, dict) and {"schema_version", "kernel", "outcome", "configuration"} <= found.keys()


def export_records(document: Mapping[str, Any]) -> list[Any]:
    """The records of what `autotile export --format json` wrote."""
    devices = [device for device in document["devices"] if isinstance(device, dict)]
    return [record for device in devices for record in device.get("records") or ()]


def t4_records(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The records that a T4 file of autotile's holds: what is common to all, each one's own part, and its result.

    Raises UsageError where the parts do not fit each other, as after an edit.
    """
    match document["metadata"].get(T4_KEY):
        case {"identities": list() as identities, "records": list() as parts, **rest}:
            common = {str(key): value for key, value in rest.items()}
        case _:
            raise UsageError(f"its metadata has {T4_KEY!r}, but not the parts of autotile's records")
    results = document["results"]
    if len(parts) != len(results):
        raise UsageError(f"it has {len(results)} results, and autotile's metadata {len(parts)}: the file was edited")
    for number, (part, result) in enumerate(zip(parts, results, strict=True), 1):
        if not isinstance(part, dict) or not isinstance(result, dict):
            raise UsageError(f"result {number} is no object")
        if not _agree(part, result):
            raise UsageError(f"result {number} says another time or outcome than autotile's metadata: it was edited")
        which = part.get("identity")
        if type(which) is not int or not 0 <= which < len(identities):
            raise UsageError(f"result {number} has no identity")
        yield {**common, **part, "identity": identities[which], "configuration": result.get("configuration")}


def _agree(part: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """Whether a result says what the record's own part says."""
    if result.get("invalidity") != T4_WORDS.get(str(part.get("outcome")), "runtime"):
        return False
    match part.get("measurement"), result.get("measurements"):
        case {"time_ms": time_ms}, [{"value": value}] if part.get("outcome") == OK:
            return bool(value == time_ms)
        case _:
            return part.get("outcome") != OK


def from_records(objects: Iterable[Any]) -> Table:
    """The table of records of one kernel, problem and device.

    Times of other drivers, compilers or templates are not comparable: only the records with the last one's identity
    count. Raises UsageError where there are none, or those of several searches.
    """
    records = [_Found(found) for found in objects]
    if not records:
        raise UsageError("it holds no records")
    places = dict.fromkeys((found.problem, found.device) for found in records)
    if len(places) > 1:
        listed = "; ".join(f"{problem.kernel} {problem.label} on {device}" for problem, device in places)
        raise UsageError(f"it holds several searches ({listed}): replay one, say a journal of the store")
    last = records[-1]
    names = tuple(last.configuration)
    rows = [found.row(names) for found in records if found.identity == last.identity]
    sizes = tuple(size for _, size in last.problem.sizes)
    return Table(
        kernel=last.problem.kernel,
        device=last.device,
        problem=last.problem.label,
        sizes=sizes,
        names=names,
        rows=rows,
        own=last.problem,
        arch=str(last.identity.get("arch") or ""),
        estimated=last.identity.get("estimated") is True,
    )


class _Found:
    """One record's object, with the parts that a replay needs. Raises UsageError where one is missing."""

    def __init__(self, found: Any) -> None:
        match found:
            case {"schema_version": int() as version} if version != SCHEMA_VERSION:
                raise UsageError(f"it was written by record schema {version}; this autotile reads {SCHEMA_VERSION}")
            case {
                "kernel": str() as kernel,
                "sizes": dict() as sizes,
                "dtype": str() as dtype,
                "identity": {"device": str() as device},
                "outcome": str() as outcome,
                "configuration": dict() as configuration,
            }:
                options, switches = found.get("options") or {}, found.get("switches") or []
                if not isinstance(options, dict) or not isinstance(switches, list):
                    raise UsageError("a record in it has options that are no object, or switches that are no list")
                self.problem = Problem(kernel, tuple(sizes.items()), dtype, tuple(options.items()), tuple(switches))
                self.device, self.outcome, self.configuration = device, outcome, configuration
                self.identity, self._found = found["identity"], found
            case _:
                raise UsageError("a record in it lacks kernel, sizes, dtype, identity, outcome or configuration")

    def row(self, names: tuple[str, ...]) -> Row:
        if set(self.configuration) != set(names):
            raise UsageError(f"a record of {self.problem.kernel} has other parameters than the last")
        match self._found.get("measurement"):
            case {"time_ms": (int() | float()) as time_ms} if self.outcome == OK:
                outcome = OK
            case _:
                time_ms, outcome = math.nan, "failed" if self.outcome == OK else self.outcome
        return Row(
            values=tuple(self.configuration[name] for name in names),
            time_ms=float(time_ms),
            outcome=outcome,
            compile_ms=self._seconds("build_s") * 1e3,
            other_ms=(self._seconds("check_s") + self._seconds("measure_s")) * 1e3,
            message=str(self._found.get("message") or ""),
        )

    def _seconds(self, key: str) -> float:
        found = self._found.get(key, 0.0)
        return float(found) if isinstance(found, (int, float)) else 0.0
