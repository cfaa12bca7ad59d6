"""Record ⇄ JSON object. Every object says its `schema_version`; another version is refused by name.

JSON holds finite numbers only. A measurement that is not finite is none (its record is then not ok), an error or a
duration that is not finite is left out. numpy scalars become plain numbers.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from autotile.errors import StoreError
from autotile.types import (
    SCHEMA_VERSION,
    Configuration,
    Dim3,
    Identity,
    Launch,
    LaunchStep,
    Measurement,
    Problem,
    Record,
    Value,
)

_VALUE_TYPES = frozenset((bool, int, str, float))
"""Types of a parameter's value. No kernel declares fractions, but what was written must be readable."""


class Unreadable(StoreError):
    """An object that is not a record of this schema. `version` is set when another schema version wrote it."""

    def __init__(self, message: str, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


# ---- writing ---------------------------------------------------------------------------------------------------


def to_object(record: Record) -> dict[str, Any]:
    """The record as JSON's own types (numpy scalars aside, which the encoder makes plain)."""
    identity, launch = record.identity, record.launch
    return {
        "schema_version": SCHEMA_VERSION,
        "kernel": record.problem.kernel,
        "sizes": dict(record.problem.sizes),
        **({"options": dict(record.problem.options)} if record.problem.options else {}),
        **({"switches": list(record.problem.switches)} if record.problem.switches else {}),
        "dtype": record.problem.dtype,
        "identity": {
            "device": identity.device,
            "arch": identity.arch,
            "driver": identity.driver,
            "compiler": identity.compiler,
            "template": identity.template,
            "schema": identity.schema,
            "estimated": identity.estimated,
            "flags": identity.flags,
        },
        "outcome": record.outcome,
        "configuration": dict(record.configuration.items_),
        "message": record.message,
        "measurement": _measurement_object(record.measurement),
        "launch": None if launch is None else _launch_object(launch),
        "source_digest": record.source_digest,
        "binary_digest": record.binary_digest,
        "registers": record.registers,
        "spill_bytes": record.spill_bytes,
        "static_shared_bytes": record.static_shared_bytes,
        "max_error": record.max_error if record.max_error is not None and math.isfinite(record.max_error) else None,
        "build_s": _finite(record.build_s),
        "check_s": _finite(record.check_s),
        "measure_s": _finite(record.measure_s),
        "seed": record.seed,
        "created": record.created,
        "autotile_version": record.autotile_version,
        "extra": [list(pair) for pair in record.extra],
    }


def _launch_object(launch: Launch) -> dict[str, Any]:
    """Most launches have neither scratch memory nor steps, and no keys for them."""
    found: dict[str, Any] = {
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes,
    }
    if launch.scratch_bytes:
        found["scratch_bytes"] = launch.scratch_bytes
    for key, steps in (("before", launch.before), ("after", launch.after)):
        if steps:
            found[key] = [
                {"entry_suffix": step.entry_suffix, "grid": list(step.grid), "block": list(step.block)}
                for step in steps
            ]
    return found


def _measurement_object(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None or not all(
        math.isfinite(number) for number in (measurement.time_ms, measurement.min_ms, measurement.spread_ms)
    ):
        return None
    return {
        "time_ms": measurement.time_ms,
        "min_ms": measurement.min_ms,
        "spread_ms": measurement.spread_ms,
        "runs": measurement.runs,
        "stopped_early": measurement.stopped_early,
        "estimated": measurement.estimated,
    }


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0


def _plain(value: object) -> object:
    """A numpy scalar as Python's own; anything else that JSON lacks is a bug, and says so."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"a record cannot hold {value!r}, a {type(value).__name__}")
    return item()


# ASCII only: a compiler's message may hold bytes that are no UTF-8, and an escape survives every editor.
_LINE = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_plain)
_PRETTY = json.JSONEncoder(indent=2, allow_nan=False, default=_plain)


def to_line(record: Record) -> bytes:
    """One line of a journal, its newline included."""
    return _LINE.encode(to_object(record)).encode() + b"\n"


def pretty(value: object) -> str:
    """JSON for people to read, with a newline at the end."""
    return _PRETTY.encode(value) + "\n"


# ---- reading ---------------------------------------------------------------------------------------------------


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def parse(text: str | bytes) -> Any:
    """JSON to Python objects; strict about NaN. Raises Unreadable, whatever the text."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise Unreadable("nested too deeply to be a record") from None
    except ValueError as error:  # also bytes that are no UTF-8, and numbers too long to read
        raise Unreadable(f"not JSON ({error})") from None


def from_line(line: str | bytes) -> Record:
    """The record of one line. Raises Unreadable."""
    return from_object(parse(line))


def from_object(found: object) -> Record:
    """The record of a parsed object, every type checked. Raises Unreadable."""
    item = _mapping(found, "a record")
    try:
        problem, identity = shared_part(item)
        return Record(
            problem=problem,
            configuration=Configuration(_values(item)),
            identity=identity,
            outcome=_text(item, "outcome"),
            message=_text(item, "message", ""),
            measurement=_measurement(item.get("measurement")),
            launch=_launch(item.get("launch")),
            source_digest=_text(item, "source_digest", ""),
            binary_digest=_text(item, "binary_digest", ""),
            registers=_optional_integer(item, "registers"),
            spill_bytes=_optional_integer(item, "spill_bytes"),
            static_shared_bytes=_optional_integer(item, "static_shared_bytes"),
            max_error=None if item.get("max_error") is None else _number(item, "max_error"),
            build_s=_number(item, "build_s", 0.0),
            check_s=_number(item, "check_s", 0.0),
            measure_s=_number(item, "measure_s", 0.0),
            seed=_optional_integer(item, "seed"),
            created=_text(item, "created", ""),
            autotile_version=_text(item, "autotile_version", ""),
            extra=_extra(item.get("extra", ())),
        )
    except OverflowError:
        raise Unreadable("a number is out of range") from None


def other_schema(version: int) -> str:
    """Why what another record schema wrote is not read, and the way out."""
    way_out = "update autotile to read it" if version > SCHEMA_VERSION else "search again to replace it"
    return f"written by record schema {version}; this autotile reads {SCHEMA_VERSION} ({way_out})"


def shared_part(found: object) -> tuple[Problem, Identity]:
    """What the records of a journal mostly have in common. Raises Unreadable, also for another schema version."""
    item = _mapping(found, "a record")
    version = item.get("schema_version")
    if type(version) is not int:
        raise Unreadable("no schema_version: not a record of autotile")
    if version != SCHEMA_VERSION:
        raise Unreadable(other_schema(version), version)
    problem = _problem(_text(item, "kernel"), _sizes(item), _text(item, "dtype"), _options(item), _switches(item))
    return problem, _identity_of(_mapping(item.get("identity"), "identity"))


@lru_cache(maxsize=1024)
def _problem(
    kernel: str,
    sizes: tuple[tuple[str, int], ...],
    dtype: str,
    options: tuple[tuple[str, int], ...],
    switches: tuple[str, ...],
) -> Problem:
    """Shared between the records of a journal: they differ in little else than the configuration."""
    return Problem(kernel, sizes, dtype, options, switches)


@lru_cache(maxsize=1024)
def _identity(*fields: Any) -> Identity:
    return Identity(*fields)


def _identity_of(item: Mapping[str, Any]) -> Identity:
    return _identity(
        _text(item, "device"),
        _text(item, "arch"),
        _text(item, "driver"),
        _text(item, "compiler"),
        _text(item, "template"),
        _integer(item, "schema"),
        _flag(item, "estimated"),
        _text(item, "flags", ""),  # records from before there were flags had none
    )


def _measurement(found: object) -> Measurement | None:
    if found is None:
        return None
    item = _mapping(found, "measurement")
    return Measurement(
        _number(item, "time_ms"),
        _number(item, "min_ms"),
        _number(item, "spread_ms"),
        _integer(item, "runs"),
        _flag(item, "stopped_early"),
        _flag(item, "estimated"),
    )


def _launch(found: object) -> Launch | None:
    if found is None:
        return None
    item = _mapping(found, "launch")
    return Launch(
        _dim3(item, "grid"),
        _dim3(item, "block"),
        _integer(item, "shared_bytes"),
        _integer(item, "scratch_bytes") if "scratch_bytes" in item else 0,
        _steps(item, "before"),
        _steps(item, "after"),
    )


def _steps(item: Mapping[str, Any], key: str) -> tuple[LaunchStep, ...]:
    found = item.get(key, [])
    if type(found) is not list:
        raise _wrong(item, key, "a list of steps")
    steps = [_mapping(step, key) for step in found]
    return tuple(LaunchStep(_text(s, "entry_suffix"), _dim3(s, "grid"), _dim3(s, "block")) for s in steps)


def _dim3(item: Mapping[str, Any], key: str) -> Dim3:
    sides = item.get(key)
    if type(sides) is list and len(sides) == 3:
        x, y, z = sides
        if type(x) is type(y) is type(z) is int:
            return x, y, z
    raise _wrong(item, key, "three integers")


def _sizes(item: Mapping[str, Any], key: str = "sizes") -> tuple[tuple[str, int], ...]:
    sizes = tuple(_mapping(item.get(key), key).items())
    for _, size in sizes:
        if type(size) is not int:
            raise _wrong(item, key, "integers")
    return sizes


def _options(item: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """What is not as usual about the problem; most records have no such key."""
    return _sizes(item, "options") if item.get("options") else ()


def _switches(item: Mapping[str, Any]) -> tuple[str, ...]:
    """What is on, by name; most records have no such key."""
    found = item.get("switches") or []
    if type(found) is not list or not all(type(name) is str for name in found):
        raise _wrong(item, "switches", "names")
    return tuple(found)


def _values(item: Mapping[str, Any]) -> tuple[tuple[str, Value], ...]:
    values = tuple(_mapping(item.get("configuration"), "configuration").items())
    for _, value in values:
        if type(value) not in _VALUE_TYPES or (type(value) is float and not math.isfinite(value)):
            raise _wrong(item, "configuration", "numbers, booleans and names")
    return values


def _extra(found: object) -> tuple[tuple[str, str], ...]:
    if not found:
        return ()
    pairs: list[tuple[str, str]] = []
    for pair in found if isinstance(found, (list, tuple)) else [found]:
        match pair:
            case [str() as name, str() as text]:
                pairs.append((name, text))
            case _:
                raise Unreadable(f"extra must be pairs of text, not {reprlib.repr(found)}")
    return tuple(pairs)


def _mapping(found: object, what: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise Unreadable(f"{what} must be an object, not {reprlib.repr(found)}")
    return found


def _text(item: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = item.get(key, default)
    if type(value) is not str:
        raise _wrong(item, key, "text")
    return value


def _integer(item: Mapping[str, Any], key: str) -> int:
    value = item.get(key)
    if type(value) is not int:
        raise _wrong(item, key, "an integer")
    return value


def _optional_integer(item: Mapping[str, Any], key: str) -> int | None:
    return None if item.get(key) is None else _integer(item, key)


def _number(item: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = item.get(key, default)
    if type(value) is float or type(value) is int:
        number = float(value)
        if math.isfinite(number):  # JSON can spell 1e999
            return number
    raise _wrong(item, key, "a finite number")


def _flag(item: Mapping[str, Any], key: str) -> bool:
    value = item.get(key)
    if type(value) is not bool:
        raise _wrong(item, key, "true or false")
    return value


def _wrong(item: Mapping[str, Any], key: str, wanted: str) -> Unreadable:
    if key not in item:
        return Unreadable(f"{key} is missing")
    return Unreadable(f"{key} must be {wanted}, not {reprlib.repr(item[key])}")
