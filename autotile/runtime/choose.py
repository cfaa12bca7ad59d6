"""Which saved configuration serves a request, and how well it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotile.devices.info import DeviceInfo
from autotile.dtypes import element_type
from autotile.errors import NotTuned, UsageError, WrongResult
from autotile.kernels import Kernel
from autotile.runtime.forecast import forecast_ms
from autotile.space import violations
from autotile.store import RecordStore, ShippedStore, distance
from autotile.types import OFFSET, Configuration, Identity, Problem, Record

EXACT = "exact"
NEAR_PROBLEM = "near_problem"
SAME_ARCH = "same_arch"
DEFAULT = "default"


@dataclass(frozen=True)
class Choice:
    """A configuration for a request. `match` is exact, near_problem, same_arch or default; `differs` says in what.

    `shipped` is true where the record came with autotile, and was not made or imported here.
    """

    configuration: Configuration
    match: str
    record: Record | None
    differs: tuple[str, ...] = ()
    shipped: bool = False


@dataclass(frozen=True)
class _Candidate:
    record: Record
    shipped: bool


def choose(
    kernel: Kernel,
    problem: Problem,
    device: DeviceInfo,
    template: str,
    store: RecordStore,
    shipped: ShippedStore | None = None,
) -> Choice:
    """The best saved configuration that is feasible for the problem on the device.

    Order: this problem on this device, from the store, then as shipped; the nearest problem on it, of both; the nearest
    on another device of the architecture, of both; the kernel's default. Of a kernel that only moves elements, types of
    one size count as one. What has failed for this problem on this device is passed over; only where the store holds
    nothing exact are the problem's trials read for that. Raises NotTuned when not even the default is feasible, or it
    has failed.
    """
    twins = _twins(kernel, problem)
    saved = store.best(kernel.name, problem, device.name)
    if saved is not None and saved.identity.template == template and _serves(kernel, problem, device, saved):
        return Choice(saved.configuration, EXACT, saved)
    failed = _failed(_trials(kernel, twins, device, store), template)
    for match, candidates in (
        (EXACT, _exact(kernel, twins, device, template, store, shipped)),
        (NEAR_PROBLEM, _nearest(kernel, problem, device, _saved(kernel, device.name, store, shipped))),
        (
            SAME_ARCH,
            _twins_first(
                twins, _nearest(kernel, problem, device, _of_arch(device.arch, _saved(kernel, None, store, shipped)))
            ),
        ),
    ):
        for candidate in candidates:
            record = candidate.record
            if record.configuration.key not in failed and _serves(kernel, problem, device, record):
                differs = () if match == EXACT else _differences(kernel, record, problem, device, template)
                return Choice(record.configuration, match, record, differs, candidate.shipped)
    return _default(kernel, problem, device, failed)


def _default(kernel: Kernel, problem: Problem, device: DeviceInfo, failed: dict[str, Record]) -> Choice:
    """The kernel's default. Raises NotTuned when it is not feasible, or has failed."""
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


# ---- where candidates come from, best first -------------------------------------------------------------------------


def _exact(
    kernel: Kernel,
    twins: Sequence[Problem],
    device: DeviceInfo,
    template: str,
    store: RecordStore,
    shipped: ShippedStore | None,
) -> Iterator[_Candidate]:
    """This problem on this device in today's text, the store's own type aside, which was looked at before."""
    offers = [(store.best(kernel.name, twin, device.name), False) for twin in twins[1:]]
    if shipped is not None:
        offers += [(shipped.best(kernel.name, twin, device.name), True) for twin in twins]
    for record, is_shipped in offers:
        if record is not None and record.identity.template == template:
            yield _Candidate(record, is_shipped)


def _saved(
    kernel: Kernel, device: str | None, store: RecordStore, shipped: ShippedStore | None
) -> Iterator[_Candidate]:
    yield from (_Candidate(record, False) for record in store.bests(kernel.name, device))
    if shipped is not None:
        yield from (_Candidate(record, True) for record in shipped.bests(kernel.name, device))


def _twins_first(twins: Sequence[Problem], candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """What was found for the very problem on a sister device knows more of it than a forecast does."""
    yield from sorted(candidates, key=lambda candidate: candidate.record.problem not in twins)


def _of_arch(arch: str, candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    return (candidate for candidate in candidates if candidate.record.identity.arch == arch)


def _nearest(
    kernel: Kernel, problem: Problem, device: DeviceInfo, candidates: Iterable[_Candidate]
) -> Iterator[_Candidate]:
    """Best first; of equals the store's before shipped ones. Nothing is read before the first is asked for."""
    alike = (one for one in candidates if _alike(kernel, one.record.problem, problem))
    return _by_forecast(kernel, problem, device, alike) if kernel.effort else _by_distance(kernel, problem, alike)


def _by_forecast(
    kernel: Kernel, problem: Problem, device: DeviceInfo, candidates: Iterable[_Candidate]
) -> Iterator[_Candidate]:
    """Those that may serve, by the time that they would take."""

    def farness(candidate: _Candidate) -> tuple[bool, float, bool]:
        record = candidate.record
        return record.identity.estimated, forecast_ms(kernel, record, problem, device), candidate.shipped

    yield from sorted((one for one in candidates if _serves(kernel, problem, device, one.record)), key=farness)


def _by_distance(kernel: Kernel, problem: Problem, candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """Those with the problem's own switches first, then those of its class, then by sizes, alignment and time."""
    own_class = kernel.class_of(problem)

    def farness(candidate: _Candidate) -> tuple[bool, bool, float, bool, bool, bool, bool, float]:
        record, there = candidate.record, candidate.record.problem
        return (
            there.switches != problem.switches,
            kernel.class_of(there) != own_class,
            distance(kernel, there, problem),
            there.offset != problem.offset,
            record.identity.estimated,
            candidate.shipped,
            there.dtype != problem.dtype,
            record.time_ms,
        )

    yield from sorted(candidates, key=farness)


# ---- what may serve -------------------------------------------------------------------------------------------------


def _serves(kernel: Kernel, problem: Problem, device: DeviceInfo, record: Record) -> bool:
    """True for a proven configuration of today's kernel that the device can run and whose time may be trusted here."""
    if not record.proven:
        return False
    if record.identity.estimated and not device.estimated:
        return False  # an emulator's estimate is no ground for a choice on a GPU
    if not _alike(kernel, record.problem, problem):
        return False
    try:
        if dict(kernel.configuration(record.configuration)) != dict(record.configuration):
            return False  # the kernel has got a parameter that the record does not know
        return not violations(kernel, problem, device, record.configuration)
    except UsageError:  # the kernel has lost a parameter, or one of its names
        return False


def _alike(kernel: Kernel, tuned: Problem, asked: Problem) -> bool:
    """Whether what was tuned for one problem may serve the other at all: both are today's kernel's, of types that the
    text does not tell apart, and both in place or neither."""
    if tuned.in_place != asked.in_place or not _one_type(kernel, tuned.dtype, asked.dtype):
        return False
    try:
        return kernel.problem(tuned.asked, tuned.dtype) == tuned
    except UsageError:  # a size, an option or a type that the kernel does not have (any more)
        return False


def _one_type(kernel: Kernel, one: str, other: str) -> bool:
    if one == other or not kernel.opaque:
        return one == other
    return one in kernel.dtypes and element_type(one).itemsize == element_type(other).itemsize


def _twins(kernel: Kernel, problem: Problem) -> list[Problem]:
    """The problem, then the same in each other type for which the text is the same."""
    others = (dtype for dtype in kernel.dtypes if dtype != problem.dtype and _one_type(kernel, dtype, problem.dtype))
    return [problem, *(replace(problem, dtype=dtype) for dtype in others)]


def _trials(kernel: Kernel, twins: Sequence[Problem], device: DeviceInfo, store: RecordStore) -> list[Record]:
    """The trials of a problem, in their order; with its twins in the order of their times."""
    trials = [record for twin in twins for record in store.records(kernel.name, twin, device.name)]
    return trials if len(twins) == 1 else sorted(trials, key=lambda record: record.created)


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


def _differences(
    kernel: Kernel, record: Record, problem: Problem, device: DeviceInfo, template: str
) -> tuple[str, ...]:
    """In what a request is not what was tuned. An optional size counts where either problem states it, a switch where
    it is on in one of them."""
    there, here = ({**kernel.sizes_of(one), OFFSET: one.offset} for one in (record.problem, problem))
    stated = {*kernel.dimensions, *dict(record.problem.options), *dict(problem.options)}
    found = [
        f"{name} (tuned {there[name]}, asked {size})"
        for name, size in here.items()
        if name in stated and there[name] != size
    ]
    on_there, on_here = record.problem.switches, problem.switches
    found += [
        f"{switch.name} (tuned {_on(switch.name in on_there)}, asked {_on(switch.name in on_here)})"
        for switch in kernel.switches
        if (switch.name in on_there) != (switch.name in on_here)
    ]
    pairs: tuple[tuple[str, Callable[[Identity], str], str], ...] = (
        ("device", lambda identity: identity.device, device.name),
        ("driver", lambda identity: identity.driver, device.driver),
        ("template", lambda identity: identity.template, template),
    )
    found += [
        f"{what} (tuned {of(record.identity)}, here {now})" for what, of, now in pairs if of(record.identity) != now
    ]
    return tuple(found)


def _on(state: bool) -> str:
    return "on" if state else "off"
