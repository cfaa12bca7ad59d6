"""`autotile list`, `show` and `render`: what there is, without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotile.cli.options import json_option, note, say, templates_option, write_json
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
    from autotile.report.rates import rate
    from autotile.store import Store
    from autotile.store.serial import to_object

    kernels = {name: load_kernel(name, templates) for name in kernel_folders(templates)}
    devices = {f"cuda:{index}": name for index, name in enumerate(cuda_device_names())}
    devices |= {f"emulator:{key}": f"emulated {gpu.name}, {gpu.arch}" for key, gpu in gpu_table().items()}
    configs = sorted(file.stem for file in configs_dir().glob("*.yaml"))
    bests = Store().bests()
    if json_path:
        document: dict[str, Any] = {
            "kernels": {name: kernel.doc for name, kernel in kernels.items()},
            "configs": configs,
            "devices": devices,
            "tuned": [to_object(record) for record in bests],
        }
        write_json(json_path, document)
        if json_path == "-":
            return EXIT_OK
    say("kernels")
    for name, kernel in kernels.items():
        say(f"  {name:<12} {kernel.doc}")
    say("configs")
    for config in configs:
        say(f"  {config:<16} autotile search {config}")
    say("devices")
    for device, name in devices.items():
        say(f"  {device:<20} {name}")
    say(f"tuned, in {home_dir()}")
    for record in sorted(bests, key=lambda r: (r.identity.device, r.problem.kernel, r.problem.key)):
        known = kernels.get(record.problem.kernel)
        speed = rate(known, record.problem, record.time_ms) if known else ""
        what = f"{record.problem.kernel} {record.problem.label}"
        say(f"  {record.identity.device:<24} {what:<36} {time_of(record):>24}  {speed}")
    if not bests:
        say("  nothing yet: autotile search matmul-quick")
    return EXIT_OK


@click.command()
@click.argument("kernel")
@click.option("--failed", is_flag=True, help="List the failed trials, with their reasons.")
@templates_option
@json_option
def show(kernel: str, failed: bool, templates: tuple[Path, ...], json_path: str | None) -> int:
    """Show KERNEL's parameters, rules, presets and records."""
    from autotile.kernels import load_kernel
    from autotile.store import Store
    from autotile.store.serial import to_object

    found = load_kernel(kernel, templates)
    store = Store()
    records, bests = store.records(found.name), store.bests(found.name)
    if json_path:
        write_json(json_path, _kernel_document(found) | {"records": [to_object(record) for record in records]})
        if json_path == "-":
            return EXIT_OK
    for line in (*_definition_lines(found), *_record_lines(found, records, bests, failed)):
        say(line)
    return EXIT_OK


def _definition_lines(kernel: Kernel) -> Iterator[str]:
    from autotile.space.rules import DEVICE_RULES

    yield f"{kernel.name}: {kernel.doc}"
    yield f"  problem     {', '.join(kernel.dimensions)}; dtypes {', '.join(kernel.dtypes)}"
    yield "  parameters (* marks the default)"
    for p in kernel.parameters:
        yield f"    {p.name:<16} {' '.join(_shown(value) + ('*' if value == p.default else '') for value in p.values)}"
        yield f"    {'':<16} {p.doc}"
    yield "  derived values"
    for d in kernel.derived:
        yield f"    {d.name:<16} {d.expression}\n    {'':<16} {d.doc}"
    yield "  traits of a problem"
    for t in kernel.traits:
        yield f"    {t.name:<16} {t.expression}\n    {'':<16} {t.doc}"
    yield "  rules"
    for rule in (*DEVICE_RULES, *kernel.rules):
        yield f"    {rule.expression}\n      {rule.message}"
    yield "  presets"
    for name, values in kernel.presets.items():
        yield f"    {name:<16} {' '.join(f'{key}={_shown(value)}' for key, value in values.items())}"


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


@click.command()
@click.argument("kernel")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="A parameter's value. May be given again.")
@click.option("--preset", help="Start from a preset of the kernel instead of its default configuration.")
@click.option("--dtype", help="Element type (default: the kernel's first).")
@click.option("--unaligned", is_flag=True, help="The text for arrays that are aligned to single elements.")
@templates_option
def render(
    kernel: str,
    sets: tuple[str, ...],
    preset: str | None,
    dtype: str | None,
    unaligned: bool,
    templates: tuple[Path, ...],
) -> int:
    """Print the CUDA source of one configuration of KERNEL. Nothing is run."""
    from autotile.codegen import render as render_source
    from autotile.devices.gpus import find_gpu
    from autotile.dtypes import element_type
    from autotile.errors import ConfigurationError
    from autotile.kernels import load_kernel
    from autotile.kernels.definition import FRESH_ALIGNMENT
    from autotile.space import violations
    from autotile.spec.load import parse_set
    from autotile.suggest import did_you_mean

    found = load_kernel(kernel, templates)
    if preset is not None and preset not in found.presets:
        hint = did_you_mean(preset, found.presets)
        raise ConfigurationError(f"{found.name} has no preset {preset!r}{hint}; it has {', '.join(found.presets)}")
    values = dict(found.presets[preset]) if preset else {}
    for text in sets:
        _, name, value = parse_set(text)
        values[name] = value
    configuration = found.configuration(values)
    problem = found.problem(dict.fromkeys(found.dimensions, 4096), dtype)
    for message in violations(found, problem, find_gpu("h200"), configuration):
        note(f"not a feasible configuration: {message}")
    alignment = element_type(problem.dtype).itemsize if unaligned else FRESH_ALIGNMENT
    source = render_source(found, problem, configuration, alignment)
    launch = found.launch_of(problem, configuration)
    say(f"// {found.name}: {configuration.label}")
    say(f"// block {launch.block}, {launch.shared_bytes} bytes of dynamic shared memory")
    say(source.text)
    return EXIT_OK


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kernel_document(kernel: Kernel) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "doc": kernel.doc,
        "dimensions": list(kernel.dimensions),
        "dtypes": list(kernel.dtypes),
        "parameters": [
            {"name": p.name, "values": list(p.values), "default": p.default, "doc": p.doc} for p in kernel.parameters
        ],
        "rules": [{"expression": rule.expression, "message": rule.message} for rule in kernel.rules],
        "presets": {name: dict(values) for name, values in kernel.presets.items()},
    }


COMMANDS = (list_, show, render)
