"""Does it matter which compiler a search uses? From the journals of searches that differ in nothing else.

    python benchmarks/compiler_bests.py JOURNAL… [--commit C] [--out FOLDER]

A journal is a search's *.records.jsonl; pairs of the same seed, one with nvcc and one with NVRTC, were made by
`AUTOTILE_COMPILER=… autotile search matmul --seed N` on one GPU. Told are the best trial of each search (with the
launches of a trial: winners are timed again in finals of their own), and, for the configurations that both compilers
have on record, the ratio of their times. Writes compiler_bests.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import RESULTS, commit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", type=Path, nargs="+")
    parser.add_argument("--commit", default=None, help="the commit that was measured (default: this tree's)")
    parser.add_argument("--out", type=Path, default=RESULTS / "nvidia-h200")
    given = parser.parse_args()
    searches, times = [], defaultdict[str, dict[str, float]](dict)
    for path in given.journals:
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        right = [record for record in records if record["outcome"] == "ok"]
        best = min(right, key=lambda record: float(record["measurement"]["time_ms"]))
        searches.append(found(records, best))
        for record in right:
            key = json.dumps(record["configuration"], sort_keys=True)
            times[key][record["identity"]["compiler"]] = record["measurement"]["time_ms"]
    compilers = sorted({search["compiler"] for search in searches})
    both = [of for of in times.values() if len(of) == len(compilers)]
    ratios = sorted(of[compilers[0]] / of[compilers[1]] for of in both)
    document = {
        "device": searches[0]["device"],
        "driver": searches[0]["driver"],
        "commit": given.commit or commit(),
        "date": max(search["date"] for search in searches),
        "compiler": " and ".join(compilers),
        "searches": sorted(searches, key=lambda search: (search["seed"], search["compiler"])),
        "same_configuration": {
            "count": len(both),
            "ratio_of": " over ".join(compilers),
            "least": ratios[0],
            "median": statistics.median(ratios),
            "most": ratios[-1],
        },
    }
    path = given.out / "compiler_bests.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print("wrote", path)


def found(records: list[dict[str, Any]], best: dict[str, Any]) -> dict[str, Any]:
    identity = best["identity"]
    sizes = "×".join(str(size) for size in best["sizes"].values())
    return {
        "problem": f"{best['kernel']} {sizes} {best['dtype']}",
        "compiler": identity["compiler"],
        "device": identity["device"],
        "driver": identity["driver"],
        "seed": best["seed"],
        "trials": len(records),
        "best_ms": best["measurement"]["time_ms"],
        "date": best["created"],
    }


if __name__ == "__main__":
    main()
