"""Writes records for other programs and for people. A format is a module of formats/ and a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from autotile.errors import StoreError, UsageError
from autotile.kernels import Kernel
from autotile.report.formats import csv_, cuda, json_, markdown, t4
from autotile.report.formats.common import ExportWarning, Kernels
from autotile.suggest import did_you_mean
from autotile.types import Record

__all__ = ["FORMATS", "ExportWarning", "export"]

_TEXTS: dict[str, Callable[[Sequence[Record], Kernels], str]] = {
    "json": lambda records, kernels: json_.document(records),
    "csv": lambda records, kernels: csv_.table(records),
    "markdown": markdown.page,
}
FORMATS = (*_TEXTS, "cuda", "t4")


def export(
    records: Sequence[Record],
    format: str,  # noqa: A002 - what the command line calls it
    path: Path | None,
    kernels: Callable[[str], Kernel],
) -> str | list[Path]:
    """The text of the records, or, where a path is given, the files written: one, or a folder of them for `cuda` and
    `t4` (for which the records are all trials; see formats/t4.py).

    Raises UsageError for an unknown format, for `cuda` without a path, and for a file where a folder is needed or the
    other way round; StoreError where the disk refuses; NotTuned when `cuda` has nothing to write.
    """
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}{did_you_mean(format, FORMATS)}; there are {', '.join(FORMATS)}")
    once = cache(kernels)  # reading a kernel's folder costs more than formatting a row
    try:
        if format == "cuda":
            if path is None or (path.exists() and not path.is_dir()):
                raise UsageError(f"format cuda writes a folder, and {path or 'no path'} is none: name a folder")
            return cuda.write_folder(records, path, once)
        if format == "t4":
            return t4.write(records, path)
        text = _TEXTS[format](records, once)
        if path is None:
            return text
        if path.is_dir():
            raise UsageError(f"format {format} writes a file, and {path} is a folder: name a file in it")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise StoreError(
            f"cannot write {error.filename or path}: {error.strerror or error}; name another path"
        ) from error
    return [path]
