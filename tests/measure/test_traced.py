"""Traces of some blocks of a real launch: which blocks, what is scaled, and what is said to be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import TEMPLATE, write_kernel

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.emulator.program import EmulatedProgram
from autotile.devices.emulator.report import Report
from autotile.errors import UnsupportedByEmulator
from autotile.kernels import load_kernel
from autotile.kernels.loader import read_folder
from autotile.measure import make_variant, traced
from autotile.measure.traced import _corners, _spread, scaled_trace, trace_variant
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


def test_corners_are_the_first_the_last_and_the_others() -> None:
    assert _corners((1, 1, 1)) == [0]
    assert _corners((5, 1, 1)) == [0, 4]
    assert _corners((5, 3, 1)) == [0, 14, 4, 10]
    assert len(_corners((5, 3, 2))) == 8
    assert max(_corners((5, 3, 2))) == 29


@pytest.mark.parametrize(
    ("index", "block"),
    [("i < n ? i : i + 1", 62_500), ("i > 0 ? i : -1", 0), ("i", None)],
    ids=["end", "begin", "fine"],
)
def test_faults_at_the_edges_of_a_large_launch_are_seen(
    builder: Builder, tmp_path: Path, index: str, block: int | None
) -> None:
    """No block between them has any, and few of these are traced; what is counted stays as it is."""
    template = TEMPLATE.replace("out[i] = in[i];", f"out[{index}] = in[i];")
    if block:
        template = template.replace(" && i < n", " && i <= n")
    kernel = read_folder(write_kernel(tmp_path, template=template) / "walk")
    variant = make_variant(kernel, kernel.problem({"n": 2_000_001}), kernel.configuration({"width": 32}))
    binary = builder.build(variant.source)
    plain = trace_variant(EMULATOR, variant, binary, budget_s=0.01)
    found = trace_variant(EMULATOR, variant, binary, budget_s=0.01, edges=True)
    assert plain.diagnostics == ()
    assert {(one.kind, one.block) for one in found.diagnostics} == (
        set() if block is None else {("out_of_bounds", block)}
    )
    assert found.entries == plain.entries


def test_edges_that_take_long_are_no_fault(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the two blocks in the middle cost is known by then."""
    variant = tiles(256)
    launch, modes = EmulatedProgram.launch, list[str]()

    def slow_edges(self: EmulatedProgram, *given: Any, **named: Any) -> Report:
        modes.append(given[4])
        return launch(self, *given, **(named | ({"limit_s": 1e-5} if given[4] == "check" else {})))

    monkeypatch.setattr(EmulatedProgram, "launch", slow_edges)
    found = trace_variant(EMULATOR, variant, builder.build(variant.source), budget_s=0.01, edges=True)
    assert "check" in modes
    assert found.diagnostics == ()


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
