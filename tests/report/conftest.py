from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotile.codegen import render, template_digest
from autotile.kernels import Kernel, load_kernel
from autotile.types import PROVEN, Identity, Measurement, Record

TOYS = Path(__file__).parents[1] / "data" / "kernels"


@pytest.fixture(scope="session")
def kernels() -> Callable[[str], Kernel]:
    return lambda name: load_kernel(name, [TOYS])


@pytest.fixture
def measured(kernels: Callable[[str], Kernel]) -> Callable[..., Record]:
    """A record as a search would leave it: of the given kernel, sizes and parameters."""

    def make(
        kernel: str = "toy",
        sizes: dict[str, int] | None = None,
        dtype: str | None = None,
        time_ms: float = 0.5,
        device: str = "NVIDIA H200",
        arch: str = "sm_90",
        estimated: bool = False,
        changes: dict[str, Any] | None = None,
        **parameters: Any,
    ) -> Record:
        definition = kernels(kernel)
        problem = definition.problem(sizes or {"n": 1_000_000}, dtype)
        configuration = definition.configuration(parameters)
        record = Record(
            problem=problem,
            configuration=configuration,
            identity=Identity(device, arch, "570.86", "nvcc 12.8", template_digest(definition), 1, estimated),
            outcome="ok",
            measurement=Measurement(time_ms, time_ms, 0.01, 30, estimated=estimated),
            launch=definition.launch_of(problem, configuration),
            source_digest=render(definition, problem, configuration).digest,
            created="2025-06-01T12:00:00+00:00",
            extra=(PROVEN,),
        )
        return dataclasses.replace(record, **(changes or {}))

    return make
