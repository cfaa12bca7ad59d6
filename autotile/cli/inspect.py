"""`autotile list`, `show` and `render`: what there is, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotile.cli.definition import definition_lines, instead_objects, kernel_document
from autotile.cli.options import json_option, note, say, templates_option, write_json
from autotile.cli.point import point_options, read_point
from autotile.errors import EXIT_OK

if TYPE_CHECKING:
    from autotile.kernels import Kernel
    from autotile.types import Configuration, Identity, Problem, Record


@click.command("list")
@templates_option
@json_option
def list_(templates: tuple[Path, ...], json_path: str | None) -> int:
    """List kernels, shipped configs, devices and what is tuned."""
    from autotile.assets import configs_dir, home_dir
    from autotile.cli.text import time_of
    from autotile.devices.cuda import cuda_device_names
    from autotile.devices.gpus import gpu_table
    from autotile.kernels import kernel_folders, load_kernel
    from autotile.report.formats.common import rate_of
    from autotile.store import ShippedStore, Store
    from autotile.store.serial import to_object

    kernels = {name: load_kernel(name, templates) for name in kernel_folders(templates)}
    devices = {f"cuda:{index}": name for index, name in enumerate(cuda_device_names())}
    devices |= {f"emulator:{key}": f"emulated {gpu.name}, {gpu.arch}" for key, gpu in gpu_table().items()}
    configs = sorted(file.stem for file in configs_dir().glob("*.yaml"))
    bests, shipped = Store().bests(), ShippedStore().bests()
    if json_path:
        document: dict[str, Any] = {
            "kernels": {name: kernel.doc for name, kernel in kernels.items()},
            "instead": {name: instead_objects(kernel) for name, kernel in kernels.items() if kernel.instead},
            "configs": configs,
            "devices": devices,
            "tuned": [to_object(record) for record in bests],
            "shipped": [to_object(record) for record in shipped],
        }
        write_json(json_path, document)
        if json_path == "-":
            return EXIT_OK
    say("kernels")
    for name, kernel in kernels.items():
        say(f"  {name:<12} {kernel.doc}")
        for one in kernel.instead:
            say(f"  {'':<12} {one.kernel} serves in its place where {one.when}")
    say("configs")
    for config in configs:
        say(f"  {config:<16} autotile search {config}")
    say("devices")
    for device, name in devices.items():
        say(f"  {device:<20} {name}")
    say(f"tuned, in {home_dir()}{' or shipped' if shipped else ''}")
    marked = [*((record, "") for record in bests), *((record, "  shipped") for record in shipped)]
    for record, mark in sorted(marked, key=lambda m: (m[0].identity.device, m[0].problem.kernel, m[0].problem.key)):
        what = f"{record.problem.kernel} {record.problem.label}"
        speed = rate_of(record, kernels.__getitem__)
        say(f"  {record.identity.device:<24} {what:<36} {time_of(record):>24}  {speed}{mark}")
    if not marked:
        say("  nothing yet: autotile search matmul-quick")
    return EXIT_OK


@click.command()
@click.argument("kernel")
@click.option("--failed", is_flag=True, help="List the failed trials, with their reasons.")
@templates_option
@json_option
def show(kernel: str, failed: bool, templates: tuple[Path, ...], json_path: str | None) -> int:
    """Show KERNEL's parameters, rules, presets and records, and those of the kernels that serve under its name."""
    from autotile.kernels import load_kernel
    from autotile.kernels.instead import served_dtypes, stand_in
    from autotile.store import ShippedStore, Store
    from autotile.store.serial import to_object

    found = load_kernel(kernel, templates)
    others = {one.kernel: stand_in(found, one, templates) for one in found.instead}
    served = [(one, served_dtypes(found, one, others[one.kernel])) for one in found.instead]
    store, store_shipped = Store(), ShippedStore()
    if json_path:
        names = (found.name, *others)
        kept = {
            "records": [record for name in names for record in store.records(name)],
            "shipped": [record for name in names for record in store_shipped.bests(name)],
        }
        objects = {name: [to_object(record) for record in some] for name, some in kept.items()}
        write_json(json_path, kernel_document(found) | {"instead": instead_objects(found, served)} | objects)
        if json_path == "-":
            return EXIT_OK
    for line in definition_lines(found, served):
        say(line)
    for one in (found, *others.values()):
        if others:
            say(f"  of {one.name}")
        for line in _record_lines(one, store.records(one.name), store.bests(one.name), failed):
            say(line)
        for line in _shipped_lines(one, store_shipped.bests(one.name)):
            say(line)
    return EXIT_OK


def _record_lines(kernel: Kernel, records: Sequence[Record], bests: Sequence[Record], failed: bool) -> Iterator[str]:
    """The last record of each configuration counts: a proof may have refuted what a trial had found right."""
    from collections import Counter

    from autotile.cli.text import time_of
    from autotile.codegen import template_digest
    from autotile.report.rates import rate

    yield "  records" if records else "  records: none"
    groups: dict[tuple[str, Problem], dict[tuple[Configuration, Identity], Record]] = {}
    for record in records:
        group = groups.setdefault((record.identity.device, record.problem), {})
        group[record.configuration, record.identity] = record
    saved = {(best.identity.device, best.problem): best for best in bests}
    for (device, problem), group in groups.items():
        outcomes = ", ".join(f"{count} {word}" for word, count in Counter(r.outcome for r in group.values()).items())
        best = saved.get((device, problem))
        shown = (
            f"best {time_of(best)} {rate(kernel, problem, best.time_ms)}" if best is not None else "no best is saved"
        )
        yield f"    {device}, {problem.label}: {outcomes}; {shown}"
        for record in group.values() if failed else ():
            if not record.ok:
                stale = "" if record.identity.template == template_digest(kernel) else " (of an earlier template)"
                yield f"      {record.outcome}{stale}: {record.message}\n        {record.configuration.label}"


def _shipped_lines(kernel: Kernel, shipped: Sequence[Record]) -> Iterator[str]:
    from autotile.cli.text import time_of
    from autotile.codegen import template_digest
    from autotile.report.formats.common import rate_of

    if shipped:
        yield "  shipped with autotile"
    for record in shipped:
        stale = "" if record.identity.template == template_digest(kernel) else " (of an earlier template)"
        rate = rate_of(record, lambda name: kernel)
        yield f"    {record.identity.device}, {record.problem.label}: shipped; best {time_of(record)} {rate}{stale}"


@click.command()
@click.argument("kernel")
@point_options
@click.option(
    "--device", "-d", default="h200", envvar="AUTOTILE_DEVICE", show_default=True,
    help="The GPU that the kernel is chosen for: auto, cuda:N, emulator:GPU or GPU.",
)  # fmt: skip
@click.option("--unaligned", is_flag=True, help="The text for arrays that are aligned to single elements.")
@templates_option
def render(
    kernel: str,
    sets: tuple[str, ...],
    preset: str | None,
    dtype: str | None,
    problem: str | None,
    device: str,
    unaligned: bool,
    templates: tuple[Path, ...],
) -> int:
    """Print the CUDA source of one configuration of KERNEL. Nothing is run."""
    from autotile.codegen import render as render_source
    from autotile.devices.select import limits_of
    from autotile.dtypes import element_type
    from autotile.report.formats.common import launch_lines
    from autotile.space import violations

    limits = cache(lambda: limits_of(device, note))
    found, asked, configuration = read_point(kernel, sets, preset, dtype, problem, templates, limits)
    for message in violations(found, asked, limits(), configuration):
        note(f"not a feasible configuration: {message}")
    alignment = element_type(asked.dtype).itemsize if unaligned else None  # None: as the problem's offset leaves it
    source = render_source(found, asked, configuration, alignment)
    launch = found.launch_of(asked, configuration)
    say(source.text)  # first, so that its lines are those that errors and `explain` tell
    say(f"// {found.name}: {configuration.label}")
    say(f"// block {launch.block}, {launch.shared_bytes} bytes of dynamic shared memory")
    for line in launch_lines(launch, found.entry):
        say(f"// {line}")
    return EXIT_OK


COMMANDS = (list_, show, render)
