"""The searches of a file: one problem after another, one spec after another."""

from __future__ import annotations

from collections.abc import Sequence

from autotile.build import Builder
from autotile.build.builder import COMPILE_TIMEOUT_S, open_builder
from autotile.devices.base import Device
from autotile.devices.replay.device import ReplayDevice
from autotile.errors import ConfigurationError, EnvironmentalError, ToolchainMissing
from autotile.spec import Spec
from autotile.store import MemoryStore, RecordStore
from autotile.tuner.replayed import ReplayedSearch, what_is_replayed
from autotile.tuner.result import Listener, SearchResult, Silent
from autotile.tuner.run import ProblemSearch
from autotile.tuner.workshop import open_workshop


def search(
    spec: Spec,
    device: Device,
    builder: Builder,
    store: RecordStore,
    fresh: bool = False,
    listener: Listener | None = None,
) -> list[SearchResult]:
    """Searches each problem of a spec. With `fresh`, what is on record is left aside and measured anew.

    An interrupt (Ctrl-C) ends the run after its best so far is saved; the last result says `interrupted`. A problem
    that cannot be searched (too large for the device, say) is passed over with a note if there are others; it has no
    result then. Raises what is wrong with it where it is the only one.
    """
    results = []
    kind = ReplayedSearch if isinstance(device, ReplayDevice) else ProblemSearch
    with open_workshop(spec.search, device, builder, store, listener or Silent(), fresh) as workshop:
        for problem in spec.problems:
            try:
                results.append(kind(spec, problem, workshop).run())
            except ToolchainMissing:
                raise  # the others would fare no better
            except (ConfigurationError, EnvironmentalError) as error:
                if len(spec.problems) == 1:
                    raise
                workshop.listener.note(f"{spec.kernel.name} {problem.label} is passed over: {error}")
                continue
            if results[-1].cut_short:
                break
    return results


def search_all(
    specs: Sequence[Spec],
    device: Device,
    store: RecordStore,
    jobs: int | None = None,
    fresh: bool = False,
    listener: Listener | None = None,
) -> list[SearchResult]:
    """Searches one spec after another, with compilers for the device (`jobs` at a time).

    A replay has a store of its own, in memory: what others measured is never put on record here.

    Raises ToolchainMissing when there is none, EnvironmentalError when nothing can be run on the device.
    """
    results: list[SearchResult] = []
    if isinstance(device, ReplayDevice):
        store = MemoryStore()
        (listener or Silent()).note(what_is_replayed(device))
    for spec in specs:
        limit_s = spec.search.compile_limit_s or COMPILE_TIMEOUT_S
        with open_builder(device.target, jobs, limit_s) as builder:
            builder.warm_up()
            results += search(spec, device, builder, store, fresh, listener)
        if results and results[-1].cut_short:
            break
    return results
