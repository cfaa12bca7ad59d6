"""numpy arrays on a GPU, as the GPU is asked: memory comes and goes while its context is current."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.base import Array
from autotile.errors import LaunchError
from autotile.kernels import load_kernel
from autotile.runtime.choose import DEFAULT, Choice
from autotile.runtime.tuned import Plan
from autotile.types import Launch

KERNELS = Path(__file__).parents[1] / "data" / "kernels"


class Allocation:
    def __init__(self, gpu: FakeGpu, values: Array) -> None:
        self.gpu, self.values = gpu, values
        gpu.require_current()
        gpu.held.append(self)

    def free(self) -> None:
        self.gpu.require_current()
        self.gpu.held.remove(self)


class FakeGpu:
    """Transposes what lies without gaps. `fails` names the step that raises."""

    def __init__(self, fails: str) -> None:
        self.fails, self.depth = fails, 0
        self.held: list[Allocation] = []
        self.info = SimpleNamespace(kind="cuda", name="a GPU")

    @contextmanager
    def active(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def require_current(self) -> None:
        assert self.depth, "the context is not current"

    def step(self, name: str) -> None:
        if self.fails == name:
            raise LaunchError(f"a GPU: {name}: out of memory")

    def upload(self, array: Array) -> Allocation:
        self.step("upload")
        return Allocation(self, array.copy())

    def empty_gpuarray(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.step("empty_gpuarray")
        return SimpleNamespace(gpudata=Allocation(self, np.empty(shape, dtype)))

    def call(self, program: None, launch: Launch, arguments: list[Any], stream: None) -> None:
        self.step("call")
        given, out, rows, cols, in_pitch, out_pitch, *_ = arguments
        assert given.values.shape == (rows, cols)
        assert (in_pitch, out_pitch) == (cols, rows)
        out.values = np.ascontiguousarray(given.values.T)

    def download(self, source: Allocation, out: Array) -> None:
        self.step("download")
        self.require_current()
        assert out.flags.c_contiguous
        out[...] = source.values


def transpose_on(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> autotile.TunedKernel:
    kernel = load_kernel("flip", KERNELS)

    def plan(tuned: Any, sizes: Any, alignment: int) -> Plan:
        return Plan(None, Launch((1, 1, 1), (1, 1, 1)), kernel.sizes_of(kernel.problem(sizes)))

    monkeypatch.setattr(autotile.TunedKernel, "_plan", plan)
    problem = kernel.problem({"rows": 8, "cols": 8})
    return autotile.TunedKernel(kernel, problem, Choice(kernel.configuration(), DEFAULT, None), gpu)


A = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_memory_is_freed_where_it_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu(fails="nothing")
    assert np.array_equal(transpose_on(gpu, monkeypatch)(A), A.T)
    assert (gpu.held, gpu.depth) == ([], 0)


@pytest.mark.parametrize("step", ["upload", "empty_gpuarray", "call", "download"])
def test_also_when_a_step_fails(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    gpu = FakeGpu(fails=step)
    transpose = transpose_on(gpu, monkeypatch)
    with pytest.raises(LaunchError, match=f"{step}: out of memory"):
        transpose(A)
    assert (gpu.held, gpu.depth) == ([], 0)
    gpu.fails = "nothing"
    assert np.array_equal(transpose(A), A.T)


@pytest.mark.parametrize("given", [np.repeat(A, 2, 1)[:, ::2], np.asfortranarray(A), np.hstack([A, -A])[:, :3]])
def test_arrays_with_gaps_travel_without_them(monkeypatch: pytest.MonkeyPatch, given: Array) -> None:
    transpose = transpose_on(FakeGpu(fails="nothing"), monkeypatch)
    memory = np.full((7, 9), 7, np.float32)
    for out in (memory[:3, 4:6], memory[::2, ::3][:3, :2], memory[4:6, 1:4].T, memory[::-1, ::-1][:3, :2]):
        memory[...] = 7
        assert transpose(given, out=out) is out
        assert np.array_equal(out, A.T)
        out[...] = 7
        assert np.all(memory == 7)
