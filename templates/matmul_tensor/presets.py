"""Named points of the space, from the plainest on; those of tier wgmma did well on an H200."""

from __future__ import annotations

from typing import Any

WGMMA: dict[str, Any] = {
    "tier": "wgmma", "block_m": 128, "block_n": 256, "block_k": 64, "stages": 4, "groups": 2, "wave": 132, "group": 16,
}  # fmt: skip
TALL = {**WGMMA, "block_m": 256, "block_n": 128}
TURNS = {**WGMMA, "block_n": 128, "stages": 6, "pingpong": True, "group": 8}
TURNS_WIDE = {**TURNS, "block_n": 192, "stages": 4}
ALONE = {**WGMMA, "block_m": 64, "block_n": 128, "stages": 8, "groups": 1, "wave": 0, "group": 8}

PRESETS: dict[str, dict[str, Any]] = {
    "plain": {},
    "portable": {
        "block_m": 128, "block_n": 128, "block_k": 32, "warp_m": 64, "warp_n": 64, "stages": 3, "min_blocks": 2,
    },
    "portable_deep": {
        "block_m": 128, "block_n": 256, "block_k": 64, "warp_m": 64, "warp_n": 64, "stages": 3,
    },
    "portable_small": {"block_k": 64, "stages": 3, "min_blocks": 2},
    "portable_odd": {"block_k": 64, "stages": 3, "min_blocks": 2, "shift": True},
    "portable_rows": {
        "block_m": 16, "block_n": 64, "block_k": 128, "warp_m": 16, "fragments": 2, "stages": 8, "group": 1,
    },
    "large": WGMMA,
    "large_once": {**WGMMA, "wave": 0, "group": 8},
    "large_shared": {**WGMMA, "multicast": "b", "cluster": 2, "group": 8},
    "tall": TALL,
    "tall_shared": {**TALL, "multicast": "b", "cluster": 2, "group": 4},
    "tall_beside": {**TALL, "multicast": "a", "cluster": 2, "wave": 0},
    "tall_words": {**TALL, "block_k": 32, "group": 8},
    "tall_registers": {**TALL, "block_k": 32, "group": 8, "registers": True},
    "large_bytes": {**WGMMA, "block_k": 128},
    "in_turns": TURNS,
    "in_turns_wide": TURNS_WIDE,
    "in_turns_shared": {**TURNS_WIDE, "multicast": "b", "cluster": 2},
    "in_turns_deep": {**TURNS_WIDE, "stages": 5, "rooms": 1, "group": 16},
    "small": ALONE,
    "small_shared": {**ALONE, "multicast": "b", "cluster": 2},
    "small_beside": {**ALONE, "block_m": 128, "block_n": 64, "multicast": "a", "cluster": 2},
    "small_square": {**ALONE, "block_n": 64, "multicast": "b", "cluster": 2, "group": 4},
    "few_rows": {**ALONE, "cluster": 2},
    "one_row": {**ALONE, "block_n": 64, "cluster": 2},
}  # fmt: skip
