"""Makes the tables of README.md from benchmarks/results/. Figures in the README are never typed.

python benchmarks/tables.py            rewrite README.md between its markers
python benchmarks/tables.py --check    exit 1 if it would change
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKED = re.compile(r"(<!-- results -->\n).*?(<!-- end of results -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if README.md is out of date")
    given = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = with_tables(old)
    if given.check and new != old:
        raise SystemExit("README.md is out of date: run python benchmarks/tables.py")
    README.write_text(new, encoding="utf-8")


def with_tables(readme: str) -> str:
    """The text with everything between the markers made anew."""
    body = "\n".join(section(file.parent) for file in sorted(RESULTS.glob("*/main_job.json")))
    return MARKED.sub(lambda match: match.group(1) + body + match.group(2), readme)


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
        for name, point in entry["points"].items():
            time_ms = point["measurement"]["time_ms"]
            rows.append(f"| `{name}` | {entry['kernel']} | {time_ms:.3f} ms | {rate(entry, time_ms)} |")
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


if __name__ == "__main__":
    main()
