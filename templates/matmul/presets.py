"""Named points of the space: the classics, then those from which a search begins, which did well on an H200."""

from __future__ import annotations

from typing import Any

PLAIN = {"thread_m": 1, "thread_n": 1, "lanes_m": 1, "a_layout": "row", "pad_a": 0, "pad_b": 0, "vector": 1}

RING = {"staging": "dynamic", "vector": 4, "stages": 4, "unroll": 8, "early_barrier": True}
LARGE = {
    **RING, "block_m": 128, "block_n": 256, "block_k": 16, "thread_m": 16, "thread_n": 8, "lanes_m": 4,
    "order": "serpentine", "spread": True,
}  # fmt: skip
MEDIUM = {
    **RING, "block_m": 128, "block_n": 128, "block_k": 16, "thread_m": 8, "thread_n": 8, "lanes_m": 4,
    "lane_map": "squares", "cluster": 2,
}  # fmt: skip
SMALL = {
    **RING, "block_m": 32, "block_n": 32, "block_k": 32, "thread_m": 4, "thread_n": 4, "lanes_m": 8,
    "lane_map": "squares", "a_layout": "row", "early_barrier": False, "slices": 2,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    # from the plainest on
    "one_element": {**PLAIN, "staging": "none", "block_m": 32, "block_n": 32, "block_k": 8, "unroll": 4},
    "tile32": {**PLAIN, "staging": "static", "block_m": 32, "block_n": 32, "block_k": 32, "unroll": 2},
    "registers": {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8, "vector": 4},
    "ring48": {
        **RING, "block_m": 128, "block_n": 128, "block_k": 16, "thread_m": 8, "thread_n": 8, "stages": 2,
        "early_barrier": False,
    },
    # large matrices, as they are, wider, and packed first
    "large": LARGE,
    "large_wide": {
        **LARGE, "block_k": 32, "thread_m": 8, "thread_n": 16, "order": "column_serpentine", "group": 16,
    },
    "large_packed": {
        **LARGE, "block_m": 256, "block_n": 128, "lane_map": "columns", "pack_a": True, "pack_b": True, "group": 8,
    },
    "large_packed_wide": {
        **LARGE, "thread_m": 8, "thread_n": 16, "order": "column_serpentine", "pack_a": True, "pack_b": True,
        "group": 16, "store_rows": True,
    },
    # a few waves of tiles, and less than one
    "medium": {**MEDIUM, "a_layout": "row", "spread": True},
    "medium_flat": {**MEDIUM, "block_k": 8, "order": "columns"},
    "tall": {
        **RING, "block_m": 64, "block_n": 128, "block_k": 16, "thread_m": 8, "thread_n": 8, "lanes_m": 8, "stages": 3,
        "order": "column_serpentine", "min_blocks": 3,
    },
    "small": SMALL,
    "tiny": {**SMALL, "lane_map": "rows", "stages": 5, "early_barrier": True},
    "small_odd": {
        **SMALL, "block_n": 64, "block_k": 16, "lanes_m": 4, "early_barrier": True, "slices": 1, "cluster": 4,
    },
    # few rows, few columns, a long k
    "few_rows": {
        **RING, "block_m": 16, "block_n": 64, "block_k": 64, "thread_m": 4, "thread_n": 4, "lanes_m": 2, "stages": 6,
        "early_barrier": False, "slices": 4, "cluster": 2,
    },
    "one_row": {
        **PLAIN, "staging": "skinny", "block_m": 1, "block_n": 128, "block_k": 32, "thread_n": 4, "vector": 4,
        "stages": 2, "slices": 4, "cluster": 8,
    },
    "few_columns": {
        **RING, "block_m": 64, "block_n": 32, "block_k": 32, "thread_m": 8, "thread_n": 8, "lanes_m": 8, "stages": 5,
        "a_layout": "row", "order": "row_pairs", "slices": 4, "cluster": 2, "min_blocks": 2, "group": 8,
    },
    "deep": {
        **RING, "block_m": 64, "block_n": 128, "block_k": 16, "thread_m": 8, "thread_n": 8, "lanes_m": 8,
        "order": "column_pairs", "cluster": 2, "parts": 66,
    },
}  # fmt: skip
