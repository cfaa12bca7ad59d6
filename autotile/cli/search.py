"""`autotile search`: the main job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotile.cli.options import check_json_path, device_option, json_option, note, templates_option, write_json
from autotile.cli.options import say as to_stdout
from autotile.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from autotile.devices.base import Device
    from autotile.space import Space
    from autotile.spec import Spec
    from autotile.tuner import SearchResult
    from autotile.types import Problem


@click.command()
@click.argument("config")
@device_option
@click.option(
    "--problem",
    "problems",
    multiple=True,
    metavar="P",
    help="Search this one instead of the file's, say 'rows=4096, cols=4096, dtype=float16'. May be given again.",
)
@click.option("--trials", type=click.IntRange(min=1), help="Distinct configurations to try.")
@click.option("--time", "time_", metavar="T", help="Stop after this long: 90s, 10m, 1.5h.")
@click.option("--effort", metavar="E", help="quick, normal or full: how many trials, and when to give up before.")
@click.option("--sampler", metavar="S", help="model, random, grid, or one of Optuna's: tpe, gp, cmaes, nsgaii, …")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the sampler.")
@click.option("--set", "sets", multiple=True, metavar="K=V", help="Override parameters.NAME or search.NAME.")
@click.option("--fresh", is_flag=True, help="Measure anew what is on record.")
@click.option(
    "--dry-run", is_flag=True, help="Show the space, what rejects how much, and the first source; run nothing."
)
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Compilers at a time (default: the number of cores).")
@templates_option
@json_option
def search(
    config: str,
    device: str,
    problems: tuple[str, ...],
    trials: int | None,
    time_: str | None,
    effort: str | None,
    sampler: str | None,
    seed: int | None,
    sets: tuple[str, ...],
    fresh: bool,
    dry_run: bool,
    jobs: int | None,
    templates: tuple[Path, ...],
    json_path: str | None,
) -> int:
    """Search CONFIG (a file, or a shipped config such as `matmul`) and save the best.

    Resumes by default: what is on record is not measured again. A CONFIG of recorded times (a Kernel Tuner cache file,
    a T4 file, or autotile's own records) is replayed: nothing is run or saved.
    """
    from autotile.cli.replay import replay_lines
    from autotile.cli.text import load_line
    from autotile.devices.replay.device import ReplayDevice
    from autotile.runtime.search import what_to_search
    from autotile.spec.load import parse_problem

    check_json_path(json_path)
    flags = {"trials": trials, "time": time_, "effort": effort, "sampler": sampler, "seed": seed}
    overrides = [*sets, *(f"search.{key}={value}" for key, value in flags.items() if value is not None)]
    asked = [parse_problem(text) for text in problems]
    specs, opened = what_to_search(config, asked, device, overrides, templates, note)
    if dry_run:
        return _dry_run(specs, opened, json_path)
    results = _run(specs, opened, fresh, jobs)
    replayed = opened if isinstance(opened, ReplayDevice) else None
    asked_as = {problem: spec.asked_as for spec in specs for problem in spec.problems}
    for result in results:
        if replayed is None:
            line = load_line(result.problem, device, templates, asked_as.get(result.problem, ""))
            _summary(result, line, templates, to_stderr=json_path == "-")
            continue
        for line in replay_lines(result, replayed):
            (note if json_path == "-" else to_stdout)(line)
    if json_path:
        from autotile.report.documents import search_document

        write_json(json_path, search_document(results))
    if any(result.stopped_by == "interrupted" for result in results):
        note("interrupted; run the same command to go on" if replayed is None else "interrupted")
        return EXIT_INTERRUPTED
    complete = len(results) == sum(len(spec.problems) for spec in specs)
    return EXIT_OK if complete and all(result.best is not None for result in results) else EXIT_FAILED


def _run(specs: Sequence[Spec], device: Device, fresh: bool, jobs: int | None) -> list[SearchResult]:
    from autotile.cli.progress import Progress
    from autotile.store import MemoryStore, open_store
    from autotile.tuner import search_all

    with Progress() as progress:
        store = MemoryStore() if device.target.kind == "replay" else open_store(progress.note)
        return search_all(specs, device, store, jobs, fresh, progress)


def _summary(result: SearchResult, load_line: str, templates: Sequence[Path], to_stderr: bool) -> None:
    from autotile.cli.text import STOPPED, memory_line, phases_line, time_of
    from autotile.report.rates import rate

    say = note if to_stderr else to_stdout
    outcomes = ", ".join(f"{count} {word}" for word, count in sorted(result.outcomes.items(), key=lambda o: -o[1]))
    say(f"\n{result.kernel.name} {result.problem.label} on {result.device.name}")
    for name, record in result.named.items():
        shown = rate(result.kernel, result.problem, record.time_ms) if record.ok else record.message
        say(f"  {name:<16} {time_of(record):>24}  {shown}")
        if memory_line(record):
            say(f"  {'':<16} {memory_line(record)}")
    known = f"{len(result.records)} trials on record ({outcomes or 'none'})"
    say(f"  {known}; {result.new_trials} new. {STOPPED[result.stopped_by]}.")
    if result.new_trials:
        say(f"  {phases_line(result)}")
        say(f"  {result.trials_per_s:.2f} trials a second")
    if result.best is None:
        say(_why_nothing(result, templates))
        return
    speed = rate(result.kernel, result.problem, result.best.time_ms)
    say(f"  {'fastest' if result.named else 'best'}: {time_of(result.best)}, {speed}")
    say(f"        {result.best.configuration.label}")
    if result.device.estimated:
        say("  An estimate from the emulator, for a GPU that was not there: run it on one to measure.")
    if result.named:
        say("  These points are on record; what is loaded as best comes from a search of the space.")
        return
    say("  load it in Python:")
    say(f"      import autotile\n      {load_line}")


def _why_nothing(result: SearchResult, templates: Sequence[Path]) -> str:
    """The most frequent reason, and the command that lists all."""
    from collections import Counter

    reasons = Counter(f"{record.outcome}: {record.message}" for record in result.records if not record.ok)
    most = f"\n  most often {reasons.most_common(1)[0][0]}" if reasons else ""
    if not most:
        return "  nothing was tried: nothing is saved."
    options = "".join(f" --templates {folder}" for folder in templates)
    command = f"autotile show {result.kernel.name} --failed{options}"
    return f"  no valid variant: nothing is saved.{most}\n  all of them: {command}"


def _dry_run(specs: Sequence[Spec], device: Device, json_path: str | None) -> int:
    from autotile.report.documents import space_document
    from autotile.tuner.plan import space_of

    documents: list[dict[str, Any]] = []
    for spec in specs:
        for problem in spec.problems:
            space = space_of(spec, problem, device, spec.parameters)
            documents.append(space_document(spec.kernel, problem, device.info, space))
            for line in _dry_lines(spec, problem, device, space):
                (note if json_path == "-" else to_stdout)(line)
    if json_path:
        write_json(json_path, {"spaces": documents})
    return EXIT_OK if all(document["feasible"] for document in documents) else EXIT_USAGE


def _dry_lines(spec: Spec, problem: Problem, device: Device, space: Space) -> Iterator[str]:
    """What the space holds, what rejects how much, and the first source that a search would build."""
    from autotile.codegen import render
    from autotile.space import violations

    yield f"{spec.kernel.name} {problem.label} on {device.info.name}"
    yield f"  {space.feasible} of {space.total} configurations are feasible"
    if space.sampled:
        yield f"  more than can be held: a search chooses from a uniform sample of {len(space)} of them"
    for rejection in space.rejections:
        where = f" ({rejection.where})" if rejection.where else ""
        yield f"  {rejection.count:>10} rejected by `{rejection.rule}`{where}: {rejection.example}"
    for name, point in spec.points.items():
        broken = violations(spec.kernel, problem, device.info, point, spec.rules)
        yield f"  the point {name}: {'; '.join(broken) or 'feasible'}"
    first = next(iter(spec.points.values()), spec.kernel.configuration())
    if device.target.kind == "replay":
        yield "  recorded times: there is no source"
        return
    if not spec.points and space.row_of(first) is None:
        if not len(space):
            return
        first = space.configuration(0)
    yield f"\n// the first source: {first.label}"
    yield render(spec.kernel, problem, first).text


COMMANDS = (search,)
