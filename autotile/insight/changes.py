"""What other values would do: neighbours of a configuration, and the kernel's first presets, estimated like itself."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from itertools import islice

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import CompileError, ExpressionError, LaunchError, ToolchainMissing, UnsupportedByEmulator
from autotile.insight.explanation import Change
from autotile.kernels import Kernel, Parameter
from autotile.measure.traced import Trace, trace_variant
from autotile.measure.variant import Variant, make_variant
from autotile.space import violations
from autotile.types import Binary, Configuration, Value

MOST_TRIED, MOST_TOLD = 14, 4
PRESET, FIRST_PRESETS = "preset", 4
"""The classics come first among a kernel's presets. The best of them is told too: what is wrong may take more than one
parameter to mend."""

LEAST_GAIN = 0.03
WASTED, MENDED = 2.0, 1.1
"""Times the least that would do."""

TRACE_S = 0.1

_RATIOS = {
    "sectors_a_load_request": "sectors a load",
    "sectors_a_store_request": "sectors a store",
    "wavefronts_a_shared_load": "wavefronts a shared load",
    "wavefronts_a_shared_store": "wavefronts a shared store",
}


def changes_of(
    variant: Variant, device: EmulatorDevice, builder: Builder, before: Trace, time_ms: float, budget_s: float
) -> tuple[Change, ...]:
    """First what mends an access that wastes much; then the best of the neighbours that gain something, of one value
    for each parameter; last the best preset, if that gains more. As far as `budget_s` seconds reach.

    `before` is the variant's own trace, without widths of machine code, and `time_ms` its estimate: what a neighbour
    gains by such an estimate, it is taken to gain by this one too.
    """
    until = time.perf_counter() + budget_s
    usual = before.estimate(variant, device.info).time_ms
    asked = [*presets(variant, device), *neighbours(variant, device)]  # presets first: they are few, and far from here
    waiting = deque((name, value, other, builder.submit(other.source)) for name, value, other in asked)
    found: list[tuple[Change, frozenset[str]]] = []
    while waiting and time.perf_counter() < until:
        name, value, other, future = waiting.popleft()
        after = _traced(future, other, device, max(0.01, until - time.perf_counter()))
        if after is None:
            continue
        gained = time_ms * after.estimate(other, device.info).time_ms / usual
        if gained < (1 - LEAST_GAIN) * time_ms:
            change = Change(name, value, gained, _words(before, after, time_ms, gained))
            found.append((change, _mended(before, after)))
    for *_, future in waiting:
        future.cancel()
    return _told(found, time_ms)


def _told(found: list[tuple[Change, frozenset[str]]], time_ms: float) -> tuple[Change, ...]:
    found = sorted(found, key=lambda one: (round(one[0].time_ms, 5), one[0].name == PRESET))
    told: dict[str, Change] = {}
    mended: set[str] = set()
    for change, names in found:  # the best that mends each access
        if names - mended:
            told.setdefault(change.name, change)
            mended |= names
    for change, _ in found:
        if change.name != PRESET and len(told) < MOST_TOLD:
            told.setdefault(change.name, change)
    best = min((change.time_ms for change in told.values()), default=time_ms)
    for change, _ in found:
        if change.name == PRESET and change.time_ms < (1 - LEAST_GAIN) * best:
            told.setdefault(PRESET, change)
    return tuple(told.values())


def _mended(before: Trace, after: Trace) -> frozenset[str]:
    """Kinds of requests of which much was wasted before, and hardly anything is now; those that are gone count too."""
    was, now = _excess(before), _excess(after)
    return frozenset(name for name in was if was[name] >= WASTED and now.get(name, 1.0) <= MENDED)


def neighbours(variant: Variant, device: EmulatorDevice) -> Iterator[tuple[str, str, Variant]]:
    """Feasible ones that differ in one parameter, with its name and its value there; MOST_TRIED at most."""
    found = (
        (name, shown(configuration[name]), other)
        for name, configuration in nearest(variant.kernel, variant.configuration)
        if (other := _feasible(variant, configuration, device)) is not None
    )
    return islice(found, MOST_TRIED)


def presets(variant: Variant, device: EmulatorDevice) -> Iterator[tuple[str, str, Variant]]:
    """The first of the kernel's, without the one that asks memory for most."""
    kernel = variant.kernel
    for name, values in islice(kernel.presets.items(), FIRST_PRESETS):
        if name == kernel.baseline:
            continue
        other = _feasible(variant, kernel.configuration(values), device)
        if other is not None:
            yield PRESET, name, other


def _feasible(variant: Variant, configuration: Configuration, device: EmulatorDevice) -> Variant | None:
    """None for one that is not, and for one that is the variant itself."""
    try:
        if violations(variant.kernel, variant.problem, device.info, configuration):
            return None
        other = make_variant(variant.kernel, variant.problem, configuration)
    except (ExpressionError, LaunchError):
        return None
    same = other.source.text == variant.source.text and other.launch == variant.launch
    return None if same else other


def nearest(kernel: Kernel, configuration: Configuration) -> Iterator[tuple[str, Configuration]]:
    """All that differ in one parameter, in rounds: its nearest searched values and its default, then the next ones.
    Names and switches have no order, so all of them are near."""
    steps = [
        (
            0 if value == parameter.default else _distance(parameter, configuration[parameter.name], value),
            number,
            parameter.name,
            value,
        )
        for number, parameter in enumerate(kernel.parameters)
        for value in parameter.domain
        if value != configuration[parameter.name]
    ]
    for _, _, name, value in sorted(steps, key=lambda step: step[:2]):
        yield name, kernel.configuration({**configuration, name: value})


def _distance(parameter: Parameter, now: Value, other: Value) -> int:
    if isinstance(now, (bool, str)):
        return 0
    numbers = sorted({*(int(v) for v in parameter.domain), int(now)})
    return abs(numbers.index(int(now)) - numbers.index(int(other)))


def _traced(future: Future[Binary], variant: Variant, device: EmulatorDevice, limit_s: float) -> Trace | None:
    """None for one that cannot be built in time, or cannot be run here, or is wrong."""
    try:
        trace = trace_variant(device, variant, future.result(limit_s), budget_s=TRACE_S)
    except (CompileError, LaunchError, NotInTime, ToolchainMissing, UnsupportedByEmulator):
        return None
    return None if trace.diagnostics else trace


def _words(before: Trace, after: Trace, time_ms: float, gained_ms: float) -> str:
    """What requests cost less beyond the least, or else how much all of them cost beside before; and the times."""
    was, now = _excess(before), _excess(after)
    better = [name for name in was.keys() & now.keys() if now[name] < was[name] and _differs(was[name], now[name])]
    moved = sorted(better, key=lambda name: (now[name] - was[name], name))
    told = [
        f"{before.per_request[name]:.3g} → {after.per_request[name]:.3g} {_RATIOS[name]}"
        for name in moved[:2]
        if _differs(before.per_request[name], after.per_request[name])
    ]
    if not told:
        was, now = _totals(before), _totals(after)
        told = [f"{100 * (now[name] / was[name] - 1):+.0f} % {name}" for name in was if _differs(was[name], now[name])]
    return ", ".join([*told, f"≈{time_ms:.3g} → ≈{gained_ms:.3g} ms (estimate)"])


def _differs(was: float, now: float) -> bool:
    return was > 0 and abs(now / was - 1) > 0.05


def _excess(trace: Trace) -> dict[str, float]:
    """Of the main function: what its requests cost over the least that would do, by the names of `per_request`."""
    costs = dict.fromkeys(_RATIOS, 0.0)
    least = dict.fromkeys(_RATIOS, 0.0)
    for access in trace.main.accesses:
        name = f"sectors_a_{access.op}_request" if access.space == "global" else f"wavefronts_a_shared_{access.op}"
        costs[name] += access.total
        least[name] += access.requests * access.ideal_per_request
    return {name: costs[name] / least[name] for name in costs if least[name]}


def _totals(trace: Trace) -> dict[str, float]:
    """Sectors and wavefronts of the whole launch."""
    totals = {"sectors": 0.0, "wavefronts": 0.0}
    for entry in trace.entries:
        for access in entry.accesses:
            totals["sectors" if access.space == "global" else "wavefronts"] += access.total * entry.scale
    return totals


def shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
