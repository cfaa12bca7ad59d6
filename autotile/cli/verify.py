"""`autotile verify`: prove what is saved, again, on this device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotile.cli.options import check_json_path, device_option, json_option, note, say, templates_option, write_json
from autotile.errors import EXIT_FAILED, EXIT_OK, NotTuned

if TYPE_CHECKING:
    from autotile.tuner.verify import Verified


@click.command()
@device_option
@click.option("--kernel", "-k", help="Only this kernel, and those that serve under its name.")
@click.option("--sanitize", is_flag=True, help="Also run compute-sanitizer's memcheck and racecheck (on a GPU).")
@templates_option
@json_option
def verify(device: str, kernel: str | None, sanitize: bool, templates: tuple[Path, ...], json_path: str | None) -> int:
    """Prove every saved best of this device again: on its problem, on odd and large ones, on several kinds of data.

    One that is wrong is not served any more. The exit status is 1 when one failed, or none could be proven.
    """
    from autotile.build import Builder
    from autotile.devices.select import open_device
    from autotile.kernels import load_kernel
    from autotile.kernels.instead import folders_of
    from autotile.measure.sanitize import TOOLS
    from autotile.store import Store
    from autotile.tuner.verify import verify as verify_records
    from autotile.types import OK

    check_json_path(json_path)
    opened = open_device(device, note)
    store = Store()
    names = (None,) if kernel is None else folders_of(kernel, templates)
    records = [record for name in names for record in store.bests(name, opened.info.name)]
    if not records:
        of = f" of {kernel}" if kernel else ""
        raise NotTuned(f"nothing{of} is saved for {opened.info.name}: `autotile search` makes something to verify")
    found = []
    with Builder(opened.target) as builder:
        tools = TOOLS if sanitize else ()
        for verified in verify_records(
            records, lambda name: load_kernel(name, templates), opened, builder, store, tools
        ):
            found.append(verified)
            _show(verified, note if json_path == "-" else say)
    if json_path:
        write_json(json_path, {"device": opened.info.name, "verified": [_document(verified) for verified in found]})
    held = any(verified.outcome == OK for verified in found) and not any(verified.failed for verified in found)
    return EXIT_OK if held else EXIT_FAILED


def _show(verified: Verified, tell: Callable[[str], None]) -> None:
    from autotile.cli.text import time_of, time_text

    record = verified.record
    name = f"{record.problem.kernel} {record.problem.label}"
    if verified.measurement is None:
        tell(f"{verified.outcome:<12} {name}: {verified.message}")
        return
    today = time_text(verified.measurement)
    compared = ""
    if verified.speed is not None:
        compared = f", {verified.speed} {'as' if verified.speed == 'same' else 'than'} saved ({time_of(record)})"
    notes = "".join(f"; {text}" for text in verified.notes)
    error = f"error {verified.max_error or 0:.2g} of its bound"
    tell(f"{verified.outcome:<12} {name}: {today}{compared}; {error}{notes}")


def _document(verified: Verified) -> dict[str, Any]:
    record, measurement = verified.record, verified.measurement
    return {
        "kernel": record.problem.kernel,
        "problem": {**record.problem.asked, "dtype": record.problem.dtype},
        "configuration": dict(record.configuration),
        "outcome": verified.outcome,
        "message": verified.message,
        "time_ms": None if measurement is None else measurement.time_ms,
        "estimated": None if measurement is None else measurement.estimated,
        "saved_time_ms": None if record.measurement is None else record.measurement.time_ms,
        "speed": verified.speed,
        "max_error": verified.max_error,
        "notes": list(verified.notes),
    }


COMMANDS = (verify,)
