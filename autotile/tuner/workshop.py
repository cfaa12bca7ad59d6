"""What a search works with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.kernels import Kernel
from autotile.measure import Bench, Limits, TimingPlan, Tracer, open_bench
from autotile.measure.limits import TRIAL_LIMIT_S
from autotile.spec import SearchOptions
from autotile.store import RecordStore
from autotile.tuner.result import Listener
from autotile.types import Binary, Problem


@dataclass(frozen=True)
class Workshop:
    """Where variants run, who builds them, where results go and who hears of them.

    `tracer` gives the emulator's opinion of a GPU's winner; None on the emulator itself. With `fresh`, what is on
    record is left aside and measured anew.
    """

    device: Device
    builder: Builder
    bench: Bench
    store: RecordStore
    listener: Listener
    fresh: bool = False
    tracer: Tracer | None = None

    def comparer(self) -> Binary | None:
        """The kernel with which the device compares outputs, built; None where the host compares."""
        return None if self.device.comparer is None else self.builder.build(self.device.comparer)

    def begin(self, kernel: Kernel, problem: Problem) -> None:
        """Puts a problem's data on the device, in its process; the comparer is built while they are made."""
        building = None if self.device.comparer is None else self.builder.submit(self.device.comparer)
        self.bench.make(kernel, problem)
        self.bench.begin(kernel, problem, None if building is None else building.result())


@contextmanager
def open_workshop(
    options: SearchOptions,
    device: Device,
    builder: Builder,
    store: RecordStore,
    listener: Listener,
    fresh: bool = False,
) -> Iterator[Workshop]:
    """A workshop whose measuring process, if it has one, ends with the `with` block."""
    limits = Limits(options.launch_limit_s or device.launch_limit_s, options.trial_limit_s or TRIAL_LIMIT_S)
    plan = None if options.runs is None else TimingPlan.exactly(options.runs)
    with open_bench(device, limits, plan) as bench:
        if device.info.estimated or device.reopen is None:
            yield Workshop(device, builder, bench, store, listener, fresh)
            return
        with closing(Tracer(device)) as tracer:
            yield Workshop(device, builder, bench, store, listener, fresh, tracer)
