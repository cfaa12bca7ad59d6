"""nvcc compiles a sample of every kernel for three generations of GPUs, without a warning. No GPU is needed."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build.nvcc import BINARY_NAME, SOURCE_NAME, Nvcc, find_nvcc
from autotile.codegen import render
from autotile.devices.gpus import find_gpu
from autotile.errors import ToolchainMissing
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.space import build_space
from autotile.types import Configuration, Source, Target

try:
    find_nvcc()
except ToolchainMissing:
    pytest.skip("nvcc is not here", allow_module_level=True)

pytestmark = pytest.mark.nvcc
ARCHS = ("sm_80", "sm_90", "sm_120")
DRAWN = 3  # configurations beside the default and the presets
ALIGNED, ODD = 4096, 4097  # sizes a side on which vectors can and cannot be used
SEED = 8


def named_points(kernel: Kernel) -> dict[str, Configuration]:
    points = {"default": {}, **kernel.presets}
    return {name: kernel.configuration(values) for name, values in points.items()}


@lru_cache
def sources(name: str) -> dict[str, Source]:
    """The named points in the kernel's first dtype and drawn ones in others, alternately for aligned and odd sizes."""
    kernel, random = load_kernel(name), np.random.default_rng(SEED)
    variants = [(point, configuration, kernel.dtypes[0]) for point, configuration in named_points(kernel).items()]
    for number in range(DRAWN):
        dtype = kernel.dtypes[1 + number % (len(kernel.dtypes) - 1)] if len(kernel.dtypes) > 1 else kernel.dtypes[0]
        problem = kernel.problem(dict.fromkeys(kernel.dimensions, ALIGNED), dtype)
        space = build_space(
            kernel, problem, find_gpu("rtx5090")
        )  # of the three archs, the one with the tightest limits
        variants.append((f"drawn {number}", space.configuration(int(random.integers(len(space)))), dtype))
    found = {}
    for number, (point, configuration, dtype) in enumerate(variants):
        size = ODD if number % 2 else ALIGNED
        problem = kernel.problem(dict.fromkeys(kernel.dimensions, size), dtype)
        found[f"{point}, {dtype}, {configuration.label}"] = render(kernel, problem, configuration)
    return found


def cases() -> list[Any]:
    """Kernel, number of its source, arch: the sources themselves are worked out in the tests."""
    found = []
    for name in kernel_folders():
        named = named_points(load_kernel(name))
        for number, point in enumerate([*named, *(f"drawn{n}" for n in range(DRAWN))]):
            for arch in ARCHS:
                found.append(pytest.param(name, number, arch, id=f"{name}-{point}-{arch}"))
    return found


@pytest.mark.parametrize(("name", "number", "arch"), cases())
def test_it_compiles_without_a_warning(name: str, number: int, arch: str, tmp_path: Path) -> None:
    label, source = list(sources(name).items())[number]
    (tmp_path / SOURCE_NAME).write_text(source.text, encoding="utf-8")
    command = [*Nvcc(Target("cuda", arch)).command(), "-Werror", "all-warnings"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{label}\n{said}"
    assert "warning" not in said, f"{label}\n{said}"
    assert (tmp_path / BINARY_NAME).read_bytes().startswith(b"\x7fELF")


@pytest.mark.parametrize("name", kernel_folders())
def test_the_sample_is_mixed(name: str) -> None:
    kernel, found = load_kernel(name), sources(name)
    assert len(found) >= min(6, 2 + DRAWN + len(kernel.presets))
    assert len({label.split(", ")[1] for label in found}) >= min(3, len(kernel.dtypes))
    for trait in kernel.traits:
        assert {dict(source.traits)[trait.name] for source in found.values()} == {True, False}
