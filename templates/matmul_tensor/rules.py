"""Which configurations cannot be right, cannot fit, or cannot be fast."""

from __future__ import annotations

from autotile.kernels import Rule

MMA, WGMMA = "tier != 'mma'", "tier != 'wgmma'"
"""`f"{MMA} or …"`: what holds of one tier alone."""

RULES = (
    Rule("problem.relu == 0 or problem.gelu == 0", "relu and gelu are both asked for: one of them must be off"),
    Rule("problem.dtype != 'int8' or problem.gelu == 0", "gelu is for floating-point numbers, not for sums of int8"),
    Rule(
        "problem.k <= (32768 if problem.itemsize == 1 else 100000) or problem.dtype in ('float64', 'int8')",
        "with k = {problem.k} the error bound of float32 sums proves little; use float64",
    ),
    Rule(
        "problem.k <= 131072 or problem.dtype != 'int8'",
        "with k = {problem.k} sums of int8 products may not fit 32 bits",
    ),
    # Which GPUs.
    Rule(
        "device.compute_capability >= 80", "{device.name} is older than sm_80: its tensor cores know no such products"
    ),
    Rule(
        "problem.dtype not in ('float8_e4m3fn', 'float8_e5m2') or device.compute_capability >= 89",
        "{device.name} is older than sm_89: its tensor cores know no float8",
    ),
    Rule(
        f"{WGMMA} or device.compute_capability == 90",
        "wgmma is for sm_90 alone, not for {device.name}: tier must be mma",
    ),
    Rule(f"{WGMMA} or problem.dtype != 'float64'", "there is no wgmma of float64: tier must be mma"),
    Rule(f"{WGMMA} or device.kind != 'emulator'", "the emulator runs no wgmma: tier must be mma"),
    # What does nothing stays at one value, or the space would hold the same kernel many times.
    Rule(
        f"{WGMMA} or (warp_m == 32 and warp_n == 32 and fragments == 1 and not shift)",
        "warp tiles, fragments and shift are tier mma's: warp_m and warp_n must be 32, fragments 1, shift false",
    ),
    Rule(
        f"{MMA} or (groups == 1 and not pingpong and multicast == 'none' and cluster == 1 and wave == 0 "
        "and rooms == 0)",
        "groups, pingpong, multicast, cluster, wave and rooms are tier wgmma's: they must be 1, false, none, 1, 0 and "
        "0",
    ),
    # Shapes of tier mma.
    Rule(
        f"{MMA} or (is_power_of_two(block_m) and is_power_of_two(block_n))",
        "lines of tiles of {block_m}×{block_n} are swizzled where both are powers of two",
    ),
    Rule(
        f"{MMA} or (block_m % warp_m == 0 and block_n % warp_n == 0)",
        "a block of {block_m}×{block_n} is not made of whole warps of {warp_m}×{warp_n}",
    ),
    Rule(
        f"{MMA} or (block_k * problem.itemsize >= 32 and block_k * problem.itemsize <= 256)",
        "a step of {block_k} is {block_k * problem.itemsize} bytes: 32 at least, as one product takes, and 256 at most",
    ),
    Rule(
        f"{MMA} or threads % ((block_m if a_across else block_k) // width) == 0 "
        "and block_m * block_k // width % threads == 0",
        "{threads} threads do not share A's tile of {block_m}×{block_k} evenly",
    ),
    Rule(
        f"{MMA} or threads % ((block_n if b_across else block_k) // width) == 0 "
        "and block_n * block_k // width % threads == 0",
        "{threads} threads do not share B's tile of {block_n}×{block_k} evenly",
    ),
    Rule(
        f"{MMA} or fragments == 1 or block_k * problem.itemsize % 64 == 0",
        "fragments come in pairs: a step of {block_k} must be an even number of products long",
    ),
    Rule(f"{MMA} or threads <= 512", "{threads} threads: warps of {warp_m}×{warp_n} are too small for this block"),
    Rule(
        f"{MMA} or sums * max(1, problem.itemsize // 4) <= 128",
        "{sums} sums a thread; more than 128 registers of them spill",
    ),
    # Shapes of tier wgmma.
    Rule(
        f"{WGMMA} or block_m % 64 == 0", "wgmma multiplies 64 rows at once: block_m must be a multiple, not {block_m}"
    ),
    Rule(
        f"{WGMMA} or block_n * problem.result_itemsize % 128 == 0 and (not b_across or block_n % span == 0)",
        "tiles are brought and stored in lines of 128 bytes: block_n = {block_n} is not made of such",
    ),
    Rule(
        f"{WGMMA} or block_k % span == 0",
        "tiles are brought in lines of 128 bytes, {span} elements: block_k must be a multiple, not {block_k}",
    ),
    Rule(
        f"{WGMMA} or registers or (groups == 2 if pingpong else block_m % (64 * groups) == 0)",
        "{groups} groups: two take turns, and others have 64 rows of the tile each, or a multiple",
    ),
    Rule(
        f"{WGMMA} or groups < 3 or block_n <= 192",
        "four warps' threads have 128 registers where three groups share a block: too few for {block_n} columns",
    ),
    Rule(
        "not registers or tier == 'wgmma' and problem.itemsize == 4 and problem.a_turned == 0 "
        "and problem.b_turned == 0",
        "what comes by way of registers is B that is stored across k, of 32-bit elements, where A lies along it, in "
        "tier wgmma: else registers must be false",
    ),
    Rule(
        "not registers or block_n == 64 * groups and not pingpong and not shares_k and rooms == 0",
        "a group has 64 columns by way of registers: block_n must be {64 * groups}, not {block_n}, pingpong false, "
        "rooms 0, and k not shared",
    ),
    Rule(
        f"{WGMMA} or rooms <= strips and (whole_c or strips % max(1, rooms) == 0)",
        "a row of the tile has {strips} strips of 128 bytes: it is not stored in whole bands of {rooms}",
    ),
    Rule(
        f"{WGMMA} or sums <= (128 if groups == 3 else 192)",
        "{sums} sums a thread do not fit its registers",
    ),
    Rule(
        f"{WGMMA} or groups > 1 or min_blocks * threads * (sums + 56) <= device.registers_per_sm",
        "{min_blocks} blocks of {threads} threads with {sums} sums each do not fit a multiprocessor",
    ),
    Rule(f"{WGMMA} or groups == 1 or min_blocks == 1", "blocks of several groups reallocate registers: one fits"),
    Rule("multicast == 'none' or cluster == 2", "two blocks share an operand: cluster must be 2, not {cluster}"),
    Rule(
        "not shares_k or (not pingpong and wave == 0)",
        "blocks that share a tile's k take one tile: pingpong must be false and wave 0",
    ),
    Rule(
        "not shares_k or stages * tile_bytes >= block_m * block_n * 4",
        "sums of {block_m}×{block_n} do not fit in the place of the ring",
    ),
    Rule(f"{MMA} or stages <= 8", "{stages} stages: copies of more than 8 steps are never on their way"),
    Rule("not pingpong or wave > 0", "groups take turns at tiles that follow each other: pingpong needs a wave"),
    Rule(
        "wave in (0, device.sm_count * min_blocks)",
        "{device.name} runs {device.sm_count * min_blocks} blocks at once, not {wave}",
    ),
    # What cannot fit.
    Rule(
        "min_blocks * threads <= device.max_threads_per_sm",
        "{min_blocks} blocks of {threads} threads do not fit the {device.max_threads_per_sm} of a multiprocessor",
    ),
    Rule(
        f"{MMA} or min_blocks * threads * (sums * max(1, problem.itemsize // 4) + 56) <= device.registers_per_sm",
        "{min_blocks} blocks of {threads} threads with {sums} sums each do not fit the {device.registers_per_sm} "
        "registers of a multiprocessor",
    ),
    Rule(
        "min_blocks * (shared_bytes + 1024) <= device.shared_bytes_per_sm",
        "{min_blocks} blocks of {shared_bytes} bytes, and 1 KiB each for the system, do not fit the "
        "{device.shared_bytes_per_sm} bytes of shared memory of a multiprocessor",
    ),
    Rule(
        "units * cluster <= 2147483647",
        "{units * cluster} blocks; a grid holds no more than 2147483647",
    ),
    Rule(
        "max(problem.m, problem.n, problem.k) <= 2147482623",
        "a side of {max(problem.m, problem.n, problem.k)}: numbers of 32 bits count to the end of its last tile, so "
        "that 2147482623 is the most",
    ),
    Rule("scratch_bytes <= 68719476736", "{scratch_bytes} bytes of scratch memory; 64 GiB are the most"),
)
