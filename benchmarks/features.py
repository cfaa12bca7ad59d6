"""Do the columns that are known before a build (threads, shared bytes, waves, …) save measurements? On a GPU.

    python benchmarks/features.py [--seeds 3] [--out FOLDER]

The whole space of each kernel, as its folder declares it, is searched with and without them, from the same seeds, cold.
Counted is how many trials each took to come within 10, 5 and 2 % of the best that any of them found. Writes
features.json.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from common import machine, save

import autotile
from autotile.build import Builder
from autotile.devices.select import open_device
from autotile.tuner import SearchResult

SEARCHES = {
    "matmul": ("kernel: matmul\nproblems: [{m: 4096, n: 4096, k: 4096}]\n", 150),
    "transpose": ("kernel: transpose\nproblems: [{rows: 8192, cols: 8192}]\n", 80),
}
SHARES = (0.10, 0.05, 0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    given = parser.parse_args()
    device = open_device("cuda")
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
    document["kernels"] = {name: compared(name, given.seeds) for name in SEARCHES}
    print("wrote", save("features", device.info, document, given.out))


def compared(name: str, seeds: int) -> dict[str, Any]:
    text, trials = SEARCHES[name]
    found: dict[str, list[SearchResult]] = {"with": [], "without": []}
    for seed in range(seeds):
        for which in found if seed % 2 == 0 else reversed(found):
            with features(which == "with"), tempfile.TemporaryDirectory() as home:
                os.environ["AUTOTILE_HOME"] = home
                file = Path(home, "search.yaml")
                file.write_text(text, encoding="utf-8")
                found[which] += autotile.search(file, device="cuda", seed=seed, trials=trials, effort="full")
            print(name, which, seed, found[which][-1], flush=True)
    best_ms = min(r.time_ms for results in found.values() for result in results for r in result.records)
    report: dict[str, Any] = {"trials": trials, "seeds": seeds, "best_ms": best_ms}
    for which, results in found.items():
        report[which] = {
            "bests_ms": [min(r.time_ms for r in result.records) for result in results],
            **{
                f"trials_to_{share:.0%}": statistics.median(needed(result, best_ms * (1 + share)) for result in results)
                for share in SHARES
            },
        }
        print(name, which, report[which], flush=True)
    return report


def needed(result: SearchResult, goal_ms: float) -> float:
    """Trials until one was as fast as the goal; infinite, as a number that JSON knows (one beyond all), if none was."""
    for number, record in enumerate(result.records, 1):
        if record.time_ms <= goal_ms:
            return number
    return len(result.records) + 1


@contextmanager
def features(use: bool) -> Iterator[None]:
    if use:
        yield
        return
    with patch("autotile.tuner.run.derived_columns", lambda *arguments: None):
        yield


if __name__ == "__main__":
    main()
