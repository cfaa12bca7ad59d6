"""Matmul on tensor cores: C = act(alpha·A·B + beta·addend + bias), row-major. The template is kernel.cu.j2, the story
README.md.

Beside this file: what C must be (reference.py), what cannot be (rules.py), the parameters (parameters.py), points to
begin from (presets.py). What both matmul kernels have in common is ../_lib/matmul.py.
"""

from __future__ import annotations

from autotile.kernels import (
    Derived,
    Input,
    Kernel,
    LaunchPlan,
    Map,
    Output,
    Scalar,
    Scratch,
    ShapeClass,
    Step,
    Switch,
    Trait,
    beside,
)

NUMERICS, RULES, PARAMETERS, PRESETS = (
    beside(__file__, name) for name in ("reference.py", "rules.py", "parameters.py", "presets.py")
)
SHARED = beside(__file__, "../_lib/matmul.py")

COPYING = "ceil_div(ceil_div({x}_lines, 4) * ceil_div(ceil_div({x}_line, width), 32), 8)"
TURNING = "ceil_div({x}_lines, turn_side) * ceil_div({x}_line, turn_side)"
PACK = {x: f"(({TURNING} if turn_{x} else {COPYING}) if pack_{x} else 0)".format(x=x) for x in "ab"}
"""Blocks that pack an operand: eight warps with 32 words of four lines each, or a square that is turned."""


def maps_of(
    array: str, sizes: tuple[str, str], strides: tuple[str, str], box: tuple[str, str], **more: str
) -> list[Map]:
    """Of matrices, or of one matrix: a third dimension costs time."""
    when = more.pop("when")
    return [
        Map(array, sizes, strides[:1], box, when=f"{when} and problem.batch == 1", **more),
        Map(array, (*sizes, "problem.batch"), strides, (*box, "1"), when=f"{when} and problem.batch > 1", **more),
    ]


def operand_maps(x: str, side: str) -> list[Map]:
    """Of an operand as it is stored, and of its packed copy."""
    shared = f"(cluster if multicast == '{x}' else 1)"
    rows = "a_box_rows" if x == "a" else f"block_{side}"
    box = ("span", f"(block_k if {x}_across else {rows}) // {shared}")
    sizes = (f"{x}_packed_line", f"{x}_packed_lines")
    stored = (f"problem.{x}_pitch", f"problem.{x}_step * problem.{x}_pitch")
    packed = (f"{x}_packed_pitch", f"{x}_packed_lines * {x}_packed_pitch")
    behind = "0" if x == "a" else "problem.batch * packed_a"
    return [
        *maps_of(x, sizes, stored, box, when=f"tier == 'wgmma' and not pack_{x}"),
        *maps_of("scratch", sizes, packed, box, offset=behind, when=f"tier == 'wgmma' and pack_{x}"),
    ]


def operand_values(x: str, side: str) -> tuple[Derived, ...]:
    """What follows from how an operand is stored. Elements that are not 16-bit are multiplied along k alone."""
    turned = f"problem.{x}_turned == 1" if x == "a" else f"problem.{x}_turned == 0"  # its rows lie across k
    unless = " and not registers" if x == "b" else ""
    return (
        Derived(f"turn_{x}", f"{turned} and problem.itemsize != 2{unless}", f"{x.upper()} is turned as it is packed"),
        Derived(f"{x}_across", f"{turned} and not turn_{x}", f"{x.upper()}'s tiles are lines across k"),
        Derived(
            f"whole_{x}",
            f"problem.alignment % 16 == 0 and problem.{x}_pitch * problem.itemsize % 16 == 0",
            f"every line of {x.upper()} begins on a word of 16 bytes",
        ),
        Derived(
            f"pack_{x}",
            f"turn_{x} or not (whole_{x} or shift)",
            f"{x.upper()} is first copied to where it may be brought from",
        ),
        Derived(
            f"shift_{x}", f"shift and not whole_{x} and not turn_{x}", f"{x.upper()} is shifted to words on its way"
        ),
        Derived(f"{x}_lines", f"problem.k if {turned} else problem.{side}", "lines, as it is stored"),
        Derived(f"{x}_line", f"problem.{side} if {turned} else problem.k", "elements of a line, as it is stored"),
        Derived(f"{x}_packed_lines", f"problem.{side} if turn_{x} else {x}_lines", "lines, as it is multiplied"),
        Derived(f"{x}_packed_line", f"problem.k if turn_{x} else {x}_line", "elements of a line, as it is multiplied"),
        Derived(f"{x}_packed_pitch", f"ceil_div({x}_packed_line, span) * span", "elements from packed line to line"),
        Derived(
            f"packed_{x}", f"{x}_packed_lines * {x}_packed_pitch if pack_{x} else 0", "elements of a packed matrix"
        ),
    )


KERNEL = Kernel(
    name="matmul_tensor",
    doc="C = act(alpha·A·B + beta·addend + bias) on tensor cores, any size, layout and batch; row-major",
    dimensions=SHARED["DIMENSIONS"],
    switches=(
        *SHARED["SWITCHES"],
        Switch("wide", "C, addend and bias are float32, whatever A and B are"),
    ),
    wide="wide",
    optional=SHARED["OPTIONAL"],
    dtypes=("bfloat16", "float16", "tf32", "int8", "float8_e4m3fn", "float8_e5m2", "float64"),
    arguments=(
        Input("a", ("batch", "m", "k"), pitch="a_pitch", step="a_step", turned="a_turned"),
        Input("b", ("batch", "k", "n"), pitch="b_pitch", step="b_step", turned="b_turned"),
        Output("c", ("batch", "m", "n"), pitch="c_pitch", step="c_step", of="result"),
        Input("addend", ("batch", "m", "n"), "c_pitch", "c_step", when="addend", may_be="c", of="result"),
        Input("bias", ("n",), when="bias", of="result"),
        Scratch("scratch"),
        Scalar("alpha", 1.0),
        Scalar("beta", 1.0),
        *SHARED["SIZES"],
    ),
    classes=(
        ShapeClass("few rows", "problem.m <= 64"),
        ShapeClass("few columns", "problem.n <= 64"),
        ShapeClass("deep", "problem.k >= 32 * max(problem.m, problem.n)"),
        ShapeClass(
            "odd",
            "problem.n * problem.itemsize % 16 != 0 or problem.k * problem.itemsize % 16 != 0 "
            "or problem.alignment % 16 != 0",
        ),
        ShapeClass("small", "problem.batch * problem.m * problem.n <= 2097152"),
        ShapeClass("large", "problem.m > 0"),
    ),
    parameters=PARAMETERS["PARAMETERS"],
    derived=(
        Derived("width", "16 // problem.itemsize", "elements in a word of 16 bytes"),
        Derived("span", "128 // problem.itemsize", "elements in a line of 128 bytes"),
        *operand_values("a", "m"),
        *operand_values("b", "n"),
        Derived("register_b", "registers and b_across", "B is multiplied from registers"),
        Derived("turn_side", "32 if problem.itemsize == 8 else 64", "side of the squares that are turned at once"),
        Derived(
            "whole_c",
            "problem.alignment % 16 == 0 and problem.c_pitch * problem.result_itemsize % 16 == 0 "
            "and problem.n * problem.result_itemsize % 16 == 0",
            "every row of C begins and ends on a word of 16 bytes, less than which TMA does not store",
        ),
        Derived(
            "few_rows",
            "problem.m <= 16 and block_m == 64 and not a_across and multicast != 'a' and tier == 'wgmma' "
            "and not registers",
            "A's tiles are brought without the rows that A does not have",
        ),
        Derived("a_box_rows", "16 if few_rows else block_m", "rows of A that are brought"),
        Derived("tile_bytes", "(block_m + block_n) * block_k * problem.itemsize", "A's tile and B's"),
        Derived(
            "tiles",
            "ceil_div(problem.m, block_m * (cluster if multicast == 'b' else 1)) "
            "* ceil_div(problem.n, block_n * (cluster if multicast == 'a' else 1)) * problem.batch",
            "tiles of C, those of all blocks of a multicast counted as one",
        ),
        Derived(
            "shares_k", "cluster > 1 and multicast == 'none'", "the blocks of a cluster have parts of one tile's k"
        ),
        Derived(
            "units",
            "ceil_div(tiles, ceil_div(tiles, wave // cluster)) if wave else tiles",
            "tiles that are worked on at once: blocks that stay are no more than take them in as many rounds",
        ),
        Derived("warps", "(block_m // max(1, warp_m)) * (block_n // max(1, warp_n))", "warps of a block in tier mma"),
        Derived("feeders", "128 if groups > 1 else 32", "threads that have tiles brought"),
        Derived(
            "sums",
            "block_m * block_n // 128 // (1 if pingpong else groups) if tier == 'wgmma' else warp_m * warp_n // 32",
            "sums that a thread keeps in registers",
        ),
        # Registers that a group's feeders give up to those that multiply: 65536 of a multiprocessor, in eights.
        Derived("feeder_registers", "32 if groups == 3 else 24 if sums > 160 else 40"),
        Derived("multiplier_registers", "160 if groups == 3 else 240 if sums > 160 else 232"),
        Derived("strips", "block_n * problem.result_itemsize // 128", "lines of 128 bytes in a row of the tile"),
        Derived(
            "strips_at_once",
            "1 if registers else rooms if rooms else strips if strips == 3 and not whole_c else min(2, strips)",
            "strips of C, of 16 rows, that a warp lays out in shared memory at once",
        ),
        Derived(
            "ring_bytes",
            "1024 + stages * (tile_bytes + 16) + groups * 4 * strips_at_once * 2048 + 16",
            "tiles and barriers, strips of C, and what aligns them",
        ),
        Derived(
            "room_bytes",
            "(8 if problem.itemsize == 8 else 16) * (warp_n * problem.result_itemsize + 16)",
            "rows of C that a warp lays out at once, in the ring's place",
        ),
        Derived("batch_y", "32768", "matrices along y of a packing grid, which holds 65535 at most"),
    ),
    launch=LaunchPlan(
        grid=("units * cluster",),
        block=("groups * 128 + feeders if tier == 'wgmma' else warps * 32",),
        shared_bytes="ring_bytes if tier == 'wgmma' else max(stages * tile_bytes, warps * room_bytes)",
        scratch_bytes="problem.batch * (packed_a + packed_b) * problem.itemsize",
        before=(
            Step(
                "pack",
                (f"{PACK['a']} + {PACK['b']}", "min(problem.batch, batch_y)", "ceil_div(problem.batch, batch_y)"),
                ("256",),
                when="pack_a or pack_b",
            ),
        ),
        overlap="tier == 'wgmma'",
        maps=(
            *operand_maps("a", "m"),
            *operand_maps("b", "n"),
            *maps_of(
                "c",
                ("problem.n", "problem.m"),
                ("problem.c_pitch", "problem.c_step * problem.c_pitch"),
                ("128 // problem.result_itemsize", "16"),
                of="result",
                when="tier == 'wgmma' and whole_c",
            ),
        ),
    ),
    rules=RULES["RULES"],
    traits=(
        *SHARED["TRAITS"],
        *(Trait(f"aligned_{x}", f"whole_{x}", f"every line of {x.upper()} begins on a word of 16 bytes") for x in "ab"),
        Trait("flat", "few_rows", "A has 16 rows or fewer, which is all of it that is brought"),
        Trait("batched", "problem.batch > 1", "there are several products"),
        Trait("aligned_c", "whole_c", "every row of C begins and ends on a word of 16 bytes"),
    ),
    presets=PRESETS["PRESETS"],
    baseline="plain",
    tensor_cores=True,
    reference=NUMERICS["reference"],
    error_bound=NUMERICS["error_bound"],
    flops="2 * problem.batch * problem.m * problem.n * problem.k",
    bytes="problem.batch * (problem.itemsize * (problem.m * problem.k + problem.k * problem.n) "
    "+ problem.result_itemsize * (1 + problem.addend) * problem.m * problem.n)",
    effort=(
        "block_m * block_n * cluster * min_blocks "
        "* ceil_div(tiles * cluster, device.sm_count * min_blocks) * (problem.k / (cluster if shares_k else 1) + 128)"
    ),
    trace_sizes=("block_m", "block_n", "block_k * max(4, stages + 1)"),
    check_sizes=(
        (1, 1, 1),
        (31, 1, 63),
        (33, 65, 17),
        (128, 128, 136),
        (257, 63, 129),
        (5, 301, 7),
        (64, 256, 96),
        (300, 520, 264),
        {
            "m": 70,
            "n": 40,
            "k": 56,
            "batch": 3,
            "a_pitch": 80,
            "b_pitch": 88,
            "c_pitch": 48,
            "a_step": 90,
            "c_step": 71,
        },
    ),
)
