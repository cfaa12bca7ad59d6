"""A call whose problem the loaded configuration does not fit: another serves, with a word, or none and an error."""

from __future__ import annotations

import numpy as np
import pytest

import autotile
from autotile.assets import DATA_DIR
from autotile.errors import ConfigurationError
from autotile.runtime import choose
from autotile.runtime.notes import AutotileWarning

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
    monkeypatch.setattr(skinny, "_choose", lambda problem: choose.Choice(skinny.config, "default", None))
    with pytest.raises(ConfigurationError, match="does not serve 5×33 in_pitch=40 float16"):
        skinny(np.zeros((5, 40), np.float16)[:, :33])


@FLAT
def test_who_wants_the_exact_kernel_gets_no_other(
    monkeypatch: pytest.MonkeyPatch, skinny: autotile.TunedKernel
) -> None:
    monkeypatch.setattr(skinny, "_strict", True)
    with pytest.raises(ConfigurationError, match="does not serve"):
        skinny(np.zeros((5, 40), np.float16)[:, :33])
