"""Each rule of the matmul on tensor cores is broken by some configuration and says so with its numbers; and what the
presets launch."""

from __future__ import annotations

import re
from typing import Any

import pytest
from samples import MEANT_FOR

from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.space import violations
from autotile.types import Launch, LaunchStep

KERNEL = load_kernel("matmul_tensor")
PRESETS = KERNEL.presets
SIZES = {"m": 4096, "n": 4096, "k": 4096}


def at(point: str, **changes: Any) -> dict[str, Any]:
    return {**PRESETS[point], **changes}


ALONE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"relu": 1, "gelu": 1}, "relu and gelu are both asked for"),
    ({}, {"gelu": 1, "dtype": "int8"}, "gelu is for floating-point numbers"),
    ({}, {"k": 100_008}, "with k = 100008 the error bound of float32 sums proves little"),
    ({}, {"k": 32_784, "dtype": "float8_e5m2"}, "with k = 32784 the error bound of float32 sums proves little"),
    ({}, {"k": 200_000, "dtype": "int8"}, "with k = 200000 sums of int8 products may not fit 32 bits"),
    ({}, {"device": "t4", "dtype": "float16"}, "Tesla T4 is older than sm_80"),
    ({}, {"device": "a100", "dtype": "float8_e5m2"}, "is older than sm_89: its tensor cores know no float8"),
    (at("small"), {"device": "b200"}, "wgmma is for sm_90 alone, not for NVIDIA B200"),
    (at("one_row", block_k=16), {"dtype": "float64"}, "there is no wgmma of float64"),
    (at("large", warp_m=64), {}, "warp_m and warp_n must be 32, fragments 1"),
    (at("large", fragments=2), {}, "warp_m and warp_n must be 32, fragments 1"),
    (at("plain", groups=2), {}, "groups, pingpong, multicast, cluster, wave and rooms are tier wgmma's"),
    (at("plain", wave=132), {}, "they must be 1, false, none, 1, 0 and 0"),
    (at("portable", block_k=16), {"dtype": "int8"}, "a step of 16 is 16 bytes: 32 at least"),
    (at("plain", block_m=16, block_n=256, warp_m=16), {"a_turned": 1}, "do not share A's tile of 16×32 evenly"),
    (at("plain", block_n=16, block_m=256, warp_n=16), {}, "do not share B's tile of 16×32 evenly"),
    (at("plain", block_k=16, fragments=2), {}, "a step of 16 must be an even number of products long"),
    (at("plain", block_m=128, block_k=128, warp_m=16, warp_n=16), {}, "1024 threads: warps of 16×16 are too small"),
    (at("portable", min_blocks=1, block_k=16), {"dtype": "float64"}, "128 sums a thread; more than 128 registers"),
    (at("in_turns", block_m=32), {}, "wgmma multiplies 64 rows at once: block_m must be a multiple, not 32"),
    (at("small", block_n=32), {}, "lines of 128 bytes: block_n = 32 is not made of such"),
    (at("small", block_k=32), {}, "in lines of 128 bytes, 64 elements: block_k must be a multiple, not 32"),
    (at("large", groups=3, block_n=128), {}, "3 groups: two take turns, and others have 64 rows of the tile each"),
    (
        at("large", groups=3, block_m=192, stages=3),
        {},
        "128 registers where three groups share a block: too few for 256",
    ),
    (at("tall", registers=True), {}, "what comes by way of registers is B that is stored across k, of 32-bit elements"),
    (at("tall_registers", block_n=192, stages=3), {"dtype": "tf32"}, "block_n must be 128, not 192, pingpong false"),
    (
        at("in_turns", rooms=3, stages=4),
        {},
        "a row of the tile has 2 strips of 128 bytes: it is not stored in whole bands of 3",
    ),
    (at("large", groups=1, stages=3), {}, "256 sums a thread do not fit its registers"),
    (at("small", block_m=128, block_n=192, min_blocks=2, stages=2), {}, "2 blocks of 160 threads with 192 sums each"),
    (at("large", min_blocks=2, wave=0, stages=2, block_n=64), {}, "blocks of several groups reallocate registers"),
    (at("small", multicast="b"), {}, "two blocks share an operand: cluster must be 2, not 1"),
    (at("small_shared", cluster=4), {}, "two blocks share an operand: cluster must be 2, not 4"),
    (at("few_rows", wave=132), {}, "pingpong must be false and wave 0"),
    (at("few_rows", block_m=128, block_n=256, groups=2, stages=2), {}, "sums of 128×256 do not fit in the place of"),
    (at("plain", stages=12), {}, "12 stages: copies of more than 8 steps are never on their way"),
    (at("in_turns", wave=0), {}, "groups take turns at tiles that follow each other"),
    (at("large", wave=114), {}, "NVIDIA H200 runs 132 blocks at once, not 114"),
    (at("portable", min_blocks=3), {}, "3 blocks of 128 threads with 128 sums each do not fit the 65536 registers"),
    (at("portable", block_k=128, stages=3), {}, "2 blocks of 196608 bytes, and 1 KiB each for the system"),
    ({}, {"m": 2_000_000_000, "n": 5120, "k": 8}, "2500000000 blocks; a grid holds no more than 2147483647"),
    (at("few_rows", cluster=8), {"m": 1, "n": 8, "k": 512, "batch": 2**28}, "2147483648 blocks; a grid holds no more"),
    ({}, {"m": 2**31 - 1, "n": 64, "k": 8}, "a side of 2147483647: numbers of 32 bits count to the end of its last"),
    ({}, {"m": 999_999, "k": 99_999, "n": 64}, "bytes of scratch memory; 64 GiB are the most"),
    (at("small"), {"device": "emulator"}, "the emulator runs no wgmma: tier must be mma"),
]
WITH_OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (at("portable", block_m=192, min_blocks=1), {}, "lines of tiles of 192×128 are swizzled where both are powers"),
    (at("plain", block_m=16), {}, "a block of 16×64 is not made of whole warps of 32×32"),
    (at("plain", block_m=128, block_n=128, min_blocks=4), {"device": "rtx4090"}, "512 threads do not fit the 1536"),
]
"""What other rules refuse as well."""


def said(values: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    sizes = {name: value for name, value in {**SIZES, **asked}.items() if name not in ("dtype", "device")}
    wanted = KERNEL.problem(sizes, asked.get("dtype"))
    name = asked.get("device", "h200")
    info = EmulatorDevice().info if name == "emulator" else find_gpu(name)
    return list(violations(KERNEL, wanted, info, KERNEL.configuration(values)))


@pytest.mark.parametrize(("values", "asked", "says"), ALONE, ids=[says for *_, says in ALONE])
def test_it_is_refused_by_this_rule_alone(values: dict[str, Any], asked: dict[str, Any], says: str) -> None:
    messages = said(values, asked)
    assert len(messages) == 1, "another rule refuses it too: that would hide the loss of this one"
    assert says in messages[0]


@pytest.mark.parametrize(("values", "asked", "says"), WITH_OTHERS, ids=[says for *_, says in WITH_OTHERS])
def test_it_is_refused_by_this_rule_and_others(values: dict[str, Any], asked: dict[str, Any], says: str) -> None:
    messages = said(values, asked)
    assert len(messages) > 1, "it is refused by this one alone now"
    assert sum(says in message for message in messages) == 1


def test_every_rule_has_its_case() -> None:
    messages = [message for values, asked, _ in (*ALONE, *WITH_OTHERS) for message in said(values, asked)]
    for rule in KERNEL.rules:
        words = ".*".join(re.escape(piece) for piece in re.split(r"\{.*?\}", rule.message))
        assert any(re.fullmatch(words, message, re.DOTALL) for message in messages), rule.message


# ---- the presets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", PRESETS)
def test_a_preset_is_refused_by_none(point: str) -> None:
    for dtype in MEANT_FOR.get(point, ("bfloat16",)):
        assert said(at(point), {"dtype": dtype}) == []
    if KERNEL.configuration(at(point))["tier"] == "mma":
        assert said(at(point), {"device": "a100"}) == []


def launch(point: str, **asked: Any) -> Launch:
    return KERNEL.launch_of(KERNEL.problem({**SIZES, **asked}), KERNEL.configuration(at(point)))


@pytest.mark.parametrize(
    ("point", "asked", "grid", "threads", "shared_bytes"),
    [
        ("plain", {}, 64 * 64, 128, 3 * 128 * 32 * 2),
        ("plain", {"m": 65, "n": 63, "batch": 3}, 2 * 3, 128, 3 * 128 * 32 * 2),
        ("portable", {}, 32 * 32, 128, 3 * 256 * 32 * 2),
        ("portable_deep", {}, 32 * 16, 256, 3 * 384 * 64 * 2),
        # Of a wave no more blocks stay than there are tiles, nor than take these in as many rounds: 512 in four of 128.
        ("large", {}, 128, 384, 1024 + 4 * (49152 + 16) + 2 * 4 * 2 * 2048 + 16),
        ("large", {"m": 100, "n": 1000}, 4, 384, 1024 + 4 * (49152 + 16) + 2 * 4 * 2 * 2048 + 16),
        ("large", {"m": 128 * 7, "n": 256 * 19}, 67, 384, 1024 + 4 * (49152 + 16) + 2 * 4 * 2 * 2048 + 16),
        ("in_turns", {}, 128, 384, 1024 + 6 * (32768 + 16) + 2 * 4 * 2 * 2048 + 16),
        # Pairs of blocks: of 66, those that take 352 tiles of 256 x 192 in six rounds, or as many as there are tiles.
        ("in_turns_shared", {}, 2 * 59, 384, 1024 + 4 * (40960 + 16) + 2 * 4 * 2 * 2048 + 16),
        ("in_turns_shared", {"m": 256 * 67, "n": 192}, 2 * 34, 384, 1024 + 4 * (40960 + 16) + 2 * 4 * 2 * 2048 + 16),
        ("in_turns_shared", {"m": 257, "n": 193}, 2 * 4, 384, 1024 + 4 * (40960 + 16) + 2 * 4 * 3 * 2048 + 16),
        ("small", {}, 64 * 32, 160, 1024 + 8 * (24576 + 16) + 4 * 2 * 2048 + 16),
        ("few_rows", {"m": 16}, 2 * 32, 160, 1024 + 8 * (24576 + 16) + 4 * 2 * 2048 + 16),
        ("one_row", {"m": 1, "n": 100}, 2 * 2, 160, 1024 + 8 * (16384 + 16) + 4 * 2048 + 16),
    ],
)
def test_what_a_preset_launches(point: str, asked: dict[str, int], grid: int, threads: int, shared_bytes: int) -> None:
    """Rows of 16 bytes, whole or not: where they are not, a wgmma kernel lays out all strips of C at once."""
    found = launch(point, **asked)
    assert (found.grid, found.block, found.shared_bytes) == ((grid, 1, 1), (threads, 1, 1), shared_bytes)


@pytest.mark.parametrize("rows", [1, 3, 16, 33, 44, 66, 100])
@pytest.mark.parametrize("columns", [1, 4, 11, 16])
def test_no_more_blocks_stay_than_take_the_tiles_in_as_many_rounds(rows: int, columns: int) -> None:
    (found, _, _), tiles = launch("large", m=rows * 128, n=columns * 256).grid, rows * columns
    rounds = -(-tiles // 132)
    assert found <= 132
    assert -(-tiles // found) == rounds
    assert found == 1 or -(-tiles // (found - 1)) > rounds


def test_rows_of_c_take_more_than_the_ring_where_it_is_small() -> None:
    values = {"block_m": 32, "block_n": 128, "block_k": 16, "warp_m": 16, "warp_n": 64, "stages": 2}
    found = KERNEL.launch_of(KERNEL.problem({**SIZES, "wide": 1}), KERNEL.configuration(values))
    assert found.shared_bytes == 4 * 16 * (64 * 4 + 16) > 2 * (32 + 128) * 16 * 2


@pytest.mark.parametrize("point", ["plain", "large"])
def test_operands_that_do_not_lie_as_they_must_are_packed(point: str) -> None:
    assert launch(point).steps == ()
    assert launch(point).scratch_bytes == 0
    assert launch(point, k=50, a_pitch=80, b_pitch=4104, m=33, n=44).steps == (), "their lines begin on 16 bytes"
    odd = launch(point, m=33, n=45, k=50, batch=3)
    assert odd.scratch_bytes == 3 * (33 * 64 + 50 * 64) * 2
    assert [step.entry_suffix for step in odd.before] == ["_pack"]
    assert odd.before[0].grid[1:] == (3, 1)
    only_b = launch(point, m=33, n=45, k=64)
    assert only_b.scratch_bytes == 64 * 64 * 2


@pytest.mark.parametrize(("dtype", "itemsize"), [("bfloat16", 2), ("tf32", 4), ("int8", 1), ("float64", 8)])
def test_packed_lines_begin_on_128_bytes(dtype: str, itemsize: int) -> None:
    """As the L2 cache's do: a line of a tile, of as many bytes, lies in one of these and not in two."""
    asked = KERNEL.problem({"m": 3, "n": 7, "k": 129, "b_turned": 1, "offset": 1}, dtype)
    pitch_bytes = -(-129 * itemsize // 128) * 128
    assert KERNEL.launch_of(asked, KERNEL.configuration({"block_k": 64 // itemsize})).scratch_bytes == 10 * pitch_bytes


def test_many_matrices_are_packed_in_more_than_one_row_of_blocks() -> None:
    (step,) = launch("plain", m=3, n=5, k=7, batch=70_000).before
    assert step == LaunchStep("_pack", (step.grid[0], 32768, 3), (256, 1, 1))


@pytest.mark.parametrize(("turned", "packed"), [({}, 64 * 40), ({"b_turned": 1}, 0), ({"a_turned": 1}, 64 * (36 + 40))])
def test_what_is_not_16_bit_is_multiplied_along_k_alone(turned: dict[str, int], packed: int) -> None:
    asked = KERNEL.problem({"m": 36, "n": 40, "k": 64, **turned}, "tf32")
    assert KERNEL.launch_of(asked, KERNEL.configuration()).scratch_bytes == packed * 4
