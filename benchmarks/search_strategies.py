"""How well samplers search: scored on recorded spaces, where every answer is known and nothing has to be run.

    python benchmarks/search_strategies.py --spaces FOLDER… [--samplers model,tpe,random] [--repeats 25]
        [--batch 1,growing] [--spaces-matching TEXT] [--kernel-tuner [STRATEGIES]] [--without-features]
    python benchmarks/search_strategies.py --spaces FOLDER… --ask-cost [--samplers model] [--trials 2000]

A folder holds recordings: Kernel Tuner's cache files, T4 files, autotile's own journals and exports. scoring.py says
what the score is. A search runs through the product's own Strategy, which is told what each evaluation took then; its
own time, in asking and telling, is measured beside that and is not part of the score. `growing` batches ask for up to
eight at once, an eighth of what is known. A sampler that compares rows by a kernel's derived numbers is given them for
autotile's own recordings, and runs once more without. (A journal holds what earlier searches chose, which is better
than the space as a whole: samplers can be compared on it, but not with how they do on whole spaces.)

`--kernel-tuner` has Kernel Tuner's strategies search the same recordings for the same recorded time, in its simulation
mode, scored alike (`pip install kernel_tuner`). `--ask-cost` measures what a sampler's ask takes in the largest
recording, and in the largest T1 space of the folder with made-up times.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import RESULTS
from enumeration import cpu_machine, peer_version, save_for_cpu
from kernel_tuner_strategies import DEFAULT, evaluated_rows, known_strategies, write_cache
from recorded_spaces import GROWING, NEAR, Case, Search, cases_in, enough_for, made_up, recordings_in, search
from scoring import evaluations_within, run_score
from t1 import read_t1

from autotile.devices.replay.recording import Recording
from autotile.errors import AutotileError
from autotile.sampler import Strategy
from autotile.space import space_of_rows
from autotile.spec.model import SAMPLERS

Report = dict[str, Any]

FEATURED = ("model",)
"""Samplers that compare rows by derived columns where there are some."""

LAST_ASKS = 200


@dataclass(frozen=True)
class Contestant:
    """A sampler of autotile's, or a strategy of Kernel Tuner's. `batch` is how many it is asked for at once."""

    sampler: str
    batch: str = "1"
    features: bool = True
    kernel_tuner: bool = False

    @property
    def label(self) -> str:
        if self.kernel_tuner:
            return f"Kernel Tuner's {self.sampler}"
        batch = {"1": "", GROWING: ", growing batches"}.get(self.batch, f", batches of {self.batch}")
        return f"{self.sampler}{batch}{'' if self.features else ', without features'}"

    def plays(self, case: Case) -> bool:
        """A sampler without its features runs where it would have had some."""
        return self.features or case.derived is not None


# ---- all searches ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    contestant: Contestant
    case: str
    seed: int


class Bench:
    """What a process needs to run jobs: the cases by name, and where Kernel Tuner finds them."""

    def __init__(self, cases: Sequence[Case], caches: dict[str, Path]) -> None:
        self.cases, self.caches = {case.name: case for case in cases}, caches
        self.spaces = {case.name: case.space() for case in cases}

    def run(self, job: Job) -> Report:
        """One search's figures: the score, the evaluations within the budget, and the sampler's own time."""
        contestant, case = job.contestant, self.cases[job.case]
        if contestant.kernel_tuner:
            done = Search(evaluated_rows(case, self.caches[case.name], contestant.sampler, job.seed), *_NO_TIMES)
        else:
            derived = case.derived if contestant.features else None
            strategy = Strategy(self.spaces[case.name], contestant.sampler, job.seed, derived=derived)
            done = search(case.recording, strategy, contestant.batch, enough_for(case))
        before_s = np.cumsum(case.recording.cost_ms[done.rows]) / 1e3 - case.recording.cost_ms[done.rows] / 1e3
        within = int(np.count_nonzero(before_s < case.scale.budget_s))
        return {
            "score": run_score(case.recording, case.scale, done.rows),
            "evaluations": within,
            "own_cpu_s": float(done.cpu_s[:within].sum()),
            "own_wall_s": float(done.wall_s[:within].sum()),
            "needed": [evaluations_within(case.recording, done.rows, share) for share in NEAR],
        }


_NO_TIMES = (np.zeros(0), np.zeros(0))
_bench: Bench | None = None


def _begin(bench: Bench) -> None:
    global _bench
    _bench = bench
    threadpool_limits(1)  # else the processes' threads wait for each other


def _run(job: Job) -> Report:
    assert _bench is not None
    return _bench.run(job)


def run_all(bench: Bench, jobs: Sequence[Job], processes: int) -> list[Report]:
    """The jobs' reports in their order."""
    if processes == 1:
        with threadpool_limits(1):
            return [bench.run(job) for job in jobs]
    with multiprocessing.get_context("spawn").Pool(processes, _begin, (bench,)) as pool:
        return pool.map(_run, jobs, chunksize=1)


def on_case(contestant: Contestant, case: Case, runs: Sequence[Report]) -> Report:
    """The repeats of one contestant on one space. The score of the mean curve is the mean of the scores."""
    scores = [run["score"] for run in runs]
    evaluations = statistics.mean(run["evaluations"] for run in runs)
    report: Report = {
        "score": statistics.mean(scores),
        "standard_error": statistics.stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else None,
        "repeats": len(runs),
        "evaluations": evaluations,
    }
    if not contestant.kernel_tuner:
        for clock in ("cpu", "wall"):
            own_s = statistics.mean(run[f"own_{clock}_s"] for run in runs)
            report[f"{clock}_ms_an_ask"] = 1e3 * own_s / evaluations
            report[f"{clock}_share_of_budget"] = own_s / case.scale.budget_s
    medians = (statistics.median(run["needed"][i] for run in runs) for i in range(len(NEAR)))
    report["evaluations_needed"] = {
        f"{share:.0%}": median if math.isfinite(median) else None for share, median in zip(NEAR, medians, strict=True)
    }
    return report


def summary(contestant: Contestant, by_space: dict[str, Report]) -> Report:
    scores = [report["score"] for report in by_space.values()]
    return {
        "label": contestant.label,
        "sampler": contestant.sampler,
        "tuner": "kernel_tuner" if contestant.kernel_tuner else "autotile",
        "batch": contestant.batch,
        "features": contestant.features,
        "mean": statistics.mean(scores),
        "median": statistics.median(scores),
        "by_space": by_space,
    }


def about(case: Case) -> Report:
    recording, scale = case.recording, case.scale
    return {
        "name": case.name,
        "kernel": recording.kernel,
        "gpu": recording.device,
        "own": recording.own is not None,
        "derived_columns": 0 if case.derived is None else case.derived.shape[1],
        "rows": len(recording),
        "failed": int(np.isnan(recording.time_ms).sum()),
        "best_ms": scale.opt_ms,
        "median_ms": scale.median_ms,
        "budget_s": scale.budget_s,
        "budget_evaluations": scale.evaluations,
    }


def compete(cases: Sequence[Case], contestants: Sequence[Contestant], repeats: int, processes: int) -> Iterator[Report]:
    """The contestants' reports, as each has done all of its searches."""
    with tempfile.TemporaryDirectory(prefix="search-strategies-") as folder:
        peers = any(contestant.kernel_tuner for contestant in contestants)
        bench = Bench(cases, {case.name: write_cache(case, Path(folder)) for case in cases} if peers else {})
        for contestant in contestants:
            playing = [case for case in cases if contestant.plays(case)]
            jobs = [Job(contestant, case.name, seed) for case in playing for seed in range(repeats)]
            runs = run_all(bench, jobs, processes)
            by_space = {}
            for number, case in enumerate(playing):
                by_space[case.name] = on_case(contestant, case, runs[number * repeats : (number + 1) * repeats])
            yield summary(contestant, by_space)


def show(report: Report) -> None:
    print(f"{report['label']}: mean {report['mean']:.3f}, median {report['median']:.3f}")
    for name, on in report["by_space"].items():
        error = "" if on["standard_error"] is None else f" ± {on['standard_error']:.3f}"
        line = f"  {name:<24} {on['score']:7.3f}{error}  {on['evaluations']:6.1f} evaluations"
        if "cpu_ms_an_ask" in on:
            line += f", {on['cpu_ms_an_ask']:.2f} ms an ask ({on['wall_ms_an_ask']:.2f} by the clock)"
            line += f", {on['cpu_share_of_budget']:.2%} of the budget"
        needed = ", ".join(f"{share} after {count}" for share, count in on["evaluations_needed"].items() if count)
        print(line + (f"; within {needed}" if needed else ""), flush=True)


# ---- what an ask costs ----------------------------------------------------------------------------------------------


def ask_cost(recording: Recording, sampler: str, trials: int) -> Report:
    """Mean ms an ask (with its tell) over the first `trials`, and over the last of them."""
    space = space_of_rows(recording.names, recording.domains, recording.codes)
    with threadpool_limits(1):
        begin = time.perf_counter()
        strategy = Strategy(space, sampler, 0)
        made_s = time.perf_counter() - begin
        done = search(recording, strategy, "1", lambda evaluated, spent_s, best_ms: evaluated >= trials)
    report: Report = {"sampler": sampler, "space": recording.path.name.split(".")[0], "rows": len(space)}
    report |= {"trials": len(done.rows), "strategy_made_ms": 1e3 * made_s}
    for clock, took in (("cpu", done.cpu_s), ("wall", done.wall_s)):
        report |= {f"{clock}_ms_an_ask": 1e3 * took.mean(), f"{clock}_ms_last": 1e3 * took[-LAST_ASKS:].mean()}
        report[f"{clock}_ms_most"] = 1e3 * took.max()
    print(
        f"{sampler} on {report['space']}, {report['rows']} rows: {report['cpu_ms_an_ask']:.2f} ms an ask over "
        f"{report['trials']} trials, {report['cpu_ms_last']:.2f} over the last {LAST_ASKS} "
        f"({report['wall_ms_an_ask']:.2f} and {report['wall_ms_last']:.2f} by the clock)",
        flush=True,
    )
    return report


def ask_costs(folders: Sequence[Path], matching: str, samplers: Sequence[str], trials: int) -> list[Report]:
    recordings = list(recordings_in(folders, matching))
    spaces = [(path, read_t1(path).enumerate()) for folder in folders for path in sorted(folder.glob("*.T1.json"))]
    asked = [max(recordings, key=len)] if recordings else []
    if spaces:
        path, largest = max(spaces, key=lambda item: len(item[1]))
        asked.append(made_up(largest, path.name))
    return [ask_cost(recording, sampler, trials) for sampler in samplers for recording in asked]


def contestants_of(given: argparse.Namespace, cases: Sequence[Case]) -> list[Contestant]:
    found = [Contestant(sampler, batch) for sampler in given.samplers for batch in given.batch]
    if any(case.derived is not None for case in cases):
        found += [replace(contestant, features=False) for contestant in found if contestant.sampler in FEATURED]
    return found + [Contestant(strategy, kernel_tuner=True) for strategy in given.kernel_tuner]


def arguments() -> argparse.Namespace:
    def listed(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    def positive(text: str) -> int:
        if not text.isdecimal() or not int(text):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
        return int(text)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", type=Path, nargs="+", required=True, metavar="FOLDER")
    parser.add_argument("--spaces-matching", default="", metavar="TEXT", help="in the file's name; several with commas")
    parser.add_argument("--samplers", type=listed, default=["model", "tpe", "random"])
    parser.add_argument("--repeats", type=positive, default=25)
    parser.add_argument("--batch", type=listed, default=["1"], help="1, a number, growing, or several with commas")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--kernel-tuner", type=listed, nargs="?", const=list(DEFAULT), default=[], metavar="STRATEGIES")
    parser.add_argument("--without-features", action="store_true", help="give no sampler derived columns")
    parser.add_argument("--ask-cost", action="store_true", help="measure what asks take instead")
    parser.add_argument("--trials", type=positive, default=2000, help="of --ask-cost")
    parser.add_argument("--out", type=Path, default=RESULTS / "recorded-spaces", metavar="FOLDER")
    given = parser.parse_args()
    if unknown := [name for name in given.samplers if name not in SAMPLERS]:
        parser.error(f"unknown samplers {', '.join(unknown)}; known: {', '.join(SAMPLERS)}")
    if wrong := [text for text in given.batch if text != GROWING and not (text.isdecimal() and int(text))]:
        parser.error(f"--batch {', '.join(wrong)}: a batch is a number from 1, or {GROWING}")
    if not given.batch or not (given.samplers or given.kernel_tuner):
        parser.error("nothing is to search: name a sampler and a batch, or --kernel-tuner")
    if given.kernel_tuner and peer_version() is None:
        parser.error("--kernel-tuner: it cannot be imported: pip install kernel_tuner==1.5.0")
    if unknown := [name for name in given.kernel_tuner if name not in known_strategies()]:
        parser.error(f"--kernel-tuner: unknown {', '.join(unknown)}; known: {', '.join(known_strategies())}")
    return given


def main() -> None:
    given = arguments()
    try:
        run(given)
    except AutotileError as error:
        raise SystemExit(f"search_strategies: {error}") from None


def run(given: argparse.Namespace) -> None:
    if given.ask_cost:
        reports = ask_costs(given.spaces, given.spaces_matching, given.samplers, given.trials)
        print(save_for_cpu("ask_cost", {"machine": cpu_machine(), "asks": reports}, given.out))
        return
    cases = cases_in(given.spaces, given.spaces_matching, not given.without_features)
    document: Report = {"machine": cpu_machine(), "spaces": [about(case) for case in cases], "strategies": []}
    for report in compete(cases, contestants_of(given, cases), given.repeats, given.jobs):
        show(report)
        document["strategies"].append(report)
        path = save_for_cpu("search_strategies", document, given.out)  # a long run may be interrupted
    print(path)


if __name__ == "__main__":
    main()
