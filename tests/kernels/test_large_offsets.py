"""Matrices of more than 2³¹ elements: offsets must not be counted in 32 bits.

The arrays are reserved, not filled (untouched pages of zeros cost nothing), and three blocks run: the first, one in the
middle, the last. An offset that overflows leaves its array, and the emulator's bounds are exact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.kernels import Kernel, Size, load_kernel
from autotile.types import Problem, Source

TILES: dict[str, dict[str, Any]] = {
    "textbook": {},
    "ring": {
        "staging": "dynamic",
        "stages": 3,
        "block_m": 64,
        "block_n": 64,
        "thread_m": 8,
        "thread_n": 4,
        "vector": 4,
    },
    "groups": {"group": 8},
}
CASES = [
    ("transpose", {"rows": 50_000, "cols": 50_000}, "int8", {}),
    ("transpose", {"rows": 50_000, "cols": 50_000}, "int8", {"vector": 4, "pad": 4, "thread_rows": 8}),
    ("transpose", {"rows": 49_999, "cols": 50_001}, "int8", {"block_order": "groups"}),
    ("transpose", {"rows": 33, "cols": 70_000_000}, "int8", {"staging": "strided_reads", "pad": 0}),
    *[("matmul", {"m": 50_000, "n": 50_000, "k": 8}, "float16", tile) for tile in TILES.values()],
    *[("matmul", {"m": 60_000_000, "n": 1, "k": 40}, "float16", tile) for tile in TILES.values()],
    *[("matmul", {"m": 1, "n": 60_000_000, "k": 40}, "float16", tile) for tile in TILES.values()],
]


def faults(
    kernel: Kernel, problem: Problem, values: dict[str, Any], build_home: Path, change: tuple[str, str]
) -> list[str]:
    """What three blocks do wrong, with one text of the source exchanged for another."""
    configuration, device = kernel.configuration(values), EmulatorDevice()
    source = render(kernel, problem, configuration)
    assert change[0] in source.text
    source = Source(source.kernel, source.entry, source.text.replace(*change), source.traits)
    dtype = element_type(problem.dtype).numpy
    arrays = {a.name: np.zeros(kernel.shape_of(a, problem), dtype) for a in kernel.arrays}
    arguments = [np.int32(problem[a.name]) if isinstance(a, Size) else arrays[a.name] for a in kernel.arguments]
    launch = kernel.launch_of(problem, configuration)
    blocks = [0, launch.blocks // 2, launch.blocks - 1]
    with Builder(device.target, build_home) as builder, device.load(builder.build(source)) as program:
        report = program.launch(launch.grid, launch.block, launch.shared_bytes, arguments, mode="run", blocks=blocks)
    return [diagnostic.message for diagnostic in report.diagnostics]


@pytest.mark.parametrize(("name", "sizes", "dtype", "values"), CASES)
def test_no_offset_overflows(
    name: str, sizes: dict[str, int], dtype: str, values: dict[str, Any], build_home: Path
) -> None:
    kernel = load_kernel(name)
    assert faults(kernel, kernel.problem(sizes, dtype), values, build_home, ("", "")) == []


@pytest.mark.parametrize(
    ("name", "sizes", "dtype", "change"),
    [
        ("transpose", CASES[0][1], "int8", ("size_t", "int")),
        (
            "matmul",
            {"m": 50_000, "n": 50_000, "k": 8},
            "float16",
            ("size_t(unsigned(row)) * unsigned(pitch)", "row * pitch"),
        ),
    ],
)
def test_an_offset_of_32_bits_is_found(
    name: str, sizes: dict[str, int], dtype: str, change: tuple[str, str], build_home: Path
) -> None:
    kernel = load_kernel(name)
    found = faults(kernel, kernel.problem(sizes, dtype), {}, build_home, change)
    assert any("outside" in message or "bounds" in message for message in found), found
