"""What a search file says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotile.kernels import Kernel, Rule
from autotile.types import Configuration, Problem, Value

SAMPLERS = ("model", "random", "grid", "tpe", "gp", "cmaes", "nsgaii", "nsgaiii", "qmc")
"""The default, two plain ones, and those of Optuna that propose where to look (see sampler/nearest.py)."""

EFFORTS = {"quick": 0.25, "normal": 1.0, "full": 4.0}
"""What each effort makes of the file's number of trials; tuner/budget.py says when it gives up before."""


@dataclass(frozen=True)
class SearchOptions:
    """How long and how to search. `trials` counts distinct configurations, those on record included.

    `runs` is how many launches every variant is timed for; None: as many as it is worth. `storage` is an address of
    Optuna's, such as sqlite:///tuning.db, in which the study is kept for its dashboard. The limits end one variant, not
    the search; None is the compiler's or the device's default.
    """

    sampler: str = "model"
    trials: int = 200
    time_s: float | None = None
    seed: int = 0
    effort: str = "normal"
    runs: int | None = None
    storage: str | None = None
    compile_limit_s: float | None = None
    launch_limit_s: float | None = None
    trial_limit_s: float | None = None


@dataclass(frozen=True)
class Spec:
    """One document of a search file.

    `parameters` replaces domains of the kernel's parameters; `points` (named presets, or configurations written out)
    replaces the search by exactly these. `asked_as` is the file's word for the kernel, where another folder serves.
    """

    kernel: Kernel
    problems: tuple[Problem, ...]
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    points: Mapping[str, Configuration] = field(default_factory=dict)
    search: SearchOptions = SearchOptions()
    file: Path | None = None
    asked_as: str = ""
