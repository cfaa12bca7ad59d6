"""Which saved configuration serves a request, and how well it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autotile.devices.info import DeviceInfo
from autotile.errors import NotTuned, UsageError, WrongResult
from autotile.kernels import Kernel
from autotile.space import violations
from autotile.store import RecordStore
from autotile.types import Configuration, Identity, Problem, Record

EXACT = "exact"
NEAR_PROBLEM = "near_problem"
SAME_ARCH = "same_arch"
DEFAULT = "default"


@dataclass(frozen=True)
class Choice:
    """A configuration for a request. `match` is exact, near_problem, same_arch or default; `differs` says in what."""

    configuration: Configuration
    match: str
    record: Record | None
    differs: tuple[str, ...] = ()


def choose(kernel: Kernel, problem: Problem, device: DeviceInfo, template: str, store: RecordStore) -> Choice:
    """The best saved configuration that is feasible for the problem on the device.

    Order: this problem on this device; the nearest problem on it; the nearest on another device of the architecture;
    the kernel's default. What has failed for this problem on this device is passed over; only where nothing is exact
    are the problem's trials read for that. Raises NotTuned when not even the default is feasible, or it has failed.
    """
    exact = store.best(kernel.name, problem, device.name)
    if exact is not None and _serves(kernel, problem, device, exact) and exact.identity.template == template:
        return Choice(exact.configuration, EXACT, exact)
    failed = _failed(store.records(kernel.name, problem, device.name), template)
    for match, candidates in (
        (NEAR_PROBLEM, _near(store.bests(kernel.name, device.name), problem, device)),
        (SAME_ARCH, _near((r for r in store.bests(kernel.name) if r.identity.arch == device.arch), problem, device)),
    ):
        for record in candidates:
            if record.configuration.key not in failed and _serves(kernel, problem, device, record):
                return Choice(record.configuration, match, record, _differences(record, problem, device, template))
    default = kernel.configuration()
    broken = violations(kernel, problem, device, default)
    if broken:
        raise NotTuned(
            f"nothing is saved for {kernel.name} {problem.label} on {device.name}, and the default configuration does "
            f"not fit it: {'; '.join(broken)}. Tune it: autotile search"
        )
    if default.key in failed:
        failure = failed[default.key]
        raise NotTuned(
            f"nothing is saved for {kernel.name} {problem.label} on {device.name} that fits, and the default "
            f"configuration has failed there ({failure.outcome}: {failure.message}). Tune it: autotile search"
        )
    return Choice(
        default,
        DEFAULT,
        None,
        (f"nothing is saved for {kernel.name} {problem.dtype} on {device.name} or its architecture that fits",),
    )


def _serves(kernel: Kernel, problem: Problem, device: DeviceInfo, record: Record) -> bool:
    """True for a proven configuration of today's kernel that the device can run and whose time may be trusted here."""
    if not record.proven:
        return False
    if record.identity.estimated and not device.estimated:
        return False  # an emulator's estimate is no ground for a choice on a GPU
    if [name for name, _ in record.problem.sizes] != list(kernel.dimensions) or record.problem.dtype != problem.dtype:
        return False
    try:
        if dict(kernel.configuration(record.configuration)) != dict(record.configuration):
            return False  # the kernel has got a parameter that the record does not know
        return not violations(kernel, problem, device, record.configuration)
    except UsageError:  # the kernel has lost a parameter, or one of its names
        return False


def _failed(trials: Iterable[Record], template: str) -> dict[str, Record]:
    """The failures, by configuration, among a problem's trials (in their order) with today's template.

    A later trial that went well clears all but a wrong result, which a race gives now and then only.
    """
    failed: dict[str, Record] = {}
    for record in trials:
        key = record.configuration.key
        if record.identity.template != template or (key in failed and failed[key].outcome == WrongResult.outcome):
            continue
        if record.ok:
            failed.pop(key, None)
        else:
            failed[key] = record
    return failed


def _near(records: Iterable[Record], problem: Problem, device: DeviceInfo) -> list[Record]:
    """Nearest first: by the ratios of the sizes, then by time."""

    def distance(record: Record) -> float:
        ours, theirs = dict(problem.sizes), dict(record.problem.sizes)
        if ours.keys() != theirs.keys():
            return math.inf  # of an older kernel.py; it will not be served
        return sum(abs(math.log2(ours[name] / theirs[name])) for name in ours)

    return sorted(
        (r for r in records if r.problem.dtype == problem.dtype),
        key=lambda r: (distance(r), r.identity.estimated, r.time_ms),
    )


def _differences(record: Record, problem: Problem, device: DeviceInfo, template: str) -> tuple[str, ...]:
    found = []
    theirs = dict(record.problem.sizes)
    found += [f"{name} (tuned {theirs[name]}, asked {size})" for name, size in problem.sizes if theirs[name] != size]
    pairs: tuple[tuple[str, Callable[[Identity], str], str], ...] = (
        ("device", lambda identity: identity.device, device.name),
        ("driver", lambda identity: identity.driver, device.driver),
        ("template", lambda identity: identity.template, template),
    )
    found += [
        f"{what} (tuned {of(record.identity)}, here {here})" for what, of, here in pairs if of(record.identity) != here
    ]
    return tuple(found)
