"""The tables of counters_beside.json and estimates.json, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markdown_rows import row_of
from matmul_tables import brief, usual_values

NONE = "–"
TITLES = {
    "sectors_a_load_request": "sectors a load",
    "sectors_a_store_request": "sectors a store",
    "wavefronts_a_shared_load": "wavefronts a shared load",
    "wavefronts_a_shared_store": "wavefronts a shared store",
}
WORST = 8


def counters_table(document: Mapping[str, Any]) -> list[str]:
    """A row a kernel: how many of its configurations agree, of those that have such requests at all; then the pairs
    that are furthest apart, of those that do not agree."""
    within, entries = document["within"], document["entries"]
    lines = row_of(
        ["kernel", "configurations", *(f"{TITLES[name]}, within {most:.0%}" for name, most in within.items())],
        head=True,
    )
    sizes = Counter(entry["kernel"] for entry in entries)
    for kernel, found in document["totals"].items():
        cells = [f"{found[name]['agree']} of {found[name]['compared']}" for name in within]
        lines += row_of([kernel, str(sizes[kernel]), *cells])
    apart = furthest_apart(entries, within)
    if not apart:
        return lines
    usual = {kernel: usual_values([e["configuration"] for e in entries if e["kernel"] == kernel]) for kernel in sizes}
    lines += ["", *row_of(["furthest apart", "of", "GPU", "emulator", "difference", "configuration"], head=True)]
    for entry, name in apart[:WORST]:
        lines += row_of(
            [
                f"{entry['kernel']} {entry['problem']}",
                TITLES[name],
                number_text(entry["counted"][name]),
                number_text(entry["emulated"][name]),
                difference_text(entry["differences"][name]),
                brief(entry["configuration"], usual[entry["kernel"]]),
            ]
        )
    copying = sum(entry["copies"] for entry, _ in apart)
    lines += ["", f"Of {len(apart)} that do not agree, {copying} are of kernels with asynchronous copies."]
    return lines


def furthest_apart(
    entries: Sequence[Mapping[str, Any]], within: Mapping[str, float]
) -> list[tuple[Mapping[str, Any], str]]:
    """Entries and what does not agree in them; those first of which one side has no such request."""
    pairs = []
    for entry in entries:
        for name, most in within.items():
            apart = entry["differences"][name]
            if apart is None or abs(apart) > most:
                pairs.append((entry, name))
    return sorted(pairs, key=lambda pair: -weight(pair[0]["differences"][pair[1]]))


def weight(difference: float | None) -> float:
    return float("inf") if difference is None else abs(difference)


def number_text(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def difference_text(difference: float | None) -> str:
    return NONE if difference is None else f"{difference:+.1%}"


def estimates_table(document: Mapping[str, Any]) -> list[str]:
    asked = document["asked"]
    lines = row_of(
        [
            "random configurations of", "measured", "best, median, worst, ms",
            f"rank correlation (asked: {asked['correlation']})",
            f"best of the first {document['first']} by estimate behind the best (asked: at most {asked['behind']:.0%})",
            "estimates within a quarter",
        ],
        head=True,
    )  # fmt: skip
    for case in document["cases"]:
        missed = "" if case["met"] else ": missed"
        lines += row_of(
            [
                f"{case['kernel']} {case['problem']}", str(case["configurations"]),
                f"{case['best_ms']:.3f}, {case['median_ms']:.3f}, {case['worst_ms']:.3f}",
                f"{case['correlation']:.2f}{missed}", f"{case['best_behind']:.1%}", f"{case['within']:.0%}",
            ]
        )  # fmt: skip
    return lines
