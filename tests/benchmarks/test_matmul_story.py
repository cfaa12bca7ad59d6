"""The matmul's story as far as it needs no GPU: its steps, its turns, counters by launch, tables and the picture."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_ncu import FakeNcu, csv_of

from autotile.devices.gpus import find_gpu
from autotile.errors import ConfigurationError
from autotile.insight.ncu import first_named
from autotile.kernels import load_kernel

GPU = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "commit": "def", "date": "2026-01-03T04"}

# ---- steps ----------------------------------------------------------------------------------------------------------


def test_every_step_and_change_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_story

    changes = matmul_story.changed(find_gpu("h200"))
    assert len({step.name for step in (*matmul_story.STEPS, *changes)}) == len(matmul_story.STEPS) + len(changes)
    monkeypatch.setattr(sys, "argv", ["matmul_story.py", "--dry-run"])
    matmul_story.main()
    *lines, command = capsys.readouterr().out.splitlines()
    assert len(lines) == len(matmul_story.STEPS) + len(changes)
    assert lines[0].startswith("one_element: 16384 blocks of 1024 threads, staging=none ")
    assert "large with block_k=8: " in "\n".join(lines)
    words = command.split()
    assert words[words.index("--one") + 1] == ",".join([*(step.name for step in matmul_story.STEPS), "cublas"])
    assert words[words.index("--size") + 1] == "4096"


def test_the_ring_grows_beyond_48_kib() -> None:
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 4096, "n": 4096, "k": 4096}, "float32")

    def launch_of(preset: str) -> Any:
        return kernel.launch_of(problem, kernel.configuration(kernel.presets[preset]))

    assert 0 < launch_of("ring48").shared_bytes <= 48 * 1024 < launch_of("large").shared_bytes


def test_every_change_is_one() -> None:
    """What is the preset's already would be timed beside itself."""
    from matmul_story import CHANGED, changed

    kernel = load_kernel("matmul")
    base = kernel.configuration(kernel.presets[CHANGED])
    for step in changed(find_gpu("h200")):
        assert [name for name, value in step.changes.items() if base[name] == value] == []


def test_a_step_that_does_not_fit_is_named() -> None:
    from matmul_cases import Case
    from matmul_story import Step, configuration_of

    kernel = load_kernel("matmul")
    problem = kernel.problem(Case((64, 64, 64), "float32").sizes, "float32")
    step = Step("long", "", "large", {"block_k": 64})
    with pytest.raises(ConfigurationError, match="long does not fit 64×64×64 float32: "):
        configuration_of(step, kernel, problem, find_gpu("h200"))


class ToyClock:
    """A call gives its own time in ms."""

    def __init__(self) -> None:
        self.launches: list[float] = []

    def launch(self, call: Callable[[int], Any], number: int) -> Callable[[], float]:
        time_ms = float(call(number))
        self.launches.append(time_ms)
        return lambda: time_ms

    def wait(self) -> None:
        return None


def test_slow_steps_take_few_turns_of_their_own() -> None:
    from matmul_story import FEW_ROUNDS, ROUNDS, SLOW_MS, beside

    clock, notes = ToyClock(), []
    calls: dict[str, Callable[[int], Any]] = {"slow": lambda n: 2 * SLOW_MS, "fast": lambda n: 3.0}
    peers = {"cublas: mm": lambda n: 2.9, "cublas: addmm": lambda n: 2.8}
    figures, cublas = beside(calls, peers, clock, notes)
    assert {name: (f["median_ms"], f["runs"]) for name, f in figures.items()} == {
        "slow": (2 * SLOW_MS, FEW_ROUNDS), "fast": (3.0, ROUNDS),
    }  # fmt: skip
    assert [(cublas[name]["way"], cublas[name]["runs"]) for name in calls] == [("addmm", FEW_ROUNDS), ("addmm", ROUNDS)]
    assert clock.launches.count(2 * SLOW_MS) == FEW_ROUNDS + 1
    assert notes == [f"timed {FEW_ROUNDS} times only, as they are slow: slow"]
    assert beside({"fast": calls["fast"]}, {}, ToyClock(), [])[1] == {}


def test_rates_are_of_the_same_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """2·64³ FLOP; the slow step and the fast ones have each a time of cuBLAS beside them."""
    import matmul_story
    from matmul_cases import Case

    def entry(name: str, time_ms: float, **changes: Any) -> Any:
        return (lambda number: time_ms, {"name": name, "changes": changes})

    right = {"slow": entry("slow", 20.0), "large": entry("large", 3.0), "stages=2": entry("stages=2", 4.0, stages=2)}
    monkeypatch.setattr(matmul_story, "make_operands", lambda case: None)
    monkeypatch.setattr(matmul_story, "right_steps", lambda *given: right)
    monkeypatch.setattr(matmul_story, "heat_up", lambda calls: None)
    monkeypatch.setattr(matmul_story, "cublas_calls", lambda *given: {"cublas: mm": lambda number: 2.0})
    case, device = Case((64, 64, 64), "float32"), SimpleNamespace(info=find_gpu("h200"))
    found = matmul_story.timed(device, None, case, ToyClock(), [])  # type: ignore[arg-type]
    assert {step["name"]: step["of_cublas"] for step in found["steps"]} == {"slow": 0.1, "large": pytest.approx(2 / 3)}
    assert found["steps"][0]["tflops"] == pytest.approx(2 * 64**3 / 20 / 1e9)
    assert [(change["name"], change["of_preset"]) for change in found["changes"]] == [("stages=2", 0.75)]
    assert (found["cublas"]["way"], found["cublas"]["median_ms"]) == ("mm", 2.0)
    monkeypatch.setattr(matmul_story, "cublas_calls", lambda *given: {})
    del right["large"]
    bare = matmul_story.timed(device, None, case, ToyClock(), [])  # type: ignore[arg-type]
    assert bare["cublas"] is None
    assert [step["of_cublas"] for step in bare["steps"]] == [None]
    assert [change["of_preset"] for change in bare["changes"]] == [None]


# ---- counters -------------------------------------------------------------------------------------------------------

RAW = csv_of(
    ["matmul", "matmul_pack", "matmul", "splitter", "gemm<128>"],
    {"sm__inst_issued.avg.pct_of_peak_sustained_active": [10.5, 1, 90, 2, 80],
     "gpu__time_duration.sum": [7e7, 1e4, 2e6, 1e3, 3e6]},
)  # fmt: skip


@pytest.fixture
def ncu(tmp_path: Path) -> FakeNcu:
    from matmul_counters import WANTED

    return FakeNcu(tmp_path / "bin", RAW, [metric for metrics in WANTED.values() for metric in metrics])


def test_launches_are_told_apart_by_name_and_order(ncu: FakeNcu) -> None:
    from matmul_counters import WANTED, by_step, peer_of, profiled

    notes: list[str] = []
    rows = profiled(ncu.path, ["true"], notes)
    assert ncu.metrics == first_named(WANTED)
    own = by_step(rows, "matmul", ["plain", "packed"], notes)
    assert {name: row.counters["issue_percent"] for name, row in own.items()} == {"plain": 10.5, "packed": 90}
    assert notes == []
    peer = peer_of(rows, "matmul", notes)
    assert peer is not None
    assert peer.name == "gemm<128>"
    assert notes == ["cuBLAS launched splitter, gemm<128>; the longest has the counters"]
    assert by_step(rows, "matmul", ["plain"], notes) == {}
    assert "2 launches of matmul instead of 1" in notes[-1]
    assert peer_of(rows[:3], "matmul", notes) is None


def test_a_profiler_that_tells_nothing_is_noted(tmp_path: Path, ncu: FakeNcu) -> None:
    from matmul_counters import profiled

    notes: list[str] = []
    denied = FakeNcu(tmp_path / "denied", "==ERROR== ERR_NVGPUCTRPERM\n")
    assert profiled(denied.path, ["true"], notes) == []
    assert profiled(ncu.path, ["sleep", "9"], notes, limit_s=0.1) == []
    assert "ERR_NVGPUCTRPERM" in notes[-2]
    assert "had not ended" in notes[-1]


def test_figures_of_counters() -> None:
    from matmul_counters import WANTED, told

    full = dict(zip(WANTED, [71.0, 80, 64, None, 10, 100, 20, 5, 6, None, 128, 25, 1e6], strict=True))
    assert told(full, 1024) == {
        "fma_percent": 71, "issue_percent": 80, "shared_wavefronts": 64, "multiply_adds_a_wavefront": 16,
        "bank_conflicts": 11, "l2_to_l1_bytes": 320, "dram_bytes": 120, "registers": 128, "occupancy_percent": 25,
    }  # fmt: skip
    assert set(told({}, 1024).values()) == {None}
    assert told({"shared_wavefronts": 0.0}, 1024)["multiply_adds_a_wavefront"] is None


def test_counters_join_their_steps(monkeypatch: pytest.MonkeyPatch, ncu: FakeNcu) -> None:
    import matmul_counters
    import matmul_story
    from matmul_cases import Case

    def profiled(path: Path, program: list[str], notes: list[str]) -> Any:
        assert program[program.index("--one") + 1] == "plain,packed,cublas"
        return matmul_counters.profiled(path, ["true"], notes)

    monkeypatch.setattr(matmul_story, "profiled", profiled)
    steps: list[dict[str, Any]] = [{"name": "plain"}, {"name": "packed"}]
    document: dict[str, Any] = {"steps": steps, "cublas": {}, "notes": []}
    matmul_story.count(ncu.path, document, Case((8, 8, 8), "float32"))
    assert [step["counters"]["issue_percent"] for step in steps] == [10.5, 90]
    assert document["cublas"]["kernel"] == "gemm<128>"
    monkeypatch.setattr(matmul_story, "profiled", lambda *given: [])
    bare: dict[str, Any] = {"steps": [{"name": "plain"}], "cublas": None, "notes": []}
    matmul_story.count(Path("ncu"), bare, Case((8, 8, 8), "float32"))
    assert bare["steps"] == [{"name": "plain"}]


# ---- the table and the picture --------------------------------------------------------------------------------------


def report() -> dict[str, Any]:
    counters = {"fma_percent": 93.4, "multiply_adds_a_wavefront": 128.2, "shared_wavefronts": 2.345e8, "registers": 90,
                "bank_conflicts": None, "l2_to_l1_bytes": 4.321e9}  # fmt: skip
    kernel = {"note": "a note", "preset": "", "changes": {}, "shared_bytes": 33280, "registers": 128}
    return {
        **GPU,
        "dtype": "float32",
        "size": 4096,
        "changed": "large",
        "steps": [
            {**kernel, "name": "large", "preset": "large", "median_ms": 2.75, "tflops": 49.98, "of_cublas": 1.02,
             "counters": counters},
            {**kernel, "name": "winner", "configuration": {"block_m": 8, "spread": True}, "registers": None,
             "median_ms": 0.5, "tflops": 51.0, "of_cublas": None},
        ],
        "changes": [{**kernel, "name": "stages=2", "median_ms": 3.0, "of_preset": 0.9167}],
        "cublas": {"median_ms": 2.81, "tflops": 48.9, "counters": counters},
    }  # fmt: skip


def test_the_tables_lines() -> None:
    import matmul_tables

    lines = matmul_tables.matmul_story(report())
    assert lines[0].startswith("| 4096×4096×4096 float32 | ms | TFLOP/s | of cuBLAS | shared memory, KiB | registers |")
    told = "93 | – | 128 | 234.5 | – | 4.32 | – | – |"
    assert lines[2] == f"| `large` | 2.750 | 50.0 | 1.020 | 32.5 | 128 | {told}"
    assert lines[3].startswith("| `winner` | 0.5000 | 51.0 | – | 32.5 | – | – |")
    assert lines[4] == f"| cuBLAS | 2.810 | 48.9 | 1.000 | – | 90 | {told}"
    assert len({line.count("|") for line in lines[:5]}) == 1
    assert "- `large`: a note: `--preset large`" in lines
    assert "- `winner`: a note: `--set block_m=8 --set spread=true`" in lines
    assert lines[-1] == "| `stages=2` | a note | 3.000 | 0.917 | 128 |"
    alone = matmul_tables.matmul_story(report() | {"cublas": None, "changes": []})
    assert alone[-1].startswith("- `winner`")
    assert not any("cuBLAS |" in line for line in alone[1:])


def test_the_story_stands_in_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is measured the page says so between the markers, and nothing is out of date."""
    import tables

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    page = f"above\n<!-- table matmul_story -->\n{tables.UNMEASURED}<!-- end of table -->\nbelow\n"
    assert tables.with_story(page) == page
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "matmul_story.json").write_text(json.dumps(report()))
    lines = tables.with_story(page).splitlines()
    assert lines[2] == "**Matmul, step by step, Some GPU, driver 580, nvcc 13, commit def, 2026-01-03**"
    assert lines[-2:] == ["<!-- end of table -->", "below"]


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    import pictures

    first, second = (pictures.draw_matmul_story(report(), tmp_path / name) for name in ("one", "two"))
    assert first.name == "matmul-story.svg"
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text(encoding="utf-8")
    assert [word for word in ("large", "winner", "51.0", "cuBLAS, 48.9", "4096×4096×4096") if word not in text] == []
    alone = pictures.draw_matmul_story(report() | {"cublas": None}, tmp_path / "alone")
    assert "the line" not in alone.read_text(encoding="utf-8")
