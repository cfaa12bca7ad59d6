"""The T4 format, in which tuners exchange results: every trial, one file a kernel, problem and device.

Fields as in the public files of AutoTuningAssociation's benchmark_hub (schema 1.0.0); all times in milliseconds. A
record keeps the median of its timed launches and not each of them: `runtimes` has that one, and `framework` the rest of
what timing cost, so that a trial's times add up to what it cost. What T4 has no place for stands under the metadata's
`autotile`; `devices/replay/own.py` puts the two together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotile.devices.replay.foreign import T4_VERSION
from autotile.devices.replay.own import T4_KEY, T4_WORDS
from autotile.errors import UsageError
from autotile.report.formats.common import by_device
from autotile.store.names import device_folder, path_name
from autotile.store.serial import pretty, to_object
from autotile.types import OF_TRIALS, PROVEN, Identity, Problem, Record

SUFFIX = ".T4.json"

_FAILED = {"compile": "CompilationFailedConfig"}
"""What other tuners' files have in place of a time, by the word for the failure; RuntimeFailedConfig for the others."""

_COMMON = ("schema_version", "kernel", "sizes", "options", "switches", "dtype")
"""Keys of a record's object that are the same throughout a file; most problems have no options and no switches."""


def as_trial(record: Record) -> Record:
    """The record without the marks of a winner: T4 holds trials."""
    kept = tuple(entry for entry in record.extra if entry != PROVEN and entry[0] != OF_TRIALS)
    return replace(record, extra=kept)


def write(records: Sequence[Record], path: Path | None) -> str | list[Path]:
    """The text of the only search among the records, or the files written: into the folder `path`, a file a search.

    A `path` that ends in .json is a file, for a single search. Raises UsageError where there are several and no folder
    is named, and OSError where the disk refuses.
    """
    searches = _searches(records)
    single = path is None or path.suffix == ".json"
    if single and len(searches) != 1:
        raise UsageError(
            f"format t4 has one file for each kernel, problem and device, and {len(searches)} match: name a folder "
            "with -o, or narrow with --kernel and --device"
        )
    if path is None:
        return document(next(iter(searches.values())))
    if path.is_dir() if single else path.exists() and not path.is_dir():
        raise UsageError(f"format t4 writes {'a file' if single else 'a folder'}, and {path} is none: name another")
    folder = path.parent if single else path
    folder.mkdir(parents=True, exist_ok=True)
    written = [path] if single else [folder / name for name in searches]
    for file, group in zip(written, searches.values(), strict=True):
        file.write_text(document(group), encoding="utf-8", newline="")
    return written


def document(records: Sequence[Record]) -> str:
    """One search's T4 file: trials of one kernel, problem and device, in the order of the journal."""
    trials = [as_trial(record) for record in records]
    identities = list(dict.fromkeys(trial.identity for trial in trials))
    first = to_object(trials[0])
    metadata = {
        "timeunit": "milliseconds",
        T4_KEY: {
            **{key: first[key] for key in _COMMON if key in first},
            "identities": _identities(trials, identities),
            "records": [_own_part(trial, identities.index(trial.identity)) for trial in trials],
        },
    }
    return pretty({"metadata": metadata, "results": [_result(trial) for trial in trials], "schema_version": T4_VERSION})


def _searches(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of each search, under its file's name."""
    searches: dict[str, list[Record]] = {}
    for (device, arch, guessed), group in by_device(records).items():
        place = device_folder(device, arch) + ("-estimated" if guessed else "")
        for record in group:
            searches.setdefault(f"{_stem(record.problem)}-{place}{SUFFIX}", []).append(record)
    return searches


def _stem(problem: Problem) -> str:
    return path_name(f"{problem.kernel}-{problem.key}")


def _identities(trials: Sequence[Record], identities: Sequence[Identity]) -> list[Any]:
    objects = {trial.identity: to_object(trial)["identity"] for trial in trials}
    return [objects[identity] for identity in identities]


def _own_part(trial: Record, identity: int) -> dict[str, Any]:
    found = to_object(trial)
    return {key: value for key, value in found.items() if key not in (*_COMMON, "configuration")} | {
        "identity": identity
    }


def _result(trial: Record) -> dict[str, Any]:
    found = to_object(trial)
    word = T4_WORDS.get(trial.outcome, "runtime")
    measured = found["measurement"] if trial.ok else None
    times = {
        "compilation": found["build_s"] * 1e3,
        "framework": max(0.0, found["measure_s"] * 1e3 - (measured["time_ms"] if measured else 0.0)),
        "search_algorithm": 0,
        "validation": found["check_s"] * 1e3,
    }
    return {
        "timestamp": trial.created,
        "configuration": found["configuration"],
        "times": times | ({"runtimes": [measured["time_ms"]]} if measured else {}),
        "invalidity": word,
        "correctness": int(trial.ok),
        "measurements": [
            {
                "name": "time",
                "value": measured["time_ms"] if measured else _FAILED.get(word, "RuntimeFailedConfig"),
                "unit": "ms" if measured else "",
            }
        ],
        "objectives": ["time"],
    }
