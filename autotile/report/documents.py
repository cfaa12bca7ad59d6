"""Results as plain JSON objects: keys with units, no NaN or infinity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel
from autotile.report.rates import work_rates
from autotile.space import Space
from autotile.store.serial import to_object
from autotile.tuner import SearchResult
from autotile.types import Problem


def search_document(results: Sequence[SearchResult]) -> dict[str, Any]:
    """A search's end: per problem the best, the outcomes by kind, the rate and the time by phase."""
    return {"searches": [_one(result) for result in results]}


def _one(result: SearchResult) -> dict[str, Any]:
    best = result.best
    return {
        "kernel": result.kernel.name,
        "problem": problem_object(result.problem),
        "device": asdict(result.device),
        "estimated": result.device.estimated,
        "space": {"feasible": result.space_size, "total": result.space_total},
        "trials": len(result.records),
        "new_trials": result.new_trials,
        "outcomes": dict(result.outcomes),
        "stopped_by": result.stopped_by,
        "trials_per_s": round(result.trials_per_s, 4),
        "phases_s": {name: round(seconds, 4) for name, seconds in asdict(result.phases).items()},
        "best": None if best is None else to_object(best) | work_rates(result.kernel, result.problem, best.time_ms),
        "points": {name: to_object(record) for name, record in result.named.items()},
    }


def problem_object(problem: Problem) -> dict[str, Any]:
    return {**problem.asked, "dtype": problem.dtype}


def space_document(kernel: Kernel, problem: Problem, device: DeviceInfo, space: Space) -> dict[str, Any]:
    """A space's exact counts: all, feasible, and what each rule rejects that none before it did.

    `held` is what a search chooses from: all that is feasible, or a uniform sample where that is too much to hold.
    """
    return {
        "kernel": kernel.name,
        "problem": problem_object(problem),
        "device": device.name,
        "total": space.total,
        "feasible": space.feasible,
        "held": len(space),
        "rejections": [asdict(rejection) for rejection in space.rejections],
    }
