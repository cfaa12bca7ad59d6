"""`autotile.search(...)`: the command `autotile search`, from Python."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from autotile.kernels import Roots
from autotile.runtime.notes import AutotileWarning
from autotile.runtime.requests import require, require_count, require_device, require_templates, require_texts
from autotile.store import open_store
from autotile.tuner import Listener, SearchResult, search_all
from autotile.tuner.replayed import specs_and_device


def search(
    config: str | Path,
    *,
    device: str = "auto",
    trials: int | None = None,
    time: str | float | None = None,
    effort: str | None = None,
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
    Raises UsageError for a faulty file or argument (ArgumentTypeError or ArgumentValueError, which are two, for a value
    of a wrong type or out of range) and EnvironmentalError when the device or a compiler is missing.
    """
    require(isinstance(config, (str, Path)), "config", config, "a search file's path, or a shipped one's name")
    require_device(device)
    require_templates(templates)
    require_texts(sets, "sets", 'a list of texts such as ["search.trials=20"]')
    require(isinstance(fresh, bool), "fresh", fresh, "True or False")
    require_count(jobs, "jobs")
    require_count(trials, "trials")
    fits = listener is None or all(hasattr(listener, name) for name in ("started", "tried", "finals", "note"))
    require(fits, "listener", listener, "a Listener (see autotile.tuner)")
    options = {"trials": trials, "time": time, "effort": effort, "sampler": sampler, "seed": seed}
    overrides = [*sets, *(f"search.{key}={value}" for key, value in options.items() if value is not None)]

    def note(message: str) -> None:
        warnings.warn(message, AutotileWarning, stacklevel=5)

    specs, opened = specs_and_device(config, device, overrides, templates, note)
    return search_all(specs, opened, open_store(note), jobs, fresh, listener)
