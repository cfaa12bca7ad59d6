from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotile.build import compiler_at_hand
from autotile.codegen import template_digest
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.runtime import notes
from autotile.runtime.load import flags_at_hand
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Record

ROW_SUMS = """
import numpy as np
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size


def reference(inputs, problem):
    return {"out": inputs["start"].astype(np.float64) + inputs["in"].astype(np.float64).sum(1)}


KERNEL = Kernel(
    name="row_sums",
    doc="out[r] = start[r] + the sum of row r of `in`; a block along y for each row",
    dimensions=("rows", "cols"),
    dtypes=("float32",),
    arguments=(Input("start", ("rows",)), Input("in", ("rows", "cols")), Output("out", ("rows",)), Size("cols")),
    parameters=(Parameter("width", (32, 64), 32, "threads a block"),),
    launch=LaunchPlan(grid=("1", "problem.rows"), block=("width",)),
    reference=reference,
    error_bound=lambda inputs, problem: {"out": 1e-3},
    flops="problem.rows * problem.cols",
    bytes="problem.rows * (problem.cols + 2) * problem.itemsize",
)
"""
ROW_SUMS_TEXT = """
extern "C" __global__ void __launch_bounds__({{ width }})
{{ entry }}(const {{ ctype }}* start, const {{ ctype }}* in, {{ ctype }}* out, int cols) {
    if (threadIdx.x != 0) return;
    {{ ctype }} sum = start[blockIdx.y];
    for (int i = 0; i < cols; i++) sum += in[size_t(blockIdx.y) * cols + i];
    out[blockIdx.y] = sum;
}
"""

SMALL = {"block_m": 32, "block_n": 32}
"""A matmul that the emulator runs in a moment."""


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_said", set())


@pytest.fixture(autouse=True)
def _binaries_are_shared(_own_home: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> Path:
    """One home for all tests of the folder, and for all workers: a kernel is compiled once."""
    root = tmp_path_factory.getbasetemp()
    home = (root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root) / "runtime-home"
    monkeypatch.setenv("AUTOTILE_HOME", str(home))
    return home


@pytest.fixture
def row_sums(tmp_path: Path) -> Path:
    """A folder of kernels with one whose grid is as high as its problem, and whose inputs are not all empty at once."""
    folder = tmp_path / "kernels" / "row_sums"
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(ROW_SUMS)
    (folder / "kernel.cu.j2").write_text(ROW_SUMS_TEXT)
    return folder.parent


@pytest.fixture(scope="session")
def saved() -> Callable[..., Record]:
    """The record of a matmul as a search on the emulator would save it; fields of the identity by their own names."""
    device = EmulatorDevice()
    info, compiler = device.info, compiler_at_hand(device.target) or "none"

    def make(m: int = 64, n: int = 48, k: int = 40, dtype: str = "float32", time_ms: float = 1.0, **changes: Any):
        kernel = load_kernel(changes.pop("kernel", "matmul"))
        sizes = changes.pop("sizes", {"m": m, "n": n, "k": k})
        parameters = changes.pop("parameters", SMALL if kernel.name == "matmul" else {})
        template, flags = template_digest(kernel), flags_at_hand(device.target)
        identity = Identity(info.name, info.arch, info.driver, compiler, template, SCHEMA_VERSION, True, flags)
        identity = dataclasses.replace(identity, **changes)
        return Record(
            kernel.problem(sizes, dtype),
            kernel.configuration(parameters),
            identity,
            "ok",
            measurement=Measurement(time_ms, time_ms, 0.0, 9, estimated=identity.estimated),
            created="2025-06-01T12:00:00+00:00",
            extra=(PROVEN,),
        )

    return make
