"""`autotile.search(...)`: the command `autotile search`, from Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotile.devices.base import Device
from autotile.errors import UsageError
from autotile.kernels import Roots
from autotile.runtime.notes import AutotileWarning
from autotile.runtime.requests import (
    dtype_name,
    require,
    require_count,
    require_device,
    require_problems,
    require_templates,
    require_texts,
)
from autotile.spec import Spec
from autotile.store import open_store
from autotile.tuner import Listener, SearchResult, search_all
from autotile.tuner.replayed import is_recording, specs_and_device


def search(
    config: str | Path,
    *,
    problems: Sequence[Mapping[str, Any]] = (),
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

    Arguments win over AUTOTILE_* variables, these over the file. `problems` stand in place of the file's, in each of
    its searches: `[{"rows": 4096, "cols": 4096, "dtype": "float16"}]`. Returns one result a problem.
    Raises UsageError for a faulty file or argument (ArgumentTypeError or ArgumentValueError, which are two, for a value
    of a wrong type or out of range) and EnvironmentalError when the device or a compiler is missing.
    """
    require(isinstance(config, (str, Path)), "config", config, "a search file's path, or a shipped one's name")
    require_problems(problems)
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

    def noting(depth: int) -> Callable[[str], None]:
        """Warns of what is said, `depth` frames above: where `search` was called."""
        return lambda message: warnings.warn(message, AutotileWarning, stacklevel=depth)

    specs, opened = what_to_search(config, problems, device, overrides, templates, noting(5))
    return search_all(specs, opened, open_store(noting(4)), jobs, fresh, listener)


def what_to_search(
    config: str | Path,
    problems: Sequence[Mapping[str, Any]],
    device: str,
    overrides: Sequence[str],
    templates: Roots,
    note: Callable[[str], None],
) -> tuple[Sequence[Spec], Device]:
    """The specs of `config`, with `problems` in place of its own where there are any, and the opened device.

    Raises UsageError where one is at fault, and for problems beside a recording, which has one of its own.
    """
    if problems and is_recording(Path(config)):
        raise UsageError(f"{config} holds the recorded times of one problem, which is replayed: name no other")
    named = [{**one, "dtype": dtype_name(one["dtype"])} if "dtype" in one else one for one in problems]
    return specs_and_device(config, device, overrides, templates, note, named)
