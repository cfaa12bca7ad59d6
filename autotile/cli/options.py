"""Options that several commands share, and how results leave."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from autotile.errors import StoreError

F = TypeVar("F", bound=Callable[..., Any])

JSON_SCHEMA_VERSION = 1


def device_option(function: F) -> F:
    return click.option(
        "--device",
        "-d",
        default="auto",
        envvar="AUTOTILE_DEVICE",
        show_default=True,
        help="auto, cuda:N, emulator, emulator:GPU (say emulator:a100), or replay:FILE of recorded times.",
    )(function)


def templates_option(function: F) -> F:
    return click.option(
        "--templates",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder with more kernel folders. May be given again.",
    )(function)


def json_option(function: F) -> F:
    return click.option(
        "--json", "json_path", metavar="PATH", help="Write the result as JSON to PATH, or - for stdout."
    )(function)


def note(message: str) -> None:
    """Anything that is not data goes to stderr."""
    click.echo(message, err=True)


def say(text: str) -> None:
    """Data go to stdout, with a newline at the end. Raises StoreError where it takes no more, as on a full disk."""
    try:
        click.echo(text, nl=not text.endswith("\n"))
    except BrokenPipeError:  # the reader, such as `head`, has gone: no fault, and `main` ends quietly
        raise
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - Python would try once more at its end, and say so
        raise StoreError(f"the output cannot be written: {error.strerror or error}") from error


def check_json_path(path: str | None) -> None:
    """Raises click.UsageError now, rather than after minutes of work, where PATH cannot be written."""
    if path and path != "-" and not Path(path).absolute().parent.is_dir():
        raise click.UsageError(f"--json {path}: there is no folder {Path(path).absolute().parent}")
    if path and Path(path).is_dir():
        raise click.UsageError(f"--json {path}: that is a folder")


def write_json(path: str, document: dict[str, Any]) -> None:
    """One object, with its schema version, to a file or to stdout (`-`)."""
    text = json.dumps(
        {"schema_version": JSON_SCHEMA_VERSION, **document}, indent=2, allow_nan=False, ensure_ascii=False
    )
    if path == "-":
        say(text)
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--json {path}: {error.strerror}") from None
