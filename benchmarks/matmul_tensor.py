"""The matmul on tensor cores beside cuBLAS (through PyTorch), on one GPU: 16-bit and 8-bit numbers, tf32, float64.

    python benchmarks/matmul_tensor.py search measure --trials 160 --time 40s --home DIR [--cases 'bfloat16/*,tf32/*']
    python benchmarks/matmul_tensor.py measure --records DIR
    python benchmarks/matmul_tensor.py again --time 40s --home DIR [--again-seed 1]
    python benchmarks/matmul_tensor.py --merge first/matmul_tensor.json second/matmul_tensor.json [--output DIR]
    python benchmarks/matmul_tensor.py --dry-run

`search` searches each case with the file that it names, `measure` times what `autotile.load` gives for it then. All
contestants of a case take turns, each launch on a flushed L2 and another of three input sets; afterwards results are
compared with the product in float64. `again` searches two of the cases once more, with another seed and nothing on
record, and times both winners in turns.

Writes matmul_tensor.json after every case, and matmul_tensor_seeds.json for `again`; what another run left in that
folder stays where this one does not renew it. tuned.json beside it has the winners, as `autotile export --format json`
writes them, and tuned_mma.json those of the searches that are held to tier mma, which have a home of their own.
--records takes both in from there. With --budget no case begins later than that; what is left is said in the end. A
case that fails is an entry with its error. Exit code 1 where one fails or comes out wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from common import RESULTS, heat_up, machine, save, slug, summary
from contest import PEER_FAULTS, TorchClock, in_turns
from matmul import AGAIN_S, FIRST_S, KERNEL, Bench, about, exported, name_peers, raced, said, searched
from matmul_contest import make_operands
from matmul_tensor_cases import AGAIN, MOST_APART, TensorCase, all_cases, apart, chosen, joined, judged
from matmul_tensor_contest import errors_of, peers, tuned_call, with_tf32
from matmul_tensor_tables import seeds, table
from transpose_cases import INPUT_SETS

import autotile
from autotile.assets import config_path
from autotile.build import Builder
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, UsageError
from autotile.kernels import load_kernel
from autotile.kernels.instead import resolve
from autotile.report import import_results
from autotile.spec.load import parse_duration
from autotile.store import Store

STAGES = ("search", "measure", "again")


def main() -> None:
    given = parsed()
    cases = chosen(given.cases)
    if given.dry_run:
        print("\n".join(planned(cases)))
        return
    if given.merge:
        merged(given.merge, given.output)
        return
    begun = time.monotonic()
    home = Path(given.home or tempfile.mkdtemp(prefix="autotile-matmul-tensor-")).absolute()
    os.environ["AUTOTILE_HOME"] = str(home)
    if given.records:
        taken_in(given.records, home)
    device = open_device("cuda")
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler) | {"cublas": with_tf32()}
        bench = Bench(device, builder, TorchClock())
        right, left = True, list[TensorCase]()
        if "search" in given.stages or "measure" in given.stages:
            right, left = run(bench, cases, given, home, document, begun)
        if "again" in given.stages and not left:
            found = [again(bench, case, given, home) for case in cases if is_again(case)]
            again_document = document | {"asked": MOST_APART, "cases": found}
            print("\n".join(seeds(again_document)))
            print("wrote", save("matmul_tensor_seeds", device.info, again_document, given.output))
            right = right and all("error" not in entry for entry in found)
    if left:
        print(f"left for another run: --cases '{','.join(case.name for case in left)}'")
    if not right:
        raise SystemExit(1)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; default: search measure")
    parser.add_argument("--cases", default="*", help="patterns of names, by commas, such as 'bfloat16/*,*@mma'")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON files")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--records", type=Path, default=None, help="folder whose tuned.json is taken in first")
    parser.add_argument("--trials", type=int, default=None, help="trials of each search (default: the config's)")
    parser.add_argument("--time", default=None, help="limit of each search, such as 40s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the searches")
    parser.add_argument("--again-seed", type=int, default=1, help="seed of the searches of `again`")
    parser.add_argument("--budget", default=None, help="begin no case later than that, such as 500s")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="put these results together; no GPU needed")
    parser.add_argument("--dry-run", action="store_true", help="show the cases; no GPU needed")
    given = parser.parse_args(arguments)
    if unknown := set(given.stages) - set(STAGES):
        parser.error(f"there is no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    given.stages = given.stages or ["search", "measure"]
    try:
        given.budget_s = None if given.budget is None else parse_duration(given.budget)
    except ValueError as error:
        parser.error(f"--budget: {error}")
    return given


def planned(cases: Sequence[TensorCase]) -> list[str]:
    """A line a case: the kernel that serves it on an H200, its work, what it needs, its search file, what is asked."""
    info, public, lines = find_gpu("h200"), load_kernel(KERNEL), []
    kernels = {dtype: resolve(public, dtype, lambda: info)[0] for dtype in dict.fromkeys(case.dtype for case in cases)}
    for case in cases:
        kernel = kernels[case.dtype]
        need = INPUT_SETS * case.moved_bytes / 2**30
        config = case.config if config_path(case.config) else f"{case.config}, which is not there"
        asked = "nothing asked" if case.asked is None else f"asked {case.asked:.2f}"
        lines.append(
            f"{case.name} ({kernel.name} {kernel.problem(case.sizes, case.dtype).key}): {case.flops / 1e9:.3g} GFLOP, "
            f"{case.intensity:.3g} a byte, C in {case.result}, {need:.2g} GiB needed, {case.rounds} launches each; "
            f"config {config}; {asked}"
        )
    return lines


# ---- files ----------------------------------------------------------------------------------------------------------


def merged(files: Sequence[Path], folder: Path | None) -> None:
    """Puts the results of several runs together, of which later ones win."""
    first, *others = (json.loads(path.read_text(encoding="utf-8")) for path in files)
    for other in others:
        first = joined(first, other)
    first |= {"cases": joined(first, first)["cases"]}  # in their order, though it be one file
    info = dataclasses.replace(find_gpu(first["device"]), name=first["device"])
    print("\n".join(table(first)))
    print("wrote", save("matmul_tensor", info, first, folder))


def saved(document: dict[str, Any], info: DeviceInfo, folder: Path | None, old: dict[str, Any] | None) -> Path:
    return save("matmul_tensor", info, document if old is None else joined(old, document), folder)


def former(info: DeviceInfo, folder: Path | None) -> dict[str, Any] | None:
    """What another run left where this one writes."""
    path = (RESULTS / slug(info) if folder is None else folder) / "matmul_tensor.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def store_of(home: Path, case: TensorCase) -> Store:
    """A search that is held to a tier has a home of its own: of another search's faster winner it would not be the
    best."""
    return Store(home / f"tier-{case.tier}" if case.tier else home)


def tuned_file(case: TensorCase) -> str:
    return f"tuned_{case.tier}.json" if case.tier else "tuned.json"


def taken_in(folder: Path, home: Path) -> None:
    """The winners of another run, with which `measure` needs no search."""
    for file, store in {tuned_file(case): store_of(home, case) for case in all_cases()}.items():
        if (folder / file).is_file():
            taken = import_results(folder / file, store, load_kernel)
            print(f"{folder / file}: {taken.imported} taken in, {len(taken.refused)} refused")


# ---- the runs -------------------------------------------------------------------------------------------------------


def run(
    bench: Bench,
    cases: Sequence[TensorCase],
    given: argparse.Namespace,
    home: Path,
    document: dict[str, Any],
    begun: float,
) -> tuple[bool, list[TensorCase]]:
    """Every case, as far as the budget goes. Gives whether all is right, and the cases that are left."""
    info = bench.device.info
    old = former(info, given.output)
    entries: list[dict[str, Any]] = []
    document = document | {"cases": entries}
    if old is not None:
        joined(old, document)  # raises now what it would raise after the first case
    left = list(cases)
    while left and (given.budget_s is None or time.monotonic() - begun < given.budget_s):
        case = left.pop(0)
        dated = {"case": case.name, "commit": document["commit"], "date": document["date"]}
        entries.append(dated | facts_of(case) | guarded(bench, case, given, home))
        if "ratio" in entries[-1] or "error" in entries[-1]:
            print(case.name, outcome(entries[-1]), flush=True)
        path = saved(document, info, given.output, old)
        if "search" in given.stages:
            exported(store_of(home, case), info, path.parent / tuned_file(case))
    for case, entry in zip(cases, entries, strict=False):  # last: what a profiler leaves behind is in nobody's times
        name_peers(case, entry, peers)
    print("wrote", path := saved(document, info, given.output, old))
    print("\n".join(table(json.loads(path.read_text(encoding="utf-8")))))
    return all("error" not in entry and entry.get("right", True) for entry in entries), left


def facts_of(case: TensorCase) -> dict[str, Any]:
    return about(case) | {"more": list(case.more), "tier": case.tier, "result": case.result}


def outcome(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return said(entry)
    beside = {True: "", False: ", its error too large beside cuBLAS's", None: ""}[entry["error_met"]]
    return said(entry) + beside + ("" if entry["met"] in (None, True) else f"; asked {entry['asked']:.2f}: missed")


def guarded(bench: Bench, case: TensorCase, given: argparse.Namespace, home: Path) -> dict[str, Any]:
    """The case's figures, or its error: time on a GPU is scarce, and the other cases are worth theirs."""
    import torch

    found: dict[str, Any] = {}
    try:
        if "search" in given.stages:
            found["search"] = searched(bench, case, given, store_of(home, case))
        if "measure" in given.stages:
            tuned = load(case, home)
            found |= contested(bench, case, tuned) | {"match": tuned.match}
    except (AutotileError, *PEER_FAULTS) as error:
        found |= {"error": f"{type(error).__name__}: {error}"}
    finally:
        with suppress(RuntimeError):  # a context that is lost is told by the case that lost it
            torch.cuda.empty_cache()  # the next case's search measures in a process of its own
    return found


def load(case: TensorCase, home: Path, strict: bool = False) -> autotile.TunedKernel:
    return loaded_from(case, store_of(home, case) if case.tier else None, strict)


def loaded_from(case: TensorCase, store: Store | None, strict: bool) -> autotile.TunedKernel:
    asked: dict[str, Any] = case.sizes
    return autotile.load(KERNEL, dtype=case.dtype, device="cuda", strict=strict, store=store, **asked)


def contested(bench: Bench, case: TensorCase, tuned: autotile.TunedKernel) -> dict[str, Any]:
    """Everything in one run. Results are checked after the turns."""
    data = make_operands(case)
    found, checked = raced(bench, case, tuned_call(tuned, data), peers(case, data))
    verdict = judged(case, errors_of(case, checked, data))
    return found | verdict | {"kernel": tuned.problem.kernel, "configuration": dict(tuned.config)}


# ---- the same search again ------------------------------------------------------------------------------------------


def is_again(case: TensorCase) -> bool:
    return case.shape in AGAIN and case == TensorCase(case.shape, "bfloat16")


def again(bench: Bench, case: TensorCase, given: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Another search of the case, cold, and both winners in turns; or the error."""
    entry = facts_of(case) | {"case": case.name, "seed": given.seed, "again_seed": given.again_seed}
    other = argparse.Namespace(**{**vars(given), "seed": given.again_seed})
    try:
        first = load(case, home, strict=True)
        with fresh_home() as fresh:
            store = Store(fresh)
            entry["search"] = searched(bench, case, other, store)
            second = loaded_from(case, store, strict=True)
            entry |= both(bench, case, (first, second))
    except (AutotileError, *PEER_FAULTS) as error:
        entry["error"] = f"{type(error).__name__}: {error}"
    print(case.name, entry.get("error") or f"apart by {entry['apart']:.2%}", flush=True)
    return entry


@contextmanager
def fresh_home() -> Iterator[Path]:
    """An AUTOTILE_HOME with nothing on record and nothing built."""
    before = os.environ["AUTOTILE_HOME"]
    with tempfile.TemporaryDirectory(prefix="autotile-again-") as folder:
        os.environ["AUTOTILE_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ["AUTOTILE_HOME"] = before


def both(bench: Bench, case: TensorCase, winners: Sequence[autotile.TunedKernel]) -> dict[str, Any]:
    data = make_operands(case)
    calls = {f"search {number}": tuned_call(tuned, data) for number, tuned in enumerate(winners, 1)}
    heat_up(calls, AGAIN_S if bench.warm else FIRST_S)
    bench.warm = True
    figures = {name: summary(times) for name, times in in_turns(calls, case.rounds, bench.clock).items()}
    times_ms = [figure["median_ms"] for figure in figures.values()]
    return {
        "figures": figures,
        "times_ms": times_ms,
        "configurations": [dict(tuned.config) for tuned in winners],
        "same": winners[0].config == winners[1].config,
        "apart": apart(times_ms),
        "met": apart(times_ms) <= MOST_APART,
    }


if __name__ == "__main__":
    try:
        main()
    except UsageError as error:
        raise SystemExit(f"matmul_tensor: {error}") from error
