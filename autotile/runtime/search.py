"""`autotile.search(...)`: the command `autotile search`, from Python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from autotile.build import Builder
from autotile.devices.select import open_device
from autotile.kernels import Roots
from autotile.runtime.notes import AutotileWarning
from autotile.spec import load_specs
from autotile.store import open_store
from autotile.tuner import Listener, SearchResult
from autotile.tuner import search as run_search


def search(
    config: str | Path,
    *,
    device: str = "auto",
    trials: int | None = None,
    time: str | float | None = None,
    sampler: str | None = None,
    seed: int | None = None,
    sets: Sequence[str] = (),
    fresh: bool = False,
    jobs: int | None = None,
    templates: Roots = (),
    listener: Listener | None = None,
) -> list[SearchResult]:
    """Runs every search of `config` (a file, or a shipped config's name) and saves the best of each problem.

    Arguments win over AUTOTILE_* variables, these over the file. Returns one result a problem.
    Raises UsageError for a faulty file, EnvironmentalError when the device or a compiler is missing.
    """
    options = {"trials": trials, "time": time, "sampler": sampler, "seed": seed}
    overrides = [*sets, *(f"search.{key}={value}" for key, value in options.items() if value is not None)]
    specs = load_specs(config, overrides, templates)

    def note(message: str) -> None:
        warnings.warn(message, AutotileWarning, stacklevel=3)

    opened = open_device(device, note)
    store = open_store(note)
    results: list[SearchResult] = []
    with Builder(opened.target, jobs=jobs) as builder:
        for spec in specs:
            results += run_search(spec, opened, builder, store, fresh, listener)
            if results and results[-1].cut_short:
                break
    return results
