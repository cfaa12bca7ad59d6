"""Is a minute enough? The shipped matmul search with ten seeds, beside one of two thousand trials, on a GPU.

    python benchmarks/seeds.py [--config matmul] [--seeds 10] [--time 60s] [--reference 2000] [--out FOLDER]

Each search begins cold, in a store of its own, and ends by its own rule (search.effort) or when the time is up. Their
winners and the long search's are timed side by side in one run. Writes seeds.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from common import machine, save
from side_by_side import timed_side_by_side

import autotile
from autotile.build import Builder
from autotile.devices.select import open_device
from autotile.tuner import SearchResult

REFERENCE_SEED = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="matmul")
    parser.add_argument("--seeds", type=int, default=10, help="how many, from 0")
    parser.add_argument("--time", default="60s", help="limit of each search")
    parser.add_argument("--reference", type=int, default=2000, help="trials of the long search")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    given = parser.parse_args()
    device = open_device("cuda")
    reference, reference_s = cold(given.config, REFERENCE_SEED, trials=given.reference, effort="full")
    searches = [cold(given.config, seed, time=given.time) for seed in range(given.seeds)]
    results = [reference, *(result for result, _ in searches)]
    times = timed_side_by_side(reference.problem, [winner(result) for result in results], device)
    best_ms = times[0].time_ms
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
    document |= {
        "problem": reference.problem.label,
        "space": reference.space_size,
        "limit": given.time,
        "reference": entry(reference, reference_s, best_ms, best_ms),
        "searches": [
            entry(result, wall_s, measurement.time_ms, best_ms)
            for (result, wall_s), measurement in zip(searches, times[1:], strict=True)
        ],
    }
    slower = [found["slower"] for found in document["searches"]]
    document["within_5_percent"] = sum(share <= 0.05 for share in slower)
    print(f"{document['within_5_percent']} of {len(slower)} within 5 %, the worst {max(slower):.2%}", flush=True)
    print("wrote", save("seeds", device.info, document, given.out))


def cold(config: str, seed: int, **options: Any) -> tuple[SearchResult, float]:
    """One search with nothing on record and nothing built, and the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="autotile-seeds-") as home:
        os.environ["AUTOTILE_HOME"] = os.environ["CUDA_CACHE_PATH"] = home
        begun = time.perf_counter()
        (result,) = autotile.search(config, device="cuda", seed=seed, **options)
        wall_s = time.perf_counter() - begun
    best_ms = result.best and result.best.time_ms
    print(
        f"seed {seed}: {best_ms} ms, {result.new_trials} trials in {wall_s:.1f} s, stopped by {result.stopped_by}",
        flush=True,
    )
    return result, wall_s


def winner(result: SearchResult) -> Any:
    assert result.best is not None, result.outcomes
    return result.best.configuration


def entry(result: SearchResult, wall_s: float, time_ms: float, best_ms: float) -> dict[str, Any]:
    return {
        "seed": result.records[0].seed,
        "trials": result.new_trials,
        "stopped_by": result.stopped_by,
        "outcomes": dict(result.outcomes),
        "wall_s": wall_s,
        "phases_s": vars(result.phases),
        "trials_per_s": result.trials_per_s,
        "time_ms": time_ms,
        "slower": time_ms / best_ms - 1,
        "configuration": dict(winner(result)),
    }


if __name__ == "__main__":
    main()
