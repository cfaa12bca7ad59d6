"""Matrices of more than 2³¹ elements: offsets must not be counted in 32 bits.

The arrays are reserved, not filled (untouched pages of zeros cost nothing), and three blocks run: the first, one in the
middle, the last. An offset that overflows leaves its array, and the emulator's bounds are exact; or it falls into the
array again, and a mark in the last place does not arrive.
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
from autotile.kernels import Kernel, Scalar, Size, load_kernel
from autotile.space import violations
from autotile.types import Problem, Source

Array = np.ndarray[Any, Any]
TILES: dict[str, dict[str, Any]] = {
    "two barriers": {},
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
    "skinny": {
        "staging": "skinny", "block_m": 1, "block_n": 128, "block_k": 32, "thread_m": 1, "thread_n": 4, "lanes_m": 1,
        "a_layout": "row", "pad_a": 0, "vector": 4, "stages": 2, "slices": 4,
    },
}  # fmt: skip
TURNED: dict[str, Any] = {
    "staging": "turned", "tile_rows": 64, "tile_cols": 64, "block_threads": 32, "load_vector": 16, "turn_rows": 4,
}  # fmt: skip
ELEMENTS = {**TURNED, "load_vector": 4, "turn_rows": 4, "block_threads": 128}
WIDE: dict[str, Any] = {"tile_rows": 64, "tile_cols": 64}
FLAT: dict[str, Any] = {"layout": "plain", "load_vector": 16, "block_threads": 64}
SQUARE = {"rows": 50_000, "cols": 50_000}  # more than 2³¹ elements
LONG = {"rows": 70_000, "cols": 70_000}  # more than 2³²
GAPS = {"rows": 64, "cols": 64, "in_pitch": 80_000_000, "out_pitch": 80_000_000}  # more than 2³² in a tile
BATCH = {"rows": 40, "cols": 50, "batch": 3000, "in_pitch": 1200, "in_step": 1300, "out_pitch": 1250, "out_step": 1200}
"""4.7 thousand million elements of `in`, 4.5 of `out`, of which a matrix has 2000."""

TRANSPOSES: list[tuple[dict[str, int], dict[str, Any]]] = [
    (SQUARE, {}),
    (SQUARE, TURNED),
    (LONG, {}),
    (LONG, TURNED),
    ({"rows": 69_999, "cols": 70_001}, {**TURNED, "block_order": "row_bands"}),
    ({"rows": 69_999, "cols": 70_001}, {**ELEMENTS, "block_order": "column_bands"}),
    ({"rows": 33, "cols": 70_000_000}, {"staging": "strided_reads", "layout": "plain"}),
    ({"rows": 70_000_000, "cols": 65}, {**FLAT, "staging": "flat_in"}),
    ({"rows": 65, "cols": 70_000_000}, {**FLAT, "staging": "flat_out"}),
    ({**LONG, "in_place": 1}, TURNED),
    ({"rows": 69_999, "cols": 69_999, "in_place": 1}, {}),
    *[(sizes, values) for sizes in (GAPS, BATCH) for values in (WIDE, TURNED, ELEMENTS)],
    ({**GAPS, "in_pitch": 64}, {**FLAT, "staging": "flat_in"}),
    ({**GAPS, "out_pitch": 64}, {**FLAT, "staging": "flat_out"}),
]
FAR = 40_000_000  # elements from line to line: more than 2³¹ in a tile
BATCHES = {"m": 40, "n": 48, "k": 40, "batch": 3000, "a_pitch": 1200, "a_step": 900, "b_pitch": 1200, "b_step": 900}
TENSOR = [
    {"m": 50_000, "n": 50_000, "k": 8},
    {"m": 60_000_000, "n": 8, "k": 40},
    {"m": 60_000_000, "n": 8, "k": 40, "a_turned": 1},
    {"m": 8, "n": 60_000_000, "k": 40},
    {"m": 8, "n": 60_000_000, "k": 40, "b_turned": 1},
    {"m": 64, "n": 64, "k": 64, "a_pitch": FAR, "c_pitch": FAR},
    {"m": 64, "n": 64, "k": 64, "b_pitch": FAR},
    BATCHES,
    {"m": 40, "n": 48, "k": 40, "batch": 3000, "c_pitch": 1200, "c_step": 900},
]
CASES = [
    *[("transpose", sizes, "int8", values) for sizes, values in TRANSPOSES],
    *[("matmul", {"m": 50_000, "n": 50_000, "k": 8}, "float16", tile) for tile in TILES.values()],
    *[("matmul", {"m": 60_000_000, "n": 1, "k": 40}, "float16", tile) for tile in TILES.values()],
    *[("matmul", {"m": 1, "n": 60_000_000, "k": 40}, "float16", tile) for tile in TILES.values()],
    *[("matmul_tensor", sizes, "float16", {}) for sizes in TENSOR],
]


def faults(
    kernel: Kernel, problem: Problem, values: dict[str, Any], build_home: Path, change: tuple[str, str]
) -> list[str]:
    """What a few blocks do wrong, with one text of the source exchanged for another."""
    configuration, device = kernel.configuration(values), EmulatorDevice()
    source = render(kernel, problem, configuration)
    assert change[0] in source.text
    source = Source(source.kernel, source.entry, source.text.replace(*change), source.traits)
    dtype = element_type(problem.dtype).numpy
    arrays = {a.name: np.zeros(kernel.layout_of(a, problem).extent, dtype) for a in kernel.arrays_of(problem)}
    if problem.in_place:
        arrays[kernel.in_place[1]] = arrays[kernel.in_place[0]]
    sizes = kernel.sizes_of(problem)
    launch = kernel.launch_of(problem, configuration)
    arguments = [arrays.get(a.name) for a in kernel.arguments]
    for at, argument in enumerate(kernel.arguments):
        if isinstance(argument, Size):
            arguments[at] = np.int32(sizes[argument.name])
        elif isinstance(argument, Scalar):
            arguments[at] = np.float32(argument.default)
    blocks = [0, launch.blocks // 2, launch.blocks - 1]
    marked = mark(kernel, problem, arrays)
    if problem.in_place:
        blocks.append(kernel.scope(problem, configuration)["side"])  # it swaps the first row's end
    with Builder(device.target, build_home) as builder, device.load(builder.build(source)) as program:
        report = program.launch(launch.grid, launch.block, launch.shared_bytes, arguments, mode="run", blocks=blocks)
    lost = [f"the last element is not at {place}" for array, place in marked if not array[place]]
    return [diagnostic.message for diagnostic in report.diagnostics] + lost


def mark(kernel: Kernel, problem: Problem, arrays: dict[str, Array]) -> list[tuple[Array, int]]:
    """Puts a 1 where a transpose's last block reads, or in place the first row's; gives the array and place it goes to.

    An unsigned offset that overflows falls into its array again, so that no bounds would tell.
    """
    if not kernel.in_place:
        return []
    out = arrays["out"]
    if not problem.in_place:
        arrays["in"][-1] = 1
        return [(out, out.size - 1)]
    out[problem["cols"] - 1], out[(problem["rows"] - 1) * kernel.sizes_of(problem)["in_pitch"]] = 1, 0
    return [(out, (problem["rows"] - 1) * kernel.sizes_of(problem)["in_pitch"])]


@pytest.mark.parametrize(("name", "sizes", "dtype", "values"), CASES)
def test_no_offset_overflows(
    name: str, sizes: dict[str, int], dtype: str, values: dict[str, Any], build_home: Path
) -> None:
    kernel = load_kernel(name)
    problem = kernel.problem(sizes, dtype)
    assert violations(kernel, problem, EmulatorDevice().info, kernel.configuration(values)) == ()
    assert faults(kernel, problem, values, build_home, ("", "")) == []


@pytest.mark.parametrize(
    ("name", "sizes", "dtype", "values", "change"),
    [
        ("transpose", LONG, "int8", {}, ("size_t", "unsigned")),
        ("transpose", LONG, "int8", TURNED, ("in += size_t(row0)", "in += row0")),
        ("transpose", LONG, "int8", TURNED, ("out += size_t(col0)", "out += col0")),
        ("transpose", GAPS, "int8", TURNED, ("in + size_t(r0)", "in + r0")),
        ("transpose", GAPS, "int8", TURNED, ("out + size_t(c)", "out + c")),
        ("transpose", GAPS, "int8", WIDE, ("in[size_t(r)", "in[r")),
        ("transpose", GAPS, "int8", WIDE, ("out[size_t(c)", "out[c")),
        ("transpose", BATCH, "int8", {}, ("size_t(matrix) * in_step", "matrix * in_step")),
        ("transpose", BATCH, "int8", {}, ("size_t(matrix) * out_step", "matrix * out_step")),
        ("transpose", TRANSPOSES[8][0], "int8", TRANSPOSES[8][1], ("out += size_t(col0)", "out += col0")),
        ("transpose", TRANSPOSES[7][0], "int8", TRANSPOSES[7][1], ("in += size_t(row0)", "in += row0")),
        ("transpose", {**LONG, "in_place": 1}, "int8", TURNED, ("size_t(j) * TILE_COLS", "j * TILE_COLS")),
        (
            "matmul",
            {"m": 50_000, "n": 50_000, "k": 8},
            "float16",
            {},
            ("size_t(unsigned(row)) * unsigned(pitch)", "row * pitch"),
        ),
        ("matmul_tensor", TENSOR[0], "float16", {}, ("size_t(unsigned(row)) * unsigned(pitch)", "row * pitch")),
    ],
)
def test_an_offset_of_32_bits_is_found(
    name: str, sizes: dict[str, int], dtype: str, values: dict[str, Any], change: tuple[str, str], build_home: Path
) -> None:
    kernel = load_kernel(name)
    found = faults(kernel, kernel.problem(sizes, dtype), values, build_home, change)
    assert any("bounds" in message or "the last element" in message for message in found), found
