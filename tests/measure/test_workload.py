"""A problem's data, and that it tells right results from wrong ones: numpy stands in for kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotile.devices.base import Check, Workload, compare
from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels import Input, Kernel, load_kernel
from autotile.measure.workload import KINDS, Kind, make_workload

Array = np.ndarray[Any, Any]
Matmul = Callable[[Array, Array], Array]

MATMUL, TRANSPOSE = load_kernel("matmul"), load_kernel("transpose")
EVERY = [(kernel, dtype) for kernel in (MATMUL, TRANSPOSE) for dtype in kernel.dtypes]


def data(kernel: Kernel, sizes: tuple[int, ...], dtype: str, kind: Kind = "random", seed: int = 0) -> Workload:
    return make_workload(kernel, kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), dtype), seed, kind)


def judge(workload: Workload, result: Array) -> Check:
    (name,) = workload.outputs
    shape, dtype = workload.outputs[name]
    assert (result.shape, result.dtype) == (shape, dtype)
    return compare(result, workload.reference[name], workload.bound[name])


def turned(workload: Workload) -> Array:
    """A stand-in's transpose."""
    return np.ascontiguousarray(np.swapaxes(workload.inputs["in"], 1, 2))


def run(workload: Workload, matmul: Matmul) -> Check:
    """A stand-in's product times alpha, rounded once to the output's type."""
    with np.errstate(invalid="ignore"):
        product = matmul(*operands(workload)) * alpha_of(workload)
    return judge(workload, product.astype(workload.outputs["c"][1])[None])


def operands(workload: Workload) -> tuple[Array, Array]:
    """A and B of the only matrix."""
    return workload.inputs["a"][0], workload.inputs["b"][0]


def alpha_of(workload: Workload) -> Any:
    """In the accumulator's type, as the kernel gets it."""
    (at,) = (number for number, argument in enumerate(MATMUL.arguments) if argument.name == "alpha")
    return workload.arguments[at]


# ---- inputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("kernel", "dtype"), EVERY, ids=lambda value: getattr(value, "name", value))
def test_inputs_have_their_shapes_vary_and_come_again(kernel: Kernel, dtype: str, kind: Kind) -> None:
    sizes = (33, 65, 17)[: len(kernel.dimensions)]
    workload, again = (data(kernel, sizes, dtype, kind, seed=5) for _ in range(2))
    other = data(kernel, sizes, dtype, kind, seed=6)
    problem = kernel.problem(dict(zip(kernel.dimensions, sizes, strict=True)), dtype)
    for argument in kernel.inputs_of(problem):
        array = workload.inputs[argument.name]
        assert array.shape == kernel.shape_of(argument, problem)
        assert array.dtype == element_type(dtype).numpy
        assert array.tobytes() == again.inputs[argument.name].tobytes()
        assert array.tobytes() != other.inputs[argument.name].tobytes()
        rows = array.reshape(-1, array.shape[-1])
        for line in (*rows, *rows.T):
            assert len(set(line.tolist())) > len(line) // 4, "a row or column is constant, or nearly"
            assert np.count_nonzero(line) > len(line) // 2
    for name, reference in workload.reference.items():
        assert reference.tobytes() == again.reference[name].tobytes()
        assert np.array_equal(workload.bound[name], again.bound[name])


def test_random_data_are_plain_draws_from_the_seed_and_the_sizes() -> None:
    workload = data(MATMUL, (9, 5, 7), "float32", seed=3)
    generator = np.random.default_rng([3, 9, 5, 7])
    for name, shape in (("a", (1, 9, 7)), ("b", (1, 7, 5))):
        assert np.array_equal(workload.inputs[name], generator.standard_normal(shape, dtype=np.float32))


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="'zeros': the kinds are random, cancelling, special"):
        data(MATMUL, (2, 2, 2), "float32", "zeros")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", MATMUL.dtypes)
@pytest.mark.parametrize("k", [1, 2, 64, 65])
def test_cancelling_products_come_out_as_zero(dtype: str, k: int) -> None:
    workload = data(MATMUL, (31, 33, k), dtype, "cancelling")
    a, b = (array.astype(np.float64) for array in operands(workload))
    size, left = np.abs(a) @ np.abs(b), workload.reference["c"][0] / float(alpha_of(workload))
    if k % 2:  # one of an odd number of terms has no partner
        lone = np.flatnonzero(~np.isin(a[0], -a[0]))
        assert len(lone) == 1
        left = left - np.outer(a[:, lone[0]], b[lone[0]])
    assert np.all(np.abs(left) <= 1e-14 * size)
    assert size.min() > 1e-3 * np.median(size)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_cancelling_integers_wrap_to_zero(dtype: str) -> None:
    array = data(TRANSPOSE, (5, 40), dtype, "cancelling").inputs["in"][0]
    for row in array:
        assert np.array_equal(np.sort(row), np.sort(-row))
        assert np.sum(row, dtype=row.dtype) == 0


def test_pairs_lie_apart_so_that_a_tile_left_out_shows() -> None:
    row = data(MATMUL, (1, 1, 64), "float32", "cancelling").inputs["a"][0, 0]
    for begin in range(0, 64, 8):
        assert abs(row[begin : begin + 8].sum()) > 1e-3


@pytest.mark.parametrize("dtype", [d for d in TRANSPOSE.dtypes if element_type(d).is_float])
@pytest.mark.parametrize("sizes", [(40, 70), (257, 31)])
def test_special_values_stand_where_they_tell(dtype: str, sizes: tuple[int, int]) -> None:
    array = data(TRANSPOSE, sizes, dtype, "special").inputs["in"][0]
    parts = [array.real, array.imag] if element_type(dtype).is_complex else [array]
    bad = ~np.isfinite(array)
    assert bad[-1, 0], "a read beyond the end of the row before the last meets this one"
    assert bad[0, 1:].any()
    assert bad[:-1, -1].any()
    everything = np.concatenate([part.ravel() for part in parts])
    normal = float(ml_dtypes.finfo(parts[0].dtype).smallest_normal)
    tiny = (everything != 0) & (np.abs(everything) <= normal)
    assert np.isnan(everything).sum() == 1
    assert (everything == np.inf).sum() == 2
    assert (everything == -np.inf).sum() == 1
    assert sorted(np.signbit(everything[everything == 0]).tolist()) == [False, True]
    assert tiny.sum() == 4
    assert (np.abs(everything[tiny]) < normal).sum() == 2, "subnormals"
    finite = everything[np.isfinite(everything)]
    assert np.abs(finite).max() < 10, "sums of huge values overflow in float32 where float64 does not"
    strange = np.concatenate([np.argwhere(bad), np.argwhere(array == 0)])
    for axis in (0, 1):
        assert len(set(strange[:, axis].tolist())) == len(strange), "no two in one row or column"


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_special_integers(dtype: str) -> None:
    array = data(TRANSPOSE, (50, 60), dtype, "special", seed=1).inputs["in"][0]
    limits = np.iinfo(dtype)
    assert array[-1, 0] == limits.max
    assert array[0].min() <= 0
    assert {limits.min, limits.max, 0} <= set(array.ravel().tolist())


@pytest.mark.parametrize(
    "sizes", [*(sizes for sizes in MATMUL.check_sizes if isinstance(sizes, tuple)), (4, 4, 4), (2, 3, 2)]
)
def test_special_values_leave_most_outputs_finite(sizes: tuple[int, int, int]) -> None:
    workload = data(MATMUL, sizes, "float32", "special")
    reference = workload.reference["c"]
    assert np.isfinite(reference).mean() > 0.5
    if min(sizes) >= 16:
        assert not np.isfinite(reference).all()
    a, b = (array.astype(np.float64) for array in operands(workload))
    with np.errstate(invalid="ignore"):
        plain = (a[:, :, None] * b[None]).sum(axis=1) * alpha_of(workload)
    assert judge(workload, plain.astype(np.float32)[None]).ok, "BLAS carries NaN and infinity as a plain sum does"


def test_the_bound_is_asked_of_finite_data_and_the_reference_of_all() -> None:
    seen: dict[str, list[bool]] = {"reference": [], "bound": []}

    def reference(inputs: Any, problem: Any) -> Any:
        seen["reference"].append(bool(np.isfinite(inputs["a"]).all()))
        return MATMUL.reference(inputs, problem)

    def bound(inputs: Any, problem: Any) -> Any:
        seen["bound"].append(bool(np.isfinite(inputs["a"]).all()))
        return MATMUL.error_bound(inputs, problem)

    data(replace(MATMUL, reference=reference, error_bound=bound), (16, 16, 16), "float32", "special")
    assert seen == {"reference": [False], "bound": [True]}


def test_numpys_warnings_pass_on_special_data_alone() -> None:
    def reference(inputs: Any, problem: Any) -> Any:
        return {"c": np.inf * np.zeros((problem["m"], problem["n"])) + MATMUL.reference(inputs, problem)["c"]}

    kernel = replace(MATMUL, reference=reference)
    assert np.isnan(data(kernel, (8, 8, 8), "float32", "special").reference["c"]).all()
    with pytest.raises(KernelError, match=r"kernel\.py.*RuntimeWarning: invalid value"):
        data(kernel, (8, 8, 8), "float32")


def test_the_paired_axis_is_the_one_that_bears_the_same_dimension() -> None:
    turned = tuple(
        Input("b", ("n", "k")) if getattr(argument, "name", "") == "b" else argument for argument in MATMUL.arguments
    )
    kernel = replace(
        MATMUL,
        arguments=turned,
        reference=lambda inputs, problem: {"c": inputs["a"].astype(np.float64) @ inputs["b"].astype(np.float64).T},
        error_bound=lambda inputs, problem: {"c": 1e-3},
    )
    assert np.abs(data(kernel, (12, 9, 30), "float32", "cancelling").reference["c"]).max() < 1e-13


# ---- right results pass ---------------------------------------------------------------------------------------------


def in_order(a: Array, b: Array, step: int = 1) -> Array:
    """One product after the other, as a thread sums; the accumulator is float32, or float64 for float64."""
    wide = np.float64 if a.dtype == np.float64 else np.float32
    a, b = a.astype(wide), b.astype(wide)
    sums = np.zeros((a.shape[0], b.shape[1]), wide)
    for i in range(a.shape[1])[::step]:
        sums += a[:, i, None] * b[i]
    return sums


def backwards(a: Array, b: Array) -> Array:
    return in_order(a, b, -1)


def by_slices(a: Array, b: Array) -> Array:
    """k in four parts, summed at the end: split-k."""
    parts = np.array_split(np.arange(a.shape[1]), 4)
    return sum((in_order(a[:, part], b[part]) for part in parts[1:]), in_order(a[:, parts[0]], b[parts[0]]))


ORDERS: list[Matmul] = [in_order, backwards, by_slices]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", MATMUL.dtypes)
@pytest.mark.parametrize("matmul", ORDERS)
def test_a_right_product_passes_in_any_order(matmul: Matmul, dtype: str, kind: Kind) -> None:
    for sizes in ((1, 1, 1), (5, 300, 7), (33, 65, 17), (20, 30, 257)):
        found = run(data(MATMUL, sizes, dtype, kind, seed=1), matmul)
        assert found.ok, (sizes, found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_right_product_passes(kind: Kind) -> None:
    workload = data(MATMUL, (16, 24, 4096), "float32", kind)
    for matmul in ORDERS:
        assert run(workload, matmul).ok


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TRANSPOSE.dtypes)
def test_a_right_transpose_passes(dtype: str, kind: Kind) -> None:
    workload = data(TRANSPOSE, (33, 65), dtype, kind)
    assert judge(workload, turned(workload)) == Check(0.0, 0)


# ---- wrong ones do not ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "cancelling"])
@pytest.mark.parametrize(("dtype", "k"), [*((dtype, 64) for dtype in MATMUL.dtypes), ("float32", 4096)])
def test_a_product_left_out_is_seen(dtype: str, k: int, kind: Kind) -> None:
    workload = data(MATMUL, (16, 24, k), dtype, kind)
    for at in (0, k // 2, k - 1):
        kept = np.delete(np.arange(k), at)
        assert run(workload, in_order).ok
        found = run(workload, lambda a, b, kept=kept: in_order(a[:, kept], b[kept]))
        assert found.wrong > 60
        assert found.max_error > 2


@pytest.mark.parametrize("kind", ["random", "cancelling"])
def test_a_small_error_in_a_short_sum_is_seen(kind: Kind) -> None:
    workload = data(MATMUL, (16, 24, 8), "float32", kind)
    assert run(workload, lambda a, b: in_order(a, b) + np.float32(1e-3)).wrong == 16 * 24


@pytest.mark.parametrize("kind", KINDS)
def test_float64_is_not_served_by_float32(kind: Kind) -> None:
    workload = data(MATMUL, (16, 24, 64), "float64", kind)
    found = run(workload, lambda a, b: in_order(a.astype(np.float32), b.astype(np.float32)))
    assert found.max_error > 1000


def test_sums_in_float16_are_seen() -> None:
    workload = data(MATMUL, (16, 24, 64), "float16", "cancelling")

    def narrow(a: Array, b: Array) -> Array:
        sums = np.zeros((16, 24), np.float16)
        for i in range(64):
            sums += a[:, i, None] * b[i]
        return sums

    assert run(workload, narrow).wrong > 100


def test_a_tail_that_meets_infinity_is_seen_on_special_data_alone() -> None:
    """Beyond k, A is filled with zeros and B with its own last row again."""

    def tail(a: Array, b: Array) -> Array:
        return in_order(np.pad(a, ((0, 0), (0, 3))), np.pad(b, ((0, 3), (0, 0)), mode="edge"))

    assert run(data(MATMUL, (16, 24, 29), "float32"), tail).ok
    assert not run(data(MATMUL, (16, 24, 29), "float32", "special"), tail).ok


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_moving_elements_keeps_each_bit(dtype: str) -> None:
    workload = data(TRANSPOSE, (33, 65), dtype, "special")
    right = turned(workload)
    part = element_type(dtype).numpy.type(0).real.dtype
    flat = right.reshape(-1).view(part)
    for fault, at in (
        (part.type(0), np.flatnonzero((flat == 0) & np.signbit(flat))[0]),  # −0 becomes 0
        (part.type(np.nan), np.flatnonzero(np.isnan(flat))[0]),  # a NaN without its payload
        (part.type(0), np.flatnonzero((flat != 0) & (np.abs(flat) < 1e-4))[0]),  # a subnormal becomes 0
    ):
        wrong = right.copy()
        wrong.reshape(-1).view(part)[at] = fault
        assert judge(workload, wrong).wrong == 1


def test_each_part_of_a_complex_number_has_its_own_nan_and_infinity() -> None:
    reference = np.array([complex(np.nan, 3), complex(np.inf, -1), 1 + 2j])
    assert compare(reference.astype(np.complex64), reference, 0.1).ok
    for at, value in ((0, complex(np.nan, 4)), (0, complex(3, np.nan)), (1, complex(-np.inf, -1)), (2, 1.1 + 2.1j)):
        wrong = reference.astype(np.complex64)
        wrong[at] = value
        assert compare(wrong, reference, 0.1).wrong == 1, value


# ---- references that are not right themselves -----------------------------------------------------------------------


def right(inputs: Any, problem: Any) -> Array:
    return np.asarray(MATMUL.reference(inputs, problem)["c"])


def in_place(inputs: Any, problem: Any) -> Any:
    inputs["a"][...] *= 2
    return {"c": right(inputs, problem)}


def another_input(inputs: Any, problem: Any) -> Any:
    inputs["a"] = inputs["a"][:, ::-1]
    return {"c": right(inputs, problem)}


BAD_REFERENCES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "float32": (lambda i, p: {"c": right(i, p).astype(np.float32)}, r"'c' is float32; it must be float64"),
    "integers": (lambda i, p: {"c": right(i, p).astype(np.int64)}, r"'c' is int64; it must be float64"),
    "objects": (lambda i, p: {"c": right(i, p).astype(object)}, r"'c' is object; it must be float64"),
    "one row": (lambda i, p: {"c": right(i, p)[:, :1]}, r"'c' has shape \(1, 4, 6\), its reference \(1, 1, 6\)"),
    "a scalar": (lambda i, p: {"c": 0.0}, r"'c' has shape \(1, 4, 6\), its reference \(\)"),
    "transposed": (lambda i, p: {"c": right(i, p).T}, r"'c' has shape \(1, 4, 6\), its reference \(6, 4, 1\)"),
    "of another name": (lambda i, p: {"d": right(i, p)}, r"the reference lacks c; it has d"),
    "not a dict": (lambda i, p: right(i, p), r"the reference must be a dict"),
    "in place": (in_place, r"read-only.*copy them first"),
    "raising": (lambda i, p: i["x"], r"KeyError: 'x'"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", BAD_REFERENCES)
def test_a_reference_that_cannot_be_right_is_named(fault: str, kind: Kind) -> None:
    reference, says = BAD_REFERENCES[fault]
    kernel = replace(MATMUL, reference=reference, folder=Path("/somewhere/matmul"))
    with pytest.raises(KernelError, match=rf"^/somewhere/matmul/kernel\.py: .*4×6×8 float32: .*{says}"):
        data(kernel, (4, 6, 8), "float32", kind)


def test_an_exact_reference_must_be_of_the_outputs_own_dtype() -> None:
    kernel = replace(
        TRANSPOSE, reference=lambda inputs, problem: {"out": np.swapaxes(inputs["in"], 1, 2).astype(np.int64)}
    )
    with pytest.raises(KernelError, match=r"'out' is int64; it must be int8, with an error bound of 0"):
        data(kernel, (3, 4), "int8")


@pytest.mark.parametrize("bound", [1, np.ones((1, 4, 3)), np.zeros((1, 4, 3))], ids=["1", "ones", "zeros"])
def test_integers_have_no_bound_but_the_number_zero(bound: Any) -> None:
    """Elementwise bounds compare in float64, where large integers meet."""
    kernel = replace(TRANSPOSE, error_bound=lambda inputs, problem: {"out": bound})
    with pytest.raises(KernelError, match="integers, which are compared exactly"):
        data(kernel, (3, 4), "int64")


def test_a_reference_that_swaps_its_inputs_does_not_change_the_kernels() -> None:
    workload = data(replace(MATMUL, reference=another_input), (4, 6, 8), "float32")
    assert np.array_equal(workload.inputs["a"], data(MATMUL, (4, 6, 8), "float32").inputs["a"])
