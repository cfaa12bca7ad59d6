"""The classics explained: each slow one's fault is named, with its line and the remedy; the good ones are let be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TEMPLATE, write_kernel

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.emulator.report import Diagnostic, Protection
from autotile.devices.emulator.work import Work
from autotile.devices.gpus import find_gpu
from autotile.errors import ArgumentTypeError, ConfigurationError, DeviceNotFound, KernelError, UsageError
from autotile.insight import changes, explain
from autotile.insight.barriers import NOTHING, barriers_of
from autotile.insight.beside import beside, with_profile
from autotile.insight.changes import nearest
from autotile.insight.document import document_of
from autotile.insight.explanation import Explanation, Finding, Pattern
from autotile.insight.facts import Facts
from autotile.insight.findings import findings_of
from autotile.insight.machine import Machine
from autotile.insight.roofline import roofline
from autotile.insight.sharing import shared_use
from autotile.insight.words import size
from autotile.kernels import load_kernel
from autotile.kernels.loader import read_folder
from autotile.measure.traced import TracedEntry
from autotile.measure.variant import Variant, make_variant
from autotile.types import Launch

H200 = find_gpu("h200")
MACHINE = Machine(registers=40, loop=(("fused multiply-adds", 4.0),), notes=("nothing was read",))
Explained = Callable[[str], Explanation]


def variant_of(preset: str, kernel: str = "transpose", side: int = 256) -> Variant:
    found = load_kernel(kernel)
    problem = found.problem(dict.fromkeys(found.dimensions, side), "float32")
    return make_variant(found, problem, found.configuration(found.presets[preset]))


@pytest.fixture(scope="module")
def explained(build_home: Path) -> Explained:
    """An explanation by its preset, each made once; of a GPU whose compiler said MACHINE."""
    made: dict[str, Explanation] = {}

    def one(preset: str) -> Explanation:
        if preset not in made:
            name = preset.removeprefix("matmul ")
            variant = variant_of(name, "matmul", 1024) if name != preset else variant_of(preset)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AUTOTILE_HOME", str(build_home))
                patch.setattr(explain, "read_machine", lambda *given: MACHINE)
                patch.setattr(explain, "TRACE_S", 0.01)
                patch.setattr(explain, "BASELINE_S", 0.01)
                made[preset] = explain.explain_variant(variant, H200, changes=False)
        return made[preset]

    return one


@pytest.fixture
def _quick(build_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of the session, a few blocks, and no compiler for GPUs."""
    monkeypatch.setenv("AUTOTILE_HOME", str(build_home))
    monkeypatch.setattr(explain, "read_machine", lambda *given: Machine())
    monkeypatch.setattr(explain, "TRACE_S", 0.01)


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        (
            "strided_reads",
            ("loads from `in`", "1024 bytes apart", "32 sectors where 4", "carry a tile through shared"),
        ),
        ("strided_writes", ("stores to `out`", "1024 bytes apart", "32 sectors where 4", "lanes write neighbouring")),
        ("tile32", ("loads from shared memory", "one bank holds them all", "from 32 elements to 33 elements")),
        (
            "matmul one_element",
            ("again and again", "2 elements for each multiply-add", "load a tile into shared memory"),
        ),
        (
            "matmul tile32",
            ("wavefronts", "for each multiply-add of a warp", "let each thread compute several elements"),
        ),
    ],
)
def test_a_slow_classic_hears_what_is_wrong_and_what_to_change(
    explained: Explained, preset: str, said: tuple[str, ...]
) -> None:
    findings = [str(finding) for finding in explained(preset).findings]
    assert any(all(part in finding for part in said) for finding in findings), findings
    assert "To change: " in findings[0]
    assert not explained(preset).findings[-1].cure  # nothing can be done about what bounds it in any case
    assert findings[-1].startswith("What bounds it is")


def test_a_line_is_told_with_its_code(explained: Explained) -> None:
    (column,) = (p for p in explained("tile32").patterns if p.shape == "column")
    (finding,) = (f for f in explained("tile32").findings if f.line == column.line)
    assert finding.words.startswith(f"Line {column.line} (called from line {column.called_from[-1]}), ")
    assert f"`{column.code}`: loads from shared memory" in finding.words
    assert finding.wasteful
    assert finding.weight_ms is not None
    assert finding.weight_ms > 0
    assert column.code == "out[size_t(c) * out_pitch + r] = tile[place(r, c)];"
    assert (column.per_request, column.ideal_per_request, column.worst) == (32, 1, 32)
    assert column.percent_of_cost == pytest.approx(100 * 32 / 33)


def test_a_good_classic_is_let_be(explained: Explained) -> None:
    wrong = [f for f in explained("tile33").findings if f.line is not None]
    assert wrong == []
    assert all(not p.fix for p in explained("tile33").patterns)


def test_counts_are_of_the_whole_launch(explained: Explained) -> None:
    e = explained("strided_reads")
    assert e.traced_blocks < e.blocks == 64
    assert e.traffic.asked_bytes == e.roofline.least_bytes == 2 * 256 * 256 * 4
    assert e.traffic.moved_bytes == (8 + 1) * 256 * 256 * 4
    assert e.traffic.times_least == 4.5
    passes = {(p.op, p.shape): p.passes / p.requests for p in e.patterns}
    assert passes == {("load", "strided"): 32, ("store", "consecutive"): 1}  # a line each; four sectors are one line


def test_traffic_lies_beside_the_plainest_variants(explained: Explained) -> None:
    traffic = explained("tile33").traffic
    assert traffic.baseline == "strided_reads"
    assert traffic.baseline_moved_bytes == explained("strided_reads").traffic.moved_bytes
    assert explained("strided_reads").traffic.baseline == ""  # it is the plainest itself


def test_a_barrier_tells_what_it_keeps_apart(explained: Explained) -> None:
    (barrier,) = explained("tile33").barriers
    assert barrier.passes == 1
    (store,) = (p for p in explained("tile33").patterns if (p.space, p.op) == ("shared", "store"))
    (load,) = (p for p in explained("tile33").patterns if (p.space, p.op) == ("shared", "load"))
    assert barrier.protects == (f"what line {store.line} stores is there before line {load.line} reads it",)


def test_barriers_in_words() -> None:
    race = [("read-after-write", 3, 5), ("write-after-read", 5, 3), ("write-after-write", 3, 3)]
    protections = tuple(Protection(4, op, first, line, 2) for op, first, line in race)  # type: ignore[arg-type]
    guarding, idle = barriers_of(
        TracedEntry("", 8, 2, (), protections, ((4, 6), (6, 2)), Work(8, 32, 0, 1)), {4: "sync();"}
    )
    assert guarding.protects == (
        "what line 3 stores is there before line 5 reads it",
        "all have read it in line 5 before line 3 overwrites it",
        "what line 3 stores is there before line 3 stores over it",
    )
    assert (guarding.code, guarding.passes) == ("sync();", 3)
    assert (idle.code, idle.protects) == ("", (NOTHING,))


def test_registers_limit_and_the_loop_is_told(explained: Explained) -> None:
    e = explained("tile33")
    assert e.occupancy.registers == 40
    assert (e.occupancy.blocks, e.occupancy.limited_by) == (1, ("registers",))  # 32 warps of 1280 registers
    assert e.instructions == MACHINE.loop
    assert "nothing was read" in e.notes


def facts(explained: Explained, **other: object) -> Facts:
    e = explained("tile33")
    given = Facts(
        H200, Launch((13200, 1, 1), (256, 1, 1)), (), {"DRAM": 1.0, "LSU": 0.5}, 0.1,
        replace(e.occupancy, blocks=8, warps=64),
        roofline(H200, "float32", 0, 4_800_000_000, 1.1), 0, 0,
    )  # fmt: skip
    return replace(given, **other)  # type: ignore[arg-type]


def test_findings_of_the_launch(explained: Explained) -> None:
    (fine,) = findings_of(facts(explained))
    assert fine.words.startswith("Nothing weighty is wrong. What bounds it is the GPU's memory")
    few = facts(explained, launch=Launch((33, 1, 1), (256, 1, 1)))
    assert "33 blocks for 132 multiprocessors: 75 % of the GPU" in str(findings_of(few)[0])
    tail = facts(explained, launch=Launch((140, 1, 1), (256, 1, 1)))
    assert "140 blocks do not divide among 132" in str(findings_of(tail)[0])
    short = facts(explained, roofline=roofline(H200, "float32", 0, 4_800_000, 0.004))
    assert "the launch takes ≈3 µs (estimate)" in str(findings_of(short)[0])
    e = explained("tile33").occupancy
    small = facts(explained, occupancy=replace(e, blocks=1, warps=4, limited_by=("shared memory",)))
    assert "only 4 of 64 warps" in str(findings_of(small)[0])
    assert "less shared memory a block" in str(findings_of(small)[0])
    assert "stores and loads of 24 bytes" in str(findings_of(facts(explained, spill_bytes=24))[0])


def pattern(explained: Explained, **other: object) -> Pattern:
    """Loads of neighbouring elements, as many as the work of `facts` needs, or as told."""
    given = next(p for p in explained("tile33").patterns if (p.space, p.op) == ("global", "load"))
    requests = 4_800_000_000 / 128
    return replace(given, requests=requests, passes=requests, lanes=32.0, per_request=4.0, **other)  # type: ignore[arg-type]


def test_what_is_loaded_again_is_told_of_loads_alone(explained: Explained) -> None:
    units: dict[str, float] = {"L2": 1.0, "LSU": 1.0, "latency": 1.0}
    many = pattern(explained)
    many = replace(many, requests=10 * many.requests, passes=10 * many.passes)
    again = facts(explained, units_ms=units, patterns=(many,))
    assert "10 times the 4.8 GB" in findings_of(again)[0].words
    for told in (
        replace(many, op="store"),  # what is written several times is another matter
        replace(many, lanes=1.0, per_request=4.0, ideal_per_request=4.0),  # sectors are not all needed
    ):
        assert not any("again and again" in f.words for f in findings_of(replace(again, patterns=(told,))))


def test_few_loads_and_more_warps_shorten_the_waiting(explained: Explained) -> None:
    """Where waiting takes longest, it excuses neither loading too often nor a multiprocessor that is half empty."""
    many = pattern(explained)
    given = facts(
        explained, units_ms={"latency": 1.0, "L2": 0.01, "LSU": 0.01}, waited_loads=180.0,
        patterns=(replace(many, requests=50 * many.requests, passes=50 * many.passes),),
        occupancy=replace(explained("tile33").occupancy, blocks=2, warps=16, limited_by=("shared memory",)),
    )  # fmt: skip
    again, few, bound = findings_of(given)
    assert "again and again" in again.words
    assert few.words.startswith("A multiprocessor holds only 16 of 64 warps")
    assert few.cure.startswith("less shared memory a block")
    assert "What bounds it is waiting" in bound.words
    assert len(findings_of(replace(given, waited_loads=1.0, units_ms={"DRAM": 1.0, "latency": 0.2}))) == 1


@pytest.mark.parametrize(("threads", "cure"), [(1, "blocks of whole warps"), (256, "give all lanes of a warp")])
def test_idle_lanes_are_told_and_not_to_be_made_more(explained: Explained, threads: int, cure: str) -> None:
    given = facts(
        explained, units_ms={"latency": 1.0}, launch=Launch((1 << 22, 1, 1), (threads, 1, 1)),
        patterns=(replace(pattern(explained), lanes=1.0, per_request=1.0, ideal_per_request=1.0, requests=1 << 22),),
    )  # fmt: skip
    first = findings_of(given)[0]
    assert first.words.startswith("Requests have 1 of a warp's 32 lanes")
    assert first.cure.startswith(cure)
    assert not any("fewer threads" in f.cure for f in findings_of(given))


def test_a_kernel_that_is_wrong_in_its_last_block_is_wrong(
    build_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few blocks are traced of so many."""
    monkeypatch.setenv("AUTOTILE_HOME", str(build_home))
    monkeypatch.setattr(explain, "read_machine", lambda *given: Machine())
    monkeypatch.setattr(explain, "TRACE_S", 0.01)
    kernel = read_folder(write_kernel(tmp_path, template=TEMPLATE.replace("&& i < n", "&& i <= n")) / "walk")
    variant = make_variant(kernel, kernel.problem({"n": 2_000_001}), kernel.configuration())
    found = explain.explain_variant(variant, H200, changes=False)
    assert found.wrong
    assert "of `in` (8000004 bytes)" in found.findings[0].words


def test_an_access_that_wastes_most_comes_before_what_costs_more(explained: Explained) -> None:
    (column,) = (p for p in explained("tile32").patterns if p.shape == "column")
    units = {"DRAM": 1.0, "LSU": 0.1}
    given = facts(explained, units_ms=units, launch=Launch((33, 1, 1), (256, 1, 1)), patterns=(column,))
    first, second, *_ = findings_of(given)
    assert first.wasteful
    assert "33 blocks" in second.words
    assert first.weight_ms is not None
    assert second.weight_ms is not None
    assert first.weight_ms < second.weight_ms


def test_two_ways_to_one_line_are_told_apart(explained: Explained) -> None:
    (column,) = (p for p in explained("tile32").patterns if p.shape == "column")
    two = (replace(column, called_from=(7, 13)), replace(column, called_from=(8, 13)))
    words = [f.words for f in findings_of(facts(explained, patterns=two)) if f.line == column.line]
    assert ["(called from line 7, from line 13)" in said for said in words] == [True, False]
    assert "(called from line 8, from line 13)" in words[1]


def test_an_array_in_local_memory_is_told_with_its_line(explained: Explained) -> None:
    given = facts(explained, local_arrays=((9, "sums[at] += x;"), (4, ""), (5, "")))
    first = findings_of(given)[0]
    assert first.words.startswith(
        "Line 9, `sums[at] += x;` (so with lines 4, 5): an array of each thread's own lies in local memory"
    )
    assert "let all indices be constants" in first.cure
    assert (first.line, first.weight_ms) == (9, None)


def test_a_fault_comes_before_all_else(explained: Explained) -> None:
    fault = Diagnostic("division_by_zero", "load", 7, None, 0, None, 0, None, 1, "")
    assert findings_of(facts(explained), [fault]) == (
        Finding("It is wrong: integer division by zero (or overflow) at line 7 by thread 0 of block 0.", line=7),
    )
    outside = Diagnostic(
        "out_of_bounds", "load", 7, None, 0, None, 0, None, 1, "4 bytes at byte 8 of argument 1 (8 bytes)"
    )
    for names, said in ((["in", "out"], "of `out` (8 bytes)"), ([], "of argument 1 (8 bytes)")):
        assert said in findings_of(facts(explained), [outside], names)[0].words


def test_units_overlap_so_only_a_busy_one_counts(explained: Explained) -> None:
    given = facts(explained)
    assert 0 < given.saved_ms({"LSU": 0.0}) < 0.02 * given.roofline.time_ms < 0.1 * given.saved_ms({"DRAM": 0.5})
    lone = replace(given, units_ms={"LSU": 0.5, "latency": 0.5}, alone=1.0)  # its own work is part of a block's way
    assert lone.saved_ms({"LSU": 0.0}) > 0.3 * given.roofline.time_ms


def test_the_roofline_is_the_data_sheets() -> None:
    line = roofline(H200, "float32", 2 * 4096**3, 3 * 4096**2 * 4, 4.0)
    assert (line.bound, line.peak_tflops) == ("arithmetic", pytest.approx(66.9, abs=0.1))
    assert line.attainable_ms == pytest.approx(2.054, abs=1e-3)
    assert line.percent == pytest.approx(51.4, abs=0.1)
    assert roofline(H200, "float64", 1, 1, 1.0).peak_tflops == pytest.approx(33.5, abs=0.1)  # without tensor cores
    with_tensor_cores = roofline(H200, "bfloat16", 1, 1, 1.0, tensor_cores=True)
    assert with_tensor_cores.peak_tflops == pytest.approx(H200.peak_tflops("bfloat16"))
    assert roofline(H200, "bfloat16", 1, 1, 1.0).peak_tflops == pytest.approx(H200.fp32_tflops)
    assert roofline(H200, "float32", 0, 48 * 10**8, 1.0).attainable_ms == pytest.approx(1.0)


def test_shared_memory_beyond_48_kib_is_said_to_be_opted_in() -> None:
    plain, large = shared_use(H200, 256, 49152, 0), shared_use(H200, 256, 0, 99328)
    assert not plain.needs_optin
    assert "without being asked" in plain.words
    assert large.needs_optin
    for part in ("beyond the 48 KiB", "cudaFuncSetAttribute", "227 KiB a block", "2 blocks fit a multiprocessor"):
        assert part in large.words
    assert "no shared memory" in shared_use(H200, 256, 0, 0).words
    assert [size(n) for n in (960, 49152, 134217728, 3.44e11)] == ["960 bytes", "48 KiB", "134 MB", "344 GB"]


def test_a_baseline_is_a_preset() -> None:
    with pytest.raises(KernelError, match=r"baseline 'tile3' is no preset of it \(did you mean 'tile33'"):
        replace(load_kernel("transpose"), baseline="tile3")


# ---- changes --------------------------------------------------------------------------------------------------------


def test_neighbours_differ_in_one_parameter_the_nearest_first() -> None:
    kernel = load_kernel("transpose")
    now = kernel.configuration(kernel.presets["tile32"])
    found = list(nearest(kernel, now))
    assert all([name for name in now if now[name] != other[name]] == [step] for step, other in found)
    usual = {"block_threads": 256}  # a default comes with the nearest; names have no order
    first = {step for step, other in found[:12] if step not in usual or other[step] == usual[step]}
    assert first == {"staging", "layout", "block_order", "block_threads"}
    rows = [other["tile_rows"] for step, other in found if step == "tile_rows"]
    assert rows == [16, 64, 128, 256, 512]


@pytest.mark.usefixtures("_quick")
def test_a_change_that_gains_is_told_with_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        changes, "nearest", lambda kernel, now: iter([("layout", kernel.configuration({**now, "layout": "padded"}))])
    )
    (change,) = explain.explain_variant(variant_of("tile32", side=2048), H200).changes
    assert (change.name, change.value) == ("layout", "padded")
    assert change.words.startswith("32 → 1 wavefronts a shared load, ≈")
    assert change.words.endswith("ms (estimate)")


# ---- the face -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_quick")
def test_from_python(explained: Explained) -> None:
    found = autotile.explain("transpose", rows=256, cols=256, preset="tile32", device="h200", changes=False)
    assert [(p.line, p.words) for p in found.patterns] == [(p.line, p.words) for p in explained("tile32").patterns]
    assert str(found).startswith("transpose 256×256 float32 on NVIDIA H200: ≈")
    other = autotile.explain(
        "transpose", rows=256, cols=256, config=dict(found.configuration), device="emulator:a100-40gb", changes=False
    )
    assert (other.configuration, other.device) == (found.configuration, "NVIDIA A100-SXM4-40GB")


@pytest.mark.usefixtures("_quick")
def test_what_was_loaded_is_explained() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was tuned
        loaded = autotile.load("transpose", rows=256, cols=256, device="emulator")
    found = autotile.explain(loaded, changes=False)
    assert dict(found.configuration) == dict(loaded.config)
    with pytest.raises(ArgumentTypeError, match="given alone"):
        autotile.explain(loaded, rows=3)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"preset": "tile3"}, ConfigurationError, "did you mean 'tile33'"),
        ({"config": {"tile_rows": 48, "tile_cols": 16, "block_threads": 1024}}, ConfigurationError, "not a feasible"),
        ({"device": "h300"}, UsageError, "unknown device 'h300'"),
        ({"device": "emulator:h300"}, DeviceNotFound, "not in the table"),
        ({"device": "replay:x.json"}, UsageError, "runs nothing"),
        ({"config": [1]}, ArgumentTypeError, "a dict of parameters"),
        ({"profile": 1}, ArgumentTypeError, "True or False"),
    ],
)
def test_what_cannot_be_explained(given: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        autotile.explain("transpose", **{"rows": 64, "cols": 64, "device": "h200", **given})  # type: ignore[arg-type]


# ---- the profiler ---------------------------------------------------------------------------------------------------


def test_counters_lie_beside_the_emulators(explained: Explained) -> None:
    found = beside(explained("tile32"), {"wavefronts_a_shared_load": 32.5, "bank_conflicts": 9.0, "dram_percent": 61.0})
    conflicts = 31 * 256 * 256 / 32
    assert found == (
        ("wavefronts_a_shared_load", 32.0, 32.5), ("bank_conflicts", conflicts, 9.0), ("dram_percent", None, 61.0),
    )  # fmt: skip


def test_where_nothing_can_be_counted_the_explanation_says_why(explained: Explained) -> None:
    found = with_profile(explained("tile32"), variant_of("tile32"), EmulatorDevice())
    assert found.profile == ()
    assert "Nsight Compute counted nothing" in found.notes[-1]


def test_as_an_object_of_json(explained: Explained) -> None:
    document = document_of(explained("tile32"))
    assert document["configuration"]["layout"] == "plain"
    assert document["occupancy"]["limits"]["registers"] == 1
    assert document["units_ms"].keys() >= {"DRAM", "L2"}
    assert document["patterns"][0]["words"]
