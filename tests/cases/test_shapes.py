"""The textbook's faults of tiled kernels, put into the shipped template: a search names them and saves nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from autotile.assets import templates_dir
from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.spec import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import search

TILE = "matmul/parts/one_tile.cu.j2"
FAULTS = {
    # forum.modular.com/t/1888: a race that small sizes do not show
    "the second barrier is gone": (
        "        __syncthreads();  // all have read them before anyone overwrites them\n",
        "",
        "shared-memory race",
        ("As[ty][tx] = ", "sum += "),
    ),
    # acts-project/traccc#137: threads outside leave before the barrier
    "an early return": (
        "    accumulator sum = 0;\n",
        "    if (row >= m || col >= n) return;\n    accumulator sum = 0;\n",
        "barrier divergence",
        ("__syncthreads();",),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_barriers_is_named_by_its_lines_and_never_saved(
    tmp_path: Path, build_home: Path, fault: str
) -> None:
    old, new, says, lines = FAULTS[fault]
    shutil.copytree(templates_dir(), tmp_path / "kernels")
    text = (tmp_path / "kernels" / TILE).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "kernels" / TILE).write_text(text.replace(old, new), encoding="utf-8")
    kernel = load_kernel("matmul", tmp_path / "kernels")
    problem = kernel.problem({"m": 100, "n": 100, "k": 100})
    domains = {name: (value,) for name, value in kernel.configuration(kernel.presets["tile32"]).items()}
    device, store = EmulatorDevice(), MemoryStore()
    with Builder(device.target, build_home) as builder:
        (result,) = search(Spec(kernel, (problem,), domains, search=SearchOptions(trials=1)), device, builder, store)
    assert (result.best, store.bests(), result.outcomes) == (None, [], {"wrong_result": 1})
    (record,) = result.records
    assert says in record.message
    source = render(kernel, problem, record.configuration).text.splitlines()
    named = [source[int(number) - 1] for number in re.findall(r"(?:kernel\.cu:|line )(\d+)", record.message)]
    for line in lines:
        assert any(line in text for text in named), record.message


def test_a_padded_tile_is_among_what_is_searched() -> None:
    """The question of [32][32] and [32][33]; what each costs is counted in the test of the classics."""
    layout = load_kernel("transpose").parameter("layout")
    assert {"plain", "padded"} <= set(layout.values)
    assert layout.default == "padded"
