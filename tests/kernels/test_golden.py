"""The generated CUDA, to the letter: tests/golden/ holds what each named point renders to.

A change of a template shows here as a diff to be read. To accept it:

    AUTOTILE_UPDATE_GOLDEN=1 pytest tests/kernels/test_golden.py
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotile.codegen import render
from autotile.devices.gpus import find_gpu
from autotile.kernels import kernel_folders, load_kernel
from autotile.space import violations
from autotile.types import Value

GOLDEN = Path(__file__).parents[1] / "golden"
UPDATE = os.environ.get("AUTOTILE_UPDATE_GOLDEN") == "1"  # read now: inside a test the variable is gone
COMMAND = "AUTOTILE_UPDATE_GOLDEN=1 pytest tests/kernels/test_golden.py"
SIZE, ODD = 4096, 4095


@dataclass(frozen=True)
class Point:
    """A configuration with a name; its text is kept in `<kernel>-<name>.cu`."""

    kernel: str
    name: str
    values: Mapping[str, Value]
    dtype: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)  # those that are not SIZE, and options

    @property
    def path(self) -> Path:
        return GOLDEN / f"{self.kernel}-{self.name}.cu"


PRESETS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("one_element", "tile32", "large", "large_packed", "few_rows", "one_row"),
    "matmul_tensor": ("portable", "large", "small_shared"),
}
"""Presets whose text is unlike the others', of kernels that have many; of any other, all."""

TURNED: Mapping[str, Value] = {
    "staging": "turned", "tile_rows": 64, "tile_cols": 64, "load_vector": 4, "turn_rows": 4,
}  # fmt: skip
BYTES: Mapping[str, Value] = {
    **TURNED, "tile_rows": 128, "tile_cols": 128, "block_threads": 128, "load_vector": 16, "turn_rows": 8,
}  # fmt: skip
PAIRS: Mapping[str, Value] = {**TURNED, "tile_rows": 128, "tile_cols": 128, "load_vector": 8}
FLAT: Mapping[str, Value] = {"layout": "plain", "tile_rows": 128, "tile_cols": 128, "load_vector": 4}
FLAT_IN: Mapping[str, Value] = {**FLAT, "staging": "flat_in", "turn_rows": 2}
FLAT_OUT: Mapping[str, Value] = {**FLAT, "staging": "flat_out"}


def points() -> list[Point]:
    """The default and presets of every kernel, and points whose text is unlike any of these."""
    found, tensor = [], load_kernel("matmul_tensor").presets
    for name in kernel_folders():
        presets = load_kernel(name).presets
        found.append(Point(name, "default", {}))
        found += [Point(name, point, presets[point]) for point in PRESETS.get(name, presets)]
    return [
        *found,
        Point(
            "matmul", "large-unaligned", load_kernel("matmul").presets["large"], sizes={"m": ODD, "n": ODD, "k": ODD}
        ),
        Point("matmul", "deep", load_kernel("matmul").presets["deep"], sizes={"m": 256, "n": 256, "k": 65536}),
        Point("matmul", "float16", {"vector": 4}, "float16"),
        Point("matmul_tensor", "few_rows", tensor["few_rows"], sizes={"m": 16}),
        Point("matmul_tensor", "portable_odd", tensor["portable_odd"], sizes={"m": ODD, "n": ODD, "k": ODD}),
        Point("matmul_tensor", "tall-unaligned", tensor["tall"], sizes={"m": ODD, "n": ODD, "k": ODD}),
        Point("matmul_tensor", "in_turns-epilogue", tensor["in_turns"], sizes={"addend": 1, "bias": 1, "gelu": 1}),
        Point("matmul_tensor", "large-tf32-turned", {**tensor["large"], "block_k": 32}, "tf32", {"a_turned": 1}),
        Point("transpose", "swizzled", {**TURNED, "layout": "swizzled"}),
        Point("transpose", "dynamic", {"tile_rows": 128, "tile_cols": 128}),
        Point("transpose", "turned", TURNED),
        Point("transpose", "turned-int8", BYTES, "int8"),
        Point("transpose", "turned-float16", PAIRS, "float16"),
        Point("transpose", "turned-odd", PAIRS, "float16", {"rows": ODD, "cols": ODD}),
        Point("transpose", "turned-in-place", TURNED, sizes={"in_place": 1}),
        Point("transpose", "flat_in", FLAT_IN, sizes={"cols": 33}),
        Point("transpose", "flat_out", FLAT_OUT, sizes={"rows": 33}),
    ]


@pytest.mark.parametrize("point", points(), ids=lambda point: point.path.stem)
def test_the_text_is_the_golden_one(point: Point) -> None:
    kernel = load_kernel(point.kernel)
    problem = kernel.problem({**dict.fromkeys(kernel.dimensions, SIZE), **point.sizes}, point.dtype)
    configuration = kernel.configuration(point.values)
    assert violations(kernel, problem, find_gpu("h200"), configuration) == ()
    text = render(kernel, problem, configuration).text
    if UPDATE:
        point.path.write_text(text, encoding="utf-8")
    golden = point.path.read_text(encoding="utf-8") if point.path.is_file() else ""
    difference = difflib.unified_diff(
        golden.splitlines(), text.splitlines(), str(point.path.relative_to(GOLDEN.parent)), "rendered now", lineterm=""
    )
    assert text == golden, "\n".join([*difference, f"If the change is meant: {COMMAND}"])


def test_no_golden_file_is_left_over() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {point.path.name for point in points()}


@pytest.mark.parametrize(("kernel", "name"), [("matmul", "large"), ("transpose", "dynamic")])
def test_it_is_above_48_kib(kernel: str, name: str) -> None:
    (point,) = (point for point in points() if (point.kernel, point.name) == (kernel, name))
    loaded = load_kernel(kernel)
    problem = loaded.problem(dict.fromkeys(loaded.dimensions, SIZE))
    assert loaded.launch_of(problem, loaded.configuration(point.values)).shared_bytes > 48 * 1024


def test_the_odd_point_is_shifted_and_realigned() -> None:
    (point,) = (point for point in points() if point.name == "turned-odd")
    kernel = load_kernel("transpose")
    traits = kernel.traits_of(kernel.problem(point.sizes, point.dtype), kernel.configuration(point.values))
    assert (traits["shifted"], traits["realigned"]) == (True, True)
