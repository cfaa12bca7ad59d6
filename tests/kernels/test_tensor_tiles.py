"""In which order the matmul on tensor cores takes its tiles, who takes them, and what comes before the first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.base import Check
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload

KERNEL, DEVICE = load_kernel("matmul_tensor"), EmulatorDevice()
WGMMA = [name for name, values in KERNEL.presets.items() if values.get("tier") == "wgmma"]
SIZES = {"m": 512, "n": 768, "k": 640}


# ---- the order, on the emulator -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def check(builder: Builder, group: int, old: str = "", new: str = "", batch: int = 1) -> Check:
    """Of five by four tiles: one band or two of them, the last of one row; or bands of one row each."""
    problem = KERNEL.problem({"m": 300, "n": 200, "k": 16, "batch": batch}, "bfloat16")
    variant = make_variant(KERNEL, problem, KERNEL.configuration({"group": group}))
    assert old in variant.source.text
    text = variant.source.text.replace(old, new) if old else variant.source.text
    with DEVICE.stage(make_workload(KERNEL, problem, 3)) as stage:
        return stage.check(DEVICE.load(builder.build(replace(variant.source, text=text))), variant.launch)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_each_tile_is_taken_once(builder: Builder, group: int, batch: int) -> None:
    assert check(builder, group, batch=batch).ok


@pytest.mark.parametrize(
    ("group", "old", "new"),
    [
        (4, "tile < GROUP * tiles_n ? 0", "tile <= GROUP * tiles_n ? 0"),
        (1, "tile < GROUP * tiles_n ? 0", "tile < 2 * GROUP * tiles_n ? 0"),
        (4, "height == GROUP ?", "height <= GROUP ?"),
        (8, "height == GROUP ?", "height <= GROUP ?"),
        (4, "rest - across * height", "rest - across * GROUP"),
    ],
)
def test_a_tile_that_is_taken_twice_or_not_at_all_is_found(builder: Builder, group: int, old: str, new: str) -> None:
    assert not check(builder, group, old, new).ok


@pytest.mark.parametrize(("old", "ok"), [("", True), ("min(rows, ROOM_ROWS)", False)])
@pytest.mark.parametrize("n", [77, 80])
def test_lanes_beyond_a_warps_rows_store_nothing(builder: Builder, n: int, old: str, ok: bool) -> None:
    """Rows of 16 bytes are half as many words as a warp has lanes; further rows are another warp's."""
    problem = KERNEL.problem({"m": 70, "n": n, "k": 40}, "float8_e5m2")
    variant = make_variant(KERNEL, problem, KERNEL.configuration({"warp_n": 16, "block_k": 64}))
    assert old in variant.source.text
    text = variant.source.text.replace(old, "rows") if old else variant.source.text
    with DEVICE.stage(make_workload(KERNEL, problem, 3)) as stage:
        assert stage.check(DEVICE.load(builder.build(replace(variant.source, text=text))), variant.launch).ok is ok


# ---- the blocks that stay -------------------------------------------------------------------------------------------


def blocks(rows: int, columns: int, point: str = "large") -> int:
    """For so many tiles."""
    values = KERNEL.configuration(KERNEL.presets[point])
    problem = KERNEL.problem({"m": rows * 128, "n": columns * int(values["block_n"]), "k": 512})
    return KERNEL.launch_of(problem, values).grid[0]


@pytest.mark.parametrize("rows", [1, 3, 16, 33, 44, 66, 100])
@pytest.mark.parametrize("columns", [1, 4, 11, 16])
def test_no_more_blocks_stay_than_take_the_tiles_in_as_many_rounds(rows: int, columns: int) -> None:
    tiles, found = rows * columns, blocks(rows, columns)
    rounds = -(-tiles // 132)
    assert found <= 132
    assert -(-tiles // found) == rounds
    assert found == 1 or -(-tiles // (found - 1)) > rounds


def test_pairs_of_blocks_are_whole() -> None:
    assert blocks(2 * 67, 1, "in_turns_shared") == 2 * 34  # 67 pairs of tiles for 66 pairs of blocks: two rounds of 34
    assert blocks(2 * 66, 1, "in_turns_shared") == 2 * 66


# ---- before the first tile ------------------------------------------------------------------------------------------


def text_of(point: str) -> str:
    problem = KERNEL.problem(SIZES, "tf32" if KERNEL.presets[point].get("registers") else "bfloat16")
    return render(KERNEL, problem, KERNEL.configuration(KERNEL.presets[point])).text


@pytest.mark.parametrize("point", WGMMA)
def test_barriers_are_made_by_all_warps_and_known_before_anyone_feeds(point: str) -> None:
    text = text_of(point)
    begin = text.index('extern "C" __global__')
    order = [
        text.index(part, begin)
        for part in (
            "prefetch_map(map_a)",
            "for (int slot = warp; slot < STAGES; slot += GROUPS * 4) {\n            barrier_make(shared.full",
            "fence.mbarrier_init.release.cluster",
            "fence.proxy.async",
            "__syncthreads();",
            "feed(tile, begin + i, Slot(i))",
            "feed(tile, step, slot)",
        )
    ]
    assert order == sorted(order)
    if "cluster.wait.acquire" in text:
        assert order[4] < text.index("barrier.cluster.wait.acquire") < order[5] or "join_cluster" in text


@pytest.mark.parametrize("point", WGMMA)
def test_nobody_asks_the_accelerator_by_a_lanes_number(point: str) -> None:
    """Each request would stand in a loop over lanes. What is stored is waited for by the lane that stored it."""
    text = text_of(point)
    asks = re.findall(r"if \((.*)\) .*\b(?:store_box|stores_read<\d|stores_read<ROOMS - 1)", text)
    assert asks
    assert all("elected()" in condition and "lane" not in condition for condition in asks)
    assert text.count("if (warp == GROUPS * 4 && elected()) {") == 2, "who feeds"
    assert "lane == 0)" not in text.replace("if (lane == 0) barrier_arrive(", "")
