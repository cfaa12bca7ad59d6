"""Which values of the matmul's parameters are near the best: what configs/matmul.yaml may leave out.

    python benchmarks/matmul_values.py JOURNAL… [--out FOLDER]

Reads journals of full searches (AUTOTILE_HOME/devices/<device>/matmul/<problem>.records.jsonl) and writes
matmul_values.json: for each value of each parameter the best time, how many right configurations had it, and how many
of these came within 5 % of the best of all. The journals are of one device, driver and compiler.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import RESULTS

from autotile.store.journal import read
from autotile.types import Configuration, Record

NEAR = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journals", nargs="+", type=Path)
    parser.add_argument("--commit", required=True, help="the commit, or commits, that measured")
    parser.add_argument("--out", type=Path, default=RESULTS / "nvidia-h200", help="folder for the JSON file")
    given = parser.parse_args()
    records = [record for path in given.journals for record in read(path) if record.ok]
    (machine,) = {(r.identity.device, r.identity.arch, r.identity.driver, r.identity.compiler) for r in records}
    (problem,) = {record.problem for record in records}
    document = {
        **dict(zip(("device", "arch", "driver", "compiler"), machine, strict=True)),
        "commit": given.commit,
        "date": max(record.created for record in records),
        "problem": problem.label,
        **by_value(records),
    }
    path = given.out / "matmul_values.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print("wrote", path)


def by_value(records: list[Record]) -> dict[str, Any]:
    """The fastest time of each configuration counts: several searches may have measured it."""
    fastest: dict[Configuration, float] = {}
    for record in records:
        fastest[record.configuration] = min(record.time_ms, fastest.get(record.configuration, record.time_ms))
    best_ms = min(fastest.values())
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for configuration, time_ms in fastest.items():
        for name, value in configuration.items():
            values[name][json.dumps(value)].append(time_ms)
    return {
        "configurations": len(fastest),
        "best_ms": best_ms,
        "values": {
            name: {
                value: {"best_ms": min(times), "count": len(times), "near": sum(t <= NEAR * best_ms for t in times)}
                for value, times in sorted(found.items())
            }
            for name, found in values.items()
        },
    }


if __name__ == "__main__":
    main()
