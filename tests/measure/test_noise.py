"""Which times differ, and when a GPU throttles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fakes import SIZE, FakeBuilder, FakeDevice, write_kernel

from autotile.devices.base import Check
from autotile.devices.cuda.clocks import reason_words
from autotile.devices.info import Clocks
from autotile.errors import WrongResult
from autotile.kernels.loader import read_folder
from autotile.measure import make_variant, open_session
from autotile.measure.noise import verdict
from autotile.measure.timed import CALM_TRIES, throttled
from autotile.measure.timing import summarise
from autotile.measure.variant import require_still
from autotile.types import Measurement


def sample(time_ms: float, spread: float, seed: int, runs: int = 32) -> Measurement:
    return summarise(list(np.random.default_rng(seed).normal(time_ms, spread * time_ms, runs)))


@pytest.mark.parametrize("spread", [0.0, 0.002, 0.02, 0.1])
def test_two_samples_of_one_thing_are_the_same(spread: float) -> None:
    verdicts = [verdict(sample(1.0, spread, seed), sample(1.0, spread, seed + 1000)) for seed in range(200)]
    assert verdicts.count("same") >= 196


def test_a_real_difference_is_told() -> None:
    for seed in range(50):
        slow, fast = sample(1.03, 0.005, seed), sample(1.0, 0.005, seed + 1000)
        assert (verdict(fast, slow), verdict(slow, fast)) == ("faster", "slower")


def test_throttling_is_told_from_an_idle_clock() -> None:
    assert reason_words(0x1 | 0x2) == ""  # idle; a clock that the user set
    assert reason_words(0x4) == "power cap"
    assert reason_words(0x4 | 0x40) == "power cap, hardware thermal slowdown"
    assert throttled(None, None) == ""
    assert throttled(Clocks(345), Clocks(1980)) == ""
    assert throttled(Clocks(1980), Clocks(1965)) == ""
    assert throttled(Clocks(1980), Clocks(1500)) == "the clock fell"
    assert throttled(Clocks(1980), Clocks(1700, "thermal slowdown")) == "thermal slowdown"


class Hot(FakeDevice):
    """Throttles for so many samples."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        calm = Clocks(1980)
        self._clocks: Iterator[Clocks] = iter([*[calm, Clocks(1200, "thermal slowdown")] * samples, *[calm] * 9])

    def clocks(self) -> Clocks | None:
        return next(self._clocks)


@pytest.mark.parametrize(("samples", "says"), [(0, None), (1, None), (2, None), (CALM_TRIES, "thermal slowdown")])
def test_a_throttled_sample_is_repeated_and_said_if_it_stays(
    samples: int, says: str | None, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotile.measure.timed.CALM_PAUSE_S", 0.0)
    kernel = read_folder(write_kernel(tmp_path) / "walk")  # type: ignore[arg-type]
    device, problem = Hot(samples), kernel.problem({"n": SIZE})
    variant = make_variant(kernel, problem, kernel.configuration())
    with open_session(device, kernel, problem) as session:
        notes = dict(session.trial(variant, FakeBuilder().build(variant.source)).notes)
    assert notes.get("throttled") == says
    assert notes["sm_mhz"] == ("1980 1200" if says else "1980 1980")


def test_what_moves_is_a_race_unless_the_kernel_says_that_it_may(tmp_path: object) -> None:
    kernel = read_folder(write_kernel(tmp_path) / "walk")  # type: ignore[arg-type]
    moving = [Check(0.1, 0), Check(0.2, 0)]
    with pytest.raises(WrongResult, match="moves from run to run"):
        require_still(moving, kernel)
    assert require_still(moving, replace(kernel, deterministic=False)) == 0.2
    with pytest.raises(WrongResult, match="in 1 of 2 runs, which is a race: 3 elements are wrong"):
        require_still([Check(0.1, 0), Check(9.0, 3)], replace(kernel, deterministic=False))
