"""The tables of matmul_tensor.json and matmul_tensor_seeds.json, in Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from markdown_rows import place, row_of
from matmul_tables import NONE, asked, brief, case_name, ends, error_text, text, time_text, usual_values
from matmul_tensor_cases import MOST_APART, MOST_ERROR, all_cases

TITLES = (
    "matmul on tensor cores", "cuBLAS, ms", "autotile, ms", "ratio", "asked", "TFLOP/s", "error", "cuBLAS's error",
    "cuBLAS as", "search, s", "trials", "configuration",
)  # fmt: skip

COLUMNS = ("bfloat16", "float16", "tf32")
"""Types of which something is asked."""

AIM = (
    "A ratio is cuBLAS's time over autotile's, both timed in turns, in one run. What is asked was set before anything "
    f"was measured. Errors are ‖C − C64‖ / ‖C64‖ beside the product in float64, {MOST_ERROR} times cuBLAS's at most."
)


def table(report: Mapping[str, Any]) -> list[str]:
    """A row a case: times, the ratio to cuBLAS beside what was asked, errors, search, the configuration in brief."""
    cases = report["cases"]
    usual = usual_values([case["configuration"] for case in cases if "configuration" in case])
    lines = [f"**Matmul on tensor cores beside cuBLAS, {place(report)}**", "", AIM, "", *row_of(TITLES, head=True)]
    for case in cases:
        search = case.get("search") or {}
        searched = [f"{search['seconds']:.0f}", trials(search)] if search else [NONE, NONE]
        if "configuration" not in case:
            said = "failed" if "error" in case else "not timed"
            lines += row_of([name_of(case), said, *[NONE] * (len(TITLES) - 5), *searched, NONE])
            continue
        times, errors = case["times_ms"], case["errors"]
        lines += row_of(
            [
                name_of(case),
                time_text(times.get("cublas")),
                time_text(times["autotile"]),
                NONE if case["ratio"] is None else f"{case['ratio']:.3f}",
                asked(case),
                f"{case['tflops']['autotile']:.0f}",
                error_text(errors["autotile"]) + ("" if case["error_met"] in (None, True) else ": missed"),
                error_text(errors["cublas"]) if "cublas" in errors else NONE,
                case["cublas_way"] or NONE,
                *searched,
                brief(case["configuration"], usual),
            ]
        )
    if usual:
        values = ", ".join(f"{name}={text(value)}" for name, value in usual.items())
        lines += ["", f"Where a configuration does not say: {values}."]
    return [*lines, *ends(report)]


def published(report: Mapping[str, Any]) -> list[str]:
    """The table, and what its rows do not say."""
    return [*table(report), *remarks(report)]


def remarks(report: Mapping[str, Any]) -> list[str]:
    """Which rows are of an earlier commit than the newest, and of which cases something is asked, but no row there."""
    cases = report["cases"]
    newest = max(cases, key=lambda case: str(case["date"]))["commit"]
    earlier: dict[str, list[str]] = {}
    for case in cases:
        if case["commit"] != newest:
            earlier.setdefault(case["commit"], []).append(case_name(case))
    said = [f"Measured at commit {commit}, before {newest}: {'; '.join(names)}." for commit, names in earlier.items()]
    there = {case["case"] for case in cases}
    left = [case for case in all_cases() if case.asked is not None and case.name not in there]
    if left:
        names = "; ".join(f"{case_name(dataclasses.asdict(case))} ({case.asked:.2f})" for case in left)
        said.append(f"Not measured, though something is asked: {names}.")
    return ["", " ".join(said)] if said else []


def name_of(case: Mapping[str, Any]) -> str:
    """With what is wrong about it."""
    wrong = "" if case.get("right", True) else ", WRONG"
    return case_name(case) + wrong + ("" if case.get("match", "exact") == "exact" else ", not searched")


def trials(search: Mapping[str, Any]) -> str:
    known = search.get("on_record", 0)
    return f"{search['trials']}" + (f" after {known}" if known else "")


def brief_table(report: Mapping[str, Any]) -> list[str]:
    """A row a shape, a column a type: the ratio, beside what was asked; then the cases of which nothing was asked."""
    cells: dict[str, dict[str, str]] = {}
    others = []
    for case in report["cases"]:
        if case.get("asked") is not None and case["dtype"] in COLUMNS:
            name = case_name({**case, "dtype": ""}).replace(" , ", ", ").strip()
            cells.setdefault(name, {})[case["dtype"]] = ratio_beside_asked(case)
        elif case.get("ratio") is not None:
            others.append(f"{name_of(case)} {case['ratio']:.2f}")
    lines = [f"**Matmul on tensor cores beside cuBLAS, {place(report)}**", "", AIM, ""]
    lines += row_of(["ratio (asked)", *COLUMNS], head=True)
    for name, by_type in cells.items():
        lines += row_of([name, *(by_type.get(dtype, NONE) for dtype in COLUMNS)])
    if others:
        lines += ["", f"Nothing was asked of these: {'; '.join(others)}."]
    where = "[docs/matmul.md](docs/matmul.md#on-tensor-cores) has times, errors and configurations."
    said = ends(report)
    return [*lines, "", f"{said[1]} {where}" if said else where, *remarks(report)]


def ratio_beside_asked(case: Mapping[str, Any]) -> str:
    ratio = "no cuBLAS" if case["ratio"] is None else f"{case['ratio']:.3f}"
    wrong = [] if case["right"] else ["WRONG"]
    wrong += ["error: missed"] if case["error_met"] is False else []
    return f"{ratio} ({', '.join([asked(case), *wrong])})"


def seeds(report: Mapping[str, Any]) -> list[str]:
    """A row a case that was searched twice."""
    lines = [f"**The same search with another seed, nothing on record, {place(report)}**", ""]
    titles = (
        "matmul on tensor cores",
        "first winner, ms",
        "second, ms",
        "apart",
        "second search, s",
        "trials",
        "differ in",
    )
    lines += row_of(titles, head=True)
    for case in report["cases"]:
        if "error" in case:
            lines += row_of([case_name(case), "failed", *[NONE] * (len(titles) - 2)])
            continue
        within = "" if case["met"] else f": more than {MOST_APART:.0%}"
        lines += row_of(
            [
                case_name(case),
                *(time_text(time_ms) for time_ms in case["times_ms"]),
                f"{case['apart']:.2%}{within}",
                f"{case['search']['seconds']:.0f}",
                trials(case["search"]),
                differences(case["configurations"]),
            ]
        )
    return lines


def differences(configurations: Sequence[Mapping[str, Any]]) -> str:
    first, second = configurations
    found = [f"{name} {text(value)} / {text(second[name])}" for name, value in first.items() if second[name] != value]
    return ", ".join(found) or "nothing"
