"""What the transpose's benchmarks tell: the story's steps, their counters, tables and pictures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autotile.devices.gpus import find_gpu
from autotile.errors import ConfigurationError, EnvironmentalError
from autotile.insight.ncu import Launched
from autotile.kernels import load_kernel

GPU = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "commit": "def", "date": "2026-01-03T04"}


# ---- the story ------------------------------------------------------------------------------------------------------


def test_every_step_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import transpose_story

    monkeypatch.setattr(sys, "argv", ["transpose_story.py", "--dry-run"])
    transpose_story.main()
    *lines, command = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(transpose_story.STEPS)
    words = command.split()
    assert words[words.index("--kernel-name") + 1] == load_kernel("transpose").entry
    assert words[words.index("--one") + 1] == ",".join(step.name for step in transpose_story.STEPS)


def test_a_step_that_does_not_fit_is_named() -> None:
    from transpose_cases import cases_of
    from transpose_story import Step, planned

    step = Step("huge", "", {"tile_rows": 512, "tile_cols": 512})
    with pytest.raises(ConfigurationError, match="huge does not fit 64×64 float32"):
        planned([step], cases_of("64x64", "float32"), find_gpu("h200"))


def test_counters_go_to_the_steps_that_ran_on_every_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    import transpose_story
    from transpose_cases import cases_of

    asked: list[str] = []

    def launches(ncu: Path, kernel: str, wanted: Any, program: list[str], notes: list[str]) -> list[Launched]:
        asked.append(program[program.index("--one") + 1])
        return [Launched(kernel, {"load_sectors": 4.0 * n, "load_requests": 1.0}) for n in range(4)]

    monkeypatch.setattr(transpose_story, "launches", launches)
    steps: list[dict[str, Any]] = [{"name": name, "by_shape": {"8x8": {}, "9x9": {}}} for name in "ab"]
    steps.insert(1, {"name": "half", "by_shape": {"8x8": {}}})
    document = {"steps": steps, "notes": []}
    transpose_story.count(Path("ncu"), document, cases_of("8x8,9x9", "float32"))
    assert asked == ["a,b"]
    places = {(step["name"], shape): found for step in steps for shape, found in step["by_shape"].items() if found}
    assert {place: found["raw"]["load_sectors"] for place, found in places.items()} == {
        ("a", "8x8"): 0, ("b", "8x8"): 4, ("a", "9x9"): 8, ("b", "9x9"): 12,
    }  # fmt: skip
    assert places["b", "9x9"]["counters"]["sectors_a_load_request"] == 12
    with pytest.raises(EnvironmentalError, match="4 launches instead of 2"):
        transpose_story.count(Path("ncu"), document, cases_of("9x9", "float32"))


# ---- tables and pictures --------------------------------------------------------------------------------------------


def case_entry(shape: list[int], dtype: str, ours_ms: float, **more: Any) -> dict[str, Any]:
    from transpose_cases import Case, compared

    times = {"autotile": ours_ms, "copy": 1.0, "own_copy": 0.9, "torch": 3.0, "cupy": 3.5}
    if dtype == "float32":
        times["geam"] = 2.0
    return {"shape": shape, "dtype": dtype, "exact": True, **compared(Case(tuple(shape), dtype), times), **more}


def transpose_report() -> dict[str, Any]:
    return {
        **GPU,
        "cases": [
            case_entry([8192, 8192], "float32", 1.0),
            case_entry([4096, 4096], "float32", 1.25),
            case_entry([100000, 33], "float16", 0.95),
            case_entry([64, 512, 512], "int8", 1.1, exact=False),
            case_entry([2048, 2048], "int8", 1.0),
            {"shape": [4, 4], "dtype": "int8", "error": "no memory"},
        ],
    }


def story_report() -> dict[str, Any]:
    counters = {"sectors_a_load_request": 32.0, "sectors_a_store_request": 4.0, "wavefronts_a_shared_load": None,
                "bank_conflicts": 12345.0}  # fmt: skip
    on = {"gbs": 1220.4, "of_copy": 0.3, "configuration": {"layout": "plain", "pad": 0}}
    return {
        **GPU,
        "dtype": "float32",
        "shapes": [[4096, 4096], [8192, 8192]],
        "copies": {"4096x4096": {"copy": 4000.0}, "8192x8192": {"copy": 4100.0}},
        "steps": [
            {"name": "strided_reads", "note": "no tile", "by_shape": {
                "4096x4096": on | {"counters": counters}, "8192x8192": on}},
            {"name": "winner", "note": "", "by_shape": {"8192x8192": {"gbs": 4055.0, "of_copy": 0.99}}},
        ],
    }  # fmt: skip


def seeds_report() -> dict[str, Any]:
    seeds = [
        {"seed": seed, "seconds": seconds, "trials": trials, "stopped_by": reason, "time_ms": time_ms}
        for seed, seconds, trials, reason, time_ms in ((0, 20.4, 80, "gain", 1.0), (1, 30.2, 90, "time", 1.02))
    ]
    return {**GPU, "cases": [case_entry([8192, 8192], "float32", 1.0, seeds=seeds)]}


def test_the_tables_lines() -> None:
    import transpose_tables

    searched = case_entry([8192, 8192], "float32", 1.0, search={"seconds": 9.84, "trials": 200})
    assert transpose_tables.transpose({"cases": [searched]})[2].endswith("| 2.0 | 9.8 | 200 |")
    lines = transpose_tables.transpose(transpose_report())
    assert lines[2] == "| 8192×8192 float32 | 537 | 1.000 | 0.900 | 0.97 | 3.0 | 3.5 | 2.0 | – | – |"
    assert lines[3] == "| 4096×4096 float32 | 107 | 0.800 | 0.720 | 0.97: missed | 2.4 | 2.8 | 1.6 | – | – |"
    assert lines[4].startswith("| 100000×33 float16 | 14 | 1.053 | 0.947 | 1.00, 0.90 of our own copy | 3.2 |")
    assert lines[5].startswith("| 64 of 512×512 int8, WRONG |")
    assert lines[6] == "| 2048×2048 int8 | 8 | 1.000 | 0.900 | – | 3.0 | 3.5 | – | – | – |"
    assert lines[7] == "| 4×4 int8 | failed | – | – | – | – | – | – | – | – |"
    assert lines[-1].startswith("2 of 4 reach their aim")
    (row,) = transpose_tables.transpose_seeds(seeds_report())[2:]
    assert (
        row
        == "| 8192×8192 float32 | 2 | 20 to 30 | 80 to 90 | 1 by gain, 1 by time | 1.0000 to 1.0200 | 2.0% | 1.000 |"
    )
    story = transpose_tables.transpose_story(story_report())
    assert story[0].startswith("| float32, counters at 4096x4096 | GB/s, 4096x4096 | of a copy | GB/s, 8192x8192 |")
    assert story[2] == "| `strided_reads` | 1220 | 0.300 | 1220 | 0.300 | 32.0 | 4.0 | – | – | 12,345 | – | – | – |"
    assert story[3] == "| `winner` | – | – | 4055 | 0.990 | – | – | – | – | – | – | – | – |"
    assert story[-1] == "- `strided_reads`: no tile: `--set layout=plain --set pad=0`"


def test_the_story_stands_in_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tables

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["tables.py", *arguments])
        tables.main()

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    readme, page = tmp_path / "README.md", tmp_path / "transpose.md"
    monkeypatch.setattr(tables, "README", readme)
    monkeypatch.setattr(tables, "PAGES", (page,))
    readme.write_text("<!-- results -->\n<!-- end of results -->\n")
    (tmp_path / "gpu").mkdir()
    for name, report in (("transpose", transpose_report()), ("transpose_story", story_report())):
        (tmp_path / "gpu" / f"{name}.json").write_text(json.dumps(report))
    run()
    assert not page.exists()
    assert "**Transpose beside a copy, Some GPU" in readme.read_text()
    run("--check")
    page.write_text("above\n<!-- table transpose_story -->\nold\n<!-- end of table -->\nbelow\n")
    with pytest.raises(SystemExit, match=r"transpose\.md"):
        run("--check")
    capsys.readouterr()
    run("--story")
    shown = capsys.readouterr().out
    assert "| `winner` | – | – | 4055 |" in shown
    assert "old" in page.read_text()
    run()
    assert page.read_text() == f"above\n<!-- table transpose_story -->\n{shown}<!-- end of table -->\nbelow\n"
    run("--check")


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_pictures_are_the_same_each_time(tmp_path: Path) -> None:
    import pictures

    squares, others = pictures.panels(transpose_report()["cases"])["float32"]
    assert [case["shape"][0] for case in squares] == [4096, 8192]
    assert others == []
    for draw, report, words in (
        (pictures.draw_bandwidth, transpose_report(), ["float32", "int8", "100000×33", "64×512×512", "geam"]),
        (pictures.draw_story, story_report(), ["strided reads", "winner", "1220", "4055", "8192×8192"]),
    ):
        first, second = (draw(report, tmp_path / name) for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
        text = first.read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == []
        assert "dc:date" not in text
