"""nvcc compiles the presets of the matmul on tensor cores without a warning and without spills. No GPU is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compiled import compiled
from samples import MEANT_FOR

from autotile.build.nvcc import find_nvcc
from autotile.codegen import render
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.errors import ToolchainMissing
from autotile.kernels import load_kernel
from autotile.space import violations
from autotile.types import Configuration, Problem

try:
    find_nvcc()
except ToolchainMissing:
    pytest.skip("nvcc is not here", allow_module_level=True)

pytestmark = pytest.mark.nvcc
KERNEL = load_kernel("matmul_tensor")
GPUS = {"sm_80": "a100", "sm_89": "rtx4090", "sm_90": "h200", "sm_120": "rtx5090"}

PROBLEMS: dict[str, dict[str, int]] = {
    "aligned": {},
    "odd": {"m": 4095, "n": 4095, "k": 4095},
    "turned": {"a_turned": 1, "b_turned": 1},
    "epilogue": {"addend": 1, "bias": 1, "gelu": 1},
    "flat": {"m": 16},
    "wide": {"n": 4090, "wide": 1, "bias": 1, "relu": 1},
}
BROAD = ("in_turns_wide", "in_turns_shared", "in_turns_deep")
SPILLS = {
    **{(point, "wide"): 240 for point in ("in_turns", "tall", "tall_shared", "tall_beside", "tall_words")},
    **{(point, problem): 160 for point in BROAD for problem in PROBLEMS},
    **{(point, "wide"): 1800 for point in BROAD},
    **{("portable", dtype): 56 for dtype in ("float8_e4m3fn", "float8_e5m2")},
    **{("portable_deep", dtype): 152 for dtype in ("float8_e4m3fn", "float8_e5m2", "tf32")},
    ("tall_beside", "int8"): 32,
}
"""Bytes, stored and loaded, that are known to spill, by preset and problem or type: groups that take turns keep all
sums of their tile, and have rows of C that begin anywhere to shift beside them; tier mma spills float8 on sm_90.
Elsewhere nothing does, but for two words of int8."""

USUAL = {
    ("large", "aligned", "bfloat16", "sm_90"),
    ("tall", "odd", "bfloat16", "sm_90"),
    ("in_turns", "turned", "float16", "sm_90"),
    ("in_turns_shared", "epilogue", "bfloat16", "sm_90"),
    ("small", "aligned", "int8", "sm_90"),
    ("few_rows", "turned", "tf32", "sm_90"),
    ("few_rows", "flat", "bfloat16", "sm_90"),
    ("tall_registers", "aligned", "tf32", "sm_90"),
    ("small", "wide", "float8_e4m3fn", "sm_90"),
    ("small", "odd", "float8_e5m2", "sm_90"),
    ("portable", "aligned", "bfloat16", "sm_80"),
    ("portable_odd", "odd", "bfloat16", "sm_80"),
    ("plain", "odd", "float64", "sm_80"),
    ("plain", "odd", "float8_e4m3fn", "sm_89"),
}
"""Compiled each time: between them each type, each problem, each way in which blocks share their work. All others are
compiled where slow tests are asked for."""


def fits(point: str, problem: str) -> bool:
    """A that is stored across k is turned, which is not for what comes by way of registers."""
    return not (KERNEL.presets[point].get("registers") and PROBLEMS[problem].get("a_turned"))


def every() -> Iterator[tuple[str, str, str, str]]:
    """Preset, problem, type and arch: all problems in bfloat16, one in each other type."""
    for point, values in KERNEL.presets.items():
        archs = ("sm_90",) if values.get("tier") == "wgmma" else ("sm_80", "sm_90")
        for arch in archs:
            if point in MEANT_FOR:
                yield from ((point, problem, MEANT_FOR[point][0], arch) for problem in PROBLEMS if fits(point, problem))
                continue
            yield from ((point, problem, "bfloat16", arch) for problem in PROBLEMS)
            for dtype in KERNEL.dtypes[1:]:
                if (dtype == "float64" and point != "plain") or ("float8" in dtype and arch == "sm_80"):
                    continue  # the others' sums of doubles do not fit, and wgmma has none; sm_80 has no float8
                if "float8" in dtype and values.get("block_n", 128) % 128:
                    continue  # rows of C in lines of 128 bytes
                yield point, "aligned", dtype, arch
    yield "plain", "aligned", "bfloat16", "sm_120"
    yield "portable", "odd", "float8_e5m2", "sm_89"


def cases() -> list[Any]:
    return [
        pytest.param(*case, id="-".join(case), marks=[] if case in USUAL else [pytest.mark.slow])
        for case in sorted({*every(), *USUAL})
    ]


def fitted(point: str, problem: Problem, gpu: DeviceInfo) -> Configuration:
    """The preset, with as many stages as fit; a step along k is no longer than bfloat16's in bytes, in tier wgmma as
    long."""
    values: dict[str, Any] = dict(KERNEL.presets[point])
    itemsize = KERNEL.problem_scope(problem)["problem.itemsize"]
    if point in MEANT_FOR:
        pass
    elif values.get("tier") == "wgmma" or ("block_k" in values and itemsize > 2):
        values["block_k"] = values["block_k"] * 2 // itemsize
    stages = KERNEL.configuration(values)["stages"]
    for fewer in range(int(stages), 1, -1):
        configuration = KERNEL.configuration({**values, "stages": fewer})
        if not (broken := violations(KERNEL, problem, gpu, configuration)):
            return configuration
    raise AssertionError(f"{point} for {problem.label} on {gpu.name}: {broken}")


@pytest.mark.parametrize(("point", "problem", "dtype", "arch"), cases())
def test_it_compiles_without_a_warning_or_a_spill(
    point: str, problem: str, dtype: str, arch: str, tmp_path: Path
) -> None:
    asked = KERNEL.problem({**dict.fromkeys(KERNEL.dimensions, 4096), **PROBLEMS[problem]}, dtype)
    configuration = fitted(point, asked, find_gpu(GPUS[arch]))
    said = compiled(render(KERNEL, asked, configuration), arch, tmp_path, f"{asked.label}, {configuration.label}")
    assert "C75" not in said, said  # wgmma made to wait, for its operands or for its sums
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert len(spilled) == 1 + len(KERNEL.launch_of(asked, configuration).before)
    most = SPILLS.get((point, problem), SPILLS.get((point, dtype), 0))
    assert sum(int(count) for counts in spilled for count in counts) <= most, said


def test_what_is_compiled_each_time_is_mixed() -> None:
    points, problems, dtypes, _ = (set(found) for found in zip(*USUAL, strict=True))
    assert (problems, dtypes) == (set(PROBLEMS), set(KERNEL.dtypes))
    assert {KERNEL.configuration(KERNEL.presets[point])["cluster"] for point in points} == {1, 2}
    assert {KERNEL.configuration(KERNEL.presets[point])["multicast"] for point in points} == {"none", "b"}
