"""The transpose's story in figures: from strided loads to the winner, each step timed beside a copy, and its counters.

    python benchmarks/transpose_story.py [--shapes 4096x4096,8192x8192] [--output DIR] [--ncu PATH | --no-ncu]
    python benchmarks/transpose_story.py --dry-run   steps, launches and the command for Nsight Compute; no GPU

float32. One run times all steps in turns with PyTorch's copy and our own; then Nsight Compute runs this file once more
(`--one NAMES`, which launches each step once on each shape, in order) and counts. Writes transpose_story.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import Call, Data, TorchClock, in_turns, make_data, own_copies, peers, variant_call, wrong_sets
from transpose_cases import Case, cases_of, fastest, shape_text
from transpose_tables import transpose_story
from vector_copy import VARIANTS

import autotile
from autotile.build import Builder
from autotile.devices.cuda import Pointer
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, ConfigurationError, EnvironmentalError, WrongResult
from autotile.insight.ncu import WANTED, command, find_ncu, first_named, launches, ratios
from autotile.kernels import Input, Kernel, Output, load_kernel
from autotile.measure import make_variant
from autotile.space import violations
from autotile.types import Configuration, Problem, Value

DTYPE = "float32"
ALL = "all"


@dataclass(frozen=True)
class Step:
    """`values` over the kernel's defaults; None: the preset of that name. `tuned` stands for what `load` gives."""

    name: str
    note: str
    values: Mapping[str, Value] | None = None
    tuned: bool = False


WORDS: Mapping[str, Value] = {
    "staging": "turned", "tile_rows": 64, "tile_cols": 64, "block_threads": 256, "load_vector": 4, "turn_rows": 4,
}  # fmt: skip
STEPS = (
    Step("strided_reads", "no tile; a warp's loads are spread over 32 rows"),
    Step("strided_writes", "no tile; its stores are, instead"),
    Step("tile32", "a tile makes both whole lines, and reading its columns meets one bank 32 times"),
    Step("tile33", "an element of padding a row, and the conflicts are gone"),
    Step("fewer_threads", "the same tile by 256 threads, four loads of each under way at once", {"block_threads": 256}),
    Step("words_plain", "words of 16 bytes, turned in registers on the way to the tile", {**WORDS, "layout": "plain"}),
    Step("words_padded", "the same, the tile padded", {**WORDS, "layout": "padded"}),
    Step("words_swizzled", "the same, its words reordered instead", {**WORDS, "layout": "swizzled"}),
    Step("winner", "what a search found", tuned=True),
)


def main() -> None:
    given = parsed()
    cases = cases_of(given.shapes, DTYPE)
    if given.dry_run:
        print("\n".join(planned(STEPS, cases, find_gpu(given.gpu))))
        return
    if given.one:
        launch_each(given.one, cases)
        return
    os.environ["AUTOTILE_HOME"] = str(Path(given.home or tempfile.mkdtemp(prefix="autotile-story-")).absolute())
    device = open_device("cuda")
    notes: list[str] = []
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler) | {"dtype": DTYPE, "shapes": [c.shape for c in cases]}
        steps, copies = timed(device, builder, cases, notes)
    document |= {"steps": steps, "copies": copies, "notes": notes}
    if not given.no_ncu:
        try:
            count(find_ncu(given.ncu), document, cases)
        except AutotileError as error:
            notes.append(f"there are no counters: {error}")
    print("\n".join([*transpose_story(document), *notes]))
    print("wrote", save("transpose_story", device.info, document, given.output))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="4096x4096,8192x8192", help="rows x cols, by commas")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--ncu", default=None, help="Nsight Compute's ncu (default: where it usually is)")
    parser.add_argument("--no-ncu", action="store_true", help="time only")
    parser.add_argument("--one", default="", help=f"launch these steps once, by commas, or {ALL}; for ncu")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done; no GPU needed")
    parser.add_argument("--gpu", default="h200", help="whose limits a dry run takes")
    return parser.parse_args(arguments)


def configuration_of(step: Step, kernel: Kernel, problem: Problem, device: DeviceInfo) -> Configuration:
    """Raises ConfigurationError, with the rules, where a step does not fit the problem on the device."""
    if step.tuned:
        asked: dict[str, Any] = problem.asked
        return autotile.load(kernel.name, dtype=problem.dtype, device="cuda", **asked).config
    found = kernel.configuration(kernel.presets[step.name] if step.values is None else step.values)
    if broken := violations(kernel, problem, device, found):
        raise ConfigurationError(f"{step.name} does not fit {problem.label}: {'; '.join(broken)}")
    return found


def planned(steps: Sequence[Step], cases: Sequence[Case], device: DeviceInfo) -> list[str]:
    """A line a step and shape, and the profiler's command. Raises ConfigurationError for a step that does not fit."""
    kernel = load_kernel("transpose")
    lines = []
    for case in cases:
        problem = kernel.problem(case.sizes, case.dtype)
        for step in steps:
            if step.tuned:
                lines.append(f"{case.label}: {step.name}, as `autotile.load` gives it")
                continue
            found = configuration_of(step, kernel, problem, device)
            launch = kernel.launch_of(problem, found)
            lines.append(
                f"{case.label}: {step.name}, {launch.blocks} blocks of {launch.threads} threads, {found.label}"
            )
    return [
        *lines,
        " ".join(command(Path("ncu"), kernel.entry, first_named(WANTED), again([step.name for step in steps], cases))),
    ]


def again(names: Sequence[str], cases: Sequence[Case]) -> list[str]:
    """The command that launches these steps of this file, shape by shape."""
    shapes = ",".join(shape_text(case.shape) for case in cases)
    return [sys.executable, str(Path(__file__).resolve()), "--one", ",".join(names), "--shapes", shapes]


def timed(
    device: Any, builder: Builder, cases: Sequence[Case], notes: list[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The steps with their times by shape, and the copies' bandwidths by shape."""
    import torch

    clock = TorchClock()
    binaries = [future.result() for future in [builder.submit(variant.source) for variant in VARIANTS]]
    steps: list[dict[str, Any]] = [{"name": step.name, "note": step.note, "by_shape": {}} for step in STEPS]
    copies: dict[str, Any] = {}
    for case in cases:
        data = make_data(case)
        right = right_steps(device, builder, case, data, notes)
        contestants = {name: call for name, (call, _) in right.items()}
        both = own_copies(device, binaries, case, data) | {"copy": peers(case, data)["copy"]}
        heat_up(contestants | both)
        figures = {n: summary(t) for n, t in in_turns(contestants | both, case.rounds, clock).items()}
        medians = {name: figure["median_ms"] for name, figure in figures.items()}
        best_ms = min(medians[name] for name in both)
        name = shape_text(case.shape)
        own = fastest(medians, "own_copy")
        copies[name] = {
            kind: case.moved_bytes / medians[which] / 1e6 for kind, which in (("copy", "copy"), ("own_copy", own))
        }
        for entry in steps:
            if (step_name := entry["name"]) in right:
                entry["by_shape"][name] = figures[step_name] | {
                    "gbs": case.moved_bytes / medians[step_name] / 1e6,
                    "of_copy": medians["copy"] / medians[step_name],
                    "of_best_copy": best_ms / medians[step_name],
                    "configuration": dict(right[step_name][1]),
                }
        del data, right, contestants, both
        torch.cuda.empty_cache()
    return steps, copies


def right_steps(
    device: Any, builder: Builder, case: Case, data: Data, notes: list[str]
) -> dict[str, tuple[Call, Configuration]]:
    """The steps that fit the case and give its transpose, by name; `notes` hears of the others."""
    kernel = load_kernel("transpose")
    problem = kernel.problem(case.sizes, case.dtype)
    right = {}
    for step in STEPS:
        try:
            found = configuration_of(step, kernel, problem, device.info)
            call, _ = variant_call(device, builder, problem, found, data)
            if wrong_sets(call, case, data):
                raise WrongResult(f"not the transpose of {case.label}")
        except AutotileError as error:
            notes.append(f"{step.name} on {case.label}: {error}")
        else:
            right[step.name] = (call, found)
    return right


def count(ncu: Path, document: dict[str, Any], cases: Sequence[Case]) -> None:
    """Adds the counters of the steps that run on every shape: launches are told apart by their order alone.

    Raises ncu.launches' errors, and EnvironmentalError for another number of launches than there were.
    """
    shapes = [shape_text(case.shape) for case in cases]
    steps = [entry for entry in document["steps"] if all(shape in entry["by_shape"] for shape in shapes)]
    program = again([entry["name"] for entry in steps], cases)
    places = [entry["by_shape"][shape] for shape in shapes for entry in steps]
    found = launches(ncu, load_kernel("transpose").entry, WANTED, program, document["notes"])
    if len(found) != len(places):
        raise EnvironmentalError(f"ncu told of {len(found)} launches instead of {len(places)}")
    for place, launch in zip(places, found, strict=True):
        place |= {"raw": dict(launch.counters), "counters": ratios(launch.counters)}


def launch_each(names: str, cases: Sequence[Case]) -> None:
    """Launches steps once each, shape by shape, on memory that holds whatever it holds. Prints nothing."""
    chosen = [step for step in STEPS if names == ALL or step.name in names.split(",")]
    device: Any = open_device("cuda")
    kernel = load_kernel("transpose")
    with Builder(device.target) as builder:
        for case in cases:
            problem = kernel.problem(case.sizes, case.dtype)
            sizes = kernel.sizes_of(problem)
            source, target = (device.empty_gpuarray((case.array_bytes,), "uint8") for _ in range(2))
            places = {Input: Pointer(int(source.gpudata)), Output: Pointer(int(target.gpudata))}
            arguments = [places[type(a)] if type(a) in places else sizes[a.name] for a in kernel.arguments]
            for step in chosen:
                found = configuration_of(step, kernel, problem, device.info)
                variant = make_variant(kernel, problem, found)
                program = device.load(builder.build(variant.source))
                device.call(program, variant.launch, arguments)
                device.synchronize()
            with device.active():
                source.gpudata.free()
                target.gpudata.free()


if __name__ == "__main__":
    main()
