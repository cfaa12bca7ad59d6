"""How near are the emulator's counts of memory to a GPU's? Nsight Compute's counters beside a trace, over many kernels.

    python benchmarks/counters_beside.py [--output DIR] [--ncu PATH] [--items FILE]
    python benchmarks/counters_beside.py --ncu-csv FILE [--items FILE] [--gpu h200]    a run made before; no GPU needed
    python benchmarks/counters_beside.py --again counters_beside.json            the emulator's side anew; no GPU needed
    python benchmarks/counters_beside.py --dry-run                                   the configurations; no GPU needed

Presets and random configurations, seeded, on whole sizes and on odd ones, float32. One run of ncu launches each of them
once (on the clocks as they are) and counts; the emulator traces some blocks of the very same launch, told the widths of
the GPU's machine code where nvdisasm is at hand. Compared are the main functions' sectors a request of global memory
and wavefronts a request of shared memory. Writes counters_beside.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import multiprocessing
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from common import commit, machine, save
from counters_tables import counters_table

from autotile.build import Builder
from autotile.build.builder import available_cpus
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import AutotileError, ConfigurationError, VariantError
from autotile.insight.machine import read_machine
from autotile.insight.ncu import WANTED, chosen, counted, find_ncu, raw_rows
from autotile.insight.profile import Profile, profile_variants, profiles_of
from autotile.kernels import Kernel, load_kernel
from autotile.measure import make_variant
from autotile.measure.traced import trace_variant
from autotile.measure.variant import Variant
from autotile.space import violations
from autotile.types import Configuration, Value

DTYPE = "float32"
SEED = 7
TRACE_S = 4.0
"""For each variant: enough for all blocks of most, so that edges count as often as they are."""
SETS: tuple[tuple[str, Mapping[str, int], int, int | None], ...] = (
    ("matmul", {"m": 1024, "n": 1024, "k": 1024}, 44, None),
    ("transpose", {"rows": 2048, "cols": 2048}, 44, None),
    ("transpose", {"rows": 1027, "cols": 2051}, 12, 4),
    ("matmul", {"m": 515, "n": 513, "k": 258}, 12, 4),
)
"""Kernel, sizes, configurations in all, and how many of the presets are among them at most (None: all)."""

WITHIN = {
    "sectors_a_load_request": 0.01,
    "sectors_a_store_request": 0.01,
    "wavefronts_a_shared_load": 0.05,
    "wavefronts_a_shared_store": 0.05,
}
"""How much may be between the two, of the GPU's count: a wavefront more is counted where loads and stores meet."""

Item = tuple[str, Mapping[str, int], Mapping[str, Value]]
"""Kernel, sizes, configuration."""


def main() -> None:
    given = parsed()
    notes: list[str] = []
    info = find_gpu(given.gpu)
    if given.dry_run:
        print("\n".join(planned(variants_of(items_of(given.items, info), info, notes)) + notes))
        return
    if given.again:
        print("\n".join(again(given, info)))
        return
    if given.ncu_csv:
        variants = variants_of(items_of(given.items, info), info, notes)
        profiles = counted_before(given.ncu_csv, variants, notes)
        info = dataclasses.replace(info, driver="not known", estimated=False)
        document = machine(info, "not known")
    else:
        device = open_device("cuda")
        info = device.info
        ncu = find_ncu(given.ncu)
        with Builder(device.target) as builder:
            document = machine(info, builder.compiler)
            variants = built(builder, variants_of(items_of(given.items, info), info, notes), notes)
        profiles = profile_variants(variants, device, ncu=ncu)
        notes += profiles[0].notes
    traces = traced(variants, info, given.jobs)
    entries = [beside(*three) for three in zip(variants, profiles, traces, strict=True)]
    document |= {"dtype": DTYPE, "within": WITHIN, "entries": entries, "totals": totals(entries), "notes": notes}
    print("\n".join([*counters_table(document), *notes]))
    print("wrote", save("counters_beside", info, document, given.output))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--ncu", default=None, help="Nsight Compute's ncu (default: where it usually is)")
    parser.add_argument("--ncu-csv", type=Path, default=None, help="what ncu wrote of these configurations (or .gz)")
    parser.add_argument(
        "--again", type=Path, default=None, help="a former run's file, whose counts of the GPU are taken"
    )
    parser.add_argument("--items", type=Path, default=None, help="JSON: a list of [kernel, sizes, configuration]")
    parser.add_argument("--jobs", type=int, default=available_cpus(), help="traces at a time")
    parser.add_argument("--dry-run", action="store_true", help="show what would be launched; no GPU needed")
    parser.add_argument("--gpu", default="h200", help="whose limits hold where none is opened")
    return parser.parse_args(arguments)


# ---- which configurations -------------------------------------------------------------------------------------------


def items_of(file: Path | None, info: DeviceInfo) -> list[Item]:
    """Those of the file, or those that are drawn."""
    if file is not None:
        return [(kernel, sizes, values) for kernel, sizes, values in json.loads(file.read_text(encoding="utf-8"))]
    generator = random.Random(SEED)
    found: list[Item] = []
    for name, sizes, count, presets in SETS:
        found += [(name, sizes, dict(one)) for one in drawn(load_kernel(name), sizes, count, presets, info, generator)]
    return found


def drawn(
    kernel: Kernel,
    sizes: Mapping[str, int],
    count: int,
    presets: int | None,
    info: DeviceInfo,
    generator: random.Random,
) -> list[Configuration]:
    """The kernel's feasible presets, `presets` at most, then random feasible configurations of searched values."""
    problem = kernel.problem(sizes, DTYPE)
    named = [kernel.configuration(values) for values in kernel.presets.values()]
    found = dict.fromkeys([one for one in named if not violations(kernel, problem, info, one)][:presets])
    while len(found) < count:
        values = {each.name: generator.choice(each.searched or each.values) for each in kernel.parameters}
        configuration = kernel.configuration(values)
        if not violations(kernel, problem, info, configuration):
            found[configuration] = None
    return list(found)[:count]


def variants_of(items: Sequence[Item], info: DeviceInfo, notes: list[str]) -> list[Variant]:
    """`notes` hears of what does not fit, as in a file that was made for another device or an older kernel."""
    found = []
    for name, sizes, values in items:
        kernel = load_kernel(name)
        problem = kernel.problem(sizes, DTYPE)
        try:
            configuration = kernel.configuration(values)
            if broken := violations(kernel, problem, info, configuration):
                raise ConfigurationError("; ".join(broken))
            found.append(make_variant(kernel, problem, configuration))
        except AutotileError as error:
            notes.append(f"left out {name} {problem.label} {values}: {error}")
    return found


def built(builder: Builder, variants: Sequence[Variant], notes: list[str]) -> list[Variant]:
    """Those that compile; one that does not would end the run of all."""
    right = []
    for variant, future in [(variant, builder.submit(variant.source)) for variant in variants]:
        try:
            future.result()
            right.append(variant)
        except VariantError as error:
            notes.append(f"left out {variant.problem.label} {variant.configuration.label}: {error}")
    return right


def planned(variants: Sequence[Variant]) -> list[str]:
    return [
        f"{v.kernel.name} {v.problem.label}: {v.launch.blocks} blocks of {v.launch.threads} threads, "
        f"{v.configuration.label}"
        for v in variants
    ]


# ---- the two sides --------------------------------------------------------------------------------------------------


def counted_before(file: Path, variants: Sequence[Variant], notes: list[str]) -> list[Profile]:
    """Of a run that launched these, in order. Raises EnvironmentalError where it launched others."""
    raw = file.read_bytes()
    rows = raw_rows((gzip.decompress(raw) if file.suffix == ".gz" else raw).decode())
    there = frozenset(column.partition(".")[0] for row in rows[:1] for column in row)
    return profiles_of(variants, counted(rows, WANTED, chosen(WANTED, there, notes)))


def traced(variants: Sequence[Variant], info: DeviceInfo, jobs: int) -> list[dict[str, Any]]:
    """What `trace` gives for each; in processes of their own, since a trace keeps a core busy."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(partial(trace, info=info), variants))


def trace(variant: Variant, info: DeviceInfo) -> dict[str, Any]:
    """`emulated` ratios, and whether the `widths` of the machine code were known; or an `error`."""
    emulator = EmulatorDevice().like(info)
    widths = read_machine(variant.source, info).widths
    try:
        with Builder(emulator.target, jobs=1) as builder:
            found = trace_variant(emulator, variant, builder.build(variant.source), budget_s=TRACE_S, widths=widths)
    except AutotileError as error:
        return {"emulated": {}, "widths": widths is not None, "error": str(error)}
    faults = {"error": found.diagnostics[0].message} if found.diagnostics else {}
    return {"emulated": found.per_request, "widths": widths is not None, "blocks": found.main.traced_blocks, **faults}


# ---- beside each other ----------------------------------------------------------------------------------------------


def again(given: argparse.Namespace, info: DeviceInfo) -> list[str]:
    """A former run's document with the emulator's side made anew, saved; what there is to print."""
    document = json.loads(given.again.read_text(encoding="utf-8"))
    info = dataclasses.replace(info, name=document["device"], estimated=False)
    notes: list[str] = []
    items = [(entry["kernel"], sizes_of(entry), entry["configuration"]) for entry in document["entries"]]
    variants = variants_of(items, info, notes)
    if notes:
        raise ConfigurationError(f"{given.again} does not fit the kernels as they are: {'; '.join(notes)}")
    for entry, traced_anew in zip(document["entries"], traced(variants, info, given.jobs), strict=True):
        emulated = {name: traced_anew["emulated"].get(name) for name in WITHIN}
        entry |= traced_anew | {"emulated": emulated}
        entry["differences"] = {name: difference(entry["counted"][name], emulated[name]) for name in WITHIN}
    document |= {"totals": totals(document["entries"]), "emulated_commit": commit(), "within": WITHIN}
    return [*counters_table(document), f"wrote {save('counters_beside', info, document, given.output)}"]


def sizes_of(entry: Mapping[str, Any]) -> dict[str, int]:
    dimensions = load_kernel(entry["kernel"]).dimensions
    return dict(zip(dimensions, map(int, entry["problem"].split()[0].split("×")), strict=True))


def beside(variant: Variant, profile: Profile, traced: Mapping[str, Any]) -> dict[str, Any]:
    ratios = profile.ratios()
    gpu = {name: ratios[name] for name in WITHIN}
    emulated = {name: traced["emulated"].get(name) for name in WITHIN}
    return {
        "kernel": variant.kernel.name,
        "problem": variant.problem.label,
        "configuration": dict(variant.configuration),
        "copies": bool(profile.functions[profile.entry].get("copies")),
        "counted": gpu,
        "differences": {name: difference(gpu[name], emulated[name]) for name in WITHIN},
        "raw": {name: dict(counters) for name, counters in profile.functions.items()},
        **traced,
        "emulated": emulated,
    }


def difference(gpu: float | None, emulated: float | None) -> float | None:
    """Of the emulator's count, over the GPU's; 0 where neither has any such request, None where one has."""
    if gpu is None or emulated is None:
        return 0.0 if gpu is None and emulated is None else None
    return emulated / gpu - 1


def totals(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, int]]]:
    """By kernel, and by what is compared: how many have such requests, and how many of these agree."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for entry in entries:
        of_kernel = found.setdefault(entry["kernel"], {name: {"compared": 0, "agree": 0} for name in WITHIN})
        for name, most in WITHIN.items():
            if entry["counted"][name] is None and entry["emulated"][name] is None:
                continue
            apart = entry["differences"][name]
            of_kernel[name]["compared"] += 1
            of_kernel[name]["agree"] += apart is not None and abs(apart) <= most
    return found


if __name__ == "__main__":
    main()
