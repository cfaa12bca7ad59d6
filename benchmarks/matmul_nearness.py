"""How good is what `autotile.load` gives for a matmul that was not tuned? Each tuned problem is left out in turn.

    python benchmarks/matmul_nearness.py [--records tuned.json …] [--home DIR] [--output DIR] [--served-only]
    python benchmarks/matmul_nearness.py --again matmul_nearness.json --records tuned.json [--output DIR]

Every configuration that is tuned for some problem on this device is timed on all of them, each problem's in turns. Then
each problem's record is taken away, and the others are asked what would be loaded in its place: how much slower is that
than the problem's own best? Writes matmul_nearness.json. With --again the times are those of a former run, and only the
question is asked anew, of today's rule; no GPU is needed. With --served-only each problem has two times: its own best's
and that of what would be loaded. --dry-run shows what would be timed.
Records are those under AUTOTILE_HOME and those that ship, or just those of exported files. Exit code 1 where what would
be loaded is wrong or fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import heat_up, machine, save
from contest import PEER_FAULTS, TorchClock, build_all, in_turns
from matmul_cases import case_of, error_limit
from matmul_contest import call_of, errors_of, make_operands
from matmul_tables import matmul_nearness
from ship import records_of

from autotile.build import Builder
from autotile.codegen import template_digest
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, UsageError
from autotile.kernels import Kernel, load_kernel
from autotile.runtime.choose import DEFAULT, Choice, choose
from autotile.space import violations
from autotile.store import MemoryStore, ShippedStore, Store, best_of
from autotile.types import Configuration, Problem, Record

KERNEL = "matmul"
MOST_SLOWER = 0.10
"""The most, in the mean over the problems, that what is served may be slower than the problem's own best."""

WARM_S = 0.05
ROUNDS, CLOSE = 5, 4.0
"""Turns of what the first turn saw within CLOSE times the best; the others have that turn alone."""

BY_DEFAULT = "default"
"""The column of the kernel's default configuration in the table of times."""

Times = dict[str, dict[str, float]]
"""Median ms by the key of a problem, and of the problem that the configuration was tuned for."""


def main() -> None:
    given = parsed()
    if given.records:
        found = (record for path in given.records for record in records_of(path))
        records = [record for record in found if record.problem.kernel == KERNEL]
        given.home = given.home or Path(tempfile.mkdtemp(prefix="autotile-nearness-"))
    if given.home is not None:
        os.environ["AUTOTILE_HOME"] = str(given.home.absolute())
    if not given.records:
        records = [*ShippedStore().bests(KERNEL), *Store().bests(KERNEL)]
    kernel = load_kernel(KERNEL)
    if given.dry_run:
        print("\n".join(planned(kernel, records)))
        return
    if given.again:
        document = json.loads(given.again.read_text(encoding="utf-8"))
        info = dataclasses.replace(find_gpu(document["device"]), name=document["device"], estimated=False)
    else:
        device = open_device("cuda")
        info = device.info
        with Builder(device.target) as builder:
            document = machine(info, builder.compiler)
            bench, tuned = Bench(device, builder, TorchClock()), tuned_on(records, info.name)
            wanted = asked_for(kernel, tuned, info) if given.served_only else None
            document = timed(bench, kernel, tuned, document, given.output, wanted)
    tuned = tuned_on(records, info.name)
    choices = plain(left_out_each(kernel, tuned, info, template_digest(kernel)))
    entries = [about(record, choice) | judged(document, record, choice) for record, choice in choices]
    document |= {"passed_over": len(tuned) - len(choices), "cases": entries, **totals(entries)}
    path = save("matmul_nearness", info, document, given.output)
    print("\n".join(matmul_nearness(document)))
    print("wrote", path)
    if not all(entry.get("right") for entry in entries):
        raise SystemExit(1)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, nargs="+", default=[], help="exported results, and no others")
    parser.add_argument("--again", type=Path, default=None, help="a former run's file, whose times are taken")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--served-only", action="store_true", help="time the best and what would serve alone")
    parser.add_argument("--dry-run", action="store_true", help="show what would be timed; no GPU needed")
    return parser.parse_args(arguments)


# ---- which configuration serves -------------------------------------------------------------------------------------


def tuned_on(records: Sequence[Record], device: str) -> list[Record]:
    """One proven, measured record a problem: the best on the device."""
    groups: dict[Problem, list[Record]] = {}
    for record in records:
        if record.proven and not record.identity.estimated and record.identity.device == device:
            groups.setdefault(record.problem, []).append(record)
    return [best for group in groups.values() if (best := best_of(group)) is not None]


def left_out_each(
    kernel: Kernel, records: Sequence[Record], info: DeviceInfo, template: str
) -> list[tuple[Record, Choice | None]]:
    """What would be loaded for each record's problem without the record; None where nothing fits it."""
    found: list[tuple[Record, Choice | None]] = []
    for record in records:
        others = MemoryStore(bests=(other for other in records if other.problem != record.problem))
        choice = None
        with suppress(AutotileError):  # NotTuned: not even the kernel's default fits
            choice = choose(kernel, record.problem, info, template, others)
        found.append((record, choice))
    return found


def plain(choices: Sequence[tuple[Record, Choice | None]]) -> list[tuple[Record, Choice | None]]:
    """Those of plain products, which alone are timed here; the others may serve them all the same."""
    found = []
    for record, choice in choices:
        with suppress(UsageError):
            case_of(record.problem)
            found.append((record, choice))
    return found


def planned(kernel: Kernel, records: Sequence[Record]) -> list[str]:
    """A line a problem and device: what would serve it. Devices are looked up in the table of GPUs."""
    lines = []
    for name in dict.fromkeys(record.identity.device for record in records):
        try:
            info = dataclasses.replace(find_gpu(name), name=name, estimated=False)
        except AutotileError as error:
            lines.append(f"{name}: {error}")
            continue
        for record, choice in plain(left_out_each(kernel, tuned_on(records, name), info, template_digest(kernel))):
            lines.append(f"{name}: {record.problem.label} is served by {served_by(choice) or 'nothing'}")
    return lines or ["there are no records"]


def served_by(choice: Choice | None) -> str:
    if choice is None:
        return ""
    return "the kernel's default" if choice.record is None else choice.record.problem.label


def column_of(choice: Choice | None) -> str | None:
    """The key in the table of times of what was chosen; None where nothing was."""
    return None if choice is None else BY_DEFAULT if choice.record is None else choice.record.problem.key


def asked_for(kernel: Kernel, tuned: Sequence[Record], info: DeviceInfo) -> dict[str, set[str | None]]:
    """By each problem's key the columns that the question needs: its own best, and what would serve in its place."""
    choices = left_out_each(kernel, tuned, info, template_digest(kernel))
    return {record.problem.key: {record.problem.key, column_of(choice)} for record, choice in choices}


def about(record: Record, choice: Choice | None) -> dict[str, Any]:
    return {
        "problem": record.problem.label,
        "key": record.problem.key,
        "configuration": dict(record.configuration),
        "served_by": served_by(choice),
        "match": None if choice is None else choice.match,
        "served": None if choice is None else dict(choice.configuration),
        "same": choice is not None and choice.configuration == record.configuration,
    }


# ---- how much slower it is ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Bench:
    """What all problems share."""

    device: Any
    builder: Builder
    clock: TorchClock


def timed(
    bench: Bench,
    kernel: Kernel,
    tuned: Sequence[Record],
    document: dict[str, Any],
    output: Path | None,
    wanted: Mapping[str, set[str | None]] | None = None,
) -> dict[str, Any]:
    """The document with the table of times, and what failed or came out wrong; saved after every problem.

    `wanted` names the columns of each problem, by its key; None: all.
    """
    records = [record for record, _ in plain([(record, None) for record in tuned])]
    records.sort(key=lambda record: kernel.flops_of(record.problem))
    columns = {record.problem.key: record.configuration for record in records} | {BY_DEFAULT: kernel.configuration()}
    pairs = [
        (record.problem, configuration)
        for record in records
        for key, configuration in columns.items()
        if wanted is None or key in wanted[record.problem.key]
        if not violations(kernel, record.problem, bench.device.info, configuration)
    ]
    build_all(bench.builder, pairs)
    feasible = set(pairs)
    times: Times = {}
    faults: dict[str, str] = {}
    for record in records:
        fitting = {key: found for key, found in columns.items() if (record.problem, found) in feasible}
        times[record.problem.key] = guarded(bench, record.problem, fitting, faults)
        print(f"{record.problem.label}: {len(times[record.problem.key])} of {len(columns)}", flush=True)
        save("matmul_nearness", bench.device.info, document | {"times_ms": times, "faults": faults}, output)
    return document | {"times_ms": times, "faults": faults}


def guarded(
    bench: Bench, problem: Problem, columns: Mapping[str, Configuration], faults: dict[str, str]
) -> dict[str, float]:
    """One problem's times; none, and a fault, where it cannot be measured."""
    import torch

    try:
        return measured(bench, problem, columns, faults)
    except (AutotileError, *PEER_FAULTS) as error:
        faults[problem.key] = f"{type(error).__name__}: {error}"
        return {}
    finally:
        with suppress(RuntimeError):  # a context that is lost is told by the problem that lost it
            torch.cuda.empty_cache()


def measured(
    bench: Bench, problem: Problem, columns: Mapping[str, Configuration], faults: dict[str, str]
) -> dict[str, float]:
    """Each configuration in turns, on the problem's own size; those that may serve are compared with float64 too."""
    case = case_of(problem)
    data = make_operands(case)
    calls = {key: call_of(bench.device, bench.builder, problem, found, data) for key, found in columns.items()}
    heat_up(calls, WARM_S)
    once = {key: spans[0] for key, spans in in_turns(calls, 1, bench.clock).items()}
    close = {key: call for key, call in calls.items() if once[key] <= CLOSE * min(once.values())}
    errors, limit = errors_of(close, data), error_limit(case)
    for key, off in errors.items():
        if off is None or off > limit:
            faults[f"{problem.key} {key}"] = f"the error is {off}, at most {limit} is right"
            del close[key], once[key]
    again = in_turns(close, ROUNDS, bench.clock)
    return {key: statistics.median(again[key]) if key in again else span for key, span in once.items()}


def judged(document: Mapping[str, Any], record: Record, choice: Choice | None) -> dict[str, Any]:
    """How much slower the choice is than the problem's own best, by the table of times; or why that is not known."""
    times = document["times_ms"].get(record.problem.key, {})
    column = column_of(choice)
    if column is None:
        return {"error": f"nothing serves {record.problem.label} once its record is taken away"}
    if column not in times or record.problem.key not in times:
        return {"error": document["faults"].get(f"{record.problem.key} {column}", "it was not timed")}
    own, left_out = times[record.problem.key], times[column]
    return {"times_ms": {"own": own, "left_out": left_out}, "slower": left_out / own - 1, "right": True}


def totals(entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over the problems; what is served counts as no faster than the best, where the turns say that it is."""
    slower = [max(0.0, entry["slower"]) for entry in entries if "slower" in entry]
    mean = sum(slower) / len(slower) if slower else None
    return {
        "counted": len(slower),
        "by_default": sum(entry["match"] == DEFAULT for entry in entries),
        "mean_slower": mean,
        "most_slower": max(slower, default=None),
        "asked": MOST_SLOWER,
        "met": mean is not None and mean <= MOST_SLOWER,
    }


if __name__ == "__main__":
    main()
