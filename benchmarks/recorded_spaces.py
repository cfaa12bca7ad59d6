"""Recorded spaces as what a sampler can search: which there are in a folder, and one search of one of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scoring import Array, Scale, scale_of

from autotile.devices.replay.device import ReplayDevice
from autotile.devices.replay.recording import Recording, read_recording
from autotile.errors import AutotileError, UsageError
from autotile.kernels import load_kernel
from autotile.sampler import Strategy, derived_columns
from autotile.space import Space, space_of_rows
from autotile.types import OK, Identity, Measurement, Problem, Record

GROWING = "growing"

NEAR = (0.05, 0.02)
"""Shares of the recorded best that a search is asked to come within."""

MOST_EVALUATIONS = 1000
"""After which a search of an own recording is given up that has not come as near as that."""


@dataclass(frozen=True, eq=False)
class Case:
    """One recorded space. `derived` are the columns of an own recording's kernel (rows × columns), if it has any."""

    name: str
    recording: Recording
    scale: Scale
    derived: Array | None = None

    def space(self) -> Space:
        """Its rows are the recording's."""
        space = space_of_rows(self.recording.names, self.recording.domains, self.recording.codes)
        assert np.array_equal(space.codes, self.recording.codes), f"{self.name}: the rows are out of order"
        return space


def recordings_in(folders: Sequence[Path], matching: str, note: Callable[[str], None] = print) -> Iterator[Recording]:
    """The recordings among the files of some folders, each once; `note` is told what is left out, and why.

    A T4 file says neither kernel nor GPU: where a cache file has the same parameters and times, that one is taken.
    Raises UsageError where a folder is none.
    """
    found: list[Recording] = []
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise UsageError(f"{', '.join(missing)}: no such folder; name one that holds recordings")
    for path in sorted(path for folder in folders for path in folder.iterdir() if path.is_file()):
        if not path.name.endswith((".json", ".json.gz", ".jsonl", ".jsonl.gz")) or path.name.endswith(".T1.json"):
            continue
        if not any(text in path.name for text in matching.split(",")):
            continue
        try:
            found.append(read_recording(path))
        except UsageError as error:
            note(f"left out: {error}")
    for recording in found:
        twin = next((other for other in found if _same_search(recording, other)), None)
        if twin is not None and (not recording.device or found.index(twin) < found.index(recording)) and twin.device:
            note(f"left out: {recording.path.name} is the same search as {twin.path.name}")
            continue
        if recording.torn:
            note(f"{recording.path.name}: {recording.torn}")
        yield recording


def _same_search(one: Recording, other: Recording) -> bool:
    if one is other or len(one) != len(other) or set(one.names) != set(other.names):
        return False
    return np.allclose(np.sort(one.time_ms), np.sort(other.time_ms), rtol=1e-6, equal_nan=True)


def case_of(recording: Recording, features: bool, note: Callable[[str], None] = print) -> Case:
    """Raises UsageError for a recording on which searches cannot be compared."""
    name = recording.path.name.split(".")[0]
    case = Case(name, recording, scale_of(recording))
    if recording.own is None:
        return case
    case = replace(case, name=f"{recording.own.kernel} {recording.own.label}, {recording.device}")
    if not features:
        return case
    try:
        kernel, device = load_kernel(recording.own.kernel), ReplayDevice(recording).info
        return replace(case, derived=derived_columns(kernel, recording.own, case.space(), device))
    except AutotileError as error:
        note(f"{case.name}: searched without features, since its kernel cannot be used: {error}")
        return case


def cases_in(folders: Sequence[Path], matching: str, features: bool) -> list[Case]:
    """All that can be searched. Raises UsageError where nothing can."""
    cases: list[Case] = []
    for recording in recordings_in(folders, matching):
        try:
            cases.append(case_of(recording, features))
        except UsageError as error:
            print(f"left out: {error}")
    if len({case.name for case in cases}) < len(cases):
        cases = [replace(case, name=f"{case.name} ({case.recording.path.name})") for case in cases]
    if not cases:
        where = ", ".join(str(folder) for folder in folders)
        raise UsageError(f"no recording in {where} can be searched; name a folder that holds some")
    return cases


@dataclass(frozen=True, eq=False)
class Search:
    """The rows in the order of their evaluation, and the sampler's own time for each, in asking and telling (s)."""

    rows: list[int]
    cpu_s: Array
    wall_s: Array


def batch_size(batch: str, evaluated: int) -> int:
    return min(8, max(1, evaluated // 8)) if batch == GROWING else int(batch)


def search(recording: Recording, strategy: Strategy, batch: str, enough: Callable[[int, float, float], bool]) -> Search:
    """Asks, looks up and tells until all is evaluated, or until it is enough: of so many, after so many s, best so far.

    Batches are told together, their costs add up: one GPU, whatever is asked ahead.
    """
    identity = Identity(recording.device, recording.arch, "", "", "", 0, recording.estimated)
    problem = recording.own or Problem(recording.kernel, (), "")
    rows: list[int] = []
    took: list[tuple[float, float]] = []
    spent_s, best_ms = 0.0, math.inf
    while len(rows) < len(recording) and not enough(len(rows), spent_s, best_ms):
        asked = []
        for _ in range(min(batch_size(batch, len(rows)), len(recording) - len(rows))):
            cpu_s, wall_s = time.thread_time(), time.perf_counter()
            trial, row = strategy.ask()
            asked.append((trial, row, time.thread_time() - cpu_s, time.perf_counter() - wall_s))
        for trial, row, ask_cpu_s, ask_wall_s in asked:
            told = record_of(recording, row, problem, identity)
            cpu_s, wall_s = time.thread_time(), time.perf_counter()
            strategy.tell(trial, told)
            took.append((ask_cpu_s + time.thread_time() - cpu_s, ask_wall_s + time.perf_counter() - wall_s))
            rows.append(row)
            spent_s += float(recording.cost_ms[row]) / 1e3
            best_ms = min(best_ms, told.time_ms)
    cpu, wall = np.asarray(took).reshape(-1, 2).T
    return Search(rows, cpu, wall)


def record_of(recording: Recording, row: int, problem: Problem, identity: Identity) -> Record:
    """A row as the record of a trial; all that it cost beside compiling counts as measuring."""
    time_ms, outcome = float(recording.time_ms[row]), recording.outcomes[row]
    return Record(
        problem,
        recording.configuration(row),
        identity,
        outcome,
        recording.messages[row],
        Measurement(time_ms, time_ms, 0.0, 1, estimated=recording.estimated) if outcome == OK else None,
        build_s=float(recording.compile_ms[row]) / 1e3,
        measure_s=float(recording.other_ms[row]) / 1e3,
    )


def enough_for(case: Case) -> Callable[[int, float, float], bool]:
    """Until the budget is spent; an own recording is searched on, to see when it comes near the best."""
    near_ms = case.recording.best_ms * (1 + min(NEAR))

    def enough(evaluated: int, spent_s: float, best_ms: float) -> bool:
        near = case.recording.own is None or best_ms <= near_ms or evaluated >= MOST_EVALUATIONS
        return spent_s >= case.scale.budget_s and near

    return enough


def made_up(space: Space, name: str) -> Recording:
    """A recording of a space whose times are smooth: each parameter has a best place, and costs more beyond it."""
    random = np.random.default_rng(0)
    logs = np.zeros(len(space))
    for p, domain in enumerate(space.domains):
        place = space.codes[:, p] / max(1, len(domain) - 1)
        logs += random.exponential(1.0) * (place - random.random()) ** 2
    count = len(space)
    return Recording(
        path=Path(name),
        kernel=name,
        device="",
        problem="",
        sizes=(),
        names=space.names,
        domains=space.domains,
        codes=space.codes,
        time_ms=np.exp(logs),
        outcomes=(OK,) * count,
        messages=("",) * count,
        compile_ms=np.full(count, 1000.0),
        other_ms=np.full(count, 500.0),
    )
