"""Float32 matmuls fed by the Tensor Memory Accelerator: the variants of matmul_tma_trial.cu, their geometry, a report.

No GPU needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from markdown_rows import row_of
from matmul_contest import CUBLAS

OURS = "autotile"
"""How the names of autotile's own contestants begin."""

CHECKED = ((512, 768, 416), (256, 256, 32))
"""m, n, k of the first checks: the ring turns several times over, and never; all tiles divide them."""

# Of cuda.h.
NO_SWIZZLE = 0
SWIZZLES = {8: 1, 16: 2, 32: 3}
"""CU_TENSOR_MAP_SWIZZLE_32B, 64B, 128B by the elements of a row: each takes rows of just so many bytes."""


@dataclass(frozen=True)
class Variant:
    """One compile of matmul_tma_trial.cu, in its words; lengths in elements."""

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 16
    thread_m: int = 16
    thread_n: int = 8
    stages: int = 4
    order: str = "ROWS"
    lane_map: str = "ROW_BY_ROW"
    group: int = 1
    min_blocks: int = 1
    producers: int = 0
    turned: bool = False
    lanes_m: int = 4

    @property
    def name(self) -> str:
        issued = {0: "", 32: ", a warp asks", 128: ", four warps ask"}[self.producers]
        return (
            f"{'A turned' if self.turned else 'A by rows'} {self.tile_m}x{self.tile_n}x{self.tile_k}, "
            f"{self.thread_m}x{self.thread_n} a thread, {self.stages} stages, {self.order.lower()}, "
            f"{self.lane_map.lower()}, group {self.group}, {self.min_blocks} a multiprocessor{issued}"
        )

    @property
    def layout(self) -> str:
        """As matmul_cases.LAYOUTS names it."""
        return "tn" if self.turned else "nn"

    @property
    def threads(self) -> int:
        return self.tile_m // self.thread_m * (self.tile_n // self.thread_n) + self.producers

    @property
    def shared_bytes(self) -> int:
        """Slots of both tiles, then two barriers for each."""
        return self.stages * ((self.tile_m + self.tile_n) * self.tile_k * 4 + 2 * 8)

    @property
    def defines(self) -> list[str]:
        values = {name.upper(): int(value) if name == "turned" else value for name, value in asdict(self).items()}
        return [f"-D{name}={value}" for name, value in values.items()]

    def divides(self, m: int, n: int, k: int) -> bool:
        return m % self.tile_m == 0 and n % self.tile_n == 0 and k % self.tile_k == 0


def variants() -> list[Variant]:
    """All, of both ways that A is stored."""
    large = Variant()
    wide = Variant(thread_m=8, thread_n=16, order="COLUMNS")
    tall = Variant(tile_m=256, tile_n=128, group=8)
    square = Variant(tile_n=128, thread_m=8, lane_map="SQUARES", group=8, min_blocks=2)
    both = [
        large,
        replace(large, group=16),
        replace(large, lane_map="SQUARES"),
        replace(large, order="COLUMNS"),
        replace(large, tile_k=8, stages=6),
        replace(large, tile_k=32, stages=3),
        replace(large, tile_k=32),
        wide,
        replace(wide, group=16),
        replace(wide, group=16, stages=6),
        replace(wide, tile_k=32, group=16),
        replace(wide, tile_k=32, group=16, lane_map="SQUARES"),
        tall,
        replace(tall, lane_map="SQUARES"),
        replace(tall, tile_k=32),
        square,
        replace(square, tile_k=32, stages=3),
        replace(square, thread_m=16),
        replace(square, min_blocks=1, producers=32),
    ]
    handed_over = [replace(large, producers=128), replace(wide, group=16, producers=128)]
    return both + [replace(variant, turned=True) for variant in [*both, *handed_over]]


@dataclass(frozen=True)
class Map:
    """What cuTensorMapEncodeTiled asks of a matrix, innermost first: sizes and box in elements, the stride in bytes."""

    sizes: tuple[int, int]
    box: tuple[int, int]
    swizzle: int = NO_SWIZZLE

    @property
    def stride_bytes(self) -> int:
        return self.sizes[0] * 4


def maps(variant: Variant, m: int, n: int, k: int) -> tuple[Map, Map]:
    """Of A and B. Rows along k are swizzled, or lanes that read rows below each other would meet in a bank."""
    if variant.turned:
        a = Map((m, k), (variant.tile_m, variant.tile_k))
    else:
        a = Map((k, m), (variant.tile_k, variant.tile_m), SWIZZLES[variant.tile_k])
    return a, Map((n, k), (variant.tile_n, variant.tile_k))


def report(entry: Mapping[str, Any]) -> list[str]:
    """A line a contestant, the fastest first, beside cuBLAS and the faster of autotile's; then what is amiss."""
    rates = entry["tflops"]
    beside = {}
    for peer, begins in (("cuBLAS", CUBLAS), ("autotile", OURS)):
        if among := [rate for name, rate in rates.items() if name.startswith(begins)]:
            beside[peer] = max(among)
    lines = [f"{'x'.join(map(str, entry['shape']))}:{entry['layout']}"]
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        shares = ", ".join(f"{rate / best:.3f} of {peer}" for peer, best in beside.items())
        lines.append(f"  {rate:6.2f} TFLOP/s, {shares}: {name}")
    lines += [f"  {each['name']}: {each['outcome']}" for each in entry["variants"] if each["outcome"] != "right"]
    return lines + [f"  {note}" for note in entry["notes"]]


def table(document: Mapping[str, Any]) -> list[str]:
    """A row a case in Markdown: rates in TFLOP/s, and the fastest variant beside the faster of autotile's presets."""
    head = ["matmul", "cuBLAS", "autotile", "fastest by TMA", "TFLOP/s", "of autotile", "of cuBLAS"]
    lines = row_of(head, head=True)
    for case in document["cases"]:
        rates = case["tflops"]
        names = [entry["name"] for entry in case["variants"] if entry["name"] in rates]
        peers = [
            max((rates[each] for each in rates if each.startswith(begins)), default=None) for begins in (CUBLAS, OURS)
        ]
        said = f"{'×'.join(map(str, case['shape']))}{', A turned' if case['layout'] == 'tn' else ''}"
        cells = [said, *("–" if peer is None else f"{peer:.1f}" for peer in peers)]
        if not names:
            lines += row_of([*cells, "–", "–", "–", "–"])
            continue
        best = max(names, key=lambda name: float(rates[name]))
        shares = ["–" if peer is None else f"{rates[best] / peer:.3f}" for peer in reversed(peers)]
        lines += row_of([*cells, best, f"{rates[best]:.1f}", *shares])
    found = [entry for case in document["cases"] for entry in case["variants"]]
    wrong = sum(entry["outcome"] != "right" for entry in found)
    lines += ["", f"{wrong} of {len(found)} were wrong or failed, and are not ranked."]
    return [*lines, *(f"Faulted, and left out: {fault}." for fault in document["faults"])]
