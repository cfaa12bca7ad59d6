"""The kernel on which tuners are compared (benchmarks/tuning_rate.py): its space, and that its texts are right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import autotile
from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.space import build_space
from autotile.types import PROVEN

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "data" / "kernels"
NAME = "tiled_matmul"
SEED = 5
SOME = 8


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernel as Kernel Tuner is given it."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tuning_rate

    return tuning_rate.TEXT


def test_the_space_is_the_examples() -> None:
    kernel, gpu = load_kernel(NAME, KERNELS), find_gpu("h200")
    problem = kernel.problem({"m": 4096, "n": 4096, "k": 4096})
    space = build_space(kernel, problem, gpu)
    launches = [kernel.launch_of(problem, space.configuration(row)) for row in range(len(space))]
    assert (len(space), space.total) == (40, 288)
    assert sorted(launch.shared_bytes for launch in launches if launch.shared_bytes) == [80 << 10] * 2 + [144 << 10] * 2
    assert all(kernel.traits_of(problem, space.configuration(row))["whole"] for row in range(len(space)))


def test_a_search_finds_some_of_the_space_right(tmp_path: Path) -> None:
    """`sampler: random` begins with the default and draws the others."""
    file = tmp_path / "search.yaml"
    file.write_text(
        f"kernel: {NAME}\nproblems:\n  - {{m: 128, n: 128, k: 128}}\n"
        f"search: {{sampler: random, trials: {SOME}, seed: {SEED}}}\n"
    )
    (result,) = autotile.search(file, device="emulator", templates=KERNELS)
    assert dict(result.outcomes) == {"ok": SOME}
    assert result.best is not None
    assert PROVEN in result.best.extra


def test_more_than_48_kib_is_right_whole_and_cut(build_home: Path) -> None:
    kernel, device = load_kernel(NAME, KERNELS), EmulatorDevice()
    configuration = kernel.configuration({"block_size_x": 64, "block_size_y": 8, "tile_size_x": 4, "tile_size_y": 8})
    with Builder(device.target, build_home) as builder:
        for sizes in ((64, 256, 128), (65, 259, 70)):
            problem = kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)))
            variant = make_variant(kernel, problem, configuration)
            assert variant.launch.shared_bytes == 80 << 10
            with device.stage(make_workload(kernel, problem)) as stage:
                check = stage.check(device.load(builder.build(variant.source)), variant.launch)
            assert check.ok, f"{problem.label}: {check.detail}"


def test_the_text_for_kernel_tuner_computes_the_same(text: str, tmp_path: Path, build_home: Path) -> None:
    """On the emulator, with the macros that Kernel Tuner would define, and its grid of two sides."""
    folder = tmp_path / NAME
    folder.mkdir()
    definition = (KERNELS / NAME / "kernel.py").read_text(encoding="utf-8")
    grid = 'grid=("ceil_div(problem.n, cols)", "ceil_div(problem.m, rows)"),'
    definition, found = re.subn(r"grid=\(.*\),", grid, definition)
    assert found == 1
    (folder / "kernel.py").write_text(definition, encoding="utf-8")
    kernel, device = load_kernel(NAME, KERNELS), EmulatorDevice()
    names = [parameter.name for parameter in kernel.parameters]
    macros = "// whole: {{ whole }}\n" + "".join(f"#define {name} {{{{ {name} }}}}\n" for name in names)
    (folder / "kernel.cu.j2").write_text(macros + text.replace(NAME, "{{ entry }}"), encoding="utf-8")
    theirs = load_kernel(NAME, tmp_path)
    problem = theirs.problem({"m": 64, "n": 128, "k": 64})
    space = build_space(theirs, problem, device.info, {"tile_size_x": (1, 2)})
    with Builder(device.target, build_home) as builder, device.stage(make_workload(theirs, problem)) as stage:
        for row in np.random.default_rng(SEED).choice(len(space), 4, replace=False):
            variant = make_variant(theirs, problem, space.configuration(int(row)))
            assert theirs.traits_of(problem, variant.configuration)["whole"]
            check = stage.check(device.load(builder.build(variant.source)), variant.launch)
            assert check.ok, f"{variant.configuration.label}: {check.detail}"
