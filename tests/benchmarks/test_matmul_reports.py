"""What the matmul's benchmarks tell: the tables of README.md and docs/matmul.md, and the picture of the roofs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

GPU = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "commit": "def", "date": "2026-01-03T04"}
BLOCK = {"block_m": 128, "block_n": 64, "block_k": 16, "thread_m": 8, "thread_n": 4}


def case_entry(text: str, ours_ms: float, cublas_ms: float | None = 1.0, dtype: str = "float32", **more: Any) -> Any:
    from matmul_cases import cases_of, compared

    (case,) = cases_of(text, dtype)
    times = {"autotile": ours_ms} | ({} if cublas_ms is None else {"cublas": cublas_ms})
    return {
        "shape": list(case.shape), "layout": case.layout, "dtype": dtype, "intensity": case.intensity, "right": True,
        "errors": dict.fromkeys(times, 1.26e-6), "configuration": {**BLOCK, "stages": 3, "packed": False},
        **compared(case, times), **more,
    }  # fmt: skip


def report_of(*cases: Any) -> dict[str, Any]:
    from matmul_cases import mean_of

    roofs = {"bandwidth_gbs": 4800.0, "tflops": {"float32": 66.9, "float64": 33.5}}
    return {**GPU, "roofs": roofs, "cases": list(cases), "geometric_mean": mean_of(cases)}


def some_report() -> dict[str, Any]:
    return report_of(
        case_entry("4096x4096x4096", 2.8, 2.94),
        case_entry("256x256x256", 0.0062, 0.0093, configuration={**BLOCK, "stages": 1, "packed": True}),
        case_entry("16x512x512x512", 1.0, None),
        case_entry("4096x4096x4096:tn", 2.9, 2.9, right=False, errors={"autotile": None, "cublas": 2e-6}),
        case_entry("2000x3000x4000", 1.5, 3.0, dtype="float64"),
        {"shape": [8, 8, 8], "layout": "nn", "dtype": "float32", "error": "no memory"},
    )


def nearness_report() -> dict[str, Any]:
    from matmul_nearness import totals

    near = {"match": "near_problem", "right": True}
    cases: list[dict[str, Any]] = [
        {"problem": "8×8×8 float32", "served_by": "9×9×9 float32", "same": False, "slower": 0.123,
         "times_ms": {"own": 0.01, "left_out": 0.01123}, **near},
        {"problem": "9×9×9 float32", "served_by": "8×8×8 float32", "same": True, "slower": 0.0, **near},
        {"problem": "7×7×7 float32", "served_by": "", "match": None, "same": False, "error": "nothing serves"},
    ]  # fmt: skip
    return {**GPU, "cases": cases, **totals(cases)}


def test_the_tables_lines() -> None:
    import matmul_tables

    lines = matmul_tables.matmul(some_report())
    columns = {line.count("|") for line in lines if line.startswith("|")}
    assert len(columns) == 1
    assert lines[2] == (
        "| 4096×4096×4096 float32 | 2.940 | 2.800 | 1.050 | 1.02 | 49.1 | 72 | 1.3e-06 | 1.3e-06 | 128×64×16 8×4 |"
    )
    assert lines[3].startswith("| 256×256×256 float32 | 0.0093 | 0.0062 | 1.500 | 1.60: missed | 5.4 |")
    assert lines[3].endswith("| 128×64×16 8×4 stages=1 packed=true |")
    assert lines[4].startswith("| 16 of 512×512×512 float32 | – | 1.000 | – | 1.00: missed |")
    assert lines[5].startswith("| 4096×4096×4096 tn float32, WRONG | 2.900 | 2.900 | 1.000 | 1.00 |")
    assert "| not finite | 2.0e-06 |" in lines[5]
    assert lines[6].startswith("| 2000×3000×4000 float64 | 3.000 | 1.500 | 2.000 | – | 32.0 |")
    assert lines[7].startswith("| 8×8×8 float32 | failed | – |")
    assert "Where a configuration does not say: stages=3, packed=false." in lines
    assert lines[-1] == (
        "2 of 4 reach what was asked. Geometric mean of 2 of 16 single, unturned float32 cases: 1.255 (asked 1.25: not "
        "all were measured)."
    )


def test_the_mean_of_all_cases_in_words() -> None:
    import matmul_tables
    from matmul_cases import MEAN_OF

    for faster, end in ((1.3, "1.300 (asked 1.25)."), (1.2, "1.200 (asked 1.25: missed).")):
        report = report_of(*(case_entry("x".join(map(str, shape)), 1.0, faster) for shape in MEAN_OF))
        assert matmul_tables.matmul(report)[-1].endswith(f"Geometric mean of 16 single, unturned float32 cases: {end}")
    assert matmul_tables.ends({"cases": []}) == []


def test_a_brief_configuration() -> None:
    from matmul_tables import brief, usual_values

    assert brief({"staging": "none"}, {"staging": "none"}) == "as usual"
    assert brief({"block_m": 8, "block_n": 4, "extra": True}, {}) == "block_m=8 block_n=4 extra=true"
    assert usual_values([{"a": 1, "block_m": 1}, {"a": 2}, {"a": 2, "b": "x"}]) == {"a": 2, "b": "x"}
    assert usual_values([{**BLOCK, "a": 1}]) == {"a": 1}
    assert usual_values([]) == {}


def test_the_tables_of_nearness() -> None:
    import matmul_tables

    lines = matmul_tables.matmul_nearness(nearness_report())
    assert lines[2] == "| 8×8×8 float32 | 9×9×9 float32 | 0.0100 | 0.0112 | 12.3% |"
    assert lines[3] == "| 9×9×9 float32 | 8×8×8 float32 | – | – | 0.0%, the same |"
    assert lines[4] == "| 7×7×7 float32 | – | – | – | failed |"
    assert lines[-1] == (
        "Slower in the mean of 2: 6.2% (asked at most 10%); 12.3% at most. What was faster counts as 0."
    )
    assert len(matmul_tables.matmul_nearness(nearness_report() | {"mean_slower": None})) == 5


def test_the_tables_stand_in_their_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tables

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "README", tmp_path / "README.md")
    monkeypatch.setattr(tables, "PAGES", (tmp_path / "transpose.md", tmp_path / "matmul.md"))
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    (tmp_path / "gpu").mkdir()
    for name, report in (("matmul", some_report()), ("matmul_nearness", nearness_report())):
        (tmp_path / "gpu" / f"{name}.json").write_text(json.dumps(report))
    (tmp_path / "README.md").write_text("<!-- results -->\n<!-- end of results -->\n")
    page = tmp_path / "matmul.md"
    page.write_text("above\n<!-- table matmul_nearness -->\nold\n<!-- end of table -->\nbelow\n")
    tables.main()
    assert not (tmp_path / "transpose.md").exists()
    readme, lines = (tmp_path / "README.md").read_text(), page.read_text().splitlines()
    assert "**Matmul beside cuBLAS, Some GPU, driver 580, nvcc 13, commit def, 2026-01-03**" in readme
    assert "| 9×9×9 float32 | 8×8×8 float32 | – | – | 0.0%, the same |" in readme
    assert (lines[0], lines[-1]) == ("above", "below")
    assert "| 7×7×7 float32 | – | – | – | failed |" in lines
    assert "old" not in lines


# ---- tensor cores ---------------------------------------------------------------------------------------------------

TILE = {"tier": "wgmma", "block_m": 128, "block_n": 256, "block_k": 64, "stages": 4}


def tensor_entry(name: str, ours_ms: float, cublas_ms: float | None, **more: Any) -> dict[str, Any]:
    from matmul_cases import compared
    from matmul_tensor import facts_of
    from matmul_tensor_cases import chosen, judged

    (case,) = chosen(name)
    times = {"autotile": ours_ms} | ({} if cublas_ms is None else {"cublas": cublas_ms})
    return {
        "case": name, "commit": "def", "date": "2026-01-03", **facts_of(case), **compared(case, times),
        **judged(case, dict.fromkeys(times, 1.7e-3)), "configuration": TILE, "match": "exact",
        "cublas_way": "" if cublas_ms is None else "mm", "search": {"seconds": 21.7, "trials": 160}, **more,
    }  # fmt: skip


def tensor_report() -> dict[str, Any]:
    cases = [
        tensor_entry("bfloat16/4096x4096x4096", 0.18, 0.19),
        tensor_entry(
            "float16/4096x4096x4096", 0.20, 0.19, right=True, error_met=False, configuration={**TILE, "stages": 3}
        ),
        tensor_entry("tf32/4096x4096x4096", 0.40, 0.39),
        tensor_entry("bfloat16/4096x4096x4096@mma", 0.40, 0.19, right=False),
        tensor_entry("bfloat16/4096x4096x4096+bias+gelu", 0.19, 0.38, match="near_problem"),
        tensor_entry("bfloat16/4096x4096x4096+wide", 0.19, None, right=True),
    ]
    cases.append({key: value for key, value in tensor_entry("int8/4096x4096x4096:nt", 1.0, None).items()
                  if key not in ("configuration", "ratio", "right")})  # fmt: skip
    return {**GPU, "cases": cases}


def test_the_tables_of_tensor_cores() -> None:
    import matmul_tensor_tables

    report = tensor_report()
    lines = matmul_tensor_tables.table(report)
    rows = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert rows[2] == (
        "| 4096×4096×4096 bfloat16 | 0.1900 | 0.1800 | 1.056 | 1.00 | 764 | 1.7e-03 | 1.7e-03 | mm | 22 | 160 "
        "| 128×256×64 |"
    )
    assert rows[3].startswith(
        "| 4096×4096×4096 float16 | 0.1900 | 0.2000 | 0.950 | 1.00: missed | 687 | 1.7e-03: missed |"
    )
    assert rows[3].endswith("| 128×256×64 stages=3 |")
    assert rows[5].startswith("| 4096×4096×4096 bfloat16, tier mma, WRONG | 0.1900 | 0.4000 | 0.475 | 0.52: missed |")
    assert rows[6].startswith("| 4096×4096×4096 bfloat16, bias, gelu, not searched | 0.3800 | 0.1900 | 2.000 | – |")
    assert rows[7].startswith("| 4096×4096×4096 bfloat16, wide | – | 0.1900 | – | – |")
    assert rows[8] == "| 4096×4096×4096 nt int8 | not timed | – | – | – | – | – | – | – | 22 | 160 | – |"
    assert lines[-1] == "2 of 4 reach what was asked."


def test_the_short_table_of_tensor_cores() -> None:
    import matmul_tensor_tables

    lines = matmul_tensor_tables.brief_table(tensor_report())
    rows = [line for line in lines if line.startswith("|")]
    assert rows[2:] == [
        "| 4096×4096×4096 | 1.056 (1.00) | 0.950 (1.00: missed, error: missed) | 0.975 (0.95) |",
        "| 4096×4096×4096, tier mma | 0.475 (0.52: missed, WRONG) | – | – |",
    ]
    assert lines[-5] == "Nothing was asked of these: 4096×4096×4096 bfloat16, bias, gelu, not searched 2.00."
    assert lines[-3].startswith("2 of 4 reach what was asked. [docs/matmul.md](docs/matmul.md#on-tensor-cores)")
    page = Path(__file__).resolve().parents[2] / "docs" / "matmul.md"
    assert "\n## On tensor cores\n" in page.read_text(encoding="utf-8")


def test_the_tables_of_tensor_cores_say_what_they_lack() -> None:
    import matmul_tensor_tables
    from matmul_tensor_cases import all_cases

    cases = [
        tensor_entry(case.name, 0.2, 0.19, date="2026-01-04")
        for case in all_cases()
        if case.shape != (8192, 8192, 8192)
    ]
    cases[0] |= {"commit": "abc", "date": "2026-01-02"}
    said = (
        "Measured at commit abc, before def: 1024×1024×1024 bfloat16. "
        "Not measured, though something is asked: 8192×8192×8192 bfloat16 (1.03); 8192×8192×8192 float16 (1.03)."
    )
    report = {**GPU, "cases": cases}
    assert matmul_tensor_tables.published(report)[-1] == matmul_tensor_tables.brief_table(report)[-1] == said
    cases += [tensor_entry(f"{dtype}/8192x8192x8192", 2.0, 1.9) for dtype in ("bfloat16", "float16")]
    cases[0]["commit"] = "def"
    assert matmul_tensor_tables.published(report) == matmul_tensor_tables.table(report)


def test_the_table_of_a_second_search() -> None:
    import matmul_tensor_tables

    case = tensor_entry("bfloat16/4096x4096x4096", 0.18, 0.19)
    other = {**TILE, "stages": 3}
    found = {**case, "times_ms": [0.18, 0.186], "apart": 1 / 30, "met": False, "configurations": [TILE, other]}
    same = {**found, "times_ms": [0.18, 0.18], "apart": 0.0, "met": True, "configurations": [TILE, TILE]}
    rows = matmul_tensor_tables.seeds({**GPU, "cases": [found, same, {**case, "error": "no memory"}]})
    assert rows[-3] == ("| 4096×4096×4096 bfloat16 | 0.1800 | 0.1860 | 3.33%: more than 2% | 22 | 160 | stages 4 / 3 |")
    assert rows[-2].endswith("| 0.00% | 22 | 160 | nothing |")
    assert rows[-1] == "| 4096×4096×4096 bfloat16 | failed | – | – | – | – | – |"
    assert {row.count("|") for row in rows[2:]} == {8}


def test_a_page_says_what_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tables

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    page = "<!-- table matmul_tensor_cases -->\nold\n<!-- end of table -->\n"
    unmeasured = tables.with_story(page)
    assert unmeasured.splitlines()[1] == "*Nothing of this has been measured yet.*"
    assert tables.with_story(unmeasured) == unmeasured
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "matmul_tensor.json").write_text(json.dumps(tensor_report()))
    assert "| 4096×4096×4096 tf32 | 0.3900 | 0.4000 |" in tables.with_story(unmeasured)
    readme = tables.with_tables("<!-- results -->\n<!-- end of results -->\n")
    assert "| 4096×4096×4096 | 1.056 (1.00) |" in readme


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    import pictures

    first, second = (pictures.draw_roofline(some_report(), tmp_path / name) for name in ("one", "two"))
    assert first.name == "matmul-roofline.svg"
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text(encoding="utf-8")
    words = ["float32", "float64", "Some GPU", "256×256×256", "16 of 512×512×512", "2000×3000×4000", "cuBLAS",
             "4800 GB/s, 66.9 TFLOP/s", "4800 GB/s, 33.5 TFLOP/s", "FLOP a byte"]  # fmt: skip
    assert [word for word in words if word not in text] == []
    assert " 8×8×8" not in text  # failed
    assert "dc:date" not in text
    assert pictures.draw_roofline(report_of(), tmp_path).is_file()
    assert pictures.neighbours([1.0, 1.04, 1.06, 8.0, 8.0]) == [[0, 1], [2], [3, 4]]
