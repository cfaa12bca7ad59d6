"""What is saved, proven once more on the device that is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autotile.build import Builder
from autotile.codegen import template_digest
from autotile.devices.base import Device
from autotile.devices.cuda import CudaDevice
from autotile.errors import ImplausibleTime, LaunchError, UsageError, VariantError, WrongResult
from autotile.kernels import Kernel
from autotile.measure import Variant, fairly, make_variant, prove
from autotile.measure.estimated import emulated_in_full
from autotile.measure.noise import Verdict, verdict
from autotile.measure.sanitize import Sanitized, find_sanitizer, sanitize
from autotile.spec import SearchOptions
from autotile.store import RecordStore
from autotile.tuner.result import Listener, Silent
from autotile.tuner.workshop import Workshop, open_workshop
from autotile.types import OK, Measurement, Record

OUTDATED = "outdated"
"""The outcome of a saved best whose template has changed since, or is not here: it is not served, so not proven."""

GUILTY = (WrongResult, LaunchError, ImplausibleTime)
"""What takes a best out of service. A compiler that refuses it, a process that was killed or a time that ran out may be
this machine's doing today."""


@dataclass(frozen=True)
class Verified:
    """What became of one saved best. `outcome` is ok, outdated, or the failure's word; `measurement` is today's.

    `speed` compares it with the saved time. `notes` say what was looked at beside the results.
    """

    record: Record
    outcome: str
    message: str = ""
    measurement: Measurement | None = None
    max_error: float | None = None
    speed: Verdict | None = None
    notes: Sequence[str] = ()

    @property
    def failed(self) -> bool:
        return self.outcome not in (OK, OUTDATED)


def verify(
    records: Sequence[Record],
    kernel_of: Callable[[str], Kernel],
    device: Device,
    builder: Builder,
    store: RecordStore,
    tools: Sequence[str] = (),
    listener: Listener | None = None,
) -> Iterator[Verified]:
    """Proves saved bests of this device again, one by one: the whole proof of a winner, and its time.

    With `tools`, compute-sanitizer's of these names watch as well. One that is wrong is taken out of service, and the
    failure goes on record. Raises UsageError for tools on a device that is no GPU, ToolchainMissing without them.
    """
    watchers = _watchers(tools, device, builder)
    with open_workshop(SearchOptions(), device, builder, store, listener or Silent(), False) as workshop:
        for record in records:
            try:
                kernel = kernel_of(record.problem.kernel)
                kernel.problem(record.problem.asked, record.problem.dtype)
                unchanged = template_digest(kernel) == record.identity.template
            except UsageError as error:
                yield Verified(record, OUTDATED, f"{error} (--templates DIR names folders of kernels)")
                continue
            if not unchanged:
                yield Verified(record, OUTDATED, "the template has changed since: search again")
                continue
            try:
                verified, variant = fairly(partial(_verified, record, kernel, workshop))
                for watch in watchers:
                    found = watch(variant)
                    if not found.clean:
                        raise WrongResult(f"compute-sanitizer's {found.tool}: {found.words}")
                    note = f"{found.tool} found nothing on {found.problems} problems"
                    verified = replace(verified, notes=(*verified.notes, note))
                yield verified
            except VariantError as error:
                if isinstance(error, GUILTY):
                    store.append(replace(record, outcome=error.outcome, message=str(error), measurement=None, extra=()))
                    store.withdraw(record)
                yield Verified(record, error.outcome, str(error))


def _watchers(tools: Sequence[str], device: Device, builder: Builder) -> list[Callable[[Variant], Sanitized]]:
    if not tools:
        return []
    if not isinstance(device, CudaDevice):
        raise UsageError(
            f"{device.info.name} is no GPU, so compute-sanitizer cannot watch it; the emulator checks bounds, races, "
            "barriers and unwritten shared memory by itself: leave --sanitize out"
        )
    sanitizer = find_sanitizer()
    return [partial(sanitize, tool, sanitizer, device, builder) for tool in tools]


def _verified(record: Record, kernel: Kernel, workshop: Workshop) -> tuple[Verified, Variant]:
    """Raises VariantError when it fails."""
    variant = make_variant(kernel, record.problem, record.configuration)
    binary, comparer = workshop.builder.build(variant.source), workshop.comparer()
    workshop.bench.begin(kernel, record.problem, comparer)
    trial = workshop.bench.trial(variant, binary)
    worst = max(
        trial.max_error, prove(workshop.bench, workshop.builder, workshop.device.info, variant, binary, comparer)
    )
    notes: tuple[str, ...] = ()
    if workshop.tracer is not None:
        notes = (f"traced on the emulator: {workshop.tracer.trace(kernel, record.problem, variant)}",)
    if workshop.device.info.estimated and not emulated_in_full(kernel, record.problem):
        notes = ("on smaller problems alone, since its own takes too long to emulate",)
    saved = record.measurement
    speed = None if saved is None or saved.estimated else verdict(trial.measurement, saved)
    return Verified(record, OK, "", trial.measurement, worst, speed, notes), variant
