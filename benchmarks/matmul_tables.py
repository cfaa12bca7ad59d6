"""The tables of matmul.json, matmul_nearness.json and matmul_story.json, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markdown_rows import row_of

NONE = "–"

TOGETHER = (("block_m", "block_n", "block_k"), ("thread_m", "thread_n"))
"""Parameters that are written as one, such as 128×128×16, where a configuration has them all."""

TITLES = (
    "matmul", "cuBLAS, ms", "autotile, ms", "ratio", "asked", "TFLOP/s", "GB/s", "error", "cuBLAS's error",
    "configuration",
)  # fmt: skip


def matmul(report: dict[str, Any]) -> list[str]:
    """A row a case: times, the ratio to cuBLAS beside what was asked, rates, errors, the configuration in brief."""
    cases = report["cases"]
    usual = usual_values([case["configuration"] for case in cases if "configuration" in case])
    lines = row_of(TITLES, head=True)
    for case in cases:
        if "error" in case:
            lines += row_of([case_name(case), "failed", *[NONE] * (len(TITLES) - 2)])
            continue
        times, errors = case["times_ms"], case["errors"]
        lines += row_of(
            [
                case_name(case) + ("" if case["right"] else ", WRONG"),
                time_text(times.get("cublas")),
                time_text(times["autotile"]),
                NONE if case["ratio"] is None else f"{case['ratio']:.3f}",
                asked(case),
                f"{case['tflops']['autotile']:.1f}",
                f"{case['gbs']['autotile']:.0f}",
                error_text(errors["autotile"]),
                error_text(errors["cublas"]) if "cublas" in errors else NONE,
                brief(case["configuration"], usual),
            ]
        )
    if usual:
        values = ", ".join(f"{name}={text(value)}" for name, value in usual.items())
        lines += ["", f"Where a configuration does not say: {values}."]
    return [*lines, *ends(report)]


def ends(report: Mapping[str, Any]) -> list[str]:
    """How many reach what was asked, and the geometric mean."""
    figured = [case for case in report["cases"] if case.get("asked") is not None]
    mean = report.get("geometric_mean") or {}
    said = []
    if figured:
        said.append(f"{sum(bool(case.get('met')) for case in figured)} of {len(figured)} reach what was asked.")
    if mean.get("ratio") is not None:
        some = "" if mean["cases"] == mean["of"] else f" of {mean['of']}"
        verdict = "" if mean["met"] else ": missed" if mean["cases"] == mean["of"] else ": not all were measured"
        said.append(
            f"Geometric mean of {mean['cases']}{some} single, unturned float32 cases: {mean['ratio']:.3f} "
            f"(asked {mean['asked']:.2f}{verdict})."
        )
    return ["", " ".join(said)] if said else []


def matmul_nearness(report: dict[str, Any]) -> list[str]:
    """A row a tuned problem: whose configuration serves it once its own is taken away, and how much slower that is."""
    lines = row_of(["matmul, its own best taken away", "served by", "own, ms", "that, ms", "slower"], head=True)
    for case in report["cases"]:
        name = case["problem"] + (", WRONG" if case.get("right") is False else "")
        if "slower" not in case:
            lines += row_of([name, case.get("served_by") or NONE, NONE, NONE, "failed"])
            continue
        times = case.get("times_ms", {})
        same = "0.0%, the same" if case["same"] else f"{case['slower']:.1%}"
        lines += row_of(
            [name, case["served_by"], time_text(times.get("own")), time_text(times.get("left_out")), same]
        )  # fmt: skip
    if report["mean_slower"] is not None:
        met = "" if report["met"] else ": missed"
        lines += [
            "",
            (
                f"Slower in the mean of {report['counted']}: {report['mean_slower']:.1%} (asked at most "
                f"{report['asked']:.0%}{met}); {report['most_slower']:.1%} at most. What was faster counts as 0."
            ),
        ]
    return lines


def matmul_story(report: dict[str, Any]) -> list[str]:
    """A row a step, and one for cuBLAS; what each is and how to print it; a row for each thing that was changed."""
    size = report["size"]
    lines = row_of([f"{size}×{size}×{size} {report['dtype']}", *STORY, *(title for title, *_ in COUNTERS)], head=True)
    for step in report["steps"]:
        lines += row_of(
            [
                f"`{step['name']}`",
                time_text(step["median_ms"]),
                f"{step['tflops']:.1f}",
                ratio_text(step["of_cublas"]),
                f"{step['shared_bytes'] / 1024:.1f}",
                NONE if step["registers"] is None else str(step["registers"]),
                *counter_cells(step),
            ]
        )
    if (peer := report["cublas"]) is not None:
        registers = (peer.get("counters") or {}).get("registers")
        unknown = [NONE, NONE if registers is None else f"{registers:.0f}"]
        cells = [time_text(peer["median_ms"]), f"{peer['tflops']:.1f}", ratio_text(1.0), *unknown]
        lines += row_of(["cuBLAS", *cells, *counter_cells(peer)])
    lines.append("")
    lines += [f"- `{step['name']}`: {step['note']}: `{settings(step)}`" for step in report["steps"]]
    if not report["changes"]:
        return lines
    base = report["changed"]
    lines += ["", *row_of([f"`{base}`, with", "which is", "ms", f"of `{base}`'s speed", "registers"], head=True)]
    for change in report["changes"]:
        registers = NONE if change["registers"] is None else str(change["registers"])
        cells = [time_text(change["median_ms"]), ratio_text(change["of_preset"]), registers]
        lines += row_of([f"`{change['name']}`", change["note"], *cells])
    return lines


STORY = ("ms", "TFLOP/s", "of cuBLAS", "shared memory, KiB", "registers")

COUNTERS = (
    ("FMA %", "fma_percent", 1.0, ".0f"),
    ("issue slots %", "issue_percent", 1.0, ".0f"),
    ("multiply-adds a wavefront", "multiply_adds_a_wavefront", 1.0, ".0f"),
    ("shared wavefronts, millions", "shared_wavefronts", 1e6, ",.1f"),
    ("bank conflicts, millions", "bank_conflicts", 1e6, ",.1f"),
    ("L2 to L1, GB", "l2_to_l1_bytes", 1e9, ".2f"),
    ("DRAM, GB", "dram_bytes", 1e9, ".2f"),
    ("occupancy %", "occupancy_percent", 1.0, ".0f"),
)
"""Title, key of a step's counters, the unit that the number is divided by, and how it is written."""


def counter_cells(step: Mapping[str, Any]) -> list[str]:
    found = step.get("counters") or {}
    return [NONE if found.get(key) is None else format(found[key] / unit, form) for _, key, unit, form in COUNTERS]


def settings(step: Mapping[str, Any]) -> str:
    """What `autotile render matmul` takes to print the step's kernel."""
    if step["preset"]:
        return f"--preset {step['preset']}"
    return " ".join(f"--set {name}={text(value)}" for name, value in step["configuration"].items())


def ratio_text(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.3f}"


def case_name(case: Mapping[str, Any]) -> str:
    batch = f"{case['shape'][0]} of " if len(case["shape"]) == 4 else ""
    sides = "×".join(str(side) for side in case["shape"][-3:])
    layout = "" if case["layout"] == "nn" else f" {case['layout']}"
    more = "".join(f", {switch}" for switch in case.get("more", ()))
    return f"{batch}{sides}{layout} {case['dtype']}{more}" + (f", tier {case['tier']}" if case.get("tier") else "")


def asked(case: Mapping[str, Any]) -> str:
    if case.get("asked") is None:
        return NONE
    return f"{case['asked']:.2f}" + ("" if case["met"] else ": missed")


def time_text(time_ms: float | None) -> str:
    return NONE if time_ms is None else f"{time_ms:.4f}" if time_ms < 1 else f"{time_ms:.3f}"


def error_text(error: float | None) -> str:
    return "not finite" if error is None else f"{error:.1e}"


def usual_values(configurations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The commonest value of each parameter that is not written with others; the first met, of equally common ones."""
    together = {name for group in TOGETHER for name in group}
    names = dict.fromkeys(name for configuration in configurations for name in configuration if name not in together)
    return {
        name: Counter(found[name] for found in configurations if name in found).most_common(1)[0][0] for name in names
    }


def brief(configuration: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Block and thread as products, then what is not as usual."""
    said, left = [], dict(configuration)
    for group in TOGETHER:
        if all(name in left for name in group):
            said.append("×".join(text(left.pop(name)) for name in group))
    said += [f"{name}={text(value)}" for name, value in left.items() if name not in usual or usual[name] != value]
    return " ".join(said) or "as usual"


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
