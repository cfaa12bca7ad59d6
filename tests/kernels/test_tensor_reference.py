"""What the matmul on tensor cores must give, and how far off it may be, beside what test_matmul_reference.py says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.measure import make_variant, make_workload
from autotile.types import Problem

KERNEL, PLAIN = load_kernel("matmul_tensor"), load_kernel("matmul")
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


def made(problem: Problem, limit: int = 64, seed: int = 0) -> Arrays:
    """Inputs as they are stored, whole numbers but for the scalars."""
    random = np.random.default_rng(seed)
    drawn = {
        array.name: random.integers(-limit, limit, KERNEL.shape_of(array, problem)).astype(
            KERNEL.element_of(array, problem).numpy
        )
        for array in KERNEL.inputs_of(problem)
    }
    return {**drawn, "alpha": np.array(1.5), "beta": np.array(-0.75)}


def results(inputs: Arrays, problem: Problem) -> tuple[Array, Array]:
    c, bound = KERNEL.reference(inputs, problem)["c"], KERNEL.error_bound(inputs, problem)["c"]
    return np.asarray(c), np.broadcast_to(np.asarray(bound), c.shape)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "asked", [{"a_turned": 1, "batch": 2}, {"b_turned": 1, "addend": 1, "bias": 1, "gelu": 1}], ids=str
)
def test_it_is_the_same_product_as_without_tensor_cores(asked: dict[str, int], dtype: str) -> None:
    problem = KERNEL.problem({"m": 5, "n": 7, "k": 6, **asked}, dtype)
    inputs = made(problem, 8)
    c, bound = results(inputs, problem)
    plain = PLAIN.problem({"m": 5, "n": 7, "k": 6, **asked}, dtype)
    assert np.array_equal(c, PLAIN.reference(inputs, plain)["c"])
    assert (bound >= PLAIN.error_bound(inputs, plain)["c"]).all(), "tensor cores cut off where others round"


def test_sums_of_int8_are_whole_rounded_to_even_and_fit_32_bits() -> None:
    asked = KERNEL.problem({"m": 6, "n": 7, "k": 9, "addend": 1, "bias": 1}, "int8")
    inputs = made(asked)
    c, bound = results(inputs, asked)
    a, b, addend, bias = (inputs[name].astype(object) for name in ("a", "b", "addend", "bias"))
    for i, j in np.ndindex(6, 7):
        value = 3 * sum(a[0, i, x] * b[0, x, j] for x in range(9)) * 2 - 3 * addend[0, i, j] + 4 * bias[j]  # of 4
        assert c[0, i, j] == round(value / 4)
    assert c.dtype == np.int32
    assert not bound.any()
    large = {**inputs, "alpha": np.array(3e7)}
    c, _ = results(large, asked)
    assert {c.min(), c.max()} == {-(2**31), 2**31 - 1}


@pytest.mark.parametrize("dtype", KERNEL.dtypes)
@pytest.mark.parametrize("left_out", ["alpha", "beta", "addend", "bias"])
def test_what_is_left_out_is_beyond_the_bound(left_out: str, dtype: str) -> None:
    problem = KERNEL.problem({"m": 20, "n": 30, "k": 3, "addend": 1, "bias": 1, "wide": 1}, dtype)
    inputs = made(problem, 8)
    c, bound = results(inputs, problem)
    neutral = np.ones(()) if left_out in ("alpha", "beta") else np.zeros_like(inputs[left_out])
    wrong, _ = results({**inputs, left_out: neutral}, problem)
    assert (np.abs(wrong.astype(np.float64) - c) > bound).mean() > 0.8


def cut(values: Array, bits: int) -> Array:
    """float32 without its last bits, as tensor cores read tf32."""
    return (values.astype(np.float32).view(np.uint32) & np.uint32(~0 << bits & 0xFFFFFFFF)).view(np.float32)


def test_factors_of_tf32_may_be_cut_and_no_more() -> None:
    problem = KERNEL.problem({"m": 20, "n": 30, "k": 50}, "tf32")
    random = np.random.default_rng(1)
    inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in
              (("a", (1, 20, 50)), ("b", (1, 50, 30)))}  # fmt: skip
    inputs |= {"alpha": np.array(1.0), "beta": np.array(1.0)}
    c, bound = results(inputs, problem)
    off = {
        bits: np.abs(cut(inputs["a"], bits).astype(np.float64) @ cut(inputs["b"], bits).astype(np.float64) - c)
        for bits in (13, 19)
    }
    assert (off[13] <= bound).all()
    assert (off[19] > bound).any(), "so few bits are not tf32's"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_wide_result_is_bound_more_tightly(dtype: str) -> None:
    sizes = {"m": 9, "n": 11, "k": 20}
    narrow, wide = KERNEL.problem(sizes, dtype), KERNEL.problem({**sizes, "wide": 1}, dtype)
    assert KERNEL.result_type(wide).name == "float32"
    inputs = made(narrow, 8)
    assert (results(inputs, wide)[1] < results(inputs, narrow)[1]).all()


@pytest.mark.parametrize(("dtype", "largest"), [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_what_is_beyond_a_float8_becomes_its_largest_number(dtype: str, largest: float) -> None:
    sizes = {"m": 3, "n": 2, "k": 4}
    inputs = made(KERNEL.problem(sizes, dtype), 8)
    inputs["a"][0] = np.array([[largest] * 4, [-largest] * 4, [np.nan] * 4], inputs["a"].dtype)
    inputs["b"][0] = np.array([[8, 0]] * 4, inputs["b"].dtype)
    c, _ = results(inputs, KERNEL.problem(sizes, dtype))
    assert np.array_equal(c[0], [[largest, 0], [-largest, 0], [np.nan, np.nan]], equal_nan=True)
    c, _ = results(inputs, KERNEL.problem({**sizes, "wide": 1}, dtype))
    assert c[0, 0, 0] == largest * 8 * 4 * 1.5


@pytest.mark.parametrize(
    ("dtype", "k"),
    [
        ("float8_e4m3fn", 32_768),
        ("float8_e5m2", 32_768),
        ("bfloat16", 100_000),
        ("float16", 100_000),
        ("tf32", 100_000),
    ],
)
def test_the_longest_k_that_the_rules_allow_can_still_be_proven(dtype: str, k: int) -> None:
    workload = make_workload(KERNEL, KERNEL.problem({"m": 24, "n": 24, "k": k}, dtype), 0)  # raises for a loose bound
    covered = np.asarray(workload.bound["c"]) >= np.abs(workload.reference["c"])
    assert covered.mean() < 0.9


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_bound_of_float8_sums_holds_for_sums_that_keep_14_bits(dtype: str) -> None:
    """As sm_90 adds them: 32 products at once, cut off below 2⁻¹³ of the largest, and so the sums so far."""
    problem = KERNEL.problem({"m": 16, "n": 16, "k": 4096, "wide": 1}, dtype)
    workload = make_workload(KERNEL, problem, 3)
    a, b = (workload.inputs[name].astype(np.float64).reshape(side) for name, side in (("a", (16, -1)), ("b", (-1, 16))))
    sums = np.zeros((16, 16))
    for first in range(0, 4096, 32):
        products = a[:, first : first + 32, None] * b[None, first : first + 32, :]
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(products).max(1), np.abs(sums)))) - 13)
        sums = np.trunc(sums / unit) * unit + (np.trunc(products / unit[:, None]) * unit[:, None]).sum(1)
    alpha = next(x for x in workload.arguments if isinstance(x, np.float32))
    error = np.abs(sums * float(alpha) - workload.reference["c"].reshape(16, 16))
    assert (error <= np.asarray(workload.bound["c"]).reshape(16, 16)).all()


def test_rows_of_one_word_stay_in_their_room() -> None:
    device = EmulatorDevice()
    problem = KERNEL.problem({"m": 112, "n": 64, "k": 4, "addend": 1}, "float8_e4m3fn")
    variant = make_variant(KERNEL, problem, KERNEL.configuration({"warp_n": 16, "block_k": 64}))
    with Builder(device.target, jobs=1) as builder, device.stage(make_workload(KERNEL, problem, 0)) as stage:
        check = stage.check(device.load(builder.build(variant.source)), variant.launch)
    assert check.ok, check.detail


def test_text_that_no_rule_allows_can_still_be_read() -> None:
    text = render(
        KERNEL, KERNEL.problem({"m": 64, "n": 64, "k": 64}, "float64"), KERNEL.configuration(KERNEL.presets["large"])
    )
    assert "there is none of float64" in text.text
