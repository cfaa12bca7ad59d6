"""The matmul's story in figures: from one element a thread to the winner, each step beside cuBLAS, and its counters.

    python benchmarks/matmul_story.py [--size 4096] [--output DIR] [--ncu PATH | --no-counters]
    python benchmarks/matmul_story.py --dry-run   steps, launches and the command for Nsight Compute; no GPU

float32, m = n = k. One run checks every step against a product in float64 and times all in turns with cuBLAS, the slow
ones less often; so it does with the preset `large` and one thing about it changed at a time. Then Nsight Compute runs
this file once more (`--one NAMES`, which launches each step and cuBLAS once, in order) and counts. Writes
matmul_story.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import PEER_FAULTS, Call, Clock, TorchClock, build_all, in_turns, without_those_that_fail
from matmul_cases import Case, error_limit
from matmul_contest import CUBLAS, Operands, call_of, cublas_calls, errors_of, make_operands, without_tf32
from matmul_counters import EVERY_KERNEL, WANTED, by_step, peer_of, profiled, told
from matmul_tables import matmul_story
from transpose_cases import fastest

import autotile
from autotile.build import Builder
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, ConfigurationError, ToolchainMissing, WrongResult
from autotile.insight.ncu import command, find_ncu, first_named
from autotile.kernels import Kernel, load_kernel
from autotile.measure import make_variant
from autotile.space import violations
from autotile.types import Configuration, Problem, Value

KERNEL = "matmul"
DTYPE = "float32"
CHANGED = "large"
"""The preset of which one thing at a time is changed."""

ROUNDS, FEW_ROUNDS = 41, 5
SLOW_MS = 10.0
"""A launch that takes longer is timed few times: its time tells what there is to tell."""


@dataclass(frozen=True)
class Step:
    """`changes` to the preset; `tuned` stands for what `load` gives instead."""

    name: str
    note: str
    preset: str = ""
    changes: Mapping[str, Value] = field(default_factory=dict)
    tuned: bool = False


STEPS = (
    Step("one_element", "each thread reads its row of A and its column of B from global memory", "one_element"),
    Step("tile32", "square tiles in shared memory, a barrier before they are read and one after", "tile32"),
    Step("registers", "each thread computes 8×8 elements; still one tile, and two barriers", "registers"),
    Step("ring48", "a ring of two tiles within 48 KiB: the next is on its way, one barrier a step", "ring48"),
    Step("large", "a ring of four, which takes more than 48 KiB; 16×8 elements a thread", "large"),
    Step("winner", "what `autotile.load` gives", tuned=True),
)


def changed(device: DeviceInfo) -> tuple[Step, ...]:
    """The preset CHANGED with one thing about it changed at a time."""

    def step(note: str, **changes: Value) -> Step:
        name = " ".join(f"{key}={str(value).lower()}" for key, value in changes.items())
        return Step(name, note, CHANGED, changes)

    return (
        step("a ring of two, which the copies of one step have to fill in time", stages=2, early_barrier=False),
        step("a ring of three", stages=3),
        step("shorter steps", block_k=8),
        step("longer steps", block_k=32),
        step("the barrier just before the next tile is needed", early_barrier=False),
        step("all copies at the beginning of a step", spread=False),
        step("multiply-adds row by row", order="rows"),
        step("multiply-adds two columns at a time", order="column_pairs"),
        step("lanes in squares of 4×2", lane_map="squares"),
        step("A's tile as it lies in memory", a_layout="row"),
        step("no padding of A's tile", pad_a=0),
        step("the other way round", thread_m=8, thread_n=16),
        step("half as much a thread, twice the threads", thread_m=8),
        step("bands of eight rows of tiles", group=8),
        step("pairs of blocks share a tile's k", cluster=2),
        step("each tile's k in two parts, added up by another kernel", parts=2),
        step("what fills no whole wave is shared evenly", wave=device.sm_count),
        step("both operands copied first", pack_a=True, pack_b=True),
    )


def main() -> None:
    given = parsed()
    case = Case((given.size, given.size, given.size), DTYPE)
    if given.dry_run:
        print("\n".join(planned(case, find_gpu(given.gpu))))
        return
    if given.one:
        launch_each(given.one.split(","), case)
        return
    os.environ["AUTOTILE_HOME"] = str(Path(given.home or tempfile.mkdtemp(prefix="autotile-story-")).absolute())
    precision = without_tf32()
    device: Any = open_device("cuda")
    notes: list[str] = []
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
        document |= {"dtype": DTYPE, "size": given.size, "precision": precision}
        document |= timed(device, builder, case, TorchClock(), notes)
    document["notes"] = notes
    if not given.no_counters:
        try:
            count(find_ncu(given.ncu), document, case)
        except ToolchainMissing as error:
            notes.append(f"there are no counters: {error}")
    print("\n".join([*matmul_story(document), *notes]))
    print("wrote", save("matmul_story", device.info, document, given.output))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="m, n and k")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--ncu", default=None, help="Nsight Compute's ncu (default: where it usually is)")
    parser.add_argument("--no-counters", action="store_true", help="time only")
    parser.add_argument("--one", default="", help=f"launch these steps once, by commas, and {CUBLAS}; for ncu")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done; no GPU needed")
    parser.add_argument("--gpu", default="h200", help="whose limits a dry run takes")
    return parser.parse_args(arguments)


def configuration_of(step: Step, kernel: Kernel, problem: Problem, device: DeviceInfo) -> Configuration:
    """Raises ConfigurationError, with the rules, where a step does not fit the problem on the device."""
    if step.tuned:
        asked: dict[str, Any] = problem.asked
        return autotile.load(kernel.name, dtype=problem.dtype, device="cuda", **asked).config
    found = kernel.configuration({**kernel.presets[step.preset], **step.changes})
    if broken := violations(kernel, problem, device, found):
        raise ConfigurationError(f"{step.name} does not fit {problem.label}: {'; '.join(broken)}")
    return found


def planned(case: Case, device: DeviceInfo) -> list[str]:
    """A line a step and a change, and the profiler's command. Raises ConfigurationError for what does not fit."""
    kernel = load_kernel(KERNEL)
    problem = kernel.problem(case.sizes, case.dtype)
    lines = []
    for step in (*STEPS, *changed(device)):
        if step.tuned:
            lines.append(f"{step.name}, as `autotile.load` gives it")
            continue
        found = configuration_of(step, kernel, problem, device)
        launch = kernel.launch_of(problem, found)
        of = "" if step.name == step.preset else f"{step.preset} with "
        lines.append(f"{of}{step.name}: {launch.blocks} blocks of {launch.threads} threads, {found.label}")
    names = [step.name for step in STEPS]
    return [*lines, " ".join(command(Path("ncu"), EVERY_KERNEL, first_named(WANTED), again(names, case)))]


def again(names: Sequence[str], case: Case) -> list[str]:
    """The command that launches these steps of this file, and then cuBLAS."""
    here = str(Path(__file__).resolve())
    return [sys.executable, here, "--one", ",".join([*names, CUBLAS]), "--size", str(case.shape[0])]


def timed(device: Any, builder: Builder, case: Case, clock: Clock, notes: list[str]) -> dict[str, Any]:
    """`steps`, `changes` and `cublas`, with times, rates and configurations; what fails is left out, with a note."""
    data = make_operands(case)
    own = (*STEPS, *changed(device.info))
    entries = right_steps(device, builder, case, own, data, notes)
    peers = without_those_that_fail(cublas_calls(case, data), notes)
    calls = {name: call for name, (call, _) in entries.items()}
    heat_up(calls | peers)
    figures, cublas = beside(calls, peers, clock, notes)
    for name, (_, facts) in entries.items():
        median_ms = figures[name]["median_ms"]
        facts |= figures[name] | {"tflops": case.flops / median_ms / 1e9}
        facts["of_cublas"] = cublas[name]["median_ms"] / median_ms if cublas else None
    found = [facts for _, facts in entries.values()]
    base = next((facts for facts in found if facts["name"] == CHANGED), None)
    changes = [facts for facts in found if facts["changes"]]
    for facts in changes:
        facts["of_preset"] = base["median_ms"] / facts["median_ms"] if base else None
    fast = cublas.get(CHANGED) or next(iter(cublas.values()), None)
    return {
        "steps": [facts for facts in found if not facts["changes"]],
        "changed": CHANGED,
        "changes": changes,
        "cublas": None if fast is None else fast | {"tflops": case.flops / fast["median_ms"] / 1e9},
    }


def right_steps(
    device: Any, builder: Builder, case: Case, steps: Sequence[Step], data: Operands, notes: list[str]
) -> dict[str, tuple[Call, dict[str, Any]]]:
    """The steps that fit and give the product, by name, with what is known of them before they are timed."""
    kernel = load_kernel(KERNEL)
    problem = kernel.problem(case.sizes, case.dtype)
    fitting: dict[str, tuple[Step, Configuration]] = {}
    for step in steps:
        try:
            fitting[step.name] = (step, configuration_of(step, kernel, problem, device.info))
        except AutotileError as error:
            notes.append(f"{step.name}: {error}")
    build_all(builder, [(problem, found) for _, found in fitting.values()])
    right = {}
    for name, (step, found) in fitting.items():
        try:
            facts = facts_of(builder, kernel, problem, step, found)
            call = call_of(device, builder, problem, found, data)
            off = errors_of({name: call}, data)[name]
            if off is None or off > error_limit(case):
                raise WrongResult(f"off by {off} of |A||B|; {error_limit(case):.2g} is the most")
        except (AutotileError, *PEER_FAULTS) as error:
            notes.append(f"{name}: {error}")
        else:
            right[name] = (call, facts | {"error": off})
    return right


def facts_of(builder: Builder, kernel: Kernel, problem: Problem, step: Step, found: Configuration) -> dict[str, Any]:
    variant = make_variant(kernel, problem, found)
    binary = builder.build(variant.source)
    return {
        "name": step.name,
        "note": step.note,
        "preset": step.preset,
        "changes": dict(step.changes),
        "configuration": dict(found),
        "blocks": variant.launch.blocks,
        "threads": variant.launch.threads,
        "shared_bytes": variant.launch.shared_bytes + (binary.static_shared_bytes or 0),
        "registers": binary.registers,
    }


def beside(
    calls: Mapping[str, Call], peers: Mapping[str, Call], clock: Clock, notes: list[str]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, Any]]]:
    """Figures by name, and for each those of the faster way to cuBLAS in the same turns, with its name as `way`; no
    such where no way works. Slow ones take turns of their own, which are few."""
    slow = set(slow_ones(calls, clock))
    if slow:
        notes.append(f"timed {FEW_ROUNDS} times only, as they are slow: {', '.join(n for n in calls if n in slow)}")
    figures: dict[str, dict[str, float]] = {}
    cublas: dict[str, dict[str, Any]] = {}
    for names, rounds in (([n for n in calls if n in slow], FEW_ROUNDS), ([n for n in calls if n not in slow], ROUNDS)):
        if not names:
            continue
        turns = in_turns({name: calls[name] for name in names} | dict(peers), rounds, clock)
        found = {name: summary(times) for name, times in turns.items()}
        figures |= {name: found[name] for name in names}
        if peers:
            way = fastest({name: found[name]["median_ms"] for name in peers}, CUBLAS)
            cublas |= {name: {**found[way], "way": way.removeprefix(f"{CUBLAS}: ")} for name in names}
    return figures, cublas


def slow_ones(calls: Mapping[str, Call], clock: Clock) -> list[str]:
    """Those of which one launch takes longer than SLOW_MS."""
    spans = {name: clock.launch(call, 0) for name, call in calls.items()}
    clock.wait()
    return [name for name, span_ms in spans.items() if span_ms() > SLOW_MS]


def count(ncu: Path, document: dict[str, Any], case: Case) -> None:
    """Adds the counters of the steps and of cuBLAS's kernel, as far as ncu tells them; notes say what it does not."""
    steps, notes, entry = document["steps"], document["notes"], load_kernel(KERNEL).entry
    rows = profiled(ncu, again([step["name"] for step in steps], case), notes)
    if not rows:
        return
    multiply_adds = case.flops // 2
    own = by_step(rows, entry, [step["name"] for step in steps], notes)
    for step in steps:
        if step["name"] in own:
            raw = own[step["name"]].counters
            step |= {"raw": dict(raw), "counters": told(raw, multiply_adds)}
    peer = peer_of(rows, entry, notes)
    if peer is not None and document["cublas"] is not None:
        document["cublas"] |= {
            "kernel": peer.name,
            "raw": dict(peer.counters),
            "counters": told(peer.counters, multiply_adds),
        }


def launch_each(names: Sequence[str], case: Case) -> None:
    """Launches steps, and cuBLAS's plain product, once each on memory that holds whatever it holds. Prints nothing."""
    import torch

    without_tf32()
    device: Any = open_device("cuda")
    kernel = load_kernel(KERNEL)
    problem = kernel.problem(case.sizes, case.dtype)
    a, b, c = (torch.empty(shape, dtype=getattr(torch, case.dtype), device="cuda") for shape in case.stored_shapes)
    data = Operands([a], [b], [c], [(a, b)])
    with Builder(device.target) as builder:
        for step in STEPS:
            if step.name in names:
                found = configuration_of(step, kernel, problem, device.info)
                call_of(device, builder, problem, found, data)(0)
                torch.cuda.synchronize()
    if CUBLAS in names:
        torch.mm(a, b, out=c)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
