"""Arrays of two types: a problem's data, and right and wrong kernels, on the emulator and on a real GPU (`-m gpu`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.select import open_device
from autotile.dtypes import element_type
from autotile.errors import KernelError, WrongResult
from autotile.insight.accesses import patterns_of
from autotile.insight.profiled import operands_of
from autotile.kernels import load_kernel
from autotile.measure.bench import LocalBench
from autotile.measure.placed import held_bytes, logical
from autotile.measure.prove import prove
from autotile.measure.random_data import MOST_ADDED, MOST_AT_ONCE, random_array
from autotile.measure.traced import trace_variant
from autotile.measure.variant import Variant, make_variant, proofs_of
from autotile.measure.workload import KINDS, Kind, make_workload
from autotile.spec import SearchOptions, Spec
from autotile.store.memory import MemoryStore
from autotile.tuner import search
from autotile.types import Problem

KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
DOTS = load_kernel("dots", KERNELS)
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
ALL = {"added": True, "bias": True}
EMULATED = [("int8", False), ("bfloat16", False), ("bfloat16", True), ("float64", True), ("tf32", False)]


def problem(dtype: str, wide: bool = False, m: int = 20, n: int = 30, k: int = 40, **stated: Any) -> Problem:
    return DOTS.problem({"m": m, "n": n, "k": k, "wide": wide, **stated}, dtype)


# ---- data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DOTS.dtypes)
def test_each_array_is_of_its_type(dtype: str, kind: Kind, wide: bool) -> None:
    asked = problem(dtype, wide, **ALL, offset=3, out_pitch=32)
    made = make_workload(DOTS, asked, 1, kind)
    result = DOTS.result_type(asked).numpy
    own = element_type(dtype).numpy
    assert {name: array.dtype for name, array in made.inputs.items()} == {
        "x": own, "y": own, "addend": result, "bias": result,
    }  # fmt: skip
    assert made.outputs == {"out": ((19 * 32 + 30,), result)}
    assert made.before["out"].dtype == result
    assert [made.offset_bytes(name) for name in ("x", "addend", "out")] == [
        3 * t.itemsize for t in (own, result, result)
    ]
    exact = dtype == "int8"
    assert (made.reference["out"].dtype == result) == (exact or result == np.float64)
    assert (np.ndim(made.bound["out"]) == 0) == exact
    if kind != "special":
        assert all(np.isfinite(array.astype(np.float64)).all() for array in made.inputs.values())


def test_int8_takes_its_whole_range_and_what_is_added_does_not() -> None:
    made = make_workload(DOTS, problem("int8", m=60, n=60, k=60, **ALL))
    assert (made.inputs["x"].min(), made.inputs["x"].max()) == (-128, 127)
    addend = made.inputs["addend"].astype(np.int64)
    assert MOST_ADDED // 2 < np.abs(addend).max() <= MOST_ADDED + 1
    special = make_workload(DOTS, problem("int8", m=60, n=60, k=60, **ALL), kind="special")
    assert {-128, 127} <= set(special.inputs["x"].ravel().tolist())
    assert special.inputs["addend"].max() == MOST_ADDED


@pytest.mark.parametrize("dtype", FLOAT8)
def test_floats_of_8_bits_are_finite_and_moderate(dtype: str) -> None:
    for count in (1000, MOST_AT_ONCE + 1):
        values = random_array(element_type(dtype), (count,), np.random.default_rng(0)).astype(np.float32)
        assert np.isfinite(values).all()
        assert 2 < np.abs(values).max() < 8
        assert 0.9 < values.std() < 1.1


@pytest.mark.parametrize(("dtype", "infinities", "nans"), [("float8_e4m3fn", 0, 2), ("float8_e5m2", 3, 1)])
def test_special_values_of_8_bits(dtype: str, infinities: int, nans: int) -> None:
    x = make_workload(DOTS, problem(dtype, True, m=40, k=60), kind="special").inputs["x"].astype(np.float32)
    assert (np.isinf(x).sum(), np.isnan(x).sum()) == (infinities, nans)
    normal = float(ml_dtypes.finfo(element_type(dtype).numpy).smallest_normal)
    assert ((x != 0) & (np.abs(x) < normal)).sum() >= 2, "subnormals"


@pytest.mark.parametrize("dtype", FLOAT8)
def test_floats_of_8_bits_with_gaps(dtype: str) -> None:
    made = make_workload(DOTS, problem(dtype, out_pitch=41))
    assert np.isnan(logical(made.before["out"], made.layouts["out"]).astype(np.float32)).all()


def test_bytes_are_counted_by_type() -> None:
    asked = problem("int8", added=True)
    assert held_bytes(DOTS, asked) == 20 * 40 + 40 * 30 + 4 * 2 * 20 * 30


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"error_bound": lambda inputs, problem: {"out": 0.5}}, "is of integers, which are compared exactly"),
        ({"reference": lambda inputs, problem: {"out": np.zeros((20, 30))}}, "is float64; it must be int32"),
        ({"reference": lambda inputs, problem: {"out": np.zeros((20, 30), np.int8)}}, "is int8; it must be int32"),
    ],
)
def test_a_reference_of_integers_is_exact_and_of_the_results_type(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError, match=words):
        make_workload(replace(DOTS, **changed), problem("int8"))


def test_what_a_profiler_and_a_trace_launch_on() -> None:
    variant = make_variant(DOTS, problem("int8", **ALL), DOTS.configuration())
    arrays, _ = operands_of(variant)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "x": "int8", "y": "int8", "addend": "int32", "bias": "int32", "out": "int32",
    }  # fmt: skip


# ---- kernels --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def builder(device: Device, build_home: Path) -> Iterator[Builder]:
    with Builder(device.target, build_home, jobs=2) as made:
        yield made


def variant_of(asked: Problem) -> Variant:
    return make_variant(DOTS, asked, DOTS.configuration())


def tried(device: Device, builder: Builder, variant: Variant, old: str = "", new: str = "") -> None:
    """Checks and times the variant, a part of its text replaced, and proves it where none is."""
    comparer = None if device.comparer is None else builder.build(device.comparer)
    assert old in variant.source.text
    text = variant.source.text.replace(old, new) if old else variant.source.text
    binary = builder.build(replace(variant.source, text=text))
    with LocalBench(device) as bench:
        bench.begin(DOTS, variant.problem, comparer)
        bench.trial(variant, binary)
        if not old:
            assert prove(bench, builder, device.info, variant, binary, comparer) <= 1


@pytest.mark.parametrize(("dtype", "wide"), EMULATED)
def test_a_right_kernel_proves_itself(device: Device, builder: Builder, dtype: str, wide: bool) -> None:
    variant = variant_of(problem(dtype, wide, **ALL, out_pitch=34))
    assert any(proof.offset for proof in proofs_of(variant, device.info)), "the text for unaligned arrays is tried"
    tried(device, builder, variant)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOAT8)
def test_one_of_8_bit_floats_does_too(build_home: Path, dtype: str) -> None:
    device = open_device("cuda")
    with Builder(device.target, build_home) as builder:
        tried(device, builder, variant_of(problem(dtype, True, **ALL, out_pitch=34)))


@pytest.mark.parametrize(
    ("old", "new", "n"),
    [
        ("pair.of[e] = result(value);", "pair.of[e] = result(value + (r == 3 && c == 5));", 30),
        ("using result = int;", "using result = short;", 31),  # which leave one by one: a pair would lie anywhere
        ("rintf(alpha * float(total))", "alpha * float(total)", 30),
        ("sum total = 0;", "signed char total = 0;", 30),
        ("value += sum(addend[", "value += sum(reinterpret_cast<const element*>(addend)[", 30),
    ],
)
def test_a_wrong_sum_of_integers_is_found(device: Device, builder: Builder, old: str, new: str, n: int) -> None:
    with pytest.raises(WrongResult):
        tried(device, builder, variant_of(problem("int8", n=n, **ALL)), old, new)


def test_a_result_that_was_rounded_to_the_element_is_found(device: Device, builder: Builder) -> None:
    rounded = "pair.of[e] = result(float(element(value)));"
    with pytest.raises(WrongResult):
        tried(device, builder, variant_of(problem("bfloat16", True)), "pair.of[e] = result(value);", rounded)


@pytest.mark.parametrize(("offset", "shown"), [(1, 4), (3, 12)])
def test_an_offset_is_of_an_arrays_own_elements(device: Device, builder: Builder, offset: int, shown: int) -> None:
    variant = variant_of(problem("int8", offset=offset))
    lies = f"(unsigned long long)x % 256 == {offset} && (unsigned long long)out % 256 == {shown}"
    tried(device, builder, variant, "if (first >= n) return;", f"if (first >= n || !({lies})) return;")


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_a_search_finds_and_proves_one(build_home: Path, dtype: str) -> None:
    asked = problem(dtype, True, bias=True)
    spec = Spec(DOTS, (asked,), search=SearchOptions(trials=2))
    emulator = EmulatorDevice()
    with Builder(emulator.target, build_home, jobs=2) as builder:
        (found,) = search(spec, emulator, builder, MemoryStore())
    assert found.best is not None
    assert (found.best.problem, found.best.proven) == (asked, True)


@pytest.mark.parametrize("offset", [1, 5, 16, 21])
def test_explain_counts_in_an_arrays_own_elements(build_home: Path, offset: int) -> None:
    device = EmulatorDevice()
    variant = variant_of(problem("int8", m=1, n=1, k=1, offset=offset, added=True))
    with Builder(device.target, build_home, jobs=1) as builder:
        patterns = patterns_of(trace_variant(device, variant, builder.build(variant.source)), variant)
    first = {p.array: p.addresses[0] for p in patterns if p.space == "global"}
    assert first == {"x": offset, "y": offset, "addend": 4 * offset, "out": 4 * offset}
