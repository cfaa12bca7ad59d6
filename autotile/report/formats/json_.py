"""Everything, for programs and for `autotile import`."""

from __future__ import annotations

from collections.abc import Sequence

from autotile.report.formats.common import by_device
from autotile.store.serial import pretty, to_object
from autotile.types import SCHEMA_VERSION, Record


def document(records: Sequence[Record]) -> str:
    """One object: `schema_version`, and the records of each device."""
    return pretty(
        {
            "schema_version": SCHEMA_VERSION,
            "devices": [
                {"device": device, "arch": arch, "estimated": estimated, "records": [to_object(r) for r in group]}
                for (device, arch, estimated), group in by_device(records).items()
            ],
        }
    )
