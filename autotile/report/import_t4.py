"""T4 files in: what `autotile export --format t4` wrote becomes trials again, never a winner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotile.codegen import template_digest
from autotile.devices.replay.own import T4_KEY, t4_records
from autotile.errors import ImportRefused, UsageError
from autotile.report.formats.common import Kernels
from autotile.report.formats.t4 import as_trial
from autotile.types import Record


def is_t4(document: object) -> bool:
    """Whether a parsed file is one of T4's, whoever wrote it."""
    match document:
        case {"results": list(), "schema_version": str()}:
            return True
        case _:
            return False


def t4_entries(document: dict[str, Any], path: Path) -> Iterator[tuple[str, object]]:
    """Every record's place in the file, and its object (see store/serial.py), which is not checked here.

    Raises ImportRefused for a file that another tuner wrote, and for one whose results and metadata are at odds.
    """
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or T4_KEY not in metadata:
        raise ImportRefused(
            f"{path}: a T4 file of another tuner, whose kernels and problems autotile does not know; its times can be "
            f"replayed: autotile search {path} --device replay:{path}"
        )
    try:
        for number, found in enumerate(t4_records(document), 1):
            yield f"result {number}", found
    except UsageError as fault:
        raise ImportRefused(f"{path}: {fault}") from None


def trial_of(record: Record, kernels: Kernels) -> Record:
    """The record as a trial, without a winner's marks. Raises ImportRefused when the kernel's folder differs here."""
    here = template_digest(kernels(record.problem.kernel))
    if record.identity.template != here:
        raise ImportRefused(
            f"the folder of {record.problem.kernel} here is another one than was searched "
            f"({here}, not {record.identity.template})"
        )
    return as_trial(record)
