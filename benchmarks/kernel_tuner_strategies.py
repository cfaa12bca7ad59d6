"""Kernel Tuner's search strategies on recorded spaces, in its simulation mode."""

from __future__ import annotations

import contextlib
import io
import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from recorded_spaces import Case

from autotile.types import OK

DEFAULT = ("genetic_algorithm", "pso", "dual_annealing")

TUNED_OPTIONS: dict[str, dict[str, Any]] = {
    "genetic_algorithm": {"popsize": 20, "maxiter": 150, "mutation_chance": 5, "method": "single_point"}
}
"""Better on these spaces than the defaults."""


def known_strategies() -> list[str]:
    from kernel_tuner.interface import strategy_map

    return list(strategy_map)


def write_cache(case: Case, folder: Path) -> Path:
    """The recording as a cache file for simulation mode. All that an evaluation cost beside compiling is one phase."""
    recording = case.recording
    entries: dict[str, dict[str, Any]] = {}
    for row, outcome in enumerate(recording.outcomes):
        configuration: dict[str, Any] = dict(recording.configuration(row))
        entries[",".join(str(value) for value in configuration.values())] = configuration | {
            "time": float(recording.time_ms[row]) if outcome == OK else "RuntimeFailedConfig",
            "compile_time": float(recording.compile_ms[row]),
            "verification_time": 0.0,
            "benchmark_time": float(recording.other_ms[row]),
        }
    document = {
        "device_name": recording.device,
        "kernel_name": "recorded",
        "problem_size": [1],
        "tune_params_keys": list(recording.names),
        "tune_params": {name: list(domain) for name, domain in zip(recording.names, recording.domains, strict=True)},
        "cache": entries,
    }
    path = folder / f"{case.recording.path.name.split('.')[0]}-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def evaluated_rows(case: Case, cache: Path, strategy: str, seed: int) -> list[int]:
    """The rows that a strategy evaluates within the budget. Its space is what was recorded, failures included.

    Kernel Tuner's own limit would count the time that it computes; here only recorded time counts, as for autotile.
    """
    from constraint import FunctionConstraint
    from kernel_tuner import tune_kernel
    from kernel_tuner.interface import strategy_map
    from kernel_tuner.util import TuningBudget

    class RecordedTime(TuningBudget):  # type: ignore[misc]
        def get_time_spent(self) -> timedelta:
            return self.time_spent_extra  # type: ignore[no-any-return]

    class WithinBudget:
        @staticmethod
        def tune(searchspace: Any, runner: Any, tuning_options: Any) -> Any:
            tuning_options["budget"] = RecordedTime(case.scale.budget_s, searchspace.size)
            return strategy_map[strategy].tune(searchspace, runner, tuning_options)

    recording = case.recording
    rows = {tuple(recording.configuration(row).values()) for row in range(len(recording))}
    random.seed(seed)
    np.random.seed(seed)  # the strategies draw from both
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = tune_kernel(
            "recorded",
            "",
            (1,),
            [],
            {name: list(domain) for name, domain in zip(recording.names, recording.domains, strict=True)},
            restrictions=[FunctionConstraint(lambda *values: values in rows)],
            strategy=WithinBudget,
            strategy_options=dict(TUNED_OPTIONS.get(strategy, {})),
            simulation_mode=True,
            cache=str(cache),
            quiet=True,
        )
    found = (recording.row_with([result[name] for name in recording.names]) for result in results)
    return list(dict.fromkeys(row for row in found if row is not None))
