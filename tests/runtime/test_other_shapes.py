"""A call whose problem the loaded configuration does not fit: another serves, with a word, or none and an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import autotile
from autotile.assets import DATA_DIR
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ConfigurationError
from autotile.kernels import load_kernel
from autotile.runtime import tuned as tuned_module
from autotile.runtime.choose import DEFAULT, EXACT, Choice
from autotile.runtime.notes import AutotileWarning
from autotile.space import violations
from autotile.types import Record

FLAT = pytest.mark.filterwarnings("ignore:.*not tuned exactly")


@pytest.fixture
def skinny(monkeypatch: pytest.MonkeyPatch) -> autotile.TunedKernel:
    """What ships for few columns: whole rows of `in`, taken for one stretch of memory."""
    monkeypatch.setattr("autotile.assets.tuned_dir", lambda: DATA_DIR / "tuned")
    loaded = autotile.load("transpose", rows=100000, cols=33, dtype="float16", device="emulator")
    assert loaded.config["staging"] == "flat_in"
    return loaded


@FLAT
def test_a_part_of_a_larger_matrix_is_served_by_another_configuration(skinny: autotile.TunedKernel) -> None:
    big = np.arange(150 * 70, dtype=np.float16).reshape(150, 70)
    with pytest.warns(AutotileWarning, match="does not serve 150×33 in_pitch=70 float16: flat_in takes rows"):
        out = skinny(big[:, 5:38])
    assert np.array_equal(out, big[:, 5:38].T)
    assert skinny.config["staging"] == "flat_in"


@FLAT
def test_so_is_a_matrix_whose_rows_are_too_long(skinny: autotile.TunedKernel) -> None:
    wide = np.arange(3 * 7001).astype(np.float16).reshape(3, 7001)
    with pytest.warns(AutotileWarning, match="does not serve 3×7001"):
        assert np.array_equal(skinny(wide), wide.T)


@FLAT
def test_where_nothing_fits_the_call_says_why(skinny: autotile.TunedKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny, "_choose", lambda problem: Choice(skinny.config, DEFAULT, None))
    with pytest.raises(ConfigurationError, match="does not serve 5×33 in_pitch=40 float16"):
        skinny(np.zeros((5, 40), np.float16)[:, :33])


@FLAT
def test_who_wants_the_exact_kernel_gets_no_other(
    monkeypatch: pytest.MonkeyPatch, skinny: autotile.TunedKernel
) -> None:
    monkeypatch.setattr(skinny, "_strict", True)
    with pytest.raises(ConfigurationError, match="does not serve"):
        skinny(np.zeros((5, 40), np.float16)[:, :33])


def test_arrays_off_alignment_may_need_more_than_there_is() -> None:
    """Rows that begin inside a sector cost the tile a halo, and this one has no room left for it."""
    kernel, device = load_kernel("transpose"), EmulatorDevice()
    full = kernel.configuration(
        {"staging": "turned", "tile_rows": 512, "tile_cols": 112, "block_threads": 896, "load_vector": 4,
         "turn_rows": 4, "layout": "plain"}
    )  # fmt: skip
    problem = kernel.problem({"rows": 512, "cols": 112})
    assert not violations(kernel, problem, device.info, full)
    tuned = autotile.TunedKernel(kernel, problem, Choice(full, DEFAULT, None), device)
    unaligned = np.empty(512 * 112 + 1, np.float32)[1:].reshape(512, 112)
    with pytest.raises(ConfigurationError, match="shared memory"):
        tuned(unaligned)


@pytest.mark.parametrize("shipped", [True, False])
def test_what_ships_was_built_elsewhere_and_nobody_is_told(
    saved: Callable[..., Record], monkeypatch: pytest.MonkeyPatch, shipped: bool
) -> None:
    record = saved(compiler="another compiler")
    monkeypatch.setattr(tuned_module, "compiler_at_hand", lambda target: None)
    monkeypatch.setattr(tuned_module, "find_built", lambda *source: None)
    choice = Choice(record.configuration, EXACT, record, shipped=shipped)
    matmul = autotile.TunedKernel(load_kernel("matmul"), record.problem, choice, EmulatorDevice())
    a, b = np.ones((64, 40), np.float32), np.ones((40, 48), np.float32)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        matmul(a, b)
    assert any("another compiler" in str(one.message) for one in told) != shipped
