"""Nsight Compute on a real GPU (`pytest -m gpu`): what it counts of kernels whose counts are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.devices.cuda import open_cuda
from autotile.errors import EnvironmentalError, ToolchainMissing
from autotile.insight.ncu import NO_PERMISSION, find_ncu
from autotile.insight.profile import Profile, functions_of, profile_variants
from autotile.kernels import load_kernel
from autotile.measure.variant import Variant, make_variant

pytestmark = pytest.mark.gpu
KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"


def preset(kernel_name: str, name: str, sizes: dict[str, int]) -> Variant:
    kernel = load_kernel(kernel_name)
    return make_variant(kernel, kernel.problem(sizes, "float32"), kernel.configuration(kernel.presets[name]))


def within() -> Variant:
    kernel = load_kernel("square", KERNELS)
    problem = kernel.problem({"rows": 256, "cols": 256, "in_place": 1, "offset": 1}, "float32")
    return make_variant(kernel, problem, kernel.configuration())


def made() -> dict[str, Variant]:
    square = {"rows": 1024, "cols": 1024}
    return {
        "tile32": preset("transpose", "tile32", square),
        "tile33": preset("transpose", "tile33", square),
        "packed": preset("matmul", "large_packed", {"m": 1024, "n": 1024, "k": 1024}),
        "in place, off alignment": within(),
    }


@pytest.fixture(scope="module")
def profiles() -> dict[str, Profile]:
    variants = made()
    try:
        found = profile_variants(list(variants.values()), open_cuda(0), ncu=find_ncu())
    except ToolchainMissing as error:
        pytest.skip(str(error))
    except EnvironmentalError as error:
        if NO_PERMISSION not in str(error):
            raise
        pytest.skip(str(error))
    return dict(zip(variants, found, strict=True))


def test_what_is_known_is_counted(profiles: dict[str, Profile]) -> None:
    conflicting, padded = (profiles[name].ratios() for name in ("tile32", "tile33"))
    for ratios in (conflicting, padded):
        assert (ratios["sectors_a_load_request"], ratios["sectors_a_store_request"]) == (4, 4)
        assert ratios["wavefronts_a_shared_store"] == pytest.approx(1, rel=0.1)
    assert conflicting["wavefronts_a_shared_load"] == pytest.approx(32, rel=0.02)
    assert padded["wavefronts_a_shared_load"] == pytest.approx(1, rel=0.1)
    assert conflicting["time_ms"] > padded["time_ms"]  # type: ignore[operator]


def test_every_function_and_every_number_is_there(profiles: dict[str, Profile]) -> None:
    variants = made()
    for name, profile in profiles.items():
        assert list(profile.functions) == functions_of(variants[name])
        for percent in ("occupancy_percent", "l2_percent", "dram_percent"):
            assert 0 < (profile.ratios()[percent] or 0) <= 100
        assert (profile.ratios()["registers"] or 0) >= 8
        assert profile.notes == ()
    packed = profiles["packed"]
    assert list(packed.functions) == ["matmul_pack", "matmul"]
    assert packed.time_ms > packed.ratios()["time_ms"]  # type: ignore[operator]
