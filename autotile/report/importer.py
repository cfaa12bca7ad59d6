"""Takes in what `export --format json` or `t4` wrote, elsewhere perhaps, and by anybody.

Nothing of the file is executed, compiled or used as a path. A record is taken only if this installation's own
templates turn its configuration into the very source that was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autotile.codegen import render
from autotile.devices.gpus import lookup_gpu
from autotile.errors import AutotileError, ImportRefused
from autotile.kernels import Kernel
from autotile.kernels.expressions import Expression
from autotile.measure import physical_floor_ms
from autotile.report.formats.common import Kernels
from autotile.report.import_t4 import is_t4, t4_entries, trial_of
from autotile.store import RecordStore, Unreadable, best_of
from autotile.store.names import is_safe
from autotile.store.serial import from_object, other_schema, parse
from autotile.types import OK, SCHEMA_VERSION, Problem, Record

LARGEST_FILE_BYTES = 1 << 30
LARGEST_VALUE = 1 << 16
"""Of an integer parameter outside the kernel's own list: beyond it, a template's loops could take for ever."""
LONGEST_NAME = 200

_CLIMBS = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)|^[/\\~]|^[A-Za-z]:[/\\]")


@dataclass(frozen=True)
class ImportSummary:
    """What an import did. `imported` counts records new to the store, `known` those it held already.

    `proven` of the imported are bests, which can be loaded; the others are trials. `refused` has, for each record
    turned down, what it is and why.
    """

    imported: int
    refused: list[tuple[str, str]]
    known: int = 0
    proven: int = 0


def import_results(path: Path, store: RecordStore, kernels: Callable[[str], Kernel]) -> ImportSummary:
    """Adds the records of an exported JSON or T4 file to the store, each checked, each with the identity it came with.

    Raises ImportRefused when the file cannot be read or not one of its records is acceptable; StoreError where the
    store cannot be written.
    """
    once = cache(kernels)
    accepted: list[Record] = []
    refused: list[tuple[str, str]] = []
    document = _document(path)
    trials = is_t4(document)
    for what, found in t4_entries(document, path) if trials else _entries(document):
        try:
            record = from_object(found)
            _check(record, once)
            record = trial_of(record, once) if trials else record
        except (AutotileError, ArithmeticError) as error:  # arithmetic on hostile numbers
            refused.append((_named(found, what), f"{error}"))
        else:
            accepted.append(record)
    if refused and not accepted:
        what, why = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise ImportRefused(f"{path}: nothing could be imported; {what}: {why}{more}")
    new = _new(accepted, store)
    store.extend(new)
    groups: dict[tuple[str, str, Problem], list[Record]] = {}
    for record in accepted:
        groups.setdefault((record.identity.device, record.identity.arch, record.problem), []).append(record)
    for group in groups.values():
        if (best := best_of(record for record in group if record.proven)) is not None:
            store.save_best(best)
    return ImportSummary(len(new), refused, len(accepted) - len(new), sum(record.proven for record in new))


def _new(accepted: list[Record], store: RecordStore) -> list[Record]:
    """Those that the store does not hold yet: an import made twice is made once."""
    held: set[Record] = set()
    for problem, device in {(record.problem, record.identity.device) for record in accepted}:
        held.update(store.records(problem.kernel, problem, device))
    return [record for record in dict.fromkeys(accepted) if record not in held]


def _document(path: Path) -> dict[str, Any]:
    try:
        found = parse(_text_of(path))
    except OSError as error:
        raise ImportRefused(f"{path}: cannot be read ({error.strerror or error})") from error
    except Unreadable as fault:
        raise ImportRefused(f"{path}: {fault}") from None
    if is_t4(found):
        assert isinstance(found, dict)
        return found
    version = found.get("schema_version") if isinstance(found, dict) else None
    if type(version) is int and version != SCHEMA_VERSION:
        raise ImportRefused(f"{path}: {other_schema(version)}")
    if version is None or not isinstance(found.get("devices"), list):
        raise ImportRefused(f"{path}: not a file that `autotile export --format json` (or t4) wrote")
    assert isinstance(found, dict)
    return found


def _text_of(path: Path) -> bytes:
    """The whole file; never more than may be, though it be a device or a pipe that has no end."""
    with path.open("rb") as file:
        text = file.read(4096)
        if text.startswith(b"\x1f\x8b"):
            raise ImportRefused(f"{path}: gzipped; unpack it first. Another tuner's times: --device replay:{path}")
        if b"\0" in text:
            raise ImportRefused(f"{path}: not text; name a file that `autotile export --format json` wrote")
        text += file.read(LARGEST_FILE_BYTES + 1 - len(text))
    if len(text) > LARGEST_FILE_BYTES:
        raise ImportRefused(f"{path}: larger than 1 GiB; export fewer records at a time")
    return text


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Every record's place in the file, and what stands there."""
    for device_number, device in enumerate(document["devices"], 1):
        records = device.get("records") if isinstance(device, dict) else None
        if not isinstance(records, list):
            yield f"device {device_number}", None
            continue
        for number, found in enumerate(records, 1):
            yield f"device {device_number}, record {number}", found


def _named(found: object, what: str) -> str:
    """The record's place, with its kernel where that is a plain name."""
    kernel = found.get("kernel") if isinstance(found, dict) else None
    return f"{what} ({kernel})" if isinstance(kernel, str) and is_safe(kernel) else what


def _check(record: Record, kernels: Kernels) -> None:
    """Raises AutotileError with the reason why the record is not acceptable."""
    identity, problem = record.identity, record.problem
    if not is_safe(problem.kernel):  # before anything looks for a folder of that name
        raise ImportRefused(f"{problem.kernel[:40]!r} is not a kernel's name")
    for name in (identity.device, identity.arch):
        if not name or len(name) > LONGEST_NAME or _CLIMBS.search(name) or not name.isprintable():
            raise ImportRefused(f"{name[:40]!r} is not a device's name")
    if identity.schema != SCHEMA_VERSION:
        raise ImportRefused(other_schema(identity.schema))
    measurement = record.measurement
    if record.outcome == OK and measurement is None:
        raise ImportRefused("it went well, it says, but has no time")
    if measurement is not None:
        if record.ok and not (measurement.time_ms > 0 and measurement.min_ms > 0 and measurement.spread_ms >= 0):
            raise ImportRefused(f"a time of {measurement.time_ms:g} ms is none")
        if measurement.runs < 1 or (record.max_error is not None and not 0 <= record.max_error <= 1):
            raise ImportRefused("its number of runs, or its error, cannot be")
        if measurement.estimated != identity.estimated:
            raise ImportRefused("its time says it is an estimate and its identity that it is measured, or the reverse")
    kernel = kernels(problem.kernel)
    if kernel.name != problem.kernel or kernel.problem(problem.asked, problem.dtype) != problem:
        raise ImportRefused(
            f"kernel {kernel.name} has the dimensions {', '.join(kernel.dimensions)}, in this order, and of "
            f"{', '.join(kernel.problem_keys[len(kernel.dimensions) :])} what is not as usual"
        )
    _check_time(kernel, record)
    _check_configuration(kernel, record)
    _check_source(kernel, record)


def _check_time(kernel: Kernel, record: Record) -> None:
    """A forged time would win for ever: it must be possible on its GPU, where that is a known one."""
    gpu = lookup_gpu(record.identity.device)
    if gpu is None or not record.ok or record.identity.estimated:
        return
    floor_ms = physical_floor_ms(kernel, record.problem, gpu)
    if record.time_ms < floor_ms:
        raise ImportRefused(f"{record.time_ms:g} ms is less than the {floor_ms:g} ms that {gpu.name} needs at its peak")


def _check_configuration(kernel: Kernel, record: Record) -> None:
    if kernel.configuration(record.configuration) != record.configuration:
        names = ", ".join(parameter.name for parameter in kernel.parameters)
        raise ImportRefused(f"kernel {kernel.name} has the parameters {names}, in this order")
    for parameter in kernel.parameters:
        value = record.configuration[parameter.name]
        if value not in parameter.values and isinstance(value, int) and value > LARGEST_VALUE:
            raise ImportRefused(f"parameter {parameter.name}: {value} is out of all proportion")
    scope = kernel.scope(record.problem, record.configuration)
    for rule in kernel.rules:
        expression = Expression(rule.expression, f"kernel {kernel.name}, rule")
        if any(name.startswith("device.") for name in expression.names):
            continue  # that device's limits are not known here, and it did run there
        if not expression.holds(scope):
            raise ImportRefused(f"its configuration breaks the rule {rule.expression}")


def _check_source(kernel: Kernel, record: Record) -> None:
    if record.outcome != OK and not record.source_digest:
        return  # it failed before there was a source
    if render(kernel, record.problem, record.configuration).digest != record.source_digest:
        raise ImportRefused(f"the template of {kernel.name} here gives another source than the one that was measured")
    if record.launch is not None and record.launch != kernel.launch_of(record.problem, record.configuration):
        raise ImportRefused(f"kernel {kernel.name} is launched in another way here")
