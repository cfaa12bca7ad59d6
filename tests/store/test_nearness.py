"""Which of two problems is nearer, where switches differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotile.kernels import load_kernel
from autotile.store import distance
from autotile.types import Problem

AFFINE = load_kernel("affine", Path(__file__).resolve().parents[1] / "data" / "kernels")


def of(m: int = 1024, n: int = 1024, **stated: Any) -> Problem:
    return AFFINE.problem({"m": m, "n": n, **stated})


def test_another_set_of_switches_is_farther_and_an_input_stored_otherwise_farther_still() -> None:
    asked = of(x_turned=True, bias=True)
    nearest_first = [
        asked,
        of(1500, x_turned=True, bias=True),
        of(x_turned=True),
        of(x_turned=True, added=True),
        of(4096, 4096, x_turned=True, bias=True),
        of(bias=True),
        of(),
        of(4096, 4096),
    ]
    distances = [distance(AFFINE, asked, other) for other in nearest_first]
    assert distances == sorted(distances)
    assert len(set(distances)) == len(distances)
    assert distances == [distance(AFFINE, other, asked) for other in nearest_first]


def test_a_pitch_that_is_usual_for_the_way_it_is_stored_counts_for_nothing() -> None:
    assert distance(AFFINE, of(64, 512, x_turned=True), of(64, 512, x_turned=True)) == 0
    pitched = of(64, 512, x_turned=True, x_pitch=128)
    assert distance(AFFINE, pitched, of(64, 512, x_turned=True)) == 1
