"""One row a record, for spreadsheets and data frames. Sizes are columns `size_…`, what else a problem says `option_…`
and `switch_…` (empty where it is as usual), parameters `param_…`; `before` and `after` are what is launched around it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from autotile.store import estimated
from autotile.store.serial import to_object
from autotile.types import Record

_NESTED = ("sizes", "options", "switches", "configuration", "identity", "measurement", "launch", "extra")


def table(records: Sequence[Record]) -> str:
    """The rows under one header line; a cell is empty where a record has no such value."""
    rows = [_row(record) for record in records]
    sizes = [column for prefix in ("size_", "option_", "switch_") for column in _columns(rows, prefix)]
    parameters = _columns(rows, "param_")
    others = [column for column in _row_columns(rows) if column not in {*sizes, *parameters}]
    at = others.index("kernel") + 1 if "kernel" in others else 0
    out = io.StringIO()
    writer = csv.DictWriter(out, [*others[:at], *sizes, *others[at:], *parameters], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(record: Record) -> dict[str, Any]:
    found = to_object(record)
    measurement, launch = found["measurement"] or {}, found["launch"] or {}
    identity = found["identity"]
    row: dict[str, Any] = {
        "device": identity["device"],
        "arch": identity["arch"],
        "estimated": estimated(record),
        "kernel": found["kernel"],
        "dtype": found["dtype"],
        "outcome": found["outcome"],
        **{name: measurement.get(name) for name in ("time_ms", "min_ms", "spread_ms", "runs", "stopped_early")},
        **{
            f"{what}_{axis}": side
            for what in ("grid", "block")
            for axis, side in zip("xyz", launch.get(what, [None] * 3), strict=True)
        },
        "shared_bytes": launch.get("shared_bytes"),
        **({"scratch_bytes": launch["scratch_bytes"]} if "scratch_bytes" in launch else {}),
        **{key: _steps(launch[key]) for key in ("before", "after") if key in launch},
        **{name: identity[name] for name in ("driver", "compiler", "flags", "template", "schema")},
    }
    row |= {name: value for name, value in found.items() if name not in row and name not in _NESTED}
    row |= {f"size_{name}": size for name, size in found["sizes"].items()}
    row |= {f"option_{name}": value for name, value in record.problem.options}
    row |= {f"switch_{name}": True for name in record.problem.switches}
    row |= {f"param_{name}": value for name, value in found["configuration"].items()}
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in row.items()}


def _steps(steps: Iterable[dict[str, Any]]) -> str:
    """`_pack 40x1x1 32x1x1`: a function's suffix, its grid and its block; `;` between several."""
    shown = ([step["entry_suffix"], *("x".join(map(str, step[what])) for what in ("grid", "block"))] for step in steps)
    return "; ".join(" ".join(words) for words in shown)


def _row_columns(rows: Iterable[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _columns(rows: Iterable[dict[str, Any]], prefix: str) -> list[str]:
    return [name for name in _row_columns(rows) if name.startswith(prefix)]
