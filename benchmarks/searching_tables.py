"""The tables of enumeration.json, search_strategies.json and ask_cost.json, which need no GPU, in Markdown."""

from __future__ import annotations

import statistics
from typing import Any

from markdown_rows import made, row_of


def enumeration(report: dict[str, Any]) -> list[str]:
    peer = f"Kernel Tuner {report['machine']['kernel_tuner'] or ''}".strip()
    lines = [f"**Enumerating a space, {of_cpu(report)}**", ""]
    lines += [f"| from the text of its constraints to a table | feasible | autotile | {peer} | times as fast |"]
    lines += ["|---|---|---|---|---|"]
    for entry in report["spaces"]:
        theirs, ratio = "not run", ""
        if "kernel_tuner" in entry:
            theirs, ratio = f"{entry['kernel_tuner']['min_ms']:.1f} ms", f"{entry['times_as_fast']:.1f}"
        ours = f"{entry['autotile']['min_ms']:.1f} ms"
        lines.append(f"| {entry['space'].replace('_', ' ')} | {entry['feasible']} | {ours} | {theirs} | {ratio} |")
    return lines


def search_strategies(report: dict[str, Any]) -> list[str]:
    """Scores, a row a sampler; and, for autotile's own recordings, how soon each came near the best."""
    names = [space["name"] for space in report["spaces"]]
    repeats = max(on["repeats"] for entry in report["strategies"] for on in entry["by_space"].values())
    lines = [f"**Searching recorded spaces, {of_cpu(report)}**", ""]
    lines += ["Scores (0 is random search, 1 finds the optimum at once) and the sampler's own time:", ""]
    columns = [f"{repeats} repeats", "mean", "median", *(name.replace("_", " ") for name in names)]
    lines += row_of([*columns, "ms an ask", "of the budget"], head=True)
    for entry in report["strategies"]:
        scores = [entry["by_space"].get(name) for name in names]
        cells = [entry["label"], *(f"{entry[key]:.3f}" for key in ("mean", "median"))]
        cells += ["" if on is None else f"{on['score']:.3f}" for on in scores]
        timed = [on for on in scores if on is not None and "cpu_ms_an_ask" in on]
        for key, form in (("cpu_ms_an_ask", ".1f"), ("cpu_share_of_budget", ".2%")):
            cells.append(format(statistics.mean(on[key] for on in timed), form) if timed else "")
        lines += row_of(cells)
    own = [space["name"] for space in report["spaces"] if space["own"]]
    if own:
        lines += ["", "Evaluations, in the median, until the recorded best was as near:", ""]
        shares = list(report["strategies"][0]["by_space"][own[0]]["evaluations_needed"])
        lines += row_of(["space", "sampler", *(f"within {share}" for share in shares)], head=True)
    for name in own:
        for entry in report["strategies"]:
            if name in entry["by_space"]:
                needed = entry["by_space"][name]["evaluations_needed"]
                counts = ("not reached" if needed[share] is None else f"{needed[share]:g}" for share in shares)
                lines += row_of([name, entry["label"], *counts])
    return lines


def ask_cost(report: dict[str, Any]) -> list[str]:
    lines = [f"**What an ask takes, {of_cpu(report)}**", ""]
    lines += row_of(["sampler", "space", "rows", "trials", "ms an ask", "at the end", "the longest"], head=True)
    for entry in report["asks"]:
        times = (f"{entry[key]:.1f}" for key in ("cpu_ms_an_ask", "cpu_ms_last", "cpu_ms_most"))
        space = entry["space"].replace("_", " ")
        lines += row_of([entry["sampler"], space, str(entry["rows"]), str(entry["trials"]), *times])
    return lines


def of_cpu(report: dict[str, Any]) -> str:
    return f"{report['machine']['device']}, Python {report['machine']['python']}, {made(report['machine'])}"
