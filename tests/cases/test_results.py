"""Kernels that are wrong in ways that lax checks have let pass elsewhere: none is saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes import TEMPLATE, TWELVE, write_kernel

from autotile.build import Builder
from autotile.devices.base import compare
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.kernels.loader import read_folder
from autotile.spec import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, search

ONE = {**TWELVE, "width": (64,), "steps": (2,)}


def tuned(root: Path, build_home: Path, body: str, dtype: str = "float32") -> SearchResult:
    """A search over one configuration of a kernel whose every step is `body`."""
    template = TEMPLATE.replace("out[i] = in[i];\n{% endif %}", f"{body}\n{{% endif %}}")
    kernel = read_folder(write_kernel(root, template=template) / "walk")
    device, store = EmulatorDevice(), MemoryStore()
    spec = Spec(kernel, (kernel.problem({"n": 5000}, dtype),), ONE, search=SearchOptions(trials=1))
    with Builder(device.target, build_home) as builder:
        (result,) = search(spec, device, builder, store)
    assert store.bests() == ([] if result.best is None else [result.best])
    return result


def test_the_kernel_as_it_should_be_is_saved(tmp_path: Path, build_home: Path) -> None:
    assert tuned(tmp_path, build_home, "out[i] = in[i];", "float64").best is not None


WRONG = {
    "nothing": ("", "float32"),  # llnl/RAJAPerf#170: a null kernel
    "zero": ("out[i] = 0;", "float32"),
    "what was there, and more": ("out[i] += in[i];", "float32"),  # triton-lang/triton#6547
    "what was there": ("out[i] = out[i];", "float32"),
    "a neighbour": ("out[i] = in[i ? i - 1 : 0];", "float32"),
    "a narrower type": ("out[i] = (float)in[i];", "float64"),  # KernelTuner/kernel_tuner#245
}


@pytest.mark.parametrize("what", WRONG)
def test_a_kernel_that_writes_something_else_is_never_saved(tmp_path: Path, build_home: Path, what: str) -> None:
    result = tuned(tmp_path, build_home, *WRONG[what])
    assert (result.best, result.outcomes) == (None, {"wrong_result": 1})


@pytest.mark.parametrize("k", [1, 64, 4096])
def test_products_that_all_underflow_are_a_right_matmuls_too(k: int) -> None:
    """Each product is half of float32's smallest subnormal, and rounds to 0. One more wrong than that is seen."""
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 1, "n": 1, "k": k}, "float32")
    inputs = {"a": np.full((1, k), 2.0**-75, np.float32), "b": np.full((k, 1), 2.0**-75, np.float32)}
    reference, bound = kernel.reference(inputs, problem)["c"], kernel.error_bound(inputs, problem)["c"]
    assert reference == k * 2.0**-150
    assert compare(np.zeros((1, 1), np.float32), reference, bound).ok
    assert not compare(np.full((1, 1), (k + 2) * 2.0**-149, np.float32), reference, bound).ok
