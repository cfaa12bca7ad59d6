"""The transpose beside a copy and beside PyTorch's, CuPy's and cuBLAS's (geam), on one GPU.

    python benchmarks/transpose.py [--shapes default,2048x2048,64x512x512] [--dtypes float32,int8] [--output DIR]
    python benchmarks/transpose.py --search [--trials N] [--time 60s] [--seed S | --seeds 0,1,2] [--home DIR]

Without --search it times what `autotile.load` gives; with it, each case is searched first. All contestants of a case
take turns, each launch on a flushed L2 and another of three input sets; afterwards autotile's output is compared, bit
for bit. Writes transpose.json (transpose_seeds.json with --seeds) after every case, and with --search tuned.json beside
it: the winners, as `autotile export --format json` writes them. Exit code 1 where a case fails or comes out wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import (
    Call,
    TorchClock,
    build_all,
    in_turns,
    make_data,
    own_copies,
    peers,
    variant_call,
    without_those_that_fail,
    wrong_peers,
    wrong_sets,
)
from transpose_cases import DEFAULT, DTYPES, INPUT_SETS, Case, cases_of, compared, fastest
from transpose_tables import transpose, transpose_seeds
from vector_copy import VARIANTS

import autotile
from autotile.build import Builder
from autotile.devices.select import open_device
from autotile.errors import AutotileError, NotTuned
from autotile.kernels import load_kernel
from autotile.report import export
from autotile.spec.load import load_specs
from autotile.store import Store
from autotile.tuner import SearchResult
from autotile.tuner.searches import search_all
from autotile.types import Binary, Configuration, Problem, Record

FIRST_S, AGAIN_S = 1.0, 0.15
"""Seconds of launches before the first case, until the clocks have risen, and before each of the others."""

OURS = "autotile"


def main() -> None:
    given = parsed()
    cases = cases_of(given.shapes, given.dtypes, given.in_place)
    if given.dry_run:
        print("\n".join(planned(cases)))
        return
    home = Path(given.home or tempfile.mkdtemp(prefix="autotile-transpose-")).absolute()
    os.environ["AUTOTILE_HOME"] = str(home)
    device = open_device("cuda")
    entries: list[dict[str, Any]] = []
    name = "transpose_seeds" if given.seeds else "transpose"
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler) | {"cases": entries}
        copies = [future.result() for future in [builder.submit(variant.source) for variant in VARIANTS]]
        bench = Bench(device, builder, copies, TorchClock())
        if not given.search:
            build_all(builder, list(loaded(cases)))
        for case in cases:
            entries.append(about(case) | guarded(bench, case, given, home))
            print(case.label, said(entries[-1]), flush=True)
            path = save(name, device.info, document, given.output)
            if given.search and (bests := Store(home).bests("transpose", device.info.name)):
                export(bests, "json", path.parent / "tuned.json", load_kernel)
    print("\n".join(transpose(document) + (["", *transpose_seeds(document)] if given.seeds else [])))
    print("wrote", path)
    if not all(entry.get("exact") for entry in entries):
        raise SystemExit(1)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=DEFAULT, help="rows x cols or batch x rows x cols, by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="element types, by commas")
    parser.add_argument("--in-place", action="store_true", help="the output takes the input's place")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON files")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--search", action="store_true", help="search each case before it is timed")
    parser.add_argument("--trials", type=int, default=None, help="trials of each search (default: the config's)")
    parser.add_argument("--time", default=None, help="limit of each search, such as 60s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the searches")
    parser.add_argument("--seeds", default="", help="several seeds, by commas: a cold search each")
    parser.add_argument("--dry-run", action="store_true", help="show the cases; no GPU needed")
    given = parser.parse_args(arguments)
    given.seeds = [int(seed) for seed in given.seeds.split(",") if seed.strip()]
    if given.seeds and not given.search:
        parser.error("--seeds are of searches: give --search too")
    return given


def planned(cases: Sequence[Case]) -> list[str]:
    """A line a case: what it moves, needs, and is asked. Raises UsageError where the kernel has no such case."""
    kernel = load_kernel("transpose")
    lines = []
    for case in cases:
        problem = kernel.problem(case.sizes, case.dtype)
        need = 2 * INPUT_SETS * case.array_bytes / 2**30
        asked = ", ".join(f"{name} {least:.2f}" for name, least in case.asked.items()) or "nothing asked"
        lines.append(
            f"{case.label} ({problem.key}): {case.moved_bytes / 2**20:.0f} MiB moved, {need:.1f} GiB needed, "
            f"{case.rounds} launches each; {asked}"
        )
    return lines


def about(case: Case) -> dict[str, Any]:
    return {"shape": list(case.shape), "dtype": case.dtype, "in_place": case.in_place, "bytes": case.moved_bytes}


def said(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"failed: {entry['error']}"
    return (
        f"{entry['gbs'][OURS]:.0f} GB/s, {entry.get('of_copy', 0):.3f} of a copy, "
        f"{entry.get('of_best_copy', 0):.3f} of the best; {'exact' if entry['exact'] else 'WRONG'}, {entry['match']}"
    )


@dataclasses.dataclass
class Bench:
    """What all cases share: the device, compilers, the copy kernels of our own, the clock; `warm` after the first."""

    device: Any
    builder: Builder
    copies: Sequence[Binary]
    clock: TorchClock
    warm: bool = False


def guarded(bench: Bench, case: Case, given: argparse.Namespace, home: Path) -> dict[str, Any]:
    """The case's figures, or its error: time on a GPU is scarce, and the other cases are worth theirs."""
    import torch

    try:
        return measured(bench, case, given, home)
    except (AutotileError, RuntimeError) as error:  # RuntimeError: PyTorch's, out of memory among them
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        torch.cuda.empty_cache()  # the next case's search measures in a process of its own


def loaded(cases: Sequence[Case]) -> Iterator[tuple[Problem, Configuration]]:
    """What serves each case, as far as something does."""
    for case in cases:
        with suppress(AutotileError):
            tuned = load(case)
            yield tuned.problem, tuned.config


def load(case: Case) -> autotile.TunedKernel:
    asked: dict[str, Any] = case.sizes
    return autotile.load("transpose", dtype=case.dtype, device="cuda", **asked)


def measured(bench: Bench, case: Case, given: argparse.Namespace, home: Path) -> dict[str, Any]:
    if not given.search:
        tuned = load(case)
        return contested(bench, case, {OURS: tuned.config}) | {"match": tuned.match}
    if not given.seeds:
        result, facts = searched(bench, case, given.seed, given, home)
        return contested(bench, case, {OURS: winner(result).configuration}) | {"match": "exact", "search": facts}
    winners: list[Record] = []
    found: list[dict[str, Any]] = []
    for seed in given.seeds:
        with tempfile.TemporaryDirectory(prefix="autotile-seed-") as cold:
            result, facts = searched(bench, case, seed, given, Path(cold))
        winners.append(winner(result))
        found.append(facts)
    named = {f"{OURS} seed {seed}": best.configuration for seed, best in zip(given.seeds, winners, strict=True)}
    entry = contested(bench, case, named)
    for facts, label in zip(found, named, strict=True):
        facts["time_ms"] = entry["seed_times_ms"][label]
        facts["slower"] = facts["time_ms"] / entry["times_ms"][OURS] - 1
    fastest_one = min(range(len(found)), key=lambda index: float(found[index]["time_ms"]))
    Store(home).save_best(winners[fastest_one])
    return entry | {"match": "exact", "seeds": found}


def searched(
    bench: Bench, case: Case, seed: int, given: argparse.Namespace, home: Path
) -> tuple[SearchResult, dict[str, Any]]:
    """A search of the shipped config's kind for the case, with its records and binaries under `home`."""
    options = {"trials": given.trials, "time": given.time, "seed": seed}
    overrides = [f"search.{key}={value}" for key, value in options.items() if value is not None]
    spec = load_specs("transpose", overrides)[0]
    spec = dataclasses.replace(spec, problems=(spec.kernel.problem(case.sizes, case.dtype),))
    before = os.environ["AUTOTILE_HOME"]
    os.environ["AUTOTILE_HOME"] = str(home)
    try:
        begun = time.perf_counter()
        (result,) = search_all([spec], bench.device, Store(home))
        seconds = time.perf_counter() - begun
    finally:
        os.environ["AUTOTILE_HOME"] = before
    facts = {
        "seed": seed,
        "seconds": seconds,
        "trials": result.new_trials,
        "stopped_by": result.stopped_by,
        "outcomes": dict(result.outcomes),
        "phases_s": vars(result.phases),
        "configuration": None if result.best is None else dict(result.best.configuration),
    }
    print(f"{case.label}, seed {seed}: {result.new_trials} trials in {seconds:.1f} s, {result.stopped_by}", flush=True)
    return result, facts


def winner(result: SearchResult) -> Record:
    if result.best is None:
        raise NotTuned(f"the search of {result.problem.label} found nothing valid: {dict(result.outcomes)}")
    return result.best


def contested(bench: Bench, case: Case, ours: dict[str, Configuration]) -> dict[str, Any]:
    """Everything in one run; the fastest of `ours` is `autotile`, and it is checked. Equal ones are timed once."""
    problem = load_kernel("transpose").problem(case.sizes, case.dtype)
    data = make_data(case)
    notes: list[str] = []
    distinct = {configuration: label for label, configuration in reversed(ours.items())}
    build_all(bench.builder, [(problem, configuration) for configuration in distinct])
    prepared = {
        label: variant_call(bench.device, bench.builder, problem, configuration, data)[0]
        for configuration, label in distinct.items()
    }
    others = own_copies(bench.device, bench.copies, case, data) | peers(case, data)
    contestants: dict[str, Call] = prepared | without_those_that_fail(others, notes)
    heat_up(contestants, AGAIN_S if bench.warm else FIRST_S)
    bench.warm = True
    figures = {n: summary(times) for n, times in in_turns(contestants, case.rounds, bench.clock).items()}
    medians = {name: figure["median_ms"] for name, figure in figures.items()}
    label = fastest(medians, OURS)
    own = fastest(medians, "own_copy")
    times_ms = {OURS: medians[label], "own_copy": medians[own]}
    times_ms |= {name: medians[name] for name in ("copy", "torch", "cupy", "geam") if name in medians}
    wrong = wrong_sets(prepared[label], case, data)
    if not case.in_place:
        notes += [f"the transpose of {name} is wrong" for name in wrong_peers(contestants, data)]
    return compared(case, times_ms) | {
        "configuration": dict(ours[label]),
        "exact": not wrong,
        "wrong_sets": wrong,
        "own_copy": own.removeprefix("own_copy: "),
        "figures": figures,
        "seed_times_ms": {name: medians[distinct[configuration]] for name, configuration in ours.items()},
        "notes": notes,
    }


if __name__ == "__main__":
    main()
