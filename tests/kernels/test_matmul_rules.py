"""Each rule of the matmul is broken, alone, by some configuration, and says so with its numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.space import violations

KERNEL = load_kernel("matmul")
PRESETS = KERNEL.presets
RING: dict[str, Any] = {"staging": "dynamic", "stages": 3, "vector": 4}
WAVE = {**RING, "wave": 132}
CUT = {**RING, "parts": 2, "a_layout": "row", "block_m": 512, "block_n": 32}
SIZES = {"m": 64, "n": 64, "k": 64}


def at(point: str, **changes: Any) -> dict[str, Any]:
    return {**PRESETS.get(point, {}), **changes}


ALONE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"k": 2_000_000}, "with k = 2000000 the error bound of float32 sums"),
    ({}, {"relu": 1, "gelu": 1}, "relu and gelu are both asked for"),
    (at("one_element", block_k=16), {}, "must be 1 (are 1 and 1) and block_k 8 (is 16)"),
    (at("one_element", pad_a=1), {}, "none has no tiles to pad: pad_a and pad_b must be 0 (are 1 and 0)"),
    (at("one_element", lane_map="columns"), {}, "must be rows (are columns and rows), a_layout row (is row)"),
    (at("one_element", lanes_m=2), {}, "a warp along n: lanes_m must be 1, not 2"),
    (at("one_element", vector=2), {}, "vector must be 1, not 2"),
    (at("one_element", staging="static"), {}, "must be equal (are 32, 32 and 8)"),
    (at("default", stages=2), {}, "a ring of 2 tiles needs staging dynamic, not static"),
    (at("default", order="serpentine"), {}, "they must be rows (is serpentine), false and false"),
    (at("default", slices=2), {}, "slices and cluster need a ring"),
    (at("default", parts=2), {}, "parts, wave and packing need a ring"),
    (at("default", store_rows=True), {}, "without one store_rows must be false"),
    ({**WAVE, "parts": 2}, {}, "cut into 2 parts each, or shared by a wave of 132: not both"),
    (at("ring48", unroll=16), {}, "unroll must be 8, not 16"),
    (at("default", unroll=32), {}, "unrolling 32 steps of a tile that has only block_k = 16"),
    (at("default", unroll=2), {}, "8 unrolled steps or more, not 2"),
    (at("registers"), {"dtype": "float64"}, "4 elements of 8 bytes is 32 bytes; one load moves 16 at most"),
    (at("default", block_n=16), {}, "a block of 64×16 is not made of whole warps of 16×32 (4×8 lanes of 4×4)"),
    (at("one_element", block_m=17, block_n=24), {}, "408 threads are not whole warps of 32"),
    (at("default", block_m=48), {}, "192 threads share lines of 48, 64 and 16 elements evenly where all are powers"),
    (at("registers", thread_n=2), {}, "2 columns a thread are not whole words of 16 bytes"),
    (at("default", pad_a=1), {}, "a pad of 1 elements would misalign A's tile, which is read in words of 4"),
    (at("default", pad_b=1), {}, "a pad of 1 elements would misalign B's tile"),
    (at("medium"), {"a_turned": 1}, "must be k_major (is row) with a pad of whole words of 4 (is 4)"),
    (at("ring48", early_barrier=True), {}, "it needs 3 stages or more, not 2"),
    (at("small", slices=16), {}, "16 teams share 32 steps along k in fours: block_k must be a multiple of 64"),
    (at("medium", lanes_m=2), {}, "squares of 4×2 lanes need 4 or 8 lanes along m, not 2"),
    (at("medium"), {"device": "a100"}, "has no clusters of blocks: cluster must be 1"),
    (at("ring48", cluster=16), {}, "a cluster of 16 blocks; 8 are the most"),
    (at("ring48", cluster=3), {}, "8×8 sums a thread are not shared evenly, in words of 16 bytes, by 3 blocks"),
    (WAVE, {"device": "a100"}, "runs 108 units at once, not 132"),
    (at("large_packed"), {"dtype": "float16"}, "elements of 2 bytes are not packed"),
    (at("deep"), {"m": 8192, "n": 8192}, "bytes of scratch memory; 4 GiB are the most"),
    (at("one_row", block_m=2), {}, "thread_m must be block_m (are 1 and 2), thread_n 4 (is 4)"),
    (at("one_row", block_k=8), {}, "take 8 rows of B, 2 times in advance: 4, 8 or 16 a thread"),
    (at("one_row"), {"b_turned": 1}, "reads B along n, where it is stored along k"),
    (at("one_element", block_m=2), {}, "blocks of 2 rows are for staging skinny"),
    (at("large_packed_wide", thread_n=32, thread_m=4), {}, "4×32 elements a thread reuse little of what they read"),
    (at("default", thread_m=1), {}, "1×4 elements a thread are too few"),
    (CUT, {}, "a block of 512×32 reuses little of what it loads"),
    (at("large", block_m=64, block_n=128, vector=2), {"dtype": "float64"}, "registers a thread or more, of 255"),
    (at("one_element", block_m=24, min_blocks=3), {}, "3 blocks of 768 threads do not fit the 2048"),
    (at("default", min_blocks=8), {}, "8 blocks of 256 threads with 48 registers or more do not fit the 65536"),
    (at("tall", block_k=64), {}, "3 blocks of 150528 bytes do not fit the 233472 bytes"),
]
WITH_OTHERS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (at("registers", block_k=2, unroll=8), {}, "rows of tiles of 2, 128 and 128 elements are not made of whole words"),
    (at("default", thread_n=6), {}, "4×6 elements a thread do not divide 64×64 in chunks of 4×4"),
    (at("one_element", staging="static", block_m=17, block_n=17, block_k=17), {}, "would not lie on 16 bytes"),
    (at("large", thread_n=16), {}, "16×16 sums a thread; more than 128 spill"),
]
"""What other rules refuse as well: kept for its words, which say more of why."""


def said(values: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    sizes = {name: value for name, value in {**SIZES, **asked}.items() if name not in ("dtype", "device")}
    problem = KERNEL.problem(sizes, asked.get("dtype"))
    return list(violations(KERNEL, problem, find_gpu(asked.get("device", "h200")), KERNEL.configuration(values)))


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


@pytest.mark.parametrize("point", ["default", *PRESETS])
def test_a_preset_is_refused_by_none(point: str) -> None:
    assert said(at(point), {}) == []
