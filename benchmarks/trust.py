"""How far results can be trusted, on a GPU: noise, seeds, and what a faulting kernel does to the next.

    python benchmarks/trust.py [--out FOLDER] [--seeds 0,1,2]

Writes trust.json: the winners of full searches with different seeds, timed side by side; a kernel timed beside itself;
the times of right variants among faulting ones, beside their times alone; and how long a search takes to go on after a
fault. Records go to stores of their own, so nothing is resumed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from common import ROOT, machine, save

sys.path.insert(0, str(ROOT / "tests"))
from faulty_kernel import write_faulty

N_FAULTY = 1 << 26
FAULTS = "none, illegal, misaligned, hang, wrong"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--seeds", default="0,1,2", help="seeds of the searches")
    parser.add_argument("--trials", type=int, default=None, help="trials of each search (default: the config's)")
    given = parser.parse_args()

    from autotile.build import Builder
    from autotile.devices.select import open_device

    device = open_device("cuda")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    with Builder(device.target) as builder:
        document: dict[str, Any] = machine(device.info, builder.compiler)
    document["seeds"] = {name: searches(name, seeds, given.trials, device) for name in ("matmul", "transpose")}
    document["after_a_fault"] = after_a_fault()
    print("wrote", save("trust", device.info, document, given.out))


def searches(name: str, seeds: list[int], trials: int | None, device: Any) -> dict[str, Any]:
    """Full searches that differ in their seed; their winners side by side, the first once more beside itself."""
    import autotile
    from autotile.build import Builder
    from autotile.kernels import load_kernel
    from autotile.measure import make_variant, make_workload
    from autotile.measure.noise import verdict
    from autotile.measure.timing import interleaved

    results = []
    for seed in seeds:
        os.environ["AUTOTILE_HOME"] = tempfile.mkdtemp(prefix="autotile-")
        results += autotile.search(name, device="cuda", seed=seed, trials=trials)
        best = results[-1].best
        assert best is not None, results[-1].outcomes
        print(f"{name} seed {seed}: {best.time_ms:.4f} ms, {results[-1].trials_per_s:.1f} trials a second", flush=True)
    kernel, problem = load_kernel(name), results[0].problem
    variants = [make_variant(kernel, problem, result.best.configuration) for result in results]
    with Builder(device.target) as builder:
        binaries = [builder.build(variant.source) for variant in variants]
        comparer = builder.build(device.comparer)
        with device.stage(make_workload(kernel, problem), comparer) as stage:
            entered = list(zip(variants, binaries, strict=True))
            entered.append(entered[0])
            for variant, binary in entered:
                assert stage.check(device.load(binary), variant.launch).ok
            runs = [partial(stage.times_ms, device.load(binary), variant.launch) for variant, binary in entered]
            *times, again = interleaved(runs, rounds=20)
    medians = [measurement.time_ms for measurement in times]
    document = {
        "problem": problem.label,
        "searches": [
            {
                "seed": seed,
                "time_ms": measurement.time_ms,
                "spread_ms": measurement.spread_ms,
                "trials": len(result.records),
                "outcomes": dict(result.outcomes),
                "trials_per_s": round(result.trials_per_s, 2),
                "drift": dict(result.best.extra).get("drift"),
                "traced": dict(result.best.extra).get("traced"),
                "configuration": dict(result.best.configuration),
            }
            for seed, result, measurement in zip(seeds, results, times, strict=True)
        ],
        "spread_of_bests": max(medians) / min(medians) - 1,
        "beside_itself": {
            "time_ms": again.time_ms,
            "difference": abs(again.time_ms / medians[0] - 1),
            "verdict": verdict(times[0], again),
        },
    }
    print(f"{name}: bests {document['spread_of_bests']:.2%} apart, A/A {document['beside_itself']}", flush=True)
    return document


def after_a_fault() -> dict[str, Any]:
    """The same three right variants, alone and each behind variants that fault."""
    import autotile

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, faults in (("alone", "none"), ("among faults", FAULTS)):
            os.environ["AUTOTILE_HOME"] = tempfile.mkdtemp(prefix="autotile-")
            file = write_faulty(Path(folder), faults, N_FAULTY, "[128, 256, 512]")
            (result,) = autotile.search(file, device="cuda", templates=folder)
            right = {str(r.configuration["width"]): r.time_ms for r in result.records if r.ok}
            found[label] = {"times_ms": right, "outcomes": dict(result.outcomes), "total_s": result.phases.total_s}
    alone, among = found["alone"]["times_ms"], found["among faults"]["times_ms"]
    ratios = {width: among[width] / alone[width] for width in alone}
    print("after a fault", {width: round(ratio, 4) for width, ratio in ratios.items()}, flush=True)
    return {**found, "ratios": ratios}


if __name__ == "__main__":
    main()
