"""A search that was recorded: every configuration that was evaluated, with its time or failure and what it cost.

`read_recording` knows a file by its content: Kernel Tuner's cache files, T4 files, and autotile's own journals,
exports and T4 files, each plain or gzipped.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotile.devices.replay.foreign import T4_VERSION, from_kernel_tuner, from_t4
from autotile.devices.replay.own import T4_KEY, export_records, from_records, is_record, t4_records
from autotile.devices.replay.rows import Row, Table, domain_of, spelled
from autotile.errors import UsageError
from autotile.types import OK, Configuration, Problem, Value

Column = np.ndarray[Any, Any]

LARGEST_FILE_BYTES = 4 << 30
"""Unpacked; more is no recording."""

_SOUGHT = (
    "a Kernel Tuner cache file (tune_params_keys and cache), a T4 file (results and schema_version), or autotile's own "
    "records (a *.records.jsonl of the store, or an export as json or t4)"
)


@dataclass(frozen=True, eq=False)
class Recording:
    """One kernel's search on one device. Rows are in the order of the domains, the last parameter running fastest.

    `codes[row, p]` is the index of parameter p's value in its domain (int32, rows × parameters). `time_ms`,
    `compile_ms` and `other_ms` are float64 of one entry a row; the time of a failure is NaN. `outcomes` are autotile's
    words, `ok` or a failure's; `messages` say more of a failure. `device` is the GPU's name as recorded, which may be
    "", `problem` a text and `sizes` its extents where the file has them. `own` is the problem of autotile's own
    records, and None for a recording that another tuner made; `arch` and `estimated` are theirs too. `torn` says what
    of a damaged file was left out.
    """

    path: Path
    kernel: str
    device: str
    problem: str
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    domains: tuple[tuple[Value, ...], ...]
    codes: Column
    time_ms: Column
    outcomes: tuple[str, ...]
    messages: tuple[str, ...]
    compile_ms: Column
    other_ms: Column
    own: Problem | None = None
    arch: str = ""
    estimated: bool = False
    torn: str = ""

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    @property
    def best_ms(self) -> float:
        """The fastest recorded time; infinite where nothing went well."""
        return float(np.nanmin(self.time_ms)) if np.isfinite(self.time_ms).any() else math.inf

    @property
    def cost_ms(self) -> Column:
        """What evaluating each row cost when it was recorded."""
        return np.asarray(self.compile_ms + self.other_ms)

    def configuration(self, row: int) -> Configuration:
        codes = self.codes[row]
        return Configuration(tuple((name, self.domains[p][int(codes[p])]) for p, name in enumerate(self.names)))

    def row_of(self, configuration: Mapping[str, Value]) -> int | None:
        """The row of a configuration; None when it was not recorded."""
        if set(configuration) != set(self.names):
            return None
        return self.row_with([configuration[name] for name in self.names])

    def row_with(self, values: Iterable[Value]) -> int | None:
        """The row of one value a parameter, in the recording's order; None when it was not recorded."""
        return self._rows.get(tuple((type(value), value) for value in values))

    @cached_property
    def _rows(self) -> dict[tuple[tuple[type, Value], ...], int]:
        typed = [[(type(value), value) for value in domain] for domain in self.domains]
        columns = [[typed[p][code] for code in self.codes[:, p].tolist()] for p in range(len(self.names))]
        return {values: row for row, values in enumerate(zip(*columns, strict=True))}


def read_recording(path: str | Path) -> Recording:
    """The recording in a file. Of a configuration that was evaluated again the last counts.

    A cache file or journal whose end is missing is read as far as it goes. Raises UsageError, with what was looked
    for, when the file cannot be read, is of no known form, or holds no evaluation.
    """
    path = Path(path)
    text = _text_of(path)
    name = path.name.split(".")[0] or "recording"
    try:
        table, torn = _table_of(text, name)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if not table.rows or not table.names:
        raise UsageError(f"{path}: it holds no evaluation of {table.kernel}; record a search first")
    return _assembled(path, table, torn)


def _table_of(text: str, name: str) -> tuple[Table, str]:
    """The table that a file's text holds, and what of it was torn off."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        if '"tune_params_keys"' in text and '"cache"' in text:
            document, torn = _mended(text)
            return from_kernel_tuner(document, name), torn
        return _from_lines(text)
    match document:
        case {"tune_params_keys": list(), "cache": dict()}:
            return from_kernel_tuner(document, name), ""
        case {"results": list(), "metadata": dict() as metadata} if T4_KEY in metadata:
            return from_records(t4_records(document)), ""
        case {"results": list(), "schema_version": str() as version}:
            if version != T4_VERSION:
                raise UsageError(f"a T4 file of version {version}; this autotile reads {T4_VERSION}")
            return from_t4(document, name), ""
        case {"devices": list()}:
            return from_records(export_records(document)), ""
        case _ if is_record(document):
            return from_records([document]), ""
    raise UsageError(f"not a recording; looked for {_SOUGHT}")


def _mended(text: str) -> tuple[dict[str, Any], str]:
    """A cache file whose closing braces, and perhaps the end of its last entry, are missing."""
    whole = text.rstrip().removesuffix(",")
    cut = text.rfind("},")
    for kept, torn in ((whole, ""), (text[: cut + 1], "the last entry, which is torn, was left out")):
        for braces in ("}", "}}"):
            try:
                document = json.loads(kept + braces)
            except ValueError:
                continue
            if isinstance(document, dict) and isinstance(document.get("cache"), dict):
                return document, torn
    raise UsageError("a Kernel Tuner cache file that is torn beyond its last entry; record it again")


def _from_lines(text: str) -> tuple[Table, str]:
    """A journal: a record a line. Lines that are none are left out."""
    records, unread = [], 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if is_record(found):
            records.append(found)
        else:
            unread += 1
    if not records:
        raise UsageError(f"not a recording; looked for {_SOUGHT}")
    return from_records(records), f"{unread} unreadable lines were left out" if unread else ""


def _assembled(path: Path, table: Table, torn: str) -> Recording:
    columns = list(zip(*(row.values for row in table.rows), strict=True))
    found = [domain_of(_declared(table, name), column) for name, column in zip(table.names, columns, strict=True)]
    coded = []
    for domain, column in zip(found, columns, strict=True):
        code = {key: number for number, key in enumerate(domain)}
        coded.append([code[spelled(value)] for value in column])
    last = dict(zip(zip(*coded, strict=True), table.rows, strict=True))
    ordered: list[tuple[tuple[int, ...], Row]] = sorted(last.items(), key=lambda item: item[0])
    rows = [row for _, row in ordered]
    return Recording(
        path=path,
        kernel=table.kernel,
        device=table.device,
        problem=table.problem,
        sizes=table.sizes,
        names=table.names,
        domains=tuple(tuple(domain.values()) for domain in found),
        codes=np.asarray([codes for codes, _ in ordered], np.int32),
        time_ms=np.asarray([row.time_ms for row in rows]),
        outcomes=tuple(row.outcome for row in rows),
        messages=tuple(row.message or ("" if row.outcome == OK else row.outcome) for row in rows),
        compile_ms=np.asarray([row.compile_ms for row in rows]),
        other_ms=np.asarray([row.other_ms for row in rows]),
        own=table.own,
        arch=table.arch,
        estimated=table.estimated,
        torn=torn,
    )


def _declared(table: Table, name: str) -> list[Any]:
    found = table.declared.get(name)
    return found if isinstance(found, list) else []


def _text_of(path: Path) -> str:
    """The whole file as text, unpacked where it is gzipped, whatever it is called."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path}: the gzip file is damaged ({error}); fetch or record it again") from None
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror or error}); name a file with recorded times"
        ) from None
    if len(data) > LARGEST_FILE_BYTES:
        raise UsageError(f"{path}: larger than 4 GiB, which no recording is; looked for {_SOUGHT}")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not text; looked for {_SOUGHT}") from None
