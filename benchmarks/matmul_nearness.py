"""How good is what `autotile.load` gives for a matmul that was not tuned? Each tuned problem is left out in turn.

    python benchmarks/matmul_nearness.py [--records tuned.json …] [--home DIR] [--output DIR] [--dry-run]

For each problem that is tuned on this device its record is taken away, and the others are asked what would be loaded in
its place; that configuration is timed for the problem in turns with the problem's own best. Writes matmul_nearness.json
after every problem. Records are those under AUTOTILE_HOME and those that ship, or just those of exported files. A dry
run needs files, and no GPU: it shows what would be timed. Exit code 1 where a problem fails or comes out wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import PEER_FAULTS, TorchClock, build_all, in_turns
from matmul_cases import Case, case_of, error_limit
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
from autotile.store import MemoryStore, ShippedStore, Store, best_of
from autotile.types import Problem, Record

KERNEL = "matmul"
MOST_SLOWER = 0.10
"""The most, in the mean over the problems, that what is served may be slower than the problem's own best."""

WARM_S = 0.3


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
    device = open_device("cuda")
    tuned = tuned_on(records, device.info.name)
    choices = plain(left_out_each(kernel, tuned, device.info, template_digest(kernel)))
    entries: list[dict[str, Any]] = []
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
        document |= {"passed_over": len(tuned) - len(choices), "cases": entries, **totals(entries)}
        path = save("matmul_nearness", device.info, document, given.output)
        pairs = [(record.problem, of.configuration) for record, choice in choices for of in (record, choice) if of]
        build_all(builder, pairs)
        bench = Bench(device, builder, TorchClock())
        for record, choice in choices:
            entries.append(about(record, choice) | guarded(bench, record, choice))
            print(said(entries[-1]), flush=True)
            document |= totals(entries)
            path = save("matmul_nearness", device.info, document, given.output)
    print("\n".join(matmul_nearness(document)))
    print("wrote", path)
    if not all(entry.get("right") for entry in entries):
        raise SystemExit(1)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, nargs="+", default=[], help="exported results, and no others")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
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


def guarded(bench: Bench, record: Record, choice: Choice | None) -> dict[str, Any]:
    """The problem's figures, or its error."""
    import torch

    try:
        if choice is None:
            raise UsageError(f"nothing serves {record.problem.label} once its record is taken away")
        case = case_of(record.problem)
        if choice.configuration == record.configuration:
            return {"slower": 0.0, "right": True}
        return measured(bench, case, record, choice)
    except (AutotileError, *PEER_FAULTS) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        with suppress(RuntimeError):  # a context that is lost is told by the problem that lost it
            torch.cuda.empty_cache()


def measured(bench: Bench, case: Case, record: Record, choice: Choice) -> dict[str, Any]:
    """Both configurations in turns, on the problem's own size. `right` is of what would be loaded."""
    data = make_operands(case)
    named = {"own": record.configuration, "left_out": choice.configuration}
    calls = {
        name: call_of(bench.device, bench.builder, record.problem, configuration, data)
        for name, configuration in named.items()
    }
    heat_up(calls, WARM_S)
    figures = {name: summary(times) for name, times in in_turns(calls, case.rounds, bench.clock).items()}
    times_ms = {name: figure["median_ms"] for name, figure in figures.items()}
    errors, limit = errors_of(calls, data), error_limit(case)
    off = errors["left_out"]
    return {
        "times_ms": times_ms,
        "slower": times_ms["left_out"] / times_ms["own"] - 1,
        "errors": errors,
        "error_limit": limit,
        "right": off is not None and off <= limit,
        "figures": figures,
    }


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


def said(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"{entry['problem']} failed: {entry['error']}"
    how = "the same configuration" if entry["same"] else f"{entry['slower']:+.1%}"
    return f"{entry['problem']}: served by {entry['served_by']}, {how}"


if __name__ == "__main__":
    main()
