"""What can be tuned."""

from __future__ import annotations

from autotile.kernels import Parameter

MULTIPROCESSORS = (78, 114, 132)
"""Of the GPUs of sm_90: GH200 and H100 SXM and H200 have 132, an H100 PCIe 114, an H20 78."""

PARAMETERS = (
    Parameter(
        "tier",
        ("mma", "wgmma"),
        "mma",
        "mma: warps multiply from registers, on sm_80 and later; wgmma: groups of four warps multiply from shared "
        "memory, on sm_90",
    ),
    Parameter(
        "block_m", (16, 32, 64, 128, 192, 256), 64, "rows of C that a block computes", searched=(16, 64, 128, 192, 256)
    ),
    Parameter(
        "block_n",
        (16, 32, 64, 128, 192, 256),
        64,
        "columns of C that a block computes",
        searched=(32, 64, 128, 192, 256),
    ),
    Parameter("block_k", (16, 32, 64, 128), 32, "how far along k a tile reaches"),
    Parameter("warp_m", (16, 32, 64), 32, "rows of C that a warp computes in tier mma", searched=(16, 32, 64)),
    Parameter("warp_n", (16, 32, 64), 32, "columns of C that a warp computes in tier mma", searched=(32, 64)),
    Parameter(
        "fragments", (1, 2), 1, "in tier mma 2: the operands of the next product are read while one is multiplied"
    ),
    Parameter(
        "shift",
        (False, True),
        False,
        "in tier mma: lines that begin anywhere are shifted to words on their way, in place of being packed first",
    ),
    Parameter("stages", (2, 3, 4, 5, 6, 7, 8, 10, 12), 3, "tiles in flight", searched=(2, 3, 4, 5, 6, 8)),
    Parameter("groups", (1, 2, 3), 1, "groups of four warps that multiply, in tier wgmma"),
    Parameter(
        "pingpong",
        (False, True),
        False,
        "whether two groups have tiles of their own in turns, so that one stores while the other multiplies",
    ),
    Parameter(
        "multicast",
        ("none", "a", "b"),
        "none",
        "whether the blocks of a cluster lie side by side and share A's tiles, or above each other and share B's",
    ),
    Parameter(
        "cluster",
        (1, 2, 4, 8),
        1,
        "blocks that share an operand (`multicast`), or else a tile's k, and add up in each other's shared memory, in "
        "tier wgmma",
    ),
    Parameter(
        "wave",
        (0, *sorted({count * blocks for count in MULTIPROCESSORS for blocks in (1, 2)})),
        0,
        "blocks that may stay and take tile after tile, in tier wgmma; 0: every tile has a block of its own",
    ),
    Parameter(
        "rooms",
        (0, 1, 2, 3),
        0,
        "strips of C, 128 bytes wide, that a warp lays out in shared memory at once, in tier wgmma; 0: two, or three "
        "where rows of C begin anywhere and have as many",
    ),
    Parameter(
        "registers",
        (False, True),
        False,
        "in tier wgmma: B that is stored across k, of 32-bit elements, is multiplied from registers, in place of being "
        "turned first",
    ),
    Parameter(
        "min_blocks",
        (1, 2, 3, 4),
        1,
        "blocks that must fit a multiprocessor: bounds a thread's registers",
        searched=(1, 2),
    ),
    Parameter(
        "group", (1, 4, 8, 16), 8, "rows of tiles that are walked together, for the L2 cache", searched=(1, 4, 8, 16)
    ),
)
