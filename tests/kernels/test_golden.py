"""The generated CUDA, to the letter: tests/golden/ holds what each named point renders to.

A change of a template shows here as a diff to be read. To accept it:

    AUTOTILE_UPDATE_GOLDEN=1 pytest tests/kernels/test_golden.py
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
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
SIZE = 4096


@dataclass(frozen=True)
class Point:
    """A configuration with a name; its text is kept in `<kernel>-<name>.cu`."""

    kernel: str
    name: str
    values: Mapping[str, Value]
    dtype: str | None = None
    size: int = SIZE

    @property
    def path(self) -> Path:
        return GOLDEN / f"{self.kernel}-{self.name}.cu"


RING: Mapping[str, Value] = {
    "staging": "dynamic", "stages": 4, "vector": 4, "block_m": 128, "block_n": 128, "thread_m": 8, "thread_n": 8,
    "pad_a": 0,
}  # fmt: skip
SWIZZLED: Mapping[str, Value] = {"vector": 4, "swizzle": True, "pad": 0}


def points() -> list[Point]:
    """The default and every preset of every kernel, and points whose text is unlike any of these."""
    found = []
    for name in kernel_folders():
        found += [Point(name, point, values) for point, values in {"default": {}, **load_kernel(name).presets}.items()]
    return [
        *found,
        Point("matmul", "ring", RING),
        Point("matmul", "ring-unaligned", RING, size=SIZE - 1),
        Point("matmul", "float16", {"vector": 4}, "float16"),
        Point("transpose", "swizzled", SWIZZLED),
        Point("transpose", "dynamic", {"tile_rows": 128, "tile_cols": 128, "thread_rows": 16}),
    ]


@pytest.mark.parametrize("point", points(), ids=lambda point: point.path.stem)
def test_the_text_is_the_golden_one(point: Point) -> None:
    kernel = load_kernel(point.kernel)
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, point.size), point.dtype)
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


def test_the_ring_is_above_48_kib() -> None:
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": SIZE, "n": SIZE, "k": SIZE})
    assert kernel.launch_of(problem, kernel.configuration(RING)).shared_bytes > 48 * 1024
