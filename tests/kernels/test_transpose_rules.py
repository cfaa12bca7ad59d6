"""Rules of the transpose without which a kernel would be wrong by construction: each says so, with its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.measure.variant import proofs_of
from autotile.space import violations

KERNEL = load_kernel("transpose")
H200 = replace(find_gpu("h200"), estimated=False)
TURNED: dict[str, Any] = {
    "staging": "turned", "tile_rows": 64, "tile_cols": 64, "block_threads": 64, "load_vector": 4, "turn_rows": 4,
}  # fmt: skip
FLAT: dict[str, Any] = {"layout": "plain", "turn_rows": 1, "load_vector": 4}
FLAT_IN, FLAT_OUT = {**FLAT, "staging": "flat_in"}, {**FLAT, "staging": "flat_out"}
SQUARE = {"rows": 100, "cols": 100, "in_place": 1}
RIGHT: dict[str, tuple[dict[str, Any], dict[str, int], str]] = {
    "turned": (TURNED, {"rows": 99, "cols": 77}, "float32"),
    "flat_in": (FLAT_IN, {"rows": 1000, "cols": 9}, "float32"),
    "flat_out": (FLAT_OUT, {"rows": 9, "cols": 1000}, "float32"),
    "in place": (TURNED, SQUARE, "float32"),
    "a tile in place": ({"staging": "tile"}, SQUARE, "float32"),
}
IN_PLACE = "in place square tiles change places, through shared memory, in one order: not "
WRONG: dict[str, tuple[dict[str, Any], dict[str, int], str, str]] = {
    "lines that are no whole sectors": (
        {**TURNED, "tile_rows": 16, "load_vector": 16, "turn_rows": 1, "block_threads": 32},
        {"rows": 99, "cols": 77},
        "int8",
        "16 rows are 16 bytes of a row of `out`, not whole sectors of 32",
    ),
    "flat_in with gaps": (FLAT_IN, {"rows": 1000, "cols": 9, "in_pitch": 12}, "float32",
                          "12 elements apart and hold 9"),
    "flat_out with gaps": (
        FLAT_OUT, {"rows": 9, "cols": 1000, "out_pitch": 13}, "float32", "13 elements apart and hold 9",
    ),
    "flat_in with an order": (
        {**FLAT_IN, "block_order": "columns"}, {"rows": 1000, "cols": 9}, "float32",
        "flat_in has one order of blocks: rows, not columns",
    ),
    "in place by strided loads": (
        {"staging": "strided_reads", "layout": "plain"}, SQUARE, "float32",
        f"{IN_PLACE}strided_reads with 32×32 in rows",
    ),
    "in place by strided stores": (
        {"staging": "strided_writes", "layout": "plain"}, SQUARE, "float32",
        f"{IN_PLACE}strided_writes with 32×32 in rows",
    ),
    "in place by whole rows": (FLAT_IN, SQUARE, "float32", f"{IN_PLACE}flat_in with 32×32 in rows"),
    "in place by whole columns": (FLAT_OUT, SQUARE, "float32", f"{IN_PLACE}flat_out with 32×32 in rows"),
    "in place by oblong tiles": (
        {**TURNED, "tile_cols": 32}, SQUARE, "float32", f"{IN_PLACE}turned with 64×32 in rows",
    ),
    "in place in another order": (
        {**TURNED, "block_order": "diagonal"}, SQUARE, "float32", f"{IN_PLACE}turned with 64×64 in diagonal",
    ),
}  # fmt: skip


def said(values: dict[str, Any], sizes: dict[str, int], dtype: str) -> list[str]:
    problem = KERNEL.problem(sizes, dtype)
    return list(violations(KERNEL, problem, find_gpu("h200"), KERNEL.configuration(values)))


@pytest.mark.parametrize("fault", WRONG)
def test_what_would_be_wrong_is_refused_with_its_numbers(fault: str) -> None:
    *asked, says = WRONG[fault]
    messages = said(*asked)
    assert len(messages) == 1, "another rule refuses it too: that would hide the loss of this one"
    assert says in messages[0]


@pytest.mark.parametrize("point", RIGHT)
def test_what_they_start_from_is_feasible(point: str) -> None:
    assert said(*RIGHT[point]) == []


# ---- problems that a configuration proves itself on -----------------------------------------------------------------


def test_a_winner_for_skinny_matrices_is_proven_where_its_rows_fit() -> None:
    """It holds whole rows in shared memory, and some of the kernel's odd problems have rows too long for that."""
    flat = KERNEL.configuration(
        {"staging": "flat_in", "tile_rows": 512, "tile_cols": 512, "block_threads": 512, "load_vector": 4,
         "turn_rows": 1, "layout": "plain"}
    )  # fmt: skip
    variant = make_variant(KERNEL, KERNEL.problem({"rows": 100000, "cols": 33}), flat)
    proven = [proof.variant for proof in proofs_of(variant, H200)]
    assert len(proven) >= 8
    assert all(other.launch.shared_bytes <= H200.shared_bytes_optin for other in proven)
    assert all(KERNEL.sizes_of(other.problem)["in_pitch"] == other.problem["cols"] for other in proven)


def test_bands_are_crossed_on_a_gpu_and_left_out_on_the_emulator() -> None:
    variant = make_variant(KERNEL, KERNEL.problem({"rows": 4096, "cols": 4096}), KERNEL.configuration())

    def longest(device: DeviceInfo) -> int:
        return max(size for proof in proofs_of(variant, device) for _, size in proof.variant.problem.sizes)

    assert longest(H200) == 17000
    assert longest(EmulatorDevice().info) < 1000
