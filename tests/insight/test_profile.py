"""Variants under a stand-in for Nsight Compute, which runs the real program, on a GPU that writes down its launches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_ncu import FakeNcu, csv_of
from fakes import FakeBuilder
from recorder import SCRATCH_AT, Recorder

from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import DeviceNotFound, EnvironmentalError
from autotile.insight.ncu import Launched
from autotile.insight.profile import Profile, functions_of, profile_variant, profile_variants, profiles_of
from autotile.insight.profiled import launch_once
from autotile.kernels import load_kernel
from autotile.measure.variant import Variant, make_variant

KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
TIMES, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"


def packed(**changes: bool | int | str) -> Variant:
    """A matmul that packs an operand before, and adds up parts after."""
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 512, "n": 512, "k": 512}, "float32")
    return make_variant(
        kernel, problem, kernel.configuration({**kernel.presets["large_packed"], "parts": 2, **changes})
    )


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr("autotile.insight.profile.Builder", lambda target: FakeBuilder())
    return Recorder(tmp_path / "launched")


def test_a_variants_functions_are_launched_and_told_apart(gpu: Recorder, tmp_path: Path) -> None:
    variant = packed()
    names = ["matmul_pack", "matmul", "matmul_gather"]
    assert functions_of(variant) == names
    fake = FakeNcu(tmp_path / "bin", csv_of(names, {TIMES: [1e6, 5e6, 2e6], REGISTERS: [16, 99, 32]}))
    profile = profile_variant(variant, gpu, ncu=fake.path)  # type: ignore[arg-type]
    assert list(profile.functions) == names
    assert [profile.ratios(name)["registers"] for name in (*names, "")] == [16, 99, 32, 99]
    assert (profile.ratios()["time_ms"], profile.time_ms) == (5, 8)
    assert profile.ratios()["sectors_a_load_request"] is None
    words = fake.words
    assert words[words.index("--kernel-name") + 1] == "regex:^(matmul|matmul_gather|matmul_pack)$"
    (launch,) = gpu.launched
    assert (launch["entry"], launch["blocks"]) == ("matmul", variant.launch.blocks)
    assert ["at", SCRATCH_AT] in launch["arguments"]


def test_other_launches_than_there_were_are_an_error() -> None:
    variant = packed()
    rows = [Launched(name, {}) for name in functions_of(variant)]
    assert len(profiles_of([variant, variant], rows + rows, ["a note"])) == 2
    assert profiles_of([variant], rows, ["a note"])[0].notes == ("a note",)
    with pytest.raises(EnvironmentalError, match=r"matmul_pack, matmul instead of matmul_pack, matmul, matmul_gather"):
        profiles_of([variant], rows[:2])
    with pytest.raises(EnvironmentalError, match="3 launches more"):
        profiles_of([variant], rows + rows)
    assert Profile("f", {"f": {}}).time_ms is None


def test_only_a_gpu_is_profiled(tmp_path: Path) -> None:
    with pytest.raises(DeviceNotFound, match=r"emulated NVIDIA H200 is none: use --device cuda:0"):
        profile_variants([packed()], EmulatorDevice(), ncu=tmp_path)


@pytest.mark.parametrize(("name", "offset"), [("square", 0), ("padded_copy", 3)])
def test_arrays_lie_as_the_problem_says(gpu: Recorder, name: str, offset: int) -> None:
    """In place both are one; with gaps there is memory up to the last element; off alignment there is more before."""
    sizes = {
        "square": {"rows": 64, "cols": 64, "in_pitch": 65, "out_pitch": 65, "in_place": 1},
        "padded_copy": {"rows": 30, "cols": 50, "in_pitch": 53, "out_pitch": 64, "offset": offset},
    }[name]
    kernel = load_kernel(name, KERNELS)
    problem = kernel.problem(sizes, "float32")
    variant = make_variant(kernel, problem, kernel.configuration())
    launch_once(gpu, variant, FakeBuilder().build(variant.source))  # type: ignore[arg-type]
    assert gpu.held == []
    pointers = [value[1] for value in gpu.launched[0]["arguments"] if isinstance(value, list)]
    assert [at % (1 << 24) for at in pointers] == [4 * offset] * 2
    assert len(set(pointers)) == len(gpu.found) == (1 if name == "square" else 2)
    contents = [content[4 * offset :].view(np.float32) for content in gpu.found.values()]
    assert [content.size for content in contents] == (
        [64 * 65 - 1] if name == "square" else [29 * 53 + 50, 29 * 64 + 50]
    )
    assert np.std(contents[0]) == pytest.approx(1, rel=0.1)
