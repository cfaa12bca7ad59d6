"""Traces of some blocks of a real launch: which blocks, what is scaled, and what is said to be left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import UnsupportedByEmulator
from autotile.kernels import load_kernel
from autotile.measure import make_variant, traced
from autotile.measure.traced import _spread, scaled_trace, trace_variant
from autotile.measure.variant import Variant

EMULATOR = EmulatorDevice()


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Builder:
    return Builder(EMULATOR.target, build_home)


def tiles(side: int) -> Variant:
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": side, "n": side, "k": side})
    return make_variant(kernel, problem, kernel.configuration(kernel.presets["tile32"]))


def test_blocks_come_in_pairs_and_are_the_same_each_time() -> None:
    chosen = _spread(10_000, 40)
    assert chosen == _spread(10_000, 40)
    assert len(chosen) == 40
    assert all(first + 1 == second for first, second in zip(chosen[::2], chosen[1::2], strict=True))
    thirds = [sum(at // 3334 == third for at in chosen) for third in range(3)]
    assert min(thirds) >= 10  # spread over all
    assert _spread(5, 8) == [0, 1, 2, 3, 4]
    assert len(set(_spread(12, 11))) <= 12


def test_a_small_problem_scaled_is_the_large_one(builder: Builder) -> None:
    small, large = tiles(64), tiles(256)
    binary = builder.build(small.source)
    scaled = scaled_trace(trace_variant(EMULATOR, small, binary), large.launch, 64.0, 16.0)
    real = trace_variant(EMULATOR, large, binary, budget_s=0.1)
    for name, value in vars(real.main.work).items():
        if isinstance(value, (int, float)) and "run_bytes" not in name and "joined" not in name:
            assert getattr(scaled.main.work, name) == pytest.approx(value, rel=0.01), name
    assert scaled.per_request == real.per_request
    info = EMULATOR.info
    assert scaled.estimate(large, info).time_ms == pytest.approx(real.estimate(large, info).time_ms, rel=0.05)


def test_what_takes_too_long_is_refused_with_advice(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "LIMIT_S", 1e-4)
    variant = tiles(256)
    with pytest.raises(UnsupportedByEmulator, match=r"256×256×256 float32 takes .* more than 0 s: take a smaller"):
        trace_variant(EMULATOR, variant, builder.build(variant.source))
