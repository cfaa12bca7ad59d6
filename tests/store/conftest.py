from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from autotile.types import Configuration, Identity, Launch, Measurement, Problem, Record, digest

EXAMPLE = Record(
    problem=Problem("matmul", (("m", 512), ("n", 256), ("k", 64)), "float32"),
    configuration=Configuration((("block_m", 64), ("pad", True), ("order", "row"))),
    identity=Identity("NVIDIA H200", "sm_90", "570.86", "nvcc 12.8", "0123456789abcdef", 1, False),
    outcome="ok",
    measurement=Measurement(1.5, 1.25, 0.125, 30),
    launch=Launch((8, 4, 1), (16, 16, 1), 65536),
    source_digest=digest("source"),
    binary_digest=digest("binary"),
    registers=64,
    spill_bytes=0,
    static_shared_bytes=0,
    max_error=1e-6,
    build_s=1.0,
    check_s=0.25,
    measure_s=0.5,
    seed=0,
    created="2025-06-01T12:00:00+00:00",
    autotile_version="0.1.0",
)


def record_with(
    *, time_ms: float | None = None, device: str | None = None, m: int | None = None, **changes: Any
) -> Record:
    """The example with some fields changed; fields of the identity by their own names."""
    identity = {
        name: changes.pop(name)
        for name in ("arch", "driver", "compiler", "template", "schema", "estimated", "flags")
        if name in changes
    }
    if device is not None:
        identity["device"] = device
    changes.setdefault("identity", dataclasses.replace(EXAMPLE.identity, **identity))
    if time_ms is not None:
        changes["measurement"] = Measurement(time_ms, time_ms, 0.0, 9, False, bool(identity.get("estimated")))
    if m is not None:
        changes["problem"] = EXAMPLE.problem.with_sizes(m=m)
    return dataclasses.replace(EXAMPLE, **changes)


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return record_with
