"""Draws docs/pictures/ from benchmarks/results/: the matmul's roofs, the transpose's bandwidths, and both stories.

Needs matplotlib.

    python benchmarks/pictures.py [--results FOLDER] [--pictures FOLDER]

The same results make the same files, byte for byte, with the same matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT
from matmul_tables import case_name
from transpose_cases import shape_text

PICTURES = ROOT / "docs" / "pictures"

LINES = (
    ("copy", "copy (PyTorch)", "#767676", "--", "s"),
    ("torch", "PyTorch", "#d55e00", "-", "v"),
    ("cupy", "CuPy", "#cc79a7", "-", "^"),
    ("geam", "cuBLAS geam", "#e69f00", "-", "D"),
    ("autotile", "autotile", "#0072b2", "-", "o"),
)
"""Contestant, label, colour (told apart by the colour-blind too), line, mark; what is drawn last lies on top."""

DRAWN = {"cublas": ("cuBLAS", "#d55e00", "v"), "autotile": ("autotile", "#0072b2", "o")}
"""The matmul's contestants that are drawn: label, colour, mark."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, default=None, help="a device's folder (default: the first that has any)"
    )
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="where the pictures go")
    given = parser.parse_args()
    for name, draw in PICTURED.items():
        files = [given.results / f"{name}.json"] if given.results else sorted(RESULTS.glob(f"*/{name}.json"))
        for file in (found for found in files[:1] if found.is_file()):
            print("wrote", draw(json.loads(file.read_text(encoding="utf-8")), given.pictures))


@contextmanager
def figure(rows: int, columns: int, size_inches: tuple[float, float], path: Path, **options: Any) -> Iterator[Any]:
    """Axes to draw on, saved as SVG without a date and with names that depend on the drawing alone."""
    import matplotlib
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.hashsalt": "autotile",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with matplotlib.rc_context(style):
        drawn = Figure(figsize=size_inches, layout="constrained", facecolor="white")
        yield drawn.subplots(rows, columns, squeeze=False, **options)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, format="svg", metadata={"Date": None})


def where(report: dict[str, Any]) -> str:
    return f"{report['device']}, {report['compiler']}, {report['date'][:10]}"


def draw_roofline(report: dict[str, Any], folder: Path) -> Path:
    """A panel an element type: TFLOP/s over FLOP a byte, below what the multiprocessors and the memory allow.

    Cases are numbered from left to right: autotile's mark and cuBLAS's lie on one upright line. What has no roof in the
    report is not drawn.
    """
    path = folder / "matmul-roofline.svg"
    found: dict[str, list[dict[str, Any]]] = {}
    for case in report["cases"]:
        if "tflops" in case and case["dtype"] in report["roofs"]["tflops"]:
            found.setdefault(case["dtype"], []).append(case)
    columns = max(1, len(found))
    with figure(1, columns, (7.6 * columns, 5.0), path) as grid:
        for axes, (dtype, cases) in zip(grid.flat, found.items(), strict=False):
            draw_roofs(axes, report["roofs"]["tflops"][dtype], report["roofs"]["bandwidth_gbs"], cases)
            axes.set_title(dtype)
        grid[0, 0].set_ylabel("TFLOP/s")
        grid[0, 0].figure.suptitle(f"Matmul: {where(report)}")
    return path


def draw_roofs(axes: Any, peak_tflops: float, bandwidth_gbs: float, cases: Sequence[dict[str, Any]]) -> None:
    cases = sorted(cases, key=lambda case: float(case["intensity"]))
    across = [case["intensity"] for case in cases]
    corner = peak_tflops * 1e3 / bandwidth_gbs
    ends = sorted({min([*across, corner]) / 2, corner, max([*across, corner]) * 2})
    roof = [min(peak_tflops, bandwidth_gbs * at / 1e3) for at in ends]
    axes.plot(ends, roof, color="#767676", label=f"roofs: {bandwidth_gbs:.0f} GB/s, {peak_tflops:.1f} TFLOP/s")
    for name, (label, colour, mark) in DRAWN.items():
        rates = [case["tflops"].get(name, math.nan) for case in cases]
        axes.plot(across, rates, mark, color=colour, label=label, markersize=4, linestyle="none")
    for case in cases:
        rates = [case["tflops"][name] for name in DRAWN if name in case["tflops"]]
        axes.plot([case["intensity"]] * len(rates), rates, color="#c8c8c8", linewidth=0.8, zorder=0)
    for at, numbers in enumerate(neighbours(across)):
        rates = [rate for number in numbers for name, rate in cases[number]["tflops"].items() if name in DRAWN]
        below = at % 2 == 1  # the next one's numbers lie apart
        axes.annotate(
            str(numbers[0] + 1) if len(numbers) == 1 else f"{numbers[0] + 1}–{numbers[-1] + 1}",
            (across[numbers[0]], min(rates) if below else max(rates)),
            textcoords="offset points",
            xytext=(0, -11 if below else 5),
            ha="center",
            fontsize=7,
        )
    names = "\n".join(f"{number:>2}  {case_name(case)}" for number, case in enumerate(cases, 1))
    axes.text(1.02, 1.0, names, transform=axes.transAxes, va="top", fontsize=7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP a byte, each array moved once")
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", frameon=False)


def neighbours(across: Sequence[float]) -> list[list[int]]:
    """Indices of rising numbers, together as long as each is within 5 % of the first of them."""
    found: list[list[int]] = []
    for number, at in enumerate(across):
        if found and at <= 1.05 * across[found[-1][0]]:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def is_square(case: dict[str, Any]) -> bool:
    return len(case["shape"]) == 2 and case["shape"][0] == case["shape"][1]


def panels(cases: Sequence[dict[str, Any]]) -> dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """By element type, in the order of the cases: squares by their side, and the others."""
    found: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {}
    for case in cases:
        if "gbs" in case and not case.get("in_place"):
            squares, others = found.setdefault(case["dtype"], ([], []))
            (squares if is_square(case) else others).append(case)
    for squares, _ in found.values():
        squares.sort(key=lambda case: int(case["shape"][0]))
    return found


def draw_bandwidth(report: dict[str, Any], folder: Path) -> Path:
    """A panel an element type: lines over the side of square matrices, marks for other shapes at the right."""
    path = folder / "transpose-bandwidth.svg"
    found = panels(report["cases"])
    columns = min(3, len(found)) or 1
    rows = math.ceil(len(found) / columns) or 1
    with figure(rows, columns, (3.4 * columns, 2.9 * rows + 0.5), path, sharey=True) as grid:
        axes = list(grid.flat)
        for at, (dtype, (squares, others)) in enumerate(found.items()):
            draw_panel(axes[at], dtype, squares, others)
            if at % columns == 0:
                axes[at].set_ylabel("GB/s, read and written")
        for unused in axes[len(found) :]:
            unused.set_axis_off()
        drawn = axes[0].figure
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LINES), frameon=False)
        drawn.suptitle(f"Transpose: {where(report)}")
    return path


def draw_panel(axes: Any, dtype: str, squares: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> None:
    sides = [math.log2(case["shape"][0]) for case in squares]
    begin = (max(sides) if sides else 0.0) + 1.0
    for name, label, colour, line, mark in LINES:
        style = {"color": colour, "marker": mark, "markersize": 3.5}
        axes.plot(sides, [case["gbs"].get(name, math.nan) for case in squares], line, label=label, **style)
        places = [begin + at for at in range(len(others))]
        axes.plot(places, [case["gbs"].get(name, math.nan) for case in others], linestyle="none", **style)
    ticks = [*sides, *(begin + at for at in range(len(others)))]
    names = [str(case["shape"][0]) for case in squares] + [shape_text(case["shape"]) for case in others]
    axes.set_xticks(ticks, [name.replace("x", "×") for name in names], rotation=45, ha="right", fontsize=7)
    axes.set_ylim(bottom=0)
    axes.set_title(dtype)
    axes.grid(axis="y", color="#e4e4e4")
    axes.set_axisbelow(True)
    if squares and others:
        axes.axvline(begin - 0.5, color="#c8c8c8", linewidth=0.8)


def draw_story(report: dict[str, Any], folder: Path) -> Path:
    """A bar a step, a panel a shape, and the copy as a line."""
    path = folder / "transpose-story.svg"
    shapes = [shape_text(shape) for shape in report["shapes"]]
    names = [step["name"].replace("_", " ") for step in report["steps"]]
    size = (3.6 * len(shapes) + 0.8, 0.34 * len(names) + 1.4)
    with figure(1, len(shapes), size, path, sharey=True, sharex=True) as grid:
        plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # keeps numbers off the line of the copy
        for axes, shape in zip(grid.flat, shapes, strict=True):
            gbs = [step["by_shape"].get(shape, {}).get("gbs", 0.0) for step in report["steps"]]
            bars = axes.barh(range(len(names)), gbs, color="#0072b2", height=0.66)
            axes.bar_label(bars, [f"{value:.0f}" if value else "–" for value in gbs], padding=3, fontsize=8, bbox=plate)
            copy = report["copies"][shape]["copy"]
            axes.axvline(copy, color="#767676", linestyle="--")
            axes.set_title(f"{shape.replace('x', '×')} {report['dtype']}; the line: a copy, {copy:.0f}", fontsize=9)
            axes.set_xlabel("GB/s, read and written")
            axes.margins(x=0.16)
        grid[0, 0].set_yticks(range(len(names)), names)
        grid[0, 0].invert_yaxis()
        grid[0, 0].figure.suptitle(f"Transpose, step by step: {where(report)}")
    return path


def draw_matmul_story(report: dict[str, Any], folder: Path) -> Path:
    """A bar a step, and cuBLAS as a line."""
    path = folder / "matmul-story.svg"
    names = [step["name"].replace("_", " ") for step in report["steps"]]
    with figure(1, 1, (6.4, 0.34 * len(names) + 1.3), path) as grid:
        axes = grid[0, 0]
        rates = [step["tflops"] for step in report["steps"]]
        bars = axes.barh(range(len(names)), rates, color="#0072b2", height=0.66)
        plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # keeps numbers off the line of cuBLAS
        axes.bar_label(bars, [f"{rate:.1f}" for rate in rates], padding=3, fontsize=8, bbox=plate)
        size, line = "×".join([str(report["size"])] * 3), ""
        if report["cublas"] is not None:
            line = f"; the line: cuBLAS, {report['cublas']['tflops']:.1f}"
            axes.axvline(report["cublas"]["tflops"], color="#767676", linestyle="--")
        axes.set_title(f"{size} {report['dtype']}{line}", fontsize=9)
        axes.set_xlabel("TFLOP/s")
        axes.margins(x=0.12)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.figure.suptitle(f"Matmul, step by step: {where(report)}")
    return path


PICTURED = {
    "matmul": draw_roofline,
    "matmul_story": draw_matmul_story,
    "transpose": draw_bandwidth,
    "transpose_story": draw_story,
}
"""What draws each result, by the file's name."""


if __name__ == "__main__":
    main()
