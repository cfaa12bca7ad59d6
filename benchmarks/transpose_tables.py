"""The tables of transpose.json, transpose_seeds.json, transpose_story.json and tma_trial.json, in Markdown."""

from __future__ import annotations

from collections import Counter
from typing import Any

from markdown_rows import row_of
from transpose_cases import shape_text

NONE = "–"


def transpose(report: dict[str, Any]) -> list[str]:
    """A row a case: bandwidth, shares of the copies, what was asked, and how many times as fast as the peers."""
    titles = ["transpose", "GB/s", "of PyTorch's copy", "of the best copy", "aim", *("times " + n for n in PEERS)]
    lines = row_of([*titles, "searched, s", "trials"], head=True)
    for case in report["cases"]:
        if "error" in case:
            lines += row_of([case_name(case), "failed", *[NONE] * (5 + len(PEERS))])
            continue
        search = case.get("search")
        times = (case["times_as_fast_as"].get(key) for key in PEERS.values())
        lines += row_of(
            [
                case_name(case) + ("" if case["exact"] else ", WRONG"),
                f"{case['gbs']['autotile']:.0f}",
                share(case.get("of_copy")),
                share(case.get("of_best_copy")),
                asked(case),
                *(NONE if value is None else f"{value:.1f}" for value in times),
                *([f"{search['seconds']:.1f}", str(search["trials"])] if search else [NONE, NONE]),
            ]
        )
    figured = [case for case in report["cases"] if case.get("asked")]
    met = sum(bool(case.get("met")) for case in figured)
    if figured:
        lines += ["", f"{met} of {len(figured)} reach their aim."]
    return lines


PEERS = {"PyTorch's": "torch", "CuPy's": "cupy", "geam": "geam"}


def transpose_seeds(report: dict[str, Any]) -> list[str]:
    """A row a case: how long its searches took and how far their winners are apart, timed in turns."""
    lines = row_of(
        ["transpose, cold searches", "seeds", "s", "trials", "ended", "winners, ms", "apart", "the best, of a copy"],
        head=True,
    )
    for case in report["cases"]:
        if "error" in case or not case.get("seeds"):
            continue
        found = case["seeds"]
        reasons = Counter(entry["stopped_by"] for entry in found)
        times = [entry["time_ms"] for entry in found]
        lines += row_of(
            [
                case_name(case),
                str(len(found)),
                span([entry["seconds"] for entry in found]),
                span([entry["trials"] for entry in found]),
                ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common()),
                f"{min(times):.4f} to {max(times):.4f}",
                f"{max(times) / min(times) - 1:.1%}",
                share(case.get("of_copy")),
            ]
        )
    return lines


def transpose_story(report: dict[str, Any]) -> list[str]:
    """A row a step: bandwidths, and what Nsight Compute counted on the last of the shapes that it was asked of."""
    shapes = [shape_text(shape) for shape in report["shapes"]]
    counted = next((s for s in reversed(shapes) if any(counters(step, s) for step in report["steps"])), shapes[-1])
    columns = [f"float32, counters at {counted}"]
    for shape in shapes:
        columns += [f"GB/s, {shape}", "of a copy"]
    lines = row_of([*columns, *(title for title, _, _ in COUNTERS)], head=True)
    for step in report["steps"]:
        cells = [f"`{step['name']}`"]
        for shape in shapes:
            timed = step["by_shape"].get(shape)
            cells += [f"{timed['gbs']:.0f}", share(timed["of_copy"])] if timed else [NONE, NONE]
        found = counters(step, counted)
        cells += [NONE if found.get(key) is None else format(found[key], form) for _, key, form in COUNTERS]
        lines += row_of(cells)
    said = [f"- `{step['name']}`: {step['note']}{settings(step, counted)}" for step in report["steps"] if step["note"]]
    return [*lines, "", *said] if said else lines


def settings(step: dict[str, Any], shape: str) -> str:
    """What `autotile render transpose` takes to print the step's kernel."""
    values = step["by_shape"].get(shape, {}).get("configuration")
    return "" if not values else f": `{' '.join(f'--set {name}={value}' for name, value in values.items())}`"


COUNTERS = (
    ("sectors a load", "sectors_a_load_request", ".1f"),
    ("a store", "sectors_a_store_request", ".1f"),
    ("wavefronts a shared load", "wavefronts_a_shared_load", ".1f"),
    ("a shared store", "wavefronts_a_shared_store", ".1f"),
    ("bank conflicts", "bank_conflicts", ",.0f"),
    ("occupancy %", "occupancy_percent", ".0f"),
    ("L2 %", "l2_percent", ".0f"),
    ("DRAM %", "dram_percent", ".0f"),
)
"""Title, key of a step's counters, and how the number is written."""


def tma_trial(report: dict[str, Any]) -> list[str]:
    """A row a case: shares of PyTorch's copy, each kind's fastest variant, and the fastest of all beside autotile."""
    kinds = report["kinds"]
    lines = row_of(["transpose", "copy, GB/s", "own copy", "autotile", *kinds, "fastest", "of autotile"], head=True)
    for case in report["cases"]:
        times, shares, best = case["times_ms"], case["of_copy"], case["best"]
        cells = [case_name(case), f"{case['bytes'] / times['copy'] / 1e6:.0f}"]
        cells += [share(shares.get(name)) for name in ("own_copy", "autotile")]
        cells += [share(best[kind]["of_copy"] if kind in best else None) for kind in kinds]
        fastest = min(best.values(), key=lambda entry: float(entry["time_ms"]), default=None)
        if fastest is None:
            lines += row_of([*cells, NONE, NONE])
            continue
        beside = times["autotile"] / fastest["time_ms"] if "autotile" in times else None
        lines += row_of([*cells, fastest["name"], share(beside)])
    found = [entry for case in report["cases"] for entry in case["variants"]]
    wrong = sum(entry["outcome"] != "right" for entry in found)
    said = "; ".join(f"{kind}: {words}" for kind, words in kinds.items())
    lines += [
        "",
        f"Shares of PyTorch's copy. {said}. {wrong} of {len(found)} were wrong or failed, and are not ranked.",
    ]
    return [*lines, *(f"Faulted, and left out with its kind: {fault}." for fault in report["faults"])]


def counters(step: dict[str, Any], shape: str) -> dict[str, float | None]:
    found: dict[str, float | None] = step["by_shape"].get(shape, {}).get("counters") or {}
    return found


def case_name(case: dict[str, Any]) -> str:
    batch = f"{case['shape'][0]} of " if len(case["shape"]) == 3 else ""
    sides = "×".join(str(side) for side in case["shape"][-2:])
    return f"{batch}{sides} {case['dtype']}{' in place' if case.get('in_place') else ''}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def asked(case: dict[str, Any]) -> str:
    words = {"of_copy": "", "of_own_copy": " of our own copy"}
    texts = [f"{least:.2f}{words.get(name, f' {name}')}" for name, least in case.get("asked", {}).items()]
    return (", ".join(texts) + ("" if case["met"] else ": missed")) if texts else NONE


def span(values: list[float]) -> str:
    low, high = (f"{value:.0f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
