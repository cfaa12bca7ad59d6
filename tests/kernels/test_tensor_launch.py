"""What the matmul on tensor cores launches beside its blocks: tensor maps, and the packing of operands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting_kernel import TOLD, write_waiting

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.base import Check
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.errors import AutotileError, KernelError, UnsupportedByEmulator
from autotile.kernels import Map, load_kernel
from autotile.kernels.validation import validate
from autotile.measure import Variant, make_variant, make_workload
from autotile.types import Launch, TensorMap

KERNEL, DEVICE = load_kernel("matmul_tensor"), EmulatorDevice()
ARGUMENTS = [argument.name for argument in KERNEL.arguments]
A, B, C, SCRATCH = (ARGUMENTS.index(name) for name in ("a", "b", "c", "scratch"))
WGMMA = [name for name, values in KERNEL.presets.items() if values.get("tier") == "wgmma"]
SHARES = [name for name in WGMMA if KERNEL.presets[name].get("multicast", "none") != "none"]
SIZES = {"m": 512, "n": 768, "k": 640}


def launch(point: str, dtype: str = "bfloat16", changes: Any = None, **asked: int) -> Launch:
    problem = KERNEL.problem({**SIZES, **asked}, dtype)
    return KERNEL.launch_of(problem, KERNEL.configuration({**KERNEL.presets[point], **(changes or {})}))


# ---- maps as a kernel declares them ---------------------------------------------------------------------------------


def declared(**changes: Any) -> Map:
    return replace(Map("a", ("problem.k", "problem.m"), ("problem.a_pitch",), ("span", "block_m")), **changes)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"box": ("span",)}, "not 2, 1 and 1"),
        ({"strides": ()}, "not 2, 2 and 0"),
        ({"strides": ("2", "problem.a_pitch")}, "not 2, 2 and 2"),
        ({"sizes": ("1",) * 6, "strides": ("1",) * 5, "box": ("1",) * 6}, "not 6, 6 and 5"),
    ],
)
def test_a_map_has_as_many_sides_as_sizes(changes: dict[str, Any], counts: str) -> None:
    with pytest.raises(KernelError, match=f"map of a: up to 5 sizes, as many sides of a box, and a stride .* {counts}"):
        declared(**changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"array": "alpha"}, "map of 'alpha': no array and no scratch memory of the kernel is called so"),
        ({"array": "d"}, "map of 'd': no array"),
        ({"of": "sum"}, "map of 'a': of must be element or result, not 'sum'"),
        ({"sizes": ("problem.depth", "1")}, "map of a: unknown name 'problem.depth'"),
        ({"box": ("spam", "1")}, r"map of a: unknown name 'spam' \(did you mean 'span'\?\)"),
        ({"offset": "device.sm_count"}, "map of a: unknown name 'device.sm_count'"),
        ({"when": "aligned"}, "map of a: unknown name 'aligned'"),
    ],
)
def test_a_map_that_cannot_be_meant_is_an_error(changes: dict[str, Any], says: str) -> None:
    kernel = replace(KERNEL, launch=replace(KERNEL.launch, maps=(declared(**changes),)))
    with pytest.raises(AutotileError, match=says):
        validate(kernel)


def test_sides_of_a_map_are_whole_numbers() -> None:
    kernel = replace(KERNEL, launch=replace(KERNEL.launch, maps=(declared(box=("span / 3", "1")),)))
    with pytest.raises(AutotileError, match="map of a, box"):
        kernel.launch_of(KERNEL.problem(SIZES), KERNEL.configuration())


def test_maps_follow_from_the_rest_and_are_not_compared() -> None:
    found = launch("large")
    assert found.maps
    assert found == replace(found, maps=())


# ---- maps of the presets --------------------------------------------------------------------------------------------


def test_tier_mma_has_none() -> None:
    assert launch("plain").maps == launch("portable", m=511, k=639).maps == ()


def test_maps_of_whole_operands() -> None:
    assert launch("large").maps == (
        TensorMap(A, "bfloat16", 0, (640, 512), (1280,), (64, 128)),
        TensorMap(B, "bfloat16", 0, (768, 640), (1536,), (64, 64)),
        TensorMap(C, "bfloat16", 0, (768, 512), (1536,), (64, 16)),
    )


def test_maps_of_turned_operands() -> None:
    """Boxes are 128 bytes of a line as it is stored, and as many lines as a tile has."""
    a, b, _ = launch("large", a_turned=1, b_turned=1).maps
    assert (a.sizes, a.strides_bytes, a.box) == ((512, 640), (1024,), (64, 64))
    assert (b.sizes, b.strides_bytes, b.box) == ((640, 768), (1280,), (64, 256))


@pytest.mark.parametrize(("m", "rows"), [(1, 16), (16, 16), (17, 64)])
def test_of_few_rows_no_more_are_brought(m: int, rows: int) -> None:
    assert launch("few_rows", m=m).maps[0].box == (64, rows)
    assert launch("few_rows", m=m, b_turned=1, batch=2).maps[0].box == (64, rows, 1)


def test_maps_of_a_batch_with_gaps() -> None:
    """What lies beyond a line, and beyond a matrix, is outside of the map. One matrix has no third dimension."""
    pitched = {"m": 70, "n": 44, "k": 50, "batch": 3, "a_pitch": 80, "b_pitch": 88, "a_step": 90, "b_step": 60}
    found = launch("small", c_pitch=48, c_step=71, **pitched)
    a, b = found.maps
    assert (a.sizes, a.strides_bytes) == ((50, 70, 3), (160, 90 * 160))
    assert (b.sizes, b.strides_bytes) == ((44, 50, 3), (176, 60 * 176))
    assert found.steps == (), "C's rows, of 88 bytes, do not end on a word: they are stored without a map"
    assert launch("small", **{**pitched, "n": 40}, c_pitch=48, c_step=71).maps[2] == TensorMap(
        C, "bfloat16", 0, (40, 70, 3), (96, 71 * 96), (64, 16, 1)
    )


@pytest.mark.parametrize(
    ("dtype", "span", "result", "result_span"),
    [("float16", 64, "float32", 32), ("tf32", 32, "float32", 32), ("int8", 128, "int32", 32)],
)
def test_boxes_are_128_bytes_wide_in_every_type(dtype: str, span: int, result: str, result_span: int) -> None:
    a, b, c = launch("large", dtype, {"block_k": span}, b_turned=1, wide=1).maps
    assert [(one.dtype, one.box) for one in (a, b, c)] == [
        (dtype, (span, 128)), (dtype, (span, 256)), (result, (result_span, 16)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("multicast", "turned", "lines"),
    [("none", 0, (128, 64)), ("a", 0, (64, 64)), ("b", 0, (128, 32)), ("b", 1, (128, 64)), ("a", 1, (64, 128))],
)
def test_of_what_two_blocks_share_each_brings_a_half(multicast: str, turned: int, lines: tuple[int, int]) -> None:
    changes = {"multicast": multicast, "cluster": 1 if multicast == "none" else 2}
    a, b, _ = launch("in_turns", changes=changes, b_turned=turned).maps
    assert (a.box[1], b.box[1]) == lines


def test_a_flat_a_is_brought_whole_by_each_block_that_does_not_share_it() -> None:
    """Sixteen of its rows, or else half of a tile that is as high as any."""
    a, b, _ = launch("few_rows", m=16).maps
    assert (a.box[1], b.box[1]) == (16, 64)
    shared = launch("small", changes={"multicast": "a", "cluster": 2}, m=16).maps
    assert (shared[0].box[1], shared[1].box[1]) == (32, 64)


def test_maps_of_packed_operands_lie_in_the_scratch_memory() -> None:
    """A of every matrix, then B."""
    a, b = launch("small", m=33, n=45, k=50, batch=3).maps
    assert a == TensorMap(SCRATCH, "bfloat16", 0, (50, 33, 3), (128, 33 * 128), (64, 64, 1))
    assert b == TensorMap(SCRATCH, "bfloat16", 3 * 33 * 128, (45, 50, 3), (128, 50 * 128), (64, 64, 1))
    a, b, c = launch("small", m=33, n=48, k=50).maps
    assert (a.argument, b.argument, c.argument) == (SCRATCH, B, C)


def test_what_is_turned_as_it_is_packed_is_mapped_as_it_is_multiplied() -> None:
    a, b, _ = launch("small", "tf32", {"block_k": 32}, m=36, n=48, k=50, a_turned=1).maps
    assert a == TensorMap(SCRATCH, "tf32", 0, (50, 36), (256,), (32, 64))
    assert b == TensorMap(SCRATCH, "tf32", 36 * 256, (50, 48), (256,), (32, 128))


@pytest.mark.parametrize("asked", [{}, {"m": 511, "n": 767, "k": 639}, {"n": 44, "c_pitch": 48, "b_pitch": 48}])
@pytest.mark.parametrize("point", ["large", "few_rows", "in_turns_shared"])
def test_each_function_takes_as_many_maps_as_the_launch_has(point: str, asked: dict[str, int]) -> None:
    problem = KERNEL.problem({**SIZES, **asked})
    text = render(KERNEL, problem, KERNEL.configuration(KERNEL.presets[point])).text
    found = launch(point, **asked)
    assert text.count("const __grid_constant__ TensorMap") == len(found.maps) * (1 + len(found.steps))


def test_every_map_is_one_that_the_driver_takes() -> None:
    """Begins on 16 bytes, strides of whole words, boxes of at most 256 lines of 128 bytes (CUDA Driver API,
    cuTensorMapEncodeTiled)."""
    sizes = ({}, {"m": 511, "n": 767, "k": 639, "batch": 2}, {"a_turned": 1, "b_turned": 1, "wide": 1})
    for point in WGMMA:
        for asked in sizes:
            for one in launch(point, **asked).maps:
                itemsize = 4 if one.dtype == "float32" else 2
                assert one.offset_bytes % 16 == 0
                assert all(stride % 16 == 0 for stride in one.strides_bytes)
                assert one.box[0] * itemsize == 128
                assert max(one.box) <= 256


@pytest.mark.parametrize("asked", [{}, {"m": 511, "n": 767, "k": 639}])
def test_tier_wgmma_may_begin_while_its_operands_are_packed(asked: dict[str, int]) -> None:
    """It waits for them itself; tier mma begins once they are there."""
    for point in KERNEL.presets:
        found, problem = launch(point, **asked), KERNEL.problem({**SIZES, **asked})
        text = render(KERNEL, problem, KERNEL.configuration(KERNEL.presets[point])).text
        assert found.overlap == (point in WGMMA)
        assert ("griddepcontrol.wait" in text) == (point in WGMMA and bool(found.before))


def text_of(point: str) -> str:
    problem = KERNEL.problem(SIZES, "tf32" if KERNEL.presets[point].get("registers") else "bfloat16")
    return render(KERNEL, problem, KERNEL.configuration(KERNEL.presets[point])).text


@pytest.mark.parametrize("point", WGMMA)
def test_barriers_are_made_by_all_warps_and_known_before_anyone_feeds(point: str) -> None:
    text = text_of(point)
    made = "for (int slot = warp; slot < STAGES; slot += GROUPS * 4) {\n            barrier_make(shared.full"
    known = ["__syncthreads();", "barrier.cluster.wait.acquire.aligned"][: 1 + (point in SHARES)]
    order = [made, "fence.mbarrier_init.release.cluster", "fence.proxy.async", *known, "feed(tile, begin + i, Slot(i))"]
    kernel = text[text.index('extern "C" __global__') :]
    places = [kernel.index(part) for part in (*order, "feed(tile, step, slot)")]
    assert places == sorted(places)


@pytest.mark.parametrize("point", WGMMA)
def test_nobody_asks_the_accelerator_by_a_lanes_number(point: str) -> None:
    """Each request would stand in a loop over lanes. What is stored is waited for by the lane that stored it."""
    text = text_of(point)
    asks = re.findall(r"if \((.*)\) .*\b(?:store_box|stores_read<)", text)
    assert asks
    assert all("elected()" in condition for condition in asks)
    assert text.count("if (warp == GROUPS * 4 && elected()) {") == 2, "who feeds"
    assert "lane == 0)" not in text.replace("if (lane == 0) barrier_arrive(", "")


@pytest.mark.parametrize("point", SHARES)
def test_who_multicasts_ends_without_a_barrier_of_the_cluster(point: str) -> None:
    """Its feeder waits until what it fed last has been read by the warps of all blocks."""
    text = text_of(point)
    waits = "barrier_wait(shared.empty + slot.number * 8, slot.parity ^ 1, shared.gave_up);"
    assert text.count(waits) == 2, "once before each slot is filled anew, and for all slots in the end"
    assert text.count("for (int i = 0; i < STAGES; i++, slot.next()) " + waits) == 1
    assert text.index("i++, slot.next()) barrier_wait(shared.empty") > text.rindex("feed(tile, step, slot)")
    assert text.count("barrier.cluster.arrive") == 1, "before anything is brought to another block"
    assert text.index("barrier.cluster.wait") < text.index("const auto give_back")
    (made,) = re.findall(r"barrier_make\(shared\.empty.*, (.*)\);", text)
    pingpong = KERNEL.presets[point].get("pingpong", False)
    assert made == ("4 * CLUSTER" if pingpong else "GROUPS * 4 * CLUSTER"), "every warp tells every block"


def test_a_block_brings_its_part_of_what_is_shared_to_its_own_place() -> None:
    """Not over another block's part, and not another block's lines."""
    (bring,) = re.findall(r"load_box_for\(\(1 << CLUSTER\).*?;", text_of("small_shared"), re.DOTALL)
    assert bring.count("rank * (BLOCK_K / CLUSTER)") == 2
    assert "(slot) + i * BLOCK_K * 128 + rank * (BLOCK_K / CLUSTER) * 128, map" in bring


def test_a_shared_k_is_less_work_for_a_block_and_a_shared_operand_is_not() -> None:
    def effort(point: str, **changes: Any) -> float:
        values = KERNEL.configuration({**KERNEL.presets[point], **changes})
        return KERNEL.effort_of(KERNEL.problem({"m": 512, "n": 512, "k": 4096}), values, find_gpu("h200").scope())

    tile = 64 * 128  # of 32, which have a multiprocessor each
    assert effort("small") == tile * (4096 + 128)
    assert effort("few_rows") == 2 * tile * (4096 / 2 + 128)
    assert effort("small_shared") == 2 * tile * (4096 + 128)


def test_blocks_that_share_k_read_each_other_to_the_end() -> None:
    parts, alone = text_of("few_rows"), text_of("small")
    assert parts.rindex("barrier.cluster.wait") > parts.rindex("store(sums")
    for text in (parts, alone):
        assert "shared.empty + slot.number * 8, slot.parity ^ 1" in text
        assert "i++, slot.next()) barrier_wait(shared.empty" not in text
    assert "barrier.cluster" not in alone


def test_the_kernel_that_waits_for_ever_is_this_one_but_for_a_line(tmp_path: Path) -> None:
    """Of which a GPU's test makes its search: it is written from today's text."""
    write_waiting(tmp_path)
    waiting = load_kernel("waiting", tmp_path)
    values = KERNEL.presets["small"]
    texts = [render(one, one.problem(SIZES), one.configuration(values)).text for one in (KERNEL, waiting)]
    assert texts[0].replace("matmul_tensor", "waiting").replace(TOLD, "").split() == texts[1].split()


# ---- on the emulator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def variant_of(values: dict[str, Any], dtype: str, sizes: dict[str, int]) -> Variant:
    return make_variant(KERNEL, KERNEL.problem(sizes, dtype), KERNEL.configuration(values))


@pytest.mark.parametrize("point", ["large", "few_rows"])
def test_tier_wgmma_is_refused_by_the_name_of_what_is_lacking(builder: Builder, point: str) -> None:
    variant = variant_of(KERNEL.presets[point], "bfloat16", SIZES)
    with pytest.raises(UnsupportedByEmulator, match=r"the emulator cannot run the PTX instruction elect\.sync"):
        builder.build(variant.source)


def check(builder: Builder, variant: Variant, launch: Launch) -> Check:
    with DEVICE.stage(make_workload(KERNEL, variant.problem, 3)) as stage:
        return stage.check(DEVICE.load(builder.build(variant.source)), launch)


@pytest.mark.parametrize(
    ("dtype", "sizes", "pad_bytes"),
    [
        ("bfloat16", {"m": 66, "n": 270, "k": 33, "batch": 2}, 640 - 34 * 16),
        ("tf32", {"m": 66, "n": 70, "k": 33, "batch": 2, "a_turned": 1}, 256 - 9 * 16),
    ],
    ids=["copied", "turned"],
)
def test_no_block_and_no_byte_of_the_packing_is_too_many(
    builder: Builder, dtype: str, sizes: dict[str, int], pad_bytes: int
) -> None:
    """But for what is behind the last line's last word."""
    packed = variant_of({}, dtype, sizes)
    (step,) = packed.launch.before
    assert check(builder, packed, packed.launch).ok
    fewer = replace(step, grid=(step.grid[0] - 1, *step.grid[1:]))
    assert check(builder, packed, replace(packed.launch, before=(fewer,))).wrong
    enough = packed.launch.scratch_bytes - pad_bytes
    assert check(builder, packed, replace(packed.launch, scratch_bytes=enough)).ok
    less = replace(packed.launch, scratch_bytes=enough - 16)
    assert "out-of-bounds" in check(builder, packed, less).detail
