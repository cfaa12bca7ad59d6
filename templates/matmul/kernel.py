"""Matmul: C = act(alpha·A·B + beta·addend + bias), row-major. The template is kernel.cu.j2, the story README.md.

Beside this file: what C must be (reference.py), what cannot be (rules.py), points to begin from (presets.py). What both
matmul kernels have in common is ../_lib/matmul.py.
"""

from __future__ import annotations

from autotile.kernels import (
    Derived,
    Input,
    Instead,
    Kernel,
    LaunchPlan,
    Output,
    Parameter,
    Scalar,
    Scratch,
    ShapeClass,
    Step,
    Trait,
    beside,
)

NUMERICS, RULES, PRESETS = (beside(__file__, name) for name in ("reference.py", "rules.py", "presets.py"))
SHARED = beside(__file__, "../_lib/matmul.py")

ORDERS = ("rows", "serpentine", "columns", "column_serpentine", "row_pairs", "column_pairs", "squares")
MULTIPROCESSORS = (40, 46, 58, 68, 80, 82, 84, 108, 114, 128, 132, 142, 148, 170)
WAVES = (0, *sorted({blocks * count for blocks in (1, 2) for count in MULTIPROCESSORS}))
"""Blocks that run at once on GPUs of so many multiprocessors; 0: do not care."""

SIXTEEN_BIT_AND_LESS = (
    "device.compute_capability >= 80 "
    "and problem.dtype in ('float16', 'bfloat16', 'tf32', 'int8', 'float8_e4m3fn', 'float8_e5m2')"
)
DOUBLES = "device.compute_capability in (80, 90, 100) and problem.dtype == 'float64'"

SIXTEENS, SQUARES = (
    "ceil_div(problem.k, 16) * ceil_div(problem.{side}, 256)",
    "ceil_div(problem.k, 32) * ceil_div(ceil_div(problem.{side}, 4) * 4, 32)",
)
PACK_A = f"({SIXTEENS.format(side='m')} if problem.a_turned else {SQUARES.format(side='m')})"
PACK_B = f"({SQUARES.format(side='n')} if problem.b_turned else {SIXTEENS.format(side='n')})"
"""Blocks that copy an operand: 16 rows of k and 256 columns each, or squares of 32 where it must be turned."""

KERNEL = Kernel(
    name="matmul",
    doc="C = act(alpha·A·B + beta·addend + bias), any size, layout and batch; row-major",
    dimensions=SHARED["DIMENSIONS"],
    switches=SHARED["SWITCHES"],
    optional=SHARED["OPTIONAL"],
    dtypes=("float32", "float64", "float16", "bfloat16"),
    instead=(Instead("matmul_tensor", f"({SIXTEEN_BIT_AND_LESS}) or ({DOUBLES})", "tensor cores"),),
    arguments=(
        Input("a", ("batch", "m", "k"), pitch="a_pitch", step="a_step", turned="a_turned"),
        Input("b", ("batch", "k", "n"), pitch="b_pitch", step="b_step", turned="b_turned"),
        Output("c", ("batch", "m", "n"), pitch="c_pitch", step="c_step"),
        Input("addend", ("batch", "m", "n"), pitch="c_pitch", step="c_step", when="addend", may_be="c"),
        Input("bias", ("n",), when="bias"),
        Scratch("scratch"),
        Scalar("alpha", 1.0),
        Scalar("beta", 1.0),
        *SHARED["SIZES"],
    ),
    classes=(
        ShapeClass("few rows", "problem.m <= 32"),
        ShapeClass("few columns", "problem.n <= 32"),
        ShapeClass("deep", "problem.k >= 32 * max(problem.m, problem.n)"),
        ShapeClass("odd", "problem.n % 4 != 0 or problem.k % 4 != 0 or problem.alignment % 16 != 0"),
        ShapeClass("small", "problem.batch * problem.m * problem.n <= 1048576"),
        ShapeClass("large", "problem.m > 0"),
    ),
    parameters=(
        Parameter(
            "staging",
            ("none", "static", "dynamic", "skinny"),
            "static",
            "none: straight from global memory; static or dynamic: through tiles in that kind of shared memory; "
            "skinny: A in shared memory, B once through registers, for few rows",
            searched=("static", "dynamic", "skinny"),
        ),
        Parameter(
            "block_m",
            (1, 2, 4, 8, 16, 32, 64, 128, 256),
            64,
            "rows of C that a block computes",
            searched=(1, 4, 16, 32, 64, 128, 256),
        ),
        Parameter(
            "block_n",
            (16, 32, 64, 128, 256, 512),
            64,
            "columns of C that a block computes",
            searched=(32, 64, 128, 256),
        ),
        Parameter("block_k", (8, 16, 32, 64, 128), 16, "how far along k a tile reaches", searched=(8, 16, 32, 64)),
        Parameter("thread_m", (1, 2, 4, 8, 16), 4, "rows of C that a thread computes", searched=(1, 4, 8, 16)),
        Parameter("thread_n", (1, 4, 8, 16), 4, "columns of C that a thread computes", searched=(4, 8, 16)),
        Parameter(
            "lanes_m",
            (1, 2, 4, 8),
            4,
            "lanes of a warp along m (along k in a skinny kernel), the other 32 / lanes_m lie along n",
        ),
        Parameter(
            "lane_map",
            ("rows", "columns", "squares"),
            "rows",
            "how neighbouring lanes lie in a warp's tile",
            searched=("rows", "squares"),
        ),
        Parameter(
            "warp_order",
            ("rows", "columns"),
            "rows",
            "how neighbouring warps lie in a block's tile",
            searched=("rows",),
        ),
        Parameter("a_layout", ("row", "k_major"), "k_major", "A's tile in shared memory: by rows, or along k"),
        Parameter(
            "pad_a", (0, 1, 4), 4, "elements after each row of A's tile, against bank conflicts", searched=(0, 4)
        ),
        Parameter("pad_b", (0, 4), 0, "elements after each row of B's tile", searched=(0,)),
        Parameter("vector", (1, 2, 4), 2, "elements that one load or store of global memory moves"),
        Parameter(
            "stages",
            (1, 2, 3, 4, 5, 6, 7),
            1,
            "tiles in flight: 1 with two barriers a step, more in a ring with one",
            searched=(1, 2, 3, 4),
        ),
        Parameter(
            "unroll",
            (2, 4, 8, 16, 32),
            8,
            "steps of the innermost loop along k that are unrolled, without a ring",
            searched=(8,),
        ),
        Parameter(
            "order",
            ORDERS,
            "rows",
            "in which a ring's multiply-adds of one k come",
            searched=("rows", "serpentine", "column_serpentine", "column_pairs"),
        ),
        Parameter("spread", (False, True), False, "whether copies to the ring are spread over a step"),
        Parameter("early_barrier", (False, True), False, "whether the ring's barrier comes one k before it is needed"),
        Parameter(
            "slices",
            (1, 2, 4, 8, 16),
            1,
            "teams of warps that share a step's k, and add up in the end",
            searched=(1, 2, 4),
        ),
        Parameter(
            "cluster",
            (1, 2, 4, 8),
            1,
            "blocks that share a tile's k, and add up in each other's shared memory",
            searched=(1, 2, 4),
        ),
        Parameter(
            "parts",
            (1, 2, 4, 8, 16, 32, 64, 66),
            1,
            "parts of each tile's k, added up by another kernel",
            searched=(1, 8, 32),
        ),
        Parameter(
            "wave",
            WAVES,
            0,
            "units (blocks, or clusters) that share evenly what fills no whole wave; 0: none do",
            searched=(0,),
        ),
        Parameter(
            "pack_a",
            (False, True),
            False,
            "whether A is first copied to rows along m that begin on whole words",
            searched=(False,),
        ),
        Parameter(
            "pack_b", (False, True), False, "whether B is first copied to rows along n that begin on whole words"
        ),
        Parameter(
            "store_rows",
            (False, True),
            False,
            "whether rows of C that begin anywhere are laid out in shared memory first",
            searched=(False,),
        ),
        Parameter(
            "min_blocks",
            (1, 2, 3, 4),
            1,
            "blocks that must fit a multiprocessor: bounds a thread's registers",
            searched=(1, 2),
        ),
        Parameter(
            "group", (1, 4, 8, 16), 1, "rows of tiles that are walked together, for the L2 cache", searched=(1, 8)
        ),
    ),
    derived=(
        Derived("textbook", "staging == 'static' and thread_m * thread_n == 1", "one element a thread, from tiles"),
        Derived("ring", "staging == 'dynamic' and stages > 1", "tiles flow through a ring"),
        Derived("sum_bytes", "max(4, problem.itemsize)", "bytes of a sum"),
        Derived("word_bytes", "vector * problem.itemsize", "bytes that one load or store of global memory moves"),
        Derived(
            "chunk_m",
            "min(thread_m, max(1, 16 // problem.itemsize), 4) if a_layout == 'k_major' else 1",
            "rows that a thread reads from shared memory at once",
        ),
        Derived(
            "chunk_n",
            "min(thread_n, max(1, 16 // problem.itemsize), 4)",
            "columns that a thread reads from shared memory at once",
        ),
        Derived("chunk_k", "min(4, 16 // problem.itemsize)", "elements of a row of A that a thread reads at once"),
        Derived(
            "a_bytes",
            "problem.itemsize * "
            "(block_k * (block_m + pad_a) if a_layout == 'k_major' else block_m * (block_k + pad_a))",
            "A's tile in shared memory",
        ),
        Derived("tile_bytes", "a_bytes + problem.itemsize * block_k * (block_n + pad_b)", "A's tile and B's"),
        Derived("sums_bytes", "block_m * block_n * sum_bytes", "the sums of a block's tile"),
        Derived(
            "ring_bytes",
            "max(stages * tile_bytes, slices // 2 * sums_bytes, sums_bytes if cluster > 1 else 0, "
            "sums_bytes // max(1, thread_m) if store_rows else 0)",
            "the ring, in whose place teams and blocks add up, and rows of C are laid out",
        ),
        Derived(
            "skinny_bytes",
            "sum_bytes * max(block_m * (ceil_div(ceil_div(problem.k, block_k), cluster) * block_k + 4), "
            "slices * lanes_m * block_m * block_n)",
            "a block's part of A, in whose place its warps add up",
        ),
        Derived("tiles", "ceil_div(problem.m, block_m) * ceil_div(problem.n, block_n)", "tiles of one matrix"),
        Derived(
            "whole", "0 if parts > 1 else tiles // max(1, wave) * wave if wave else tiles", "tiles that are not cut up"
        ),
        Derived("units", "tiles * parts if parts > 1 else wave", "parts that the other tiles are cut into"),
        Derived(
            "packed",
            "problem.k * 4 * ((ceil_div(problem.m, 4) if pack_a else 0) + (ceil_div(problem.n, 4) if pack_b else 0))",
            "elements of the packed operands of one matrix",
        ),
        Derived("team", "block_m * block_n // max(1, thread_m * thread_n)", "threads that cover a block's tile"),
        Derived("gatherers", "min(8, 1024 // max(32, team))", "parts that a block adds up side by side"),
        Derived("batch_y", "32768", "matrices along y of the grid, which holds 65535 at most; the rest go along z"),
        Derived("sum_registers", "max(1, problem.itemsize // 4)", "registers of one sum"),
        Derived(
            "operand_registers",
            "sum_registers * (thread_m + thread_n if not ring else 2 * (thread_m + thread_n) if a_layout == 'k_major' "
            "else chunk_k * thread_m + 2 * thread_n)",
            "registers of the values that are multiplied, and of the next ones",
        ),
        Derived(
            "least_registers",
            "(4 * block_m + 4 * stages * block_k // (slices * lanes_m)) * sum_registers + 24 if staging == 'skinny' "
            "else sum_registers * thread_m * thread_n + operand_registers + 24",
            "registers below which a thread's sums, and what one step adds to them, would spill",
        ),
    ),
    launch=LaunchPlan(
        grid=(
            "(whole + units) * cluster",
            "min(problem.batch, batch_y)",
            "ceil_div(problem.batch, batch_y)",
        ),
        block=(
            (
                "block_n if staging == 'none' or textbook "
                "else slices * (block_n // max(1, 128 // lanes_m)) * 32 if staging == 'skinny' "
                "else block_m * block_n // (thread_m * thread_n) * slices"
            ),
            "block_m if staging == 'none' or textbook else 1",
        ),
        shared_bytes="skinny_bytes if staging == 'skinny' else 0 if staging != 'dynamic' else ring_bytes if ring "
        "else tile_bytes",
        static_shared_bytes="tile_bytes if staging == 'static' else 0",
        scratch_bytes="problem.batch * "
        "(((units + tiles - whole) * sums_bytes if units else 0) + packed * problem.itemsize)",
        before=(
            Step(
                "pack",
                (
                    f"({PACK_A} if pack_a else 0) + ({PACK_B} if pack_b else 0)",
                    "min(problem.batch, batch_y)",
                    "ceil_div(problem.batch, batch_y)",
                ),
                ("256",),
                when="pack_a or pack_b",
            ),
        ),
        after=(
            Step(
                "gather",
                (
                    "max(1, tiles - whole) * max(1, thread_m * thread_n * sum_bytes // 16)",
                    "min(problem.batch, batch_y)",
                    "ceil_div(problem.batch, batch_y)",
                ),
                ("team * gatherers",),
                when="units > 0 and tiles > whole",
            ),
        ),
    ),
    rules=RULES["RULES"],
    traits=(
        *SHARED["TRAITS"],
        Trait(
            "aligned_a",
            "pack_a or problem.alignment % word_bytes == 0 and problem.a_pitch % vector == 0 "
            "and (problem.m if problem.a_turned else problem.k) % vector == 0",
            "every row of A begins on a whole word, and holds whole words",
        ),
        Trait(
            "aligned_b",
            "pack_b or problem.alignment % word_bytes == 0 and problem.b_pitch % vector == 0 "
            "and (problem.k if problem.b_turned else problem.n) % vector == 0",
            "every row of B begins on a whole word, and holds whole words",
        ),
        Trait(
            "aligned_c",
            "problem.alignment % word_bytes == 0 and problem.c_pitch % vector == 0 and problem.n % vector == 0",
            "every row of C begins on a whole word, and holds whole words",
        ),
        Trait(
            "fits_m", "(ceil_div(problem.m, 4) * 4 if pack_a else problem.m) >= block_m", "a tile is not higher than C"
        ),
        Trait(
            "fits_n", "(ceil_div(problem.n, 4) * 4 if pack_b else problem.n) >= block_n", "a tile is not wider than C"
        ),
    ),
    presets=PRESETS["PRESETS"],
    baseline="one_element",
    reference=NUMERICS["reference"],
    error_bound=NUMERICS["error_bound"],
    flops="2 * problem.batch * problem.m * problem.n * problem.k",
    bytes="problem.batch * problem.itemsize "
    "* (problem.m * problem.k + problem.k * problem.n + (1 + problem.addend) * problem.m * problem.n)",
    effort=(
        "block_m * block_n * ("
        "ceil_div(problem.batch * whole * cluster, device.sm_count) * (problem.k / cluster + 32) + "
        "ceil_div(problem.batch * units * cluster, device.sm_count) * "
        "((tiles - whole) * problem.k / max(1, units) / cluster + 32))"
    ),
    trace_sizes=("block_m", "block_n", "block_k * max(4, stages + 1) * cluster"),
    check_sizes=(
        (1, 1, 1),
        (31, 1, 63),
        (33, 65, 17),
        (100, 100, 100),
        (128, 128, 132),
        (257, 63, 129),
        (5, 301, 7),
        (64, 256, 96),
        {
            "m": 70,
            "n": 36,
            "k": 52,
            "batch": 3,
            "a_pitch": 80,
            "b_pitch": 84,
            "c_pitch": 40,
            "a_step": 90,
            "c_step": 71,
        },
    ),
)
