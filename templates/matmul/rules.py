"""Which configurations cannot be right, cannot fit, or cannot be fast."""

from __future__ import annotations

from autotile.kernels import Rule

REGISTER_TILE = "(staging in ('static', 'dynamic') and not textbook)"

RULES = (
    Rule(
        "problem.k <= 1000000 or problem.dtype == 'float64'",
        "with k = {problem.k} the error bound of float32 sums is a tenth of |A||B| and proves little; use float64",
    ),
    Rule("problem.relu == 0 or problem.gelu == 0", "relu and gelu are both asked for: one of them must be off"),
    # What does nothing stays at one value, or the space would hold the same kernel many times.
    Rule(
        "staging != 'none' or (thread_m == 1 and thread_n == 1 and block_k == 8)",
        "without tiles a thread computes one element and nothing steps: thread_m and thread_n must be 1 "
        "(are {thread_m} and {thread_n}) and block_k 8 (is {block_k})",
    ),
    Rule(
        "staging in ('static', 'dynamic') or (pad_a == 0 and pad_b == 0)",
        "{staging} has no tiles to pad: pad_a and pad_b must be 0 (are {pad_a} and {pad_b})",
    ),
    Rule(
        f"{REGISTER_TILE} or (lane_map == 'rows' and warp_order == 'rows' and a_layout == 'row')",
        "the order of lanes and warps and A's layout count for register tiles alone: lane_map and warp_order must be "
        "rows (are {lane_map} and {warp_order}), a_layout row (is {a_layout})",
    ),
    Rule(
        f"{REGISTER_TILE} or staging == 'skinny' or lanes_m == 1",
        "one element a thread is a warp along n: lanes_m must be 1, not {lanes_m}",
    ),
    Rule(
        f"{REGISTER_TILE} or staging == 'skinny' or vector == 1",
        "single elements are moved: vector must be 1, not {vector}",
    ),
    Rule(
        "not textbook or (block_m == block_n and block_n == block_k)",
        "one element a thread, through tiles, wants square tiles, which each thread helps to load by one element: "
        "block_m, block_n and block_k must be equal (are {block_m}, {block_n} and {block_k})",
    ),
    Rule(
        "staging in ('dynamic', 'skinny') or stages == 1",
        "a ring of {stages} tiles needs staging dynamic, not {staging}: elsewhere stages must be 1",
    ),
    Rule(
        "ring or (order == 'rows' and not spread and not early_barrier)",
        "order, spread and early_barrier are a ring's: without one they must be rows (is {order}), false and false",
    ),
    Rule(
        "ring or staging == 'skinny' or (slices == 1 and cluster == 1)",
        "slices and cluster need a ring: they must be 1",
    ),
    Rule(
        "ring or (parts == 1 and wave == 0 and not pack_a and not pack_b)",
        "parts, wave and packing need a ring: they must be 1, 0 and false",
    ),
    Rule("ring or not store_rows", "rows of C are laid out in a ring's memory: without one store_rows must be false"),
    Rule("parts == 1 or wave == 0", "tiles are cut into {parts} parts each, or shared by a wave of {wave}: not both"),
    Rule(
        "unroll == 8 or not (ring or staging == 'skinny')",
        "a ring's steps, and a skinny kernel's, are unrolled whole: unroll must be 8, not {unroll}",
    ),
    Rule(
        "staging == 'none' or unroll <= block_k",
        "unrolling {unroll} steps of a tile that has only block_k = {block_k}",
    ),
    Rule(
        f"not {REGISTER_TILE} or unroll >= 8",
        "a register tile hides its reads behind 8 unrolled steps or more, not {unroll}",
    ),
    # Shapes.
    Rule(
        "word_bytes <= 16",
        "a word of {vector} elements of {problem.itemsize} bytes is {word_bytes} bytes; one load moves 16 at most",
    ),
    Rule(
        f"not {REGISTER_TILE} or (block_m % (lanes_m * thread_m) == 0 and block_n % (32 // lanes_m * thread_n) == 0)",
        "a block of {block_m}×{block_n} is not made of whole warps of {lanes_m * thread_m}×"
        "{32 // lanes_m * thread_n} ({lanes_m}×{32 // lanes_m} lanes of {thread_m}×{thread_n})",
    ),
    Rule("threads % 32 == 0 and threads >= 32", "{threads} threads are not whole warps of 32"),
    Rule(
        f"not {REGISTER_TILE} or (is_power_of_two(threads) and is_power_of_two(block_m) and is_power_of_two(block_n) "
        "and is_power_of_two(block_k) and is_power_of_two(vector))",
        "{threads} threads share lines of {block_m}, {block_n} and {block_k} elements evenly where all are powers "
        "of two",
    ),
    Rule(
        f"not {REGISTER_TILE} or (block_k % vector == 0 and block_m % vector == 0 and block_n % vector == 0)",
        "rows of tiles of {block_k}, {block_m} and {block_n} elements are not made of whole words of {vector}",
    ),
    Rule(
        "staging == 'skinny' or (block_m % thread_m == 0 and block_n % thread_n == 0 "
        "and thread_m % chunk_m == 0 and thread_n % chunk_n == 0)",
        "{thread_m}×{thread_n} elements a thread do not divide {block_m}×{block_n} in chunks of {chunk_m}×{chunk_n}",
    ),
    Rule(
        f"not {REGISTER_TILE} or thread_n * sum_bytes % 16 == 0",
        "{thread_n} columns a thread are not whole words of 16 bytes",
    ),
    # Words in shared memory must lie on their own size.
    Rule(
        f"not {REGISTER_TILE} "
        "or pad_a % (chunk_m if a_layout == 'k_major' else max(vector, chunk_k if ring else 1)) == 0",
        "a pad of {pad_a} elements would misalign A's tile, which is read in words of "
        "{chunk_m if a_layout == 'k_major' else max(vector, chunk_k if ring else 1)}: use a multiple",
    ),
    Rule(
        f"not {REGISTER_TILE} or pad_b % max(chunk_n, vector) == 0",
        "a pad of {pad_b} elements would misalign B's tile, which is filled and read in words of "
        "{max(chunk_n, vector)}: use a multiple",
    ),
    Rule(
        f"not {REGISTER_TILE} or not (problem.a_turned or pack_a) or a_layout == 'k_major' and pad_a % vector == 0",
        "A lies along m in memory, so its tile must be k_major (is {a_layout}) with a pad of whole words of {vector} "
        "(is {pad_a})",
    ),
    Rule(
        "a_bytes % 16 == 0 and tile_bytes % 16 == 0",
        "tiles of {a_bytes} and {tile_bytes - a_bytes} bytes would not lie on 16 bytes",
    ),
    # The ring.
    Rule(
        "not early_barrier or stages >= 3",
        "an early barrier leaves a slot less to fill: it needs 3 stages or more, not {stages}",
    ),
    Rule(
        "not ring or (block_k % (4 * slices) == 0)",
        "{slices} teams share {block_k} steps along k in fours: block_k must be a multiple of {4 * slices}",
    ),
    Rule(
        "lane_map != 'squares' or lanes_m in (4, 8)",
        "squares of 4×2 lanes need 4 or 8 lanes along m, not {lanes_m}",
    ),
    Rule(
        "cluster == 1 or device.compute_capability >= 90",
        "{device.name} has no clusters of blocks: cluster must be 1",
    ),
    Rule("cluster <= 8", "a cluster of {cluster} blocks; 8 are the most that every GPU with clusters takes"),
    Rule(
        "cluster == 1 or staging == 'skinny' or thread_m * thread_n * sum_bytes // 16 % cluster == 0",
        "{thread_m}×{thread_n} sums a thread are not shared evenly, in words of 16 bytes, by {cluster} blocks",
    ),
    Rule(
        "wave in (0, device.sm_count * min_blocks // cluster)",
        "{device.name} runs {device.sm_count * min_blocks // cluster} units at once, not {wave}",
    ),
    Rule(
        "not (pack_a or pack_b) or problem.itemsize >= 4",
        "elements of {problem.itemsize} bytes are not packed: their rows would not be whole words of 16 bytes",
    ),
    Rule("scratch_bytes <= 4294967296", "{scratch_bytes} bytes of scratch memory; 4 GiB are the most"),
    # Few rows.
    Rule(
        "staging != 'skinny' or (thread_m == block_m and block_m <= 16 and thread_n == 4 "
        "and block_n % (128 // max(1, lanes_m)) == 0 and 32 % max(1, lanes_m) == 0)",
        "a skinny kernel's threads compute all rows, 16 at most, of four columns: thread_m must be block_m "
        "(are {thread_m} and {block_m}), thread_n 4 (is {thread_n}), block_n a multiple of "
        "{128 // max(1, lanes_m)} (is {block_n})",
    ),
    Rule(
        "staging != 'skinny' or (block_k // (slices * lanes_m) in (4, 8, 16) and block_k % (slices * lanes_m) == 0 "
        "and stages * block_k // (slices * lanes_m) <= 16)",
        "{slices} warps with {lanes_m} lanes above each other take {block_k} rows of B, {stages} times in advance: "
        "4, 8 or 16 a thread, and 16 at most on their way",
    ),
    Rule(
        "staging != 'skinny' or problem.b_turned == 0",
        "a skinny kernel reads B along n, where it is stored along k",
    ),
    Rule(
        "staging == 'skinny' or block_m >= 16",
        "blocks of {block_m} rows are for staging skinny: elsewhere 16 are the fewest",
    ),
    # What cannot fit, or not be fast.
    Rule(
        f"not {REGISTER_TILE} or (thread_m <= 4 * thread_n and thread_n <= 4 * thread_m)",
        "{thread_m}×{thread_n} elements a thread reuse little of what they read: one side is more than 4 times "
        "the other",
    ),
    Rule(
        f"not {REGISTER_TILE} or thread_m * thread_n >= 16",
        "{thread_m}×{thread_n} elements a thread are too few to be worth registers: 16 at least",
    ),
    Rule(
        "staging == 'skinny' or (block_m <= 8 * block_n and block_n <= 16 * block_m)",
        "a block of {block_m}×{block_n} reuses little of what it loads: one side is too long for the other",
    ),
    Rule("thread_m * thread_n <= 128", "{thread_m}×{thread_n} sums a thread; more than 128 spill"),
    Rule(
        "least_registers <= min(255, device.max_registers_per_thread)",
        "{least_registers} registers a thread or more, of {device.max_registers_per_thread}",
    ),
    Rule(
        "min_blocks * threads <= device.max_threads_per_sm",
        "{min_blocks} blocks of {threads} threads do not fit the {device.max_threads_per_sm} of a multiprocessor",
    ),
    Rule(
        "min_blocks * threads * least_registers <= device.registers_per_sm",
        "{min_blocks} blocks of {threads} threads with {least_registers} registers or more do not fit the "
        "{device.registers_per_sm} of a multiprocessor: they would spill",
    ),
    Rule(
        "min_blocks * (shared_bytes + static_shared_bytes) <= device.shared_bytes_per_sm",
        "{min_blocks} blocks of {shared_bytes + static_shared_bytes} bytes do not fit the "
        "{device.shared_bytes_per_sm} bytes of shared memory of a multiprocessor",
    ),
)
