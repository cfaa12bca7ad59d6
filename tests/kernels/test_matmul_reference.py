"""What C must be, and how far off it may be: a plain formula, and products that are wrong in one thing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from autotile.kernels import load_kernel
from autotile.types import Problem

KERNEL = load_kernel("matmul")
SIZES = {"m": 5, "n": 7, "k": 6}
ALPHA, BETA = 1.5, -0.75
Arrays = dict[str, np.ndarray[Any, Any]]


def made(problem: Problem, seed: int = 0) -> Arrays:
    """Inputs as they are stored, exact in every type."""
    random, dtype = np.random.default_rng(seed), problem.dtype
    drawn = {
        a.name: (random.integers(-64, 64, KERNEL.shape_of(a, problem)) / 16).astype(dtype)
        for a in KERNEL.inputs_of(problem)
    }
    return {**drawn, "alpha": np.array(ALPHA), "beta": np.array(BETA)}


def by_hand(inputs: Arrays, problem: Problem) -> np.ndarray[Any, Any]:
    """Element by element."""
    m, n, k, batch = (KERNEL.sizes_of(problem)[name] for name in ("m", "n", "k", "batch"))
    on = problem.switches
    c = np.zeros((batch, m, n))
    for z, i, j in np.ndindex(batch, m, n):
        terms = (
            float(inputs["a"][(z, x, i) if "a_turned" in on else (z, i, x)])
            * float(inputs["b"][(z, j, x) if "b_turned" in on else (z, x, j)])
            for x in range(k)
        )
        value = ALPHA * math.fsum(terms)
        value += BETA * float(inputs["addend"][z, i, j]) if "addend" in on else 0.0
        value += float(inputs["bias"][j]) if "bias" in on else 0.0
        if "relu" in on:
            value = max(value, 0.0)
        if "gelu" in on:
            value *= 0.5 * math.erfc(-value / math.sqrt(2))
        c[z, i, j] = value
    return c


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"a_turned": 1, "batch": 2},
        {"b_turned": 1, "addend": 1},
        {"a_turned": 1, "b_turned": 1, "bias": 1, "relu": 1},
        {"addend": 1, "bias": 1, "gelu": 1, "batch": 3},
    ],
    ids=str,
)
def test_the_reference_is_the_plain_formula(asked: dict[str, int], dtype: str) -> None:
    problem = KERNEL.problem({**SIZES, **asked}, dtype)
    inputs = made(problem)
    c = KERNEL.reference(inputs, problem)["c"]
    assert c.dtype == np.float64
    np.testing.assert_allclose(c, by_hand(inputs, problem), rtol=1e-13, atol=1e-13)
    assert np.shape(KERNEL.error_bound(inputs, problem)["c"]) == c.shape


@pytest.mark.parametrize("switch", ["relu", "gelu"])
def test_a_nan_stays_one(switch: str) -> None:
    problem = KERNEL.problem({**SIZES, switch: 1})
    inputs = made(problem)
    inputs["a"][0, 2, 3] = np.nan
    c = KERNEL.reference(inputs, problem)["c"]
    assert np.array_equal(np.isnan(c).any(axis=2)[0], [False, False, True, False, False])
    assert np.isnan(c[0, 2]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("switch", ["", "relu", "gelu"])
@pytest.mark.parametrize("left_out", ["alpha", "beta", "addend", "bias"])
def test_what_is_left_out_is_beyond_the_bound(left_out: str, switch: str, dtype: str) -> None:
    on = {"addend": 1, "bias": 1, **({switch: 1} if switch else {})}
    problem = KERNEL.problem({"m": 20, "n": 30, "k": 40, **on}, dtype)
    inputs = made(problem, 1)
    c, bound = KERNEL.reference(inputs, problem)["c"], KERNEL.error_bound(inputs, problem)["c"]
    neutral = np.ones(()) if left_out in ("alpha", "beta") else np.zeros_like(inputs[left_out])
    wrong = KERNEL.reference({**inputs, left_out: neutral}, problem)["c"]
    assert (np.abs(wrong - c) > bound)[c != 0].mean() > 0.9


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("switch", ["", "relu", "gelu"])
def test_a_right_result_is_within_the_bound(switch: str, dtype: str) -> None:
    """float32 throughout, in the kernel's order; many k, so that rounding is not nothing."""
    on = {"addend": 1, "bias": 1, **({switch: 1} if switch else {})}
    problem = KERNEL.problem({"m": 20, "n": 30, "k": 900, **on}, dtype)
    random = np.random.default_rng(2)
    inputs = {n: v if v.ndim == 0 else random.standard_normal(v.shape).astype(dtype) for n, v in made(problem).items()}
    single = {name: value.astype(np.float32) for name, value in inputs.items()}
    sums = np.zeros((1, 20, 30), np.float32)
    for x in range(900):
        sums += single["a"][:, :, x, None] * single["b"][:, x, None, :]
    value = sums * single["alpha"] + single["beta"] * single["addend"] + single["bias"]
    if switch == "relu":
        value = np.maximum(value, np.float32(0))
    elif switch == "gelu":
        erf = np.frompyfunc(math.erf, 1, 1)(value * np.float32(math.sqrt(0.5))).astype(np.float32)
        value = np.float32(0.5) * value * (1 + erf)
    c, bound = KERNEL.reference(inputs, problem)["c"], KERNEL.error_bound(inputs, problem)["c"]
    off = np.abs(value.astype(dtype).astype(np.float64) - c)
    assert (off <= bound).all()
    assert off.max() > 0
    typical = np.abs(c).mean()
    assert bound.mean() < typical * (0.01 if dtype == "float16" else 4e-3), "so wide that it would hide faults"


def test_the_bound_of_a_cancelling_sum_in_halves_is_not_that_of_its_terms() -> None:
    """Rounding C to 16 bits is in proportion to C, however large what cancelled was."""
    problem = KERNEL.problem({"m": 1, "n": 1, "k": 64}, "float16")
    inputs = {**made(problem), "b": np.ones((1, 64, 1), np.float16), "a": np.tile([3, -3], 32)[None, None].astype("e")}
    assert KERNEL.reference(inputs, problem)["c"] == 0
    assert KERNEL.error_bound(inputs, problem)["c"] < 1e-4 * 3 * 64 * ALPHA
