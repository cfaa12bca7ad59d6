"""Makes the tables of README.md and of the kernels' pages from benchmarks/results/. Figures there are never typed.

python benchmarks/tables.py            rewrite README.md and the pages of docs/ between their markers
python benchmarks/tables.py --check    exit 1 if one of them would change
python benchmarks/tables.py --story    print what stands in those pages, and change nothing
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counters_tables
import matmul_tables
import matmul_tensor_tables
import matmul_tma_variants
import searching_tables
import transpose_tables
from markdown_rows import place

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
PAGES = tuple(ROOT / "docs" / name for name in ("transpose.md", "matmul.md", "emulator.md"))
MARKED = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)
MARKED_STORY = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is out of date")
    parser.add_argument("--story", action="store_true", help="print the stories' tables; change nothing")
    given = parser.parse_args()
    if given.story:
        print(story_tables(), end="")
        return
    changed = {}
    for path, renewed in ((README, with_tables), *((page, with_story) for page in PAGES)):
        old = path.read_text(encoding="utf-8") if path.is_file() else ""
        new = renewed(old)
        if new != old:
            changed[path] = new
    if given.check and changed:
        names = " and ".join(path.name for path in changed)
        raise SystemExit(f"out of date: {names}. Run python benchmarks/tables.py")
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")


def with_tables(readme: str) -> str:
    sections = [section(file.parent) for file in sorted(RESULTS.glob("*/main_job.json"))]
    body = "\n".join([*sections, *(text for name in BESIDE for text in tables_of(name))])
    return MARKED.sub(lambda match: match.group(1) + body + match.group(2), readme)


def with_story(page: str) -> str:
    def table(match: re.Match[str]) -> str:
        return match.group(1) + ("\n".join(tables_of(match.group(2))) or UNMEASURED) + match.group(3)

    return MARKED_STORY.sub(table, page)


def story_tables() -> str:
    return "\n".join(text for name in IN_STORY for text in tables_of(name))


def tables_of(name: str) -> list[str]:
    """A text for each device that has the file of that name."""
    files = sorted(RESULTS.glob(f"*/{FILES.get(name, name)}.json"))
    return ["\n".join([*(BESIDE | IN_STORY)[name](json.loads(file.read_text(encoding="utf-8"))), ""]) for file in files]


def section(folder: Path) -> str:
    job = json.loads((folder / "main_job.json").read_text(encoding="utf-8"))
    where = f"{job['device']}, driver {job['driver']}, {job['compiler']}, commit {job['commit']}, {job['date'][:10]}"
    lines = [f"**{where}**", "", *winners(job), "", *searches(job), "", *classics(job), ""]
    if (folder / "load_check.json").is_file():
        lines += [*loading(json.loads((folder / "load_check.json").read_text(encoding="utf-8"))), ""]
    if (folder / "trust.json").is_file():
        lines += [*trust(json.loads((folder / "trust.json").read_text(encoding="utf-8"))), ""]
    if (folder / "verify.json").is_file():
        lines += [*verified(json.loads((folder / "verify.json").read_text(encoding="utf-8"))), ""]
    if (folder / "compilers.json").is_file():
        lines += [*compilers(json.loads((folder / "compilers.json").read_text(encoding="utf-8"))), ""]
    return "\n".join(lines)


def winners(job: dict[str, Any]) -> list[str]:
    matmul, transpose = job["matmul_beside_cublas"], job["transpose_beside_copy"]
    rows = ["| winner, timed in turns with its peer | autotile | peer | ratio |", "|---|---|---|---|"]
    rows.append(
        f"| matmul {matmul['problem']}, beside cuBLAS | {matmul['autotile']['tflops']:.1f} TFLOP/s "
        f"| {matmul['cublas']['tflops']:.1f} TFLOP/s | {matmul['over_cublas']:.2f} of cuBLAS |"
    )
    rows.append(
        f"| transpose {transpose['problem']}, beside a copy | {transpose['autotile']['gbs']:.0f} GB/s "
        f"| {transpose['copy']['gbs']:.0f} GB/s | {transpose['of_copy']:.2f} of a copy |"
    )
    over_torch = transpose["torch_transpose"]["median_ms"] / transpose["autotile"]["median_ms"]
    rows.append(
        f"| the same, beside PyTorch's transpose | {transpose['autotile']['gbs']:.0f} GB/s "
        f"| {transpose['torch_transpose']['gbs']:.0f} GB/s | {over_torch:.1f} times |"
    )
    return rows


def searches(job: dict[str, Any]) -> list[str]:
    rows = ["| search | trials | outcomes | trials a second | s: all, checking, timing, finals | right above 48 KiB |"]
    rows.append("|---|---|---|---|---|---|")
    for entry in job["searches"]:
        outcomes = ", ".join(f"{count} {word}" for word, count in sorted(entry["outcomes"].items()))
        phases = entry["phases_s"]
        seconds = ", ".join(f"{phases[name]:.1f}" for name in ("total_s", "check_s", "measure_s", "finals_s"))
        large = entry["beyond_48_kib"]
        rows.append(
            f"| {entry['kernel']} | {entry['trials']} | {outcomes} | {entry['trials_per_s']:.1f} | {seconds} "
            f"| {large['right']}, up to {large['largest_shared_bytes']} bytes |"
        )
    return rows


def classics(job: dict[str, Any]) -> list[str]:
    rows = ["| classic | kernel | time | rate |", "|---|---|---|---|"]
    for entry in job["classics"]:
        sizes = "×".join(str(size) for name, size in entry["problem"].items() if name != "dtype")
        for name, point in entry["points"].items():
            time_ms = point["measurement"]["time_ms"]
            rows.append(f"| `{name}` | {entry['kernel']} {sizes} | {time_ms:.3f} ms | {rate(entry, time_ms)} |")
    return rows


def rate(entry: dict[str, Any], time_ms: float) -> str:
    """The work of the entry's problem over a time: from the best's rate, which is of the same work."""
    best = entry["best"]
    scale = best["measurement"]["time_ms"] / time_ms
    return f"{best['tflops'] * scale:.2f} TFLOP/s" if "tflops" in best else f"{best['gbs'] * scale:.0f} GB/s"


def loading(check: dict[str, Any]) -> list[str]:
    kinds = sorted({entry["kind"] for entry in check["checks"]})
    worst = max(entry["error_over_bound"] for entry in check["checks"])
    sentence = (
        f"A new process imported autotile and loaded both winners in {check['import_and_load_s']:.2f} s, then made "
        f"{len(check['checks'])} calls ({', '.join(kinds)}; the tuned size and five others each): "
        f"{'all right' if check['all_right'] else 'NOT all right'}, the largest error {worst:.2f} of its bound, "
        f"and nvcc {'was' if check['nvcc_started'] else 'was not'} started."
    )
    return [sentence]


def trust(report: dict[str, Any]) -> list[str]:
    rows = ["| full searches | seeds | their bests, timed side by side | apart | a kernel beside itself |"]
    rows.append("|---|---|---|---|---|")
    for name, entry in report["seeds"].items():
        times = ", ".join(f"{search['time_ms']:.4f}" for search in entry["searches"])
        seeds = ", ".join(str(search["seed"]) for search in entry["searches"])
        itself = entry["beside_itself"]
        rows.append(
            f"| {name} {entry['problem']} | {seeds} | {times} ms | {entry['spread_of_bests']:.1%} "
            f"| {itself['difference']:.2%} apart: {itself['verdict']} |"
        )
    fault = report["after_a_fault"]
    most = max(abs(ratio - 1) for ratio in fault["ratios"].values())
    failed = sorted(item for item in fault["among faults"]["outcomes"].items() if item[0] != "ok")
    outcomes = ", ".join(f"{count} {word}" for word, count in failed)
    rows += ["", f"Among variants that failed ({outcomes}) the times of right ones moved by {most:.1%} at most."]
    return rows


def verified(report: dict[str, Any]) -> list[str]:
    found = []
    for entry in report["verified"]:
        sizes = "×".join(str(size) for name, size in entry["problem"].items() if name != "dtype")
        found.append(f"{entry['kernel']} {sizes}: {entry['outcome']} ({'; '.join(entry['notes'])})")
    return [f"`autotile verify --sanitize` on both winners: {'. '.join(found)}."]


def compilers(report: dict[str, Any]) -> list[str]:
    rows = ["| compiler, cold, in a pool | sources | processes | a second |", "|---|---|---|---|"]
    for entry in report["results"]:
        per_second = entry["sources"] / entry["total_s"]
        rows.append(f"| {entry['compiler']} | {entry['sources']} | {entry['jobs']} | {per_second:.1f} |")
    return rows


def tuning_rate(report: dict[str, Any]) -> list[str]:
    """Medians over the rounds, a row a tuner."""
    rounds = [entry for entry in report["reports"] if "per_s" in entry]
    lines = [f"**Tuning rate, {place(report)}**", ""]
    lines += [
        f"| {report['problem']}, {report['runs']} timed launches each | tried, right | s | a second | launches alone |"
    ]
    lines += ["|---|---|---|---|---|"]
    for tuner in dict.fromkeys(entry["tuner"] for entry in rounds):
        of = [entry for entry in rounds if entry["tuner"] == tuner]
        tried, right, wall_s, per_s, launches_s = (
            statistics.median(entry[key] for entry in of)
            for key in ("tried", "right", "wall_s", "per_s", "launches_need_s")
        )
        name = " ".join(["Kernel Tuner", str(of[0]["version"])]) if tuner == "kernel_tuner" else tuner
        lines.append(f"| {name} | {tried:.0f}, {right:.0f} | {wall_s:.1f} | {per_s:.2f} | {launches_s:.1f} s |")
    if "compared" in report:
        of_each = [f"{tuner} {times:.1f} times" for tuner, times in report["compared"]["times_as_fast"].items()]
        lines += ["", f"As many times as fast as Kernel Tuner: {', '.join(of_each)}."]
    return lines


def seeds(report: dict[str, Any]) -> list[str]:
    """All seeds in a row: how long they took, and how far they ended behind the long search."""
    found, long = report["searches"], report["reference"]
    reasons = Counter(search["stopped_by"] for search in found)
    ends = ", ".join(f"{count} by {reason}" for reason, count in reasons.most_common())

    def span(key: str, digits: int) -> str:
        values = [search[key] for search in found]
        return f"{min(values):.{digits}f} to {max(values):.{digits}f}"

    return [
        f"**Is a minute enough? {place(report)}**",
        "",
        (
            f"| {report['problem']}, {report['space']} feasible, cold | searches | s | trials | ended "
            f"| behind the best of {long['trials']} trials ({long['wall_s']:.0f} s), at most | within 5 % |"
        ),
        "|---|---|---|---|---|---|---|",
        (
            f"| limit {report['limit']} | {len(found)} seeds | {span('wall_s', 0)} | {span('trials', 0)} | {ends} "
            f"| {max(search['slower'] for search in found):.2%} | {report['within_5_percent']} of {len(found)} |"
        ),
    ]


def features(report: dict[str, Any]) -> list[str]:
    """A row a kernel and way: trials, in the median over seeds, until a share of the best was reached."""
    lines = [
        f"**What is known before a build, as columns of the model, {place(report)}**",
        "",
        "| whole space | columns | trials to 10 % | to 5 % | to 2 % of the best found |",
        "|---|---|---|---|---|",
    ]
    for name, entry in report["kernels"].items():
        for which in ("with", "without"):
            needed = [entry[which][f"trials_to_{share}%"] for share in (10, 5, 2)]
            shown = [f"{n:g}" if n <= entry["trials"] else f"not in {entry['trials']}" for n in needed]
            lines.append(f"| {name}, {entry['seeds']} seeds | {which} | {' | '.join(shown)} |")
    return lines


def compiler_bests(report: dict[str, Any]) -> list[str]:
    """A row a search, and what the same configurations say."""
    lines = [f"**The best that a search finds, by compiler, {place(report)}**", ""]
    lines += ["| search | seed | compiler | trials | best trial |", "|---|---|---|---|---|"]
    for entry in report["searches"]:
        cells = (entry["problem"], entry["seed"], entry["compiler"], entry["trials"], f"{entry['best_ms']:.4f} ms")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    same = report["same_configuration"]
    span = f"{same['least']:.3f} to {same['most']:.3f}, {same['median']:.3f} in the median"
    return [*lines, "", f"Of {same['count']} configurations that both timed, {same['ratio_of']}: {span}."]


def matmul(report: dict[str, Any]) -> list[str]:
    aim = (
        "A ratio is cuBLAS's time over autotile's, both timed in turns. What is asked was set before anything was "
        "measured. Errors are the largest beside a product in float64, over |A||B|."
    )
    return [f"**Matmul beside cuBLAS, {place(report)}**", "", aim, "", *matmul_tables.matmul(report)]


def matmul_nearness(report: dict[str, Any]) -> list[str]:
    title = f"**Matmul, what serves a problem that was not tuned, {place(report)}**"
    return [title, "", *matmul_tables.matmul_nearness(report)]


def matmul_story(report: dict[str, Any]) -> list[str]:
    return [f"**Matmul, step by step, {place(report)}**", "", *matmul_tables.matmul_story(report)]


def transpose(report: dict[str, Any]) -> list[str]:
    aim = (
        "Aims were set before anything was measured: the share of PyTorch's copy to reach, unless a row says otherwise."
    )
    return [f"**Transpose beside a copy, {place(report)}**", "", aim, "", *transpose_tables.transpose(report)]


def transpose_again(report: dict[str, Any]) -> list[str]:
    title = f"**Transpose, searched again after the shipped config was narrowed, {place(report)}**"
    return [title, "", *transpose_tables.transpose(report)]


def transpose_seeds(report: dict[str, Any]) -> list[str]:
    return [f"**Transpose, the same search again, {place(report)}**", "", *transpose_tables.transpose_seeds(report)]


def transpose_story(report: dict[str, Any]) -> list[str]:
    return [f"**Transpose, step by step, {place(report)}**", "", *transpose_tables.transpose_story(report)]


def tma_trial(report: dict[str, Any]) -> list[str]:
    return [
        f"**Transpose through the Tensor Memory Accelerator, {place(report)}**",
        "",
        *transpose_tables.tma_trial(report),
    ]


BESIDE: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "matmul": matmul,
    "matmul_tensor": matmul_tensor_tables.brief_table,
    "matmul_nearness": matmul_nearness,
    "transpose": transpose,
    "transpose_again": transpose_again,
    "transpose_seeds": transpose_seeds,
    "compiler_bests": compiler_bests,
    "seeds": seeds,
    "features": features,
    "tuning_rate": tuning_rate,
    "enumeration": searching_tables.enumeration,
    "search_strategies": searching_tables.search_strategies,
    "ask_cost": searching_tables.ask_cost,
}
"""Results that come with a machine of their own, by the file's name, in the order of the README."""

IN_STORY: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "transpose_story": transpose_story,
    "tma_trial": tma_trial,
    "matmul_story": matmul_story,
    "matmul_tensor_cases": matmul_tensor_tables.published,
    "matmul_tensor_seeds": matmul_tensor_tables.seeds,
    "matmul_tma_trial": matmul_tma_variants.table,
    "counters_beside": counters_tables.counters_table,
    "estimates": counters_tables.estimates_table,
}
"""Those that stand in pages of docs/, each between markers with its name."""

FILES = {"matmul_tensor_cases": "matmul_tensor"}
"""Whose file has another name than the table."""

UNMEASURED = "*Nothing of this has been measured yet.*\n"
"""What stands in a page where a table's file is not there."""


if __name__ == "__main__":
    main()
