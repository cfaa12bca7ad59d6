"""Transposes through the Tensor Memory Accelerator: the variants of tma_trial.cu, and their geometry. No GPU needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BOX_BYTES = 128
"""Of a row of a box: as many as the 128-byte swizzle takes."""
BARRIER_BYTES = 8


@dataclass(frozen=True)
class Kind:
    """How tiles come in and leave, in the words of tma_trial.cu; with several stages blocks stay, tile after tile."""

    way_in: str
    way_out: str
    said: str
    stages: int = 1


KINDS = {
    "A": Kind("TENSOR", "REGISTERS", "boxes in, stores from registers"),
    "A2": Kind("TENSOR", "VECTORS", "boxes in, stores through shared memory"),
    "B": Kind("TENSOR", "TENSOR", "boxes in, boxes out"),
    "C": Kind("VECTORS", "TENSOR", "loads to registers, boxes out"),
    "C2": Kind("VECTORS", "ROWS", "loads to registers, rows out by bulk copies"),
    "D": Kind("TENSOR", "TENSOR", "boxes in and out, two tiles of a block under way", stages=2),
}


@dataclass(frozen=True)
class Variant:
    """One compile of tma_trial.cu; tiles in elements of `in`."""

    kind: str
    itemsize: int
    tile_rows: int
    tile_cols: int
    threads: int
    turn_rows: int
    down_first: bool = False

    @property
    def name(self) -> str:
        order = ", down first" if self.down_first else ""
        turned = f", {self.turn_rows} rows turned"
        return f"{self.kind} {self.tile_rows}x{self.tile_cols}, {self.threads} threads{turned}{order}"

    @property
    def tile_bytes(self) -> int:
        return self.tile_rows * self.tile_cols * self.itemsize

    @property
    def shared_bytes(self) -> int:
        """As tma_trial.cu lays it out: boxes of `in`, the turned tile, a barrier for each stage."""
        kind = KINDS[self.kind]
        gaps = self.tile_cols * self.itemsize  # 16 bytes behind each group of 16 / itemsize lines
        turned = {"REGISTERS": 0, "ROWS": self.tile_bytes + gaps}.get(kind.way_out, kind.stages * self.tile_bytes)
        return (kind.stages * self.tile_bytes if kind.way_in == "TENSOR" else 0) + turned + BARRIER_BYTES * kind.stages

    @property
    def defines(self) -> list[str]:
        kind = KINDS[self.kind]
        values = {
            "SIZE": self.itemsize, "TILE_ROWS": self.tile_rows, "TILE_COLS": self.tile_cols, "THREADS": self.threads,
            "TURN_ROWS": self.turn_rows, "WAY_IN": kind.way_in, "WAY_OUT": kind.way_out, "STAGES": kind.stages,
            "DOWN_FIRST": int(self.down_first),
        }  # fmt: skip
        return [f"-D{name}={value}" for name, value in values.items()]

    def tiles(self, rows: int, cols: int) -> int:
        return (rows // self.tile_rows) * (cols // self.tile_cols)

    def divides(self, rows: int, cols: int) -> bool:
        return rows % self.tile_rows == 0 and cols % self.tile_cols == 0


TILES = {
    4: [(64, 64, 128, 4), (64, 64, 256, 4), (128, 64, 256, 4), (64, 128, 256, 4)],
    2: [(64, 64, 64, 8), (128, 64, 128, 8), (64, 128, 128, 8), (128, 128, 256, 8), (128, 128, 256, 4)],
    1: [(128, 128, 128, 8), (128, 128, 256, 4), (256, 128, 128, 16), (256, 128, 256, 8)],
}
"""Rows, columns, threads and rows that a thread turns, by bytes of an element."""


def variants(itemsize: int) -> list[Variant]:
    """All kinds on all tiles; and for the first two tiles the other order of blocks, where boxes come in and leave."""
    found = [Variant(kind, itemsize, *tile) for kind in KINDS for tile in TILES[itemsize]]
    found += [Variant(kind, itemsize, *tile, down_first=True) for kind in ("B", "D") for tile in TILES[itemsize][1:3]]
    return found


@dataclass(frozen=True)
class Map:
    """What cuTensorMapEncodeTiled asks of a matrix, innermost first: sizes and box in elements, the stride in bytes."""

    itemsize: int
    sizes: tuple[int, int]
    stride_bytes: int
    box: tuple[int, int]


def maps(variant: Variant, rows: int, cols: int) -> tuple[Map, Map]:
    """Of `in` (rows × cols) and `out` (cols × rows). Where one is not used, it is there all the same."""
    inner = BOX_BYTES // variant.itemsize
    return (
        Map(variant.itemsize, (cols, rows), cols * variant.itemsize, (inner, variant.tile_rows)),
        Map(variant.itemsize, (rows, cols), rows * variant.itemsize, (inner, variant.tile_cols)),
    )


def best_of_kinds(entries: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The fastest of each kind among entries that have a time; those that were wrong or failed have none."""
    best: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if "time_ms" in entry and (entry["kind"] not in best or entry["time_ms"] < best[entry["kind"]]["time_ms"]):
            best[entry["kind"]] = entry
    return best
