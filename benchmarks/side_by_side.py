"""Configurations of one problem timed in turns: what two searches found is compared in one run, not across two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.measure.timing import interleaved
from autotile.types import Configuration, Measurement, Problem


def timed_side_by_side(
    problem: Problem, configurations: Sequence[Configuration], device: Device, rounds: int = 20
) -> list[Measurement]:
    """One measurement a configuration; equal ones are timed once. Each is checked first."""
    kernel = load_kernel(problem.kernel)
    distinct = list(dict.fromkeys(configurations))
    variants = [make_variant(kernel, problem, configuration) for configuration in distinct]
    with Builder(device.target) as builder:
        binaries: list[Any] = [future.result() for future in [builder.submit(v.source) for v in variants]]
        comparer = None if device.comparer is None else builder.build(device.comparer)
        with device.stage(make_workload(kernel, problem), comparer) as stage:
            programs = [device.load(binary) for binary in binaries]
            for variant, program in zip(variants, programs, strict=True):
                assert stage.check(program, variant.launch).ok, variant.configuration.label
            runs = [partial(stage.times_ms, p, v.launch) for p, v in zip(programs, variants, strict=True)]
            found = dict(zip(distinct, interleaved(runs, rounds=rounds), strict=True))
    return [found[configuration] for configuration in configurations]
