"""The transpose's benchmark as far as it needs no GPU: cases, ratios, turns, arguments, searches of several seeds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import UsageError
from autotile.kernels import load_kernel
from autotile.types import Configuration

# ---- cases ----------------------------------------------------------------------------------------------------------


def test_what_is_asked_of_the_default_cases() -> None:
    from transpose_cases import cases_of

    cases = {case.label: case for case in cases_of("default", "")}
    assert len(cases) == 15 + 4 + 4 + 5 + 5
    assert all(case.asked for case in cases.values())
    assert cases["8192x8192 float16"].asked == {"of_copy": 0.97}
    assert cases["16384x16384 float64"].asked == {"of_copy": 0.95}
    assert cases["4097x8191 int8"].asked == {"of_copy": 0.83}
    assert cases["33x100000 float16"].asked == {"of_copy": 1.0, "of_own_copy": 0.90}
    assert cases["64x512x512 complex128"].asked == {"of_copy": 0.98}
    assert cases["16384x16384 complex128"].moved_bytes == 8 << 30


def test_shapes_and_types_that_are_asked_for() -> None:
    from transpose_cases import cases_of

    cases = cases_of("64x512x512,2048x1024", "int8,float64")
    assert [case.label for case in cases] == [
        "64x512x512 int8", "64x512x512 float64", "2048x1024 int8", "2048x1024 float64",
    ]  # fmt: skip
    assert cases[1].sizes == {"batch": 64, "rows": 512, "cols": 512}
    assert cases[2].sizes == {"rows": 2048, "cols": 1024}
    assert cases[2].asked == {}
    assert [case.label for case in cases_of("default,4096x4096,2048x2048", "int8")][-1] == "2048x2048 int8"
    assert len(cases_of("default,4096x4096", "int8")) == len(cases_of("default", "int8"))
    (inside,) = cases_of("512x512", "int8", in_place=True)
    assert (inside.sizes["in_place"], inside.asked, inside.label) == (1, {}, "512x512 int8 in place")
    assert {case.shape[-1] - case.shape[-2] for case in cases_of("default", "", in_place=True)} == {0}


@pytest.mark.parametrize("shapes", ["8192", "8192x", "0x4", "2x3x4x5", "4x-1", "", "big"])
def test_what_is_no_shape(shapes: str) -> None:
    from transpose_cases import cases_of

    with pytest.raises(UsageError, match="no shape"):
        cases_of(shapes, "int8")


def test_other_faults_of_cases() -> None:
    from transpose_cases import cases_of

    with pytest.raises(UsageError, match="float23"):
        cases_of("4x4", "float23")
    with pytest.raises(UsageError, match="only square"):
        cases_of("4x8", "int8", in_place=True)


def test_ratios_by_hand() -> None:
    """8 MiB moved; autotile takes 4 µs, the copies 3.8 and 3 µs: 0.95 of one, 0.75 of the better."""
    from transpose_cases import Case, compared

    times = {"autotile": 4e-3, "copy": 3.8e-3, "own_copy": 3e-3, "torch": 8e-3, "geam": 6e-3}
    found = compared(Case((1024, 1024), "float32"), times)
    assert found["gbs"]["autotile"] == pytest.approx(8 * 2**20 / 4e-6 / 1e9)
    assert found["of_copy"] == pytest.approx(0.95)
    assert found["of_own_copy"] == found["of_best_copy"] == pytest.approx(0.75)
    assert found["times_as_fast_as"] == pytest.approx({"torch": 2, "geam": 1.5})
    assert found["met"] is True  # 0.92 is asked
    skinny = Case((100000, 33), "float32")
    assert compared(skinny, times | {"copy": 5e-3})["met"] is False  # faster than the copy, 0.75 of our own
    assert compared(skinny, times | {"copy": 5e-3, "own_copy": 3.7e-3})["met"] is True
    assert compared(Case((5, 5), "float32"), times)["met"] is None


# ---- contestants ----------------------------------------------------------------------------------------------------


class CountingClock:
    """Each launch takes as many ms as were queued before it; its time is there once it has been waited for."""

    def __init__(self) -> None:
        self.queued = self.done = 0

    def launch(self, call: Any, number: int) -> Any:
        call(number)
        self.queued += 1
        mine = self.queued

        def time_ms() -> float:
            assert self.done >= mine
            return float(mine)

        return time_ms

    def wait(self) -> None:
        self.done = self.queued


def test_contestants_take_turns() -> None:
    from contest import in_turns

    calls: list[str] = []
    contestants = {name: (lambda number, name=name: calls.append(f"{name}{number}")) for name in "abc"}
    samples = in_turns(contestants, 4, CountingClock())
    assert calls == "a0 b0 c0 c1 b1 a1 a2 b2 c2 c0 b0 a0".split()
    assert samples == {"a": [1, 6, 7, 12], "b": [2, 5, 8, 11], "c": [3, 4, 9, 10]}


def test_a_peer_that_does_not_take_the_case_drops_out() -> None:
    from contest import without_those_that_fail

    notes: list[str] = []

    def refuses(number: int) -> None:
        raise ValueError("no such dtype")

    assert list(without_those_that_fail({"geam": refuses, "torch": lambda number: None}, notes)) == ["torch"]
    assert notes == ["geam does not take this case: ValueError: no such dtype"]


class Array:
    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


@pytest.mark.parametrize("in_place", [False, True])
def test_a_variant_is_launched_with_the_kernels_arguments(in_place: bool) -> None:
    from contest import Data, variant_call
    from transpose_cases import Case

    kernel, case = load_kernel("transpose"), Case((3, 64, 64), "float32", in_place)
    problem, data = kernel.problem(case.sizes, case.dtype), Data([Array(1), Array(2)] * 2, [Array(10), Array(20)] * 2)
    launched: list[Any] = []
    device = SimpleNamespace(
        load=lambda binary: binary, call=lambda program, launch, arguments, stream: launched.append((arguments, stream))
    )
    builder: Any = SimpleNamespace(build=lambda source: source.entry)
    call, launch = variant_call(device, builder, problem, kernel.configuration(), data)
    call(1)
    ((arguments, stream),) = launched
    sizes = kernel.sizes_of(problem)
    named = dict(zip((argument.name for argument in kernel.arguments), arguments, strict=True))
    assert (named["in"].address, named["out"].address) == ((20, 20) if in_place else (2, 20))
    assert {name: named[name] for name in sizes} == sizes
    assert (stream, launch) == (0, kernel.launch_of(problem, kernel.configuration()))


def test_the_copy_of_our_own_copies_all() -> None:
    from vector_copy import VARIANTS, VectorCopy

    assert {(v.threads, v.vectors) for v in VARIANTS} == {(t, v) for t in (256, 512) for v in (2, 4, 8)}
    variant, device = VectorCopy(256, 2), EmulatorDevice()
    with Builder(device.target, jobs=1) as builder:
        program = device.load(builder.build(variant.source))
    for count in (3, 16, 16 * 256 * 2 + 16 * 77 + 5):
        given = np.random.default_rng(0).integers(1, 256, count, np.uint8)
        taken = np.zeros(count, np.uint8)
        device.call(program, variant.launch(count), [given, taken, *variant.sizes(count)])
        assert np.array_equal(given, taken)


# ---- the runs -------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_each_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import transpose

    monkeypatch.setattr(sys, "argv", ["transpose.py", "--dry-run", "--shapes", "8192x8192,64x5x7"])
    transpose.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("8192x8192 float32 (rows8192-cols8192-float32): 512 MiB moved, 1.5 GiB needed, 21 ")
    assert lines[0].endswith("of_copy 0.97")
    assert "63 launches each; nothing asked" in lines[-1]
    with pytest.raises(SystemExit):
        transpose.parsed(["--seeds", "0,1"])
    assert "--search" in capsys.readouterr().err


def test_several_seeds_are_timed_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The seeds' searches begin cold; the winner that is the fastest in one run is kept."""
    import transpose
    from transpose_cases import Case

    homes: list[Path] = []
    kept: list[Any] = []

    def searched(bench: Any, case: Any, seed: int, given: Any, home: Path) -> Any:
        homes.append(home)
        assert not any(home.iterdir())
        best = SimpleNamespace(configuration=Configuration((("n", seed % 2),)))
        return SimpleNamespace(best=best), {"seed": seed}

    def contested(bench: Any, case: Any, ours: dict[str, Configuration]) -> Any:
        times = {name: 2.0 - configuration["n"] for name, configuration in ours.items()}  # type: ignore[operator]
        return {"seed_times_ms": times, "times_ms": {"autotile": min(times.values())}}

    monkeypatch.setattr(transpose, "searched", searched)
    monkeypatch.setattr(transpose, "contested", contested)
    monkeypatch.setattr(transpose, "Store", lambda home: SimpleNamespace(save_best=kept.append))
    given = argparse.Namespace(search=True, seeds=[4, 5, 6])
    bench: Any = None
    entry = transpose.measured(bench, Case((8, 8), "int8"), given, tmp_path)
    assert len(set(homes)) == 3
    assert [(found["seed"], found["time_ms"], found["slower"]) for found in entry["seeds"]] == [
        (4, 2.0, 1.0), (5, 1.0, 0.0), (6, 2.0, 1.0),
    ]  # fmt: skip
    assert [best.configuration["n"] for best in kept] == [1]


def test_a_case_that_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import transpose
    from transpose_cases import Case

    def out_of_memory(*anything: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    freed: list[bool] = []
    torch = SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: freed.append(True)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(transpose, "measured", out_of_memory)
    case = Case((8, 8), "int8")
    bench: Any = None
    entry = transpose.about(case) | transpose.guarded(bench, case, argparse.Namespace(), tmp_path)
    assert entry["error"] == "RuntimeError: CUDA out of memory"
    assert freed == [True]
    assert transpose.said(entry) == "failed: RuntimeError: CUDA out of memory"
