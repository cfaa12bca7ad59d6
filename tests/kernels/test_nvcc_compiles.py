"""nvcc compiles a sample of every kernel for three generations of GPUs, without a warning. No GPU is needed.

The matmul on tensor cores is compiled in test_tensor_compiles.py.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from compiled import compiled
from samples import drawn, sparingly

from autotile.build.nvcc import find_nvcc
from autotile.codegen import render
from autotile.devices.gpus import find_gpu
from autotile.errors import ToolchainMissing
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.space import violations
from autotile.types import Configuration, Source

try:
    find_nvcc()
except ToolchainMissing:
    pytest.skip("nvcc is not here", allow_module_level=True)

pytestmark = pytest.mark.nvcc
KERNELS = [name for name in kernel_folders() if name != "matmul_tensor"]
ARCHS = ("sm_80", "sm_90", "sm_120")
FEW = 8  # named points, each of which is compiled for all archs
DRAWN = 3  # configurations beside the default and the presets, of a kernel without ways of its own
ALIGNED, ODD = 4096, 4097  # sizes a side on which vectors can and cannot be used
TURNED: dict[str, Any] = {"staging": "turned", "tile_rows": 64, "tile_cols": 64, "load_vector": 4, "turn_rows": 4}
FLAT: dict[str, Any] = {"layout": "plain", "tile_rows": 64, "tile_cols": 64, "turn_rows": 1}
RING: dict[str, Any] = {"staging": "dynamic", "stages": 3, "vector": 4}
SKINNY: dict[str, Any] = {
    "staging": "skinny", "block_m": 4, "thread_m": 4, "thread_n": 4, "lanes_m": 2, "block_n": 64, "block_k": 32,
    "a_layout": "row", "pad_a": 0, "slices": 2,
}  # fmt: skip
WAYS: dict[str, dict[str, tuple[dict[str, Any], str, dict[str, int]]]] = {
    "transpose": {
        "bytes": ({**TURNED, "load_vector": 16, "turn_rows": 8, "block_threads": 32}, "int8", {}),
        "shifted": ({**TURNED, "load_vector": 16, "block_threads": 64, "layout": "swizzled"}, "int8",
                    {"rows": ODD, "cols": ODD}),
        "pairs": ({**TURNED, "load_vector": 8, "block_threads": 128}, "float16", {"cols": ODD}),
        "words": ({**TURNED, "block_threads": 160, "block_order": "row_bands"}, "float32", {"rows": ODD}),
        "elements": ({**TURNED, "load_vector": 2, "block_order": "diagonal"}, "float32", {"cols": ODD, "offset": 1}),
        "two": ({**TURNED, "load_vector": 2, "turn_rows": 2}, "float64", {"rows": ODD, "cols": ODD}),
        "one": ({**TURNED, "load_vector": 1, "turn_rows": 1}, "complex128", {"rows": ODD}),
        "in place": (TURNED, "float32", {"rows": ODD, "cols": ODD, "in_place": 1}),
        "tile in place": ({"staging": "tile", "layout": "swizzled"}, "int8", {"in_place": 1}),
        "flat_in": ({**FLAT, "staging": "flat_in", "load_vector": 8, "turn_rows": 2}, "float16", {"cols": 9}),
        "flat_in, odd": ({**FLAT, "staging": "flat_in", "load_vector": 4, "turn_rows": 2}, "float32",
                         {"rows": ODD, "cols": 9, "offset": 1}),
        "flat_out": ({**FLAT, "staging": "flat_out", "load_vector": 4}, "float32", {"rows": 9}),
        "flat_out, odd": ({**FLAT, "staging": "flat_out", "load_vector": 8}, "int8",
                          {"rows": 9, "cols": ODD, "offset": 1}),
    },
    "matmul": {
        "turned, packed": ({**RING, "pack_a": True, "pack_b": True, "wave": 170}, "float32",
                           {"a_turned": 1, "b_turned": 1, "addend": 1, "n": ODD}),
        "turned": ({**RING, "vector": 2, "parts": 2}, "float64", {"a_turned": 1, "b_turned": 1, "bias": 1, "gelu": 1}),
        "halves": ({**RING, "vector": 4, "a_layout": "row"}, "float16", {"b_turned": 1, "relu": 1, "k": ODD}),
        "rows": ({**RING, "store_rows": True, "slices": 2}, "bfloat16", {"m": 7, "n": 9, "k": ODD, "offset": 1}),
        "skinny": ({**SKINNY, "vector": 1}, "float32", {"m": 4, "a_turned": 1, "gelu": 1, "n": ODD}),
        "one element": ({"staging": "none", "block_m": 32, "block_n": 32, "block_k": 8, "thread_m": 1, "thread_n": 1,
                         "lanes_m": 1, "a_layout": "row", "pad_a": 0, "vector": 1}, "float64",
                        {"b_turned": 1, "gelu": 1}),
    },
}  # fmt: skip
"""Of the kernels whose text has more branches than a few drawn variants show: points, types and sizes by name."""

SEED = 8


def named_points(kernel: Kernel) -> dict[str, Configuration]:
    points = {"default": {}, **kernel.presets}
    return {name: kernel.configuration(values) for name, values in points.items()}


@lru_cache
def sources(name: str) -> dict[str, Source]:
    """The named points in the kernel's first dtype and drawn ones in others, alternately for aligned and odd sizes."""
    kernel = load_kernel(name)
    variants = [(point, configuration, kernel.dtypes[0]) for point, configuration in named_points(kernel).items()]
    for number in range(0 if name in WAYS else DRAWN):
        dtype = kernel.dtypes[1 + number % (len(kernel.dtypes) - 1)] if len(kernel.dtypes) > 1 else kernel.dtypes[0]
        problem = kernel.problem(dict.fromkeys(kernel.dimensions, ALIGNED), dtype)
        tightest = find_gpu("rtx5090")  # of the three archs
        variants += [(f"drawn {number}", one, dtype) for one in drawn(kernel, problem, tightest, 1, SEED + number)]
    found = {}
    for number, (point, configuration, dtype) in enumerate(variants):
        size = ODD if number % 2 else ALIGNED
        problem = kernel.problem(dict.fromkeys(kernel.dimensions, size), dtype)
        found[f"{point}, {dtype}, {configuration.label}"] = render(kernel, problem, configuration)
    for way, (values, dtype, sizes) in WAYS.get(name, {}).items():
        problem = kernel.problem({**dict.fromkeys(kernel.dimensions, ALIGNED), **sizes}, dtype)
        configuration = kernel.configuration(values)
        assert violations(kernel, problem, find_gpu("rtx5090"), configuration) == ()
        found[f"{way}, {dtype}, {configuration.label}"] = render(kernel, problem, configuration)
    return found


def cases() -> list[Any]:
    """Kernel, number of its source, arch: the sources themselves are worked out in the tests."""
    found = []
    for name in KERNELS:
        kernel = load_kernel(name)
        named = named_points(kernel)
        others = WAYS.get(name) or [f"drawn{number}" for number in range(DRAWN)]
        for number, point in enumerate([*named, *others]):
            all_archs = len(named) <= FEW and (point in named or name not in WAYS)
            clusters = kernel.presets.get(point, {}).get("cluster", 1) != 1
            for arch in ARCHS if all_archs else (ARCHS[1] if clusters else ARCHS[number % len(ARCHS)],):
                found.append(pytest.param(name, number, arch, id=f"{name}-{point}-{arch}"))
    return found


@pytest.mark.parametrize(("name", "number", "arch"), sparingly(cases(), 5, lambda case: True))
def test_it_compiles_without_a_warning(name: str, number: int, arch: str, tmp_path: Path) -> None:
    label, source = list(sources(name).items())[number]
    compiled(source, arch, tmp_path, label)


@pytest.mark.parametrize("name", KERNELS)
def test_the_sample_is_mixed(name: str) -> None:
    kernel, found = load_kernel(name), sources(name)
    assert len(found) >= min(6, 2 + DRAWN + len(kernel.presets))
    assert len({label.split(", ")[-2] for label in found}) >= min(3, len(kernel.dtypes))
    for trait in kernel.traits:
        assert {dict(source.traits)[trait.name] for source in found.values()} == {True, False}
