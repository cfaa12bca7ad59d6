"""Calls at the limits of sizes and grids: nothing to do, more than CUDA launches, more than 2³¹ elements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.base import Array
from autotile.devices.gpus import find_gpu
from autotile.errors import ArgumentValueError, ConfigurationError, LaunchError
from autotile.kernels import Kernel, load_kernel
from autotile.kernels.loader import kernel_folders
from autotile.measure import make_variant
from autotile.runtime.arrays import View
from autotile.runtime.empty import fill_empty
from autotile.space import violations
from autotile.types import Configuration

pytestmark = pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")  # nothing is tuned here
F = np.float32


def load_sums(folder: Path) -> autotile.TunedKernel:
    return autotile.load("row_sums", rows=8, cols=8, device="emulator", templates=folder)


# ---- nothing to do -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_a_transpose_of_nothing(shape: tuple[int, int]) -> None:
    transpose = autotile.load("transpose", rows=8, cols=8, device="emulator")
    assert transpose(np.empty(shape, F)).shape == shape[::-1]
    out = np.empty(shape[::-1], F)
    assert transpose(np.empty(shape, F), out=out) is out


def test_an_input_that_is_not_empty_counts(row_sums: Path) -> None:
    """The sum over no columns is what it started with, not whatever lay in memory."""
    start = np.array([3, -1, 7], F)
    assert np.array_equal(load_sums(row_sums)(start, np.empty((3, 0), F)), start)
    assert load_sums(row_sums)(np.empty(0, F), np.empty((0, 4), F)).shape == (0,)


def test_sizes_of_zero_must_fit_together(row_sums: Path) -> None:
    with pytest.raises(ArgumentValueError, match="rows = 2"):
        load_sums(row_sums)(np.zeros(3, F), np.empty((2, 0), F))


class Recorder:
    """A GPU of one array: keeps the order in which it is asked."""

    def __init__(self, memory: Array) -> None:
        self.memory, self.asked = memory, []
        self.info = type("Info", (), {"kind": "cuda", "name": "a GPU"})()
        self.asked: list[str] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def synchronize(self) -> None:
        self.asked.append("synchronize")

    def download(self, address: int, out: Array) -> None:
        self.asked.append("download")
        out[...] = self.memory

    def write(self, address: int, array: Array) -> None:
        self.asked.append("write")
        self.memory = array.copy()


def test_on_a_gpu_nothing_that_is_queued_comes_between(row_sums: Path) -> None:
    kernel = load_kernel("row_sums", row_sums)
    device: Any = Recorder(np.array([3, -1, 7], F))
    problem = kernel.problem({"rows": 8, "cols": 8})

    def view(*shape: int) -> View:
        return View(None, "torch", "cuda", 0, 256, shape, "float32", True, lambda shape, dtype: None, lambda: 7)

    fill_empty(kernel, problem, device, [view(3), view(3, 0)], [view(3)], {"rows": 3, "cols": 0}, ())
    assert device.asked == ["synchronize", "download", "write", "synchronize"]
    assert np.array_equal(device.memory, [3, -1, 7])


# ---- grids ---------------------------------------------------------------------------------------------------------


def test_more_blocks_along_y_than_cuda_launches(row_sums: Path) -> None:
    sums = load_sums(row_sums)
    with pytest.raises(LaunchError, match="the grid has 70000 blocks along y; CUDA allows 1 to 65535"):
        sums(np.zeros(70_000, F), np.ones((70_000, 1), F))
    assert np.array_equal(sums(np.ones(40, F), np.ones((40, 3), F)), np.full(40, 4, F))  # as usable as before


def points(kernel: Kernel) -> dict[str, Configuration]:
    return {"default": kernel.configuration()} | {name: kernel.configuration(v) for name, v in kernel.presets.items()}


@pytest.mark.parametrize("name", kernel_folders())
@pytest.mark.parametrize("size", [2_000_000, 2**31 - 1])
def test_shipped_kernels_take_long_sides(name: str, size: int) -> None:
    kernel = load_kernel(name)
    for long in kernel.dimensions:
        problem = kernel.problem({**dict.fromkeys(kernel.dimensions, 33), long: size}, kernel.dtypes[-1])
        for configuration in points(kernel).values():
            shared = kernel.launch_of(problem, configuration).steps or configuration.get("cluster", 1) != 1
            if shared or violations(kernel, problem, find_gpu("h200"), configuration):
                continue  # several blocks a tile are not for so many tiles
            assert make_variant(kernel, problem, configuration).launch.grid[1:] == (1, 1)


def test_blocks_are_counted_in_more_than_32_bits() -> None:
    kernel = load_kernel("transpose")
    tile = kernel.configuration({"tile_rows": 16, "tile_cols": 16})
    most = 2**31 - 1
    blocks = ((most + 15) // 16) ** 2
    with pytest.raises(LaunchError, match=f"the grid has {blocks} blocks along x; CUDA allows 1 to {most}"):
        make_variant(kernel, kernel.problem({"rows": most, "cols": most}), tile)


# ---- after an error ------------------------------------------------------------------------------------------------


def test_a_call_that_fails_leaves_the_kernel_usable() -> None:
    matmul = autotile.load("matmul", m=8, n=8, k=8, device="emulator")
    a, b = np.ones((8, 8), F), np.ones((8, 8), F)
    with pytest.raises(ConfigurationError, match="with k = 1000001 the error bound"):
        matmul(np.broadcast_to(F(1), (1, 1_000_001)), np.broadcast_to(F(1), (1_000_001, 1)))
    with pytest.raises(ArgumentValueError, match="shares memory"):
        matmul(a, b, out=a)
    assert np.array_equal(matmul(a, b), a @ b)
