"""Data of problems with gaps, offsets and in place: what lies in memory, what a check sees, which problems prove."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Check, Device, compare
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.select import open_device
from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels import Kernel, load_kernel
from autotile.measure import random_data
from autotile.measure.bench import LocalBench
from autotile.measure.estimated import EstimatedSession, emulated_in_full
from autotile.measure.placed import held_bytes, logical
from autotile.measure.random_data import random_array
from autotile.measure.scratch import _nbytes
from autotile.measure.variant import MANY, Inputs, Proof, Variant, make_variant, many_blocks, proofs_of
from autotile.measure.workload import KINDS, Kind, layouts_of, make_workload
from autotile.types import Binary, Problem, Source

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
COPY, SQUARE = (load_kernel(name, KERNELS) for name in ("padded_copy", "square"))
GAPS = {"rows": 5, "cols": 7, "batch": 2, "in_pitch": 10, "out_pitch": 9, "in_step": 6, "out_step": 8}


def variant_of(kernel: Kernel, sizes: dict[str, int], dtype: str = "float32") -> Variant:
    return make_variant(kernel, kernel.problem(sizes, dtype), kernel.configuration())


def elements(array: Array) -> Array:
    """Bytes of each element, so that values of every type compare to the last bit."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, -1)


# ---- what lies in memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", COPY.dtypes)
def test_arrays_with_gaps_are_flat_and_end_with_their_last_element(dtype: str, kind: Kind) -> None:
    problem = COPY.problem(GAPS, dtype)
    made = make_workload(COPY, problem, 3, kind)
    assert made.arguments == ("in", "out", 2, 5, 7, 10, 9, 6, 8)
    assert made.inputs["in"].shape == ((6 + 4) * 10 + 7,)
    assert made.outputs["out"] == (((8 + 4) * 9 + 7,), element_type(dtype).numpy)
    given = logical(made.inputs["in"], made.layouts["in"])
    assert np.array_equal(elements(given)[1, 4, 6], elements(made.inputs["in"])[-1])
    due = logical(made.reference["out"], made.layouts["out"])
    assert np.array_equal(elements(due), elements(given))


@pytest.mark.parametrize("dtype", COPY.dtypes)
def test_before_a_launch_gaps_are_as_they_must_stay_and_elements_as_they_must_not(dtype: str) -> None:
    made = make_workload(COPY, COPY.problem(GAPS, dtype), 3)
    reference, before, layout = elements(made.reference["out"]), elements(made.before["out"]), made.layouts["out"]
    inside = np.array([layout.place(i) is not None for i in range(layout.extent)])
    assert inside.sum() == 2 * 5 * 7
    assert np.array_equal(before[inside], ~reference[inside])
    assert np.array_equal(before[~inside], reference[~inside])
    assert len(np.unique(reference[~inside], axis=0)) > 15, "gaps hold values that tell one from another"


def test_kinds_apply_to_the_elements() -> None:
    problem = COPY.problem(
        {**GAPS, "cols": 40, "rows": 30, "in_pitch": 50, "out_pitch": 45, "in_step": 30, "out_step": 30}
    )
    given = {
        kind: logical((w := make_workload(COPY, problem, 1, kind)).inputs["in"], w.layouts["in"]) for kind in KINDS
    }
    assert np.abs(given["cancelling"].sum(axis=-1)).max() < 1e-4
    special = given["special"].reshape(60, 40)
    assert np.isfinite(special).sum() == special.size - 4
    assert not np.isfinite(special[-1, 0])
    assert np.abs(given["scaled"]).max() > 1000 > 10 > np.abs(given["random"]).max()


def test_special_complex_values_stand_in_arrays_with_gaps() -> None:
    problem = COPY.problem(
        {**GAPS, "cols": 20, "rows": 30, "in_pitch": 21, "out_pitch": 20, "in_step": 30, "out_step": 30}, "complex128"
    )
    made = make_workload(COPY, problem, 1, "special")
    given = logical(made.inputs["in"], made.layouts["in"])
    assert (~np.isfinite(given.real)).sum() == (~np.isfinite(given.imag)).sum() == 2


def test_a_reference_sees_elements_by_index_and_cannot_write_to_them() -> None:
    def writing(inputs: Any, problem: Problem) -> Any:
        assert inputs["in"].shape == (2, 5, 7)
        inputs["in"][0] = 0

    with pytest.raises(KernelError, match=r"read-only.*copy them first"):
        make_workload(replace(COPY, reference=writing), COPY.problem(GAPS))


def test_an_output_with_gaps_may_have_a_bound_which_is_0_in_the_gaps() -> None:
    kernel = replace(
        COPY,
        reference=lambda inputs, problem: {"out": inputs["in"].astype(np.float64)},
        error_bound=lambda inputs, problem: {"out": 0.1},
    )
    made = make_workload(kernel, COPY.problem(GAPS))
    layout, bound, before = made.layouts["out"], made.bound["out"], made.before["out"]
    assert isinstance(bound, np.ndarray)
    assert np.count_nonzero(bound) == 2 * 5 * 7
    assert np.all(logical(bound, layout) == 0.1)
    assert made.reference["out"].dtype == np.float64
    assert np.array_equal(np.isnan(before), bound > 0), "what is not written is NaN, which is within no bound"
    assert np.array_equal(before[bound == 0], made.reference["out"][bound == 0])
    right = before.copy()
    logical(right, layout)[...] = logical(made.inputs["in"], made.layouts["in"]) + np.float32(0.05)

    def judged(out: Array) -> Check:
        return compare(out, made.reference["out"], bound, layout, "out")

    assert judged(right).ok
    assert "first at [0, 0, 0]" in judged(before).detail
    right[7] += np.float32(1e-6)
    assert "between the rows of its output 'out'" in judged(right).detail
    assert make_workload(kernel, COPY.problem({"rows": 3, "cols": 4, "in_pitch": 9})).bound == {"out": 0.1}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda a: a[:1], r"shape \(2, 5, 7\), its reference \(1, 5, 7\)"),
        (lambda a: a.astype(np.float64), "float64; it must be float32"),
    ],
)
def test_a_reference_is_never_stretched_or_rounded_into_gaps(given: Any, says: str) -> None:
    kernel = replace(COPY, reference=lambda inputs, problem: {"out": given(inputs["in"])})
    with pytest.raises(KernelError, match=says):
        make_workload(kernel, COPY.problem(GAPS))


def test_one_row_has_no_gaps_whatever_its_pitch() -> None:
    made = make_workload(COPY, COPY.problem({"rows": 1, "cols": 7, "in_pitch": 10, "out_pitch": 9}))
    assert (made.inputs["in"].shape, made.outputs["out"][0], made.layouts, made.before) == (
        (1, 1, 7),
        (1, 1, 7),
        {},
        {},
    )


@pytest.mark.parametrize("pitch", [11, 14])
def test_in_place_the_input_is_what_the_output_holds_before(pitch: int) -> None:
    problem = SQUARE.problem({"rows": 11, "cols": 11, "in_pitch": pitch, "out_pitch": pitch, "in_place": 1})
    made = make_workload(SQUARE, problem)
    assert made.takes_place == {"out": "in"}
    assert made.before["out"] is made.inputs["in"]
    layout = layouts_of(SQUARE, problem).get("out")
    given, due = (logical(array, layout) for array in (made.inputs["in"], made.reference["out"]))
    assert np.array_equal(due, given.T)
    due[...] = given
    assert np.array_equal(made.inputs["in"], made.reference["out"]), "gaps stay as the input has them"
    assert _nbytes(made) == made.inputs["in"].nbytes + made.reference["out"].nbytes


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"before": {}}, "before a launch must be"),
        ({"before": {"out": np.zeros(3, np.float32)}}, "before a launch must be"),
        ({"layouts": {}, "before": {}}, ""),
        ({"bound": {"out": 0.5}, "reference": {"out": np.zeros(115)}}, "its bound must be 0 there"),
        ({"inputs": {"in": np.zeros((2, 5, 7), np.float32)}}, "must be flat, of 107 elements"),
        ({"takes_place": {"out": "in"}}, "whose shape or dtype is another"),
    ],
)
def test_a_workload_whose_memory_contradicts_itself_is_an_error(change: dict[str, Any], says: str) -> None:
    made = make_workload(COPY, COPY.problem(GAPS))
    if not says:
        assert replace(made, **change).outputs == made.outputs
        return
    with pytest.raises(ValueError, match=says):
        replace(made, **change)


# ---- large arrays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "complex128", "float64", "int16"])
def test_large_arrays_depend_on_the_seed_and_not_on_the_threads(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_data, "MOST_AT_ONCE", 1000)
    monkeypatch.setattr(random_data, "CHUNK", 640)

    def drawn(seed: int, threads: int) -> Array:
        monkeypatch.setattr(random_data, "available_cpus", lambda: threads)
        return random_array(element_type(dtype), (37, 91), np.random.default_rng(seed))

    first = drawn(5, 1)
    assert (first.shape, first.dtype) == ((37, 91), element_type(dtype).numpy)
    assert np.array_equal(elements(first), elements(drawn(5, 3)))
    assert not np.array_equal(elements(first), elements(drawn(6, 1)))
    chunks = [first.ravel()[begin : begin + 640].tobytes() for begin in range(0, first.size, 640)]
    assert len(set(chunks)) == len(chunks) == 6
    parts = [first.real, first.imag] if first.dtype.kind == "c" else [first]
    for part in parts:
        wide, unit = part.astype(np.float64), 2.0 ** (8 * first.itemsize) / 12**0.5 if first.dtype.kind == "i" else 1.0
        assert abs(wide.mean()) < 0.07 * unit
        assert 0.95 * unit < wide.std() < 1.05 * unit


def test_two_large_arrays_of_one_generator_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_data, "MOST_AT_ONCE", 100)
    generator = np.random.default_rng(0)
    one, other = (random_array(element_type("float32"), (200,), generator) for _ in range(2))
    assert not np.any(one == other)


# ---- what a check sees (on the emulator; tests/devices/test_layouts_gpu.py has the same for a GPU) -------------------


@pytest.fixture(scope="module", params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def builder(device: Device, build_home: Path) -> Iterator[Builder]:
    with Builder(device.target, build_home, jobs=1) as made:
        yield made


class Lab:
    """A device and its builder: runs a kernel's text, altered perhaps, on a problem's data."""

    def __init__(self, device: Device, builder: Builder) -> None:
        self.device, self.builder = device, builder
        self.comparer = None if device.comparer is None else builder.build(device.comparer)

    def binary(self, variant: Variant, old: str = "", new: str = "") -> Binary:
        text = variant.source.text
        assert old in text
        return self.builder.build(Source(variant.source.kernel, variant.source.entry, text.replace(old, new)))

    def check(self, variant: Variant, old: str = "", new: str = "", kind: Kind = "random") -> Check:
        workload = make_workload(variant.kernel, variant.problem, 0, kind)
        with self.device.stage(workload, self.comparer) as stage:
            program = self.device.load(self.binary(variant, old, new))
            found = stage.check(program, variant.launch)
            if found.ok:
                assert all(time_ms > 0 for time_ms in stage.times_ms(program, variant.launch, 8))
                assert stage.check_timed() == Check(0.0, 0)
            assert stage.check(self.device.load(self.binary(variant)), variant.launch).ok, "the stage is as it was"
        return found


@pytest.fixture
def lab(device: Device, builder: Builder) -> Lab:
    return Lab(device, builder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", COPY.dtypes)
def test_a_right_kernel_passes_on_rows_with_gaps(lab: Lab, dtype: str, kind: Kind) -> None:
    assert lab.check(variant_of(COPY, {**GAPS, "offset": 3}, dtype), kind=kind) == Check(0.0, 0)


WRITE = "out[to] = in[from];"
WRONG_IN_GAPS = {
    "behind each row": (
        f"{WRITE} if (c == cols - 1 && r < rows - 1) out[to + 1] = in[0];",
        r"between the rows of its output 'out'.* 7 elements behind",
    ),
    "all of the gap": ("c < cols;", r"between the rows of its output 'out'|out-of-bounds load"),
    "a row between matrices": (
        f"{WRITE} if (b == 0 && r == 0) out[5 * out_pitch + c] = in[from];",
        r"between the rows of its output 'out'.* 45 elements behind",
    ),
    "an element left out": (f"if (b != 1 || r != 3 || c != 2) {WRITE}", r"the first at \[1, 3, 2\]"),
    "one that is wrong": ("out[to] = b == 1 && r == 4 && c == 6 ? in[0] : in[from];", r"the first at \[1, 4, 6\]"),
    "the input's gaps": (
        "out[to] = c == 6 && r == 0 && b == 0 ? in[from + 1] : in[from];",
        r"the first at \[0, 0, 6\]",
    ),
    "out's pitch taken for in's": (
        "out[to] = in[((long long)b * in_step + r) * out_pitch + c];",
        r"the first at \[0, 1, 0\]",
    ),
}


@pytest.mark.parametrize("fault", WRONG_IN_GAPS)
def test_a_wrong_kernel_is_told_where(lab: Lab, fault: str) -> None:
    body, says = WRONG_IN_GAPS[fault]
    if body == "c < cols;":
        found = lab.check(variant_of(COPY, GAPS), body, "c < out_pitch;")
    else:
        found = lab.check(variant_of(COPY, GAPS), WRITE, body)
    assert not found.ok
    assert re.search(says, found.detail), found.detail


def test_half_an_element_left_out_is_seen(lab: Lab) -> None:
    half = "((double*)out)[2 * to] = ((const double*)in)[2 * from];"
    found = lab.check(variant_of(COPY, GAPS, "complex128"), WRITE, half)
    assert found.wrong == 2 * 5 * 7


def test_nothing_may_be_written_behind_the_last_element(lab: Lab) -> None:
    beyond = f"{WRITE} if (b == batch - 1 && r == rows - 1 && c == cols - 1) out[to + 1] = in[0];"
    found = lab.check(variant_of(COPY, GAPS), WRITE, beyond)
    assert not found.ok
    assert re.search("out-of-bounds store.*0 bytes past the end|wrote 4 bytes after the end", found.detail)


def test_nothing_may_be_read_behind_the_last_element(build_home: Path) -> None:
    """On the emulator, which sees it: the gap behind the last row is not there."""
    device = open_device("emulator")
    with Builder(device.target, build_home, jobs=1) as builder:
        found = Lab(device, builder).check(variant_of(COPY, GAPS), WRITE, "out[to] = in[from] + 0 * in[from + 1];")
    assert re.search("out-of-bounds load.* 0 bytes past the end of argument 0", found.detail), found.detail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pitch", [45, 50])
def test_in_place_a_right_kernel_passes(lab: Lab, pitch: int, kind: Kind) -> None:
    sizes = {"rows": 45, "cols": 45, "in_pitch": pitch, "out_pitch": pitch, "in_place": 1, "offset": 1}
    assert lab.check(variant_of(SQUARE, sizes), kind=kind) == Check(0.0, 0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("if (c > r) continue;", "if (c > r || (r == 9 && c == 4)) continue;", r"2 of .*first at \[4, 9\]"),
        ("if (c > r) continue;", "if (c > r || r > 9) continue;", r"first at \[0, 10\]"),
        ("= other;", "= one;", r"first at \[1, 0\]"),
        ("if (c > r) continue;", "continue;", r"first at \[0, 1\]"),
    ],
    ids=["a pair", "rows", "half of each pair", "all"],
)
@pytest.mark.parametrize("pitch", [20, 23])
def test_in_place_a_kernel_that_misses_elements_fails(lab: Lab, pitch: int, old: str, new: str, says: str) -> None:
    sizes = {"rows": 20, "cols": 20, "in_pitch": pitch, "out_pitch": pitch, "in_place": 1}
    found = lab.check(variant_of(SQUARE, sizes), old, new)
    assert not found.ok
    assert re.search(says, found.detail), found.detail


def test_in_place_a_race_between_the_two_names_is_seen(lab: Lab) -> None:
    """Each element is moved by itself: whichever of a pair comes first loses the other."""
    side = 20 if lab.device.info.kind == "emulator" else 3000  # a GPU runs the few warps of a small one in step
    variant = variant_of(SQUARE, {"rows": side, "cols": side, "in_place": 1})
    apart = variant_of(SQUARE, {"rows": side, "cols": side})
    assert lab.check(apart).ok
    workload = make_workload(SQUARE, variant.problem)
    with lab.device.stage(workload, lab.comparer) as stage:
        found = stage.check(lab.device.load(lab.binary(apart)), apart.launch)
    assert not found.ok
    if lab.device.info.kind == "emulator":
        assert "race" in found.detail


@pytest.mark.parametrize(("offset", "dtype"), [(0, "float32"), (1, "float32"), (7, "int8"), (3, "complex128")])
def test_an_offset_reaches_the_kernel(lab: Lab, offset: int, dtype: str) -> None:
    variant = variant_of(COPY, {"rows": 4, "cols": 9, "offset": offset}, dtype)
    nbytes = offset * element_type(dtype).itemsize
    assert make_workload(COPY, variant.problem).offset_bytes("in") == nbytes
    for expected in (nbytes, nbytes + 1):
        told = f"if ((unsigned long long)in % 256 == {expected} && (unsigned long long)out % 256 == {expected}) {WRITE}"
        assert lab.check(variant, WRITE, told).ok == (expected == nbytes)


@pytest.mark.parametrize(("own", "proofs", "expected"), [(0, 0, 0), (2, 0, 8), (0, 1, 4), (2, 1, 4)])
def test_a_proof_keeps_the_offset_of_its_problem(lab: Lab, own: int, proofs: int, expected: int) -> None:
    variant = variant_of(COPY, {"rows": 4, "cols": 9, "offset": own})
    told = f"if ((unsigned long long)in % 256 == {expected}) {WRITE}"
    bench = LocalBench(lab.device)
    assert (
        bench.prove(Proof(variant, (Inputs(1, "random"),), proofs), lab.binary(variant, WRITE, told), lab.comparer, 1)
        == 0
    )


# ---- problems that prove, and that stand for large ones -------------------------------------------------------------


def test_proofs_in_place_are_squares_of_whole_traced_blocks() -> None:
    variant = variant_of(SQUARE, {"rows": 4096, "cols": 4096, "in_place": 1, "offset": 1})
    many = many_blocks(variant)
    assert [problem.asked for problem in many] == [
        {"rows": MANY * 24, "cols": MANY * 24, "offset": 1, "in_place": 1}
    ], "24 is the least that 8 and 12 divide"
    proofs = proofs_of(variant, EmulatorDevice().info)
    assert {proof.variant.problem["rows"] for proof in proofs} == {1, 33, 10, MANY * 24}
    for proof in proofs:
        assert proof.variant.problem.in_place
        assert make_workload(SQUARE, proof.variant.problem).takes_place == {"out": "in"}


def test_proofs_out_of_place_are_as_they_were() -> None:
    many = many_blocks(variant_of(SQUARE, {"rows": 4096, "cols": 4096}))
    assert [tuple(problem.asked.values()) for problem in many] == [(72, 12), (8, 108), (72, 36), (24, 108)]


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (SQUARE, {"rows": 4096, "cols": 4096, "in_place": 1}),
        (SQUARE, {"rows": 4095, "cols": 4095, "in_place": 1, "offset": 1}),
        (SQUARE, {"rows": 4095, "cols": 4095, "in_pitch": 5000, "out_pitch": 5000, "in_place": 1}),
        (COPY, {"rows": 4096, "cols": 4096, "in_pitch": 4097}),
        (COPY, {"rows": 4096, "cols": 4096, "offset": 1}),
        (COPY, {"rows": 4096, "cols": 4096, "offset": 2, "out_pitch": 5000, "batch": 9}),
    ],
    ids=lambda value: getattr(value, "name", None) or "-".join(value),
)
def test_a_small_problem_has_the_text_of_a_large_one(kernel: Kernel, sizes: dict[str, int]) -> None:
    variant = variant_of(kernel, sizes)
    device: Any = open_device("emulator")
    inner, edge = EstimatedSession(device, kernel, variant.problem)._small_problems(variant)
    assert edge is not None
    for small in (inner, edge):
        assert small.source.text == variant.source.text
        assert kernel.bytes_of(small.problem) < 1 << 20
        assert (small.problem.offset, small.problem.in_place) == (variant.problem.offset, variant.problem.in_place)
        make_workload(kernel, small.problem)


def test_what_lies_far_apart_is_not_emulated_in_full() -> None:
    sizes = {"rows": 4096, "cols": 2}
    assert emulated_in_full(COPY, COPY.problem(sizes))
    assert not emulated_in_full(COPY, COPY.problem({**sizes, "in_pitch": 4096}))
    assert held_bytes(COPY, COPY.problem({**sizes, "in_pitch": 4096})) == 4 * (4095 * 4096 + 2 + 4096 * 2)


def test_the_first_wrong_place_of_a_flat_output_is_told_by_its_index() -> None:
    made = make_workload(COPY, COPY.problem(GAPS))
    output = made.reference["out"].copy()
    output[8 * 9 + 2 * 9 + 3] += 1
    found = compare(output, made.reference["out"], 0.0, made.layouts["out"], "out")
    assert (found.wrong, "[1, 2, 3]" in found.detail) == (1, True)
