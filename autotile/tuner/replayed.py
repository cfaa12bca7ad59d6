"""Searching a recording: how one is given, what is searched then, and what differs from a search that measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from autotile.devices.base import Device
from autotile.devices.replay.device import ReplayDevice, open_replay
from autotile.devices.replay.kernel import made_up_kernel, recorded_problem
from autotile.devices.replay.recording import Recording
from autotile.devices.select import open_device
from autotile.errors import UsageError
from autotile.kernels import Roots, load_kernel
from autotile.kernels.declarations import check_value
from autotile.measure.replayed import ReplayBench
from autotile.measure.variant import Variant
from autotile.spec import Spec, load_specs
from autotile.spec.load import SEARCH_KEYS, environment_options, parse_set, set_option
from autotile.spec.model import SearchOptions
from autotile.suggest import did_you_mean
from autotile.tuner.clock import Clock
from autotile.tuner.run import ProblemSearch
from autotile.tuner.workshop import Workshop
from autotile.types import OK, Configuration, Problem, Record, Value


@dataclass
class ReplayClock(Clock):
    """Time as it went when the trials so far were recorded: limits and rates are of that time, not of this moment's."""

    bench: ReplayBench | None = None

    @property
    def elapsed_s(self) -> float:
        return self.bench.spent_s - self._before_s if self.bench is not None else 0.0

    def __post_init__(self) -> None:
        self._before_s = self.bench.spent_s if self.bench is not None else 0.0


class ReplayedSearch(ProblemSearch):
    """A search whose winner is just the fastest: nothing can be proven, and so nothing is saved."""

    def __init__(self, spec: Spec, problem: Problem, workshop: Workshop) -> None:
        assert isinstance(workshop.bench, ReplayBench), "a replay has a bench of its own"
        super().__init__(spec, problem, workshop)
        self.clock = ReplayClock(bench=workshop.bench)

    def _record(
        self, configuration: Configuration, outcome: str, message: str, variant: Variant | None = None
    ) -> Record:
        """Without a launch where the kernel is made up: nothing is known of it."""
        record = super()._record(configuration, outcome, message, variant)
        made_up = isinstance(self.device, ReplayDevice) and self.device.recording.own is None
        return replace(record, launch=None) if made_up else record

    def _crowned(self, stopped_by: str, saved: Record | None) -> tuple[str, Record | None]:
        return stopped_by, self._best()


def what_is_replayed(device: ReplayDevice) -> str:
    """One line on a recording: how much of it there is, and where its times are from."""
    recording = device.recording
    failures = sum(outcome != OK for outcome in recording.outcomes)
    torn = f"; {recording.torn}" if recording.torn else ""
    where = (
        f"{'estimated for' if recording.estimated else 'recorded on'} {recording.device or 'a GPU it does not name'}"
    )
    return f"replaying {recording.path}: {len(recording)} evaluations ({failures} failed), {where}{torn}"


def specs_and_device(
    config: str | Path,
    device: str,
    overrides: Sequence[str],
    templates: Roots,
    note: Callable[[str], None],
    problems: Sequence[Mapping[str, Any]] = (),
) -> tuple[Sequence[Spec], Device]:
    """What `config` asks for, with `problems` in place of its own, and the opened device. A `config` that is a
    recording is replayed whole.

    Raises UsageError where either is at fault, EnvironmentalError where there is no such device.
    """
    path = Path(config)
    if not is_recording(path):
        said: list[str] = []  # told here, whoever was the first to need the device
        opening = cache(lambda: open_device(device, said.append))
        specs, opened = load_specs(config, overrides, templates, problems, lambda: opening().info), opening()
        for message in said:
            note(message)
        return specs, opened
    kind, _, which = device.partition(":")
    if device != "auto" and not (kind == "replay" and Path(which).resolve() == path.resolve()):
        raise UsageError(f"{path} holds recorded times, which are replayed; leave the device {device!r} out")
    opened = open_replay(path)
    return [recorded_spec(opened.recording, overrides, templates)], opened


def is_recording(path: Path) -> bool:
    """Whether a file is meant as a recording, and not as a search file (which may be JSON too, since that is YAML)."""
    if path.suffix not in (".gz", ".jsonl", ".json") or not path.is_file():
        return False
    if path.suffix != ".json":
        return True
    with path.open("rb") as file:
        return b'"problems"' not in file.read(1 << 16)


def recorded_spec(recording: Recording, overrides: Iterable[str] = (), templates: Roots = ()) -> Spec:
    """A search of all that was recorded, with `KEY=VALUE` overrides as for a search file.

    The kernel of autotile's own records is looked for; another tuner's is made up. Raises UsageError for an override
    that cannot be, KernelError where an own kernel is not there.
    """
    if recording.own is not None:
        kernel, problem = load_kernel(recording.own.kernel, templates), recording.own
    else:
        kernel = made_up_kernel(recording)
        problem = recorded_problem(recording, kernel)
    domains: dict[str, tuple[Value, ...]] = {}
    if recording.own is not None:  # what was searched may be wider than what the kernel declares
        domains = dict(zip(recording.names, recording.domains, strict=True))
    options = environment_options(SearchOptions())
    for section, name, value in (parse_set(text, ("parameters", "search")) for text in overrides):
        if section == "parameters":
            parameter = kernel.parameter(name)
            values = value if isinstance(value, list) else [value]
            domains[name] = tuple(dict.fromkeys(check_value(parameter, item) for item in values))
            continue
        if name not in SEARCH_KEYS:
            guess = did_you_mean(name, SEARCH_KEYS)
            raise UsageError(f"--set search.{name}: unknown key{guess}; known: {', '.join(SEARCH_KEYS)}")
        options = set_option(options, name, value)
    return replace(Spec(kernel, (problem,), domains, search=options), file=recording.path)
