"""Calls of a kernel whose results are of another type than its elements: on the emulator, and as checks see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import load_kernel
from autotile.runtime import arguments
from autotile.runtime.arguments import ArgumentChecker
from autotile.runtime.arrays import View, view_of
from autotile.runtime.quick import QuickCalls
from autotile.runtime.requests import dtype_name
from autotile.runtime.strides import MAY_SHARE, SHARES, common

pytestmark = pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")  # nothing is tuned here
Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).parents[1] / "data" / "kernels"
BF16 = ml_dtypes.bfloat16
Load = Callable[..., autotile.TunedKernel]


@pytest.fixture(scope="module")
def dots() -> Load:
    @cache
    def load(dtype: str, **asked: Any) -> autotile.TunedKernel:
        return autotile.load("dots", m=4, n=6, k=8, dtype=dtype, device="emulator", templates=KERNELS, **asked)

    return load


def numbers(shape: Any, dtype: Any) -> Array:
    drawn = np.random.default_rng(0).integers(-100, 100, shape)
    return drawn.astype(dtype) if np.dtype(dtype).kind == "i" else (drawn / 64).astype(np.float32).astype(dtype)


def operands(dtype: Any, m: int = 5, n: int = 7, k: int = 9) -> tuple[Array, Array]:
    return numbers((m, k), dtype), numbers((k, n), dtype)


@pytest.mark.parametrize("m", [1, 5])
def test_sums_of_int8_come_as_int32(dots: Load, m: int) -> None:
    x, y = operands(np.int8, m)
    exact = x.astype(np.int64) @ y.astype(np.int64)
    result = dots("int8")(x, y)
    assert result.dtype == np.int32
    assert np.array_equal(result, exact)
    out = np.empty((m, 7), np.int32)
    assert dots("int8")(x, y, out=out, alpha=-2.0) is out
    assert np.array_equal(out, -2 * exact)
    assert np.abs(exact).max() > 127


@pytest.mark.parametrize(
    ("dtype", "own", "wide", "wanted"),
    [
        ("bfloat16", BF16, False, BF16),
        ("bfloat16", BF16, True, np.float32),
        ("float16", np.float16, True, np.float32),
        ("float64", np.float64, True, np.float64),
        ("tf32", np.float32, False, np.float32),
    ],
)
def test_results_are_wide_where_that_is_asked(dots: Load, dtype: str, own: Any, wide: bool, wanted: Any) -> None:
    x, y = operands(own)
    result = dots(dtype, wide=wide)(x, y)
    exact = (x.astype(np.float64) @ y.astype(np.float64)).astype(wanted)
    assert result.dtype == wanted
    assert np.allclose(result.astype(np.float64), exact.astype(np.float64), rtol=1e-2 if wanted is BF16 else 1e-6)
    out = np.empty((5, 7), wanted)
    assert dots(dtype, wide=wide)(x, y, out=out) is out
    assert np.array_equal(out.astype(np.float64), result.astype(np.float64))


def test_an_addend_and_a_bias_are_of_the_results_type(dots: Load) -> None:
    x, y = operands(np.int8)
    addend, bias = numbers((5, 7), np.int32) * 1000, numbers(7, np.int32)
    expected = x.astype(np.int64) @ y.astype(np.int64) + addend + bias
    call = dots("int8", added=True, bias=True)
    assert np.array_equal(call(x, y, addend, bias), expected)
    assert call(x, y, addend, bias, out=addend) is addend
    assert np.array_equal(addend, expected)
    wide = dots("bfloat16", wide=True, bias=True)
    assert wide(*operands(BF16), numbers(7, np.float32)).dtype == np.float32


def test_parts_of_larger_arrays(dots: Load) -> None:
    x, y = operands(np.int8)
    whole, larger = np.full((5, 20), 7, np.int32), numbers((5, 30), np.int32)
    addend = larger[:, 3:10]
    with pytest.raises(ArgumentValueError, match="out says out_pitch = 20, but another array out_pitch = 30"):
        dots("int8", added=True)(x, y, addend, out=whole[:, 2:9])
    dots("int8")(x, y, out=whole[:, 2:9])
    assert np.array_equal(whole[:, 2:9], x.astype(np.int64) @ y.astype(np.int64))
    assert set(whole[:, [0, 1, *range(9, 20)]].ravel().tolist()) == {7}
    unaligned = np.empty(4 * 35 + 2, np.int8)[2:].view(np.int32).reshape(5, 7)
    with pytest.raises(ArgumentValueError, match="no multiple of the 4 bytes of int32"):
        dots("int8")(x, y, out=unaligned)


def test_no_work_leaves_what_is_added(dots: Load) -> None:
    result = dots("int8", bias=True)(np.empty((5, 0), np.int8), np.empty((0, 7), np.int8), np.arange(7, dtype=np.int32))
    assert result.dtype == np.int32
    assert np.array_equal(result, np.tile(np.arange(7), (5, 1)))


@pytest.mark.parametrize(
    ("dtype", "asked", "out", "message"),
    [
        ("int8", {}, np.int8, "out has dtype int8, it must be int32$"),
        ("int8", {}, np.float32, "out has dtype float32, it must be int32$"),
        (
            "bfloat16", {}, np.float32,
            "out has dtype float32, it must be bfloat16, or load the kernel with wide=True$",
        ),
        (
            "bfloat16", {"wide": True}, BF16,
            "out has dtype bfloat16, it must be float32, or load the kernel without wide=True$",
        ),
        ("bfloat16", {}, np.float64, "out has dtype float64, it must be bfloat16$"),
        ("tf32", {}, np.float64, "out has dtype float64, it must be float32$"),
    ],
)  # fmt: skip
def test_an_out_of_another_type(dots: Load, dtype: str, asked: dict[str, Any], out: Any, message: str) -> None:
    own = {"int8": np.int8, "bfloat16": BF16, "tf32": np.float32}[dtype]
    with pytest.raises(ArgumentTypeError, match=message):
        dots(dtype, **asked)(*operands(own), out=np.empty((5, 7), out))


@pytest.mark.parametrize(
    ("dtype", "own", "bias", "message"),
    [
        ("int8", np.int8, np.int8, "bias has dtype int8, it must be int32$"),
        ("bfloat16", BF16, np.float32, "bias has dtype float32, it must be bfloat16, or load the kernel with wide"),
        (
            "int8", np.int16, np.int32,
            'x has dtype int16, the kernel was loaded for int8: convert the array, or load with dtype="int16"',
        ),
        (
            "tf32", np.float64, np.float32,
            "x has dtype float64, the kernel was loaded for tf32, whose arrays are float32: convert the array, or load",
        ),
    ],
)  # fmt: skip
def test_an_input_of_another_type(dots: Load, dtype: str, own: Any, bias: Any, message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        dots(dtype, bias=True)(*operands(own), np.zeros(7, bias))


def test_a_numpy_dtype_names_its_type() -> None:
    assert dtype_name(np.float32) == "float32"
    assert dtype_name(ml_dtypes.float8_e4m3fn) == dtype_name(np.dtype(ml_dtypes.float8_e4m3fn)) == "float8_e4m3fn"


# ---- as the checks see arrays on a GPU ------------------------------------------------------------------------------


def seen(dtype: str = "int8", shape: tuple[int, ...] = (8, 8), address: int = 4096, **changes: Any) -> View:
    def empty(shape: tuple[int, ...], dtype: str) -> View:
        return seen(dtype, shape, 1 << 20)

    view = View(None, "torch", "cuda", 0, address, shape, dtype, True, empty, lambda: 0)
    return replace(view, **changes)


@pytest.fixture
def check(monkeypatch: Any) -> Callable[..., Any]:
    """Of a kernel for a GPU, given views."""
    monkeypatch.setattr(arguments, "view_of", lambda view, name, empty=None: view)

    def make(dtype: str, *views: View, out: Any = None, **switches: bool) -> Any:
        device: Any = SimpleNamespace(info=SimpleNamespace(kind="cuda"), index=0)
        checker = ArgumentChecker(load_kernel("dots", KERNELS), dtype, device, switches=tuple(switches))
        return checker.check(views, out)

    return make


@pytest.mark.parametrize(
    ("dtype", "stored", "wide", "made"),
    [
        ("int8", "int8", False, "int32"),
        ("tf32", "float32", False, "float32"),
        ("float8_e4m3fn", "float8_e4m3fn", False, "float8_e4m3fn"),
        ("float8_e5m2", "float8_e5m2", True, "float32"),
    ],
)
def test_a_result_is_made_of_its_type(check: Any, dtype: str, stored: str, wide: bool, made: str) -> None:
    switches = {"wide": True} if wide else {}
    _, (out,), _ = check(dtype, seen(stored), seen(stored), **switches)
    assert out.dtype == made


def test_cupy_has_no_floats_of_8_bits(check: Any) -> None:
    views = [seen("uint8", kind="cupy") for _ in range(2)]
    with pytest.raises(ArgumentTypeError, match="which CuPy, having no float8_e5m2, cannot: pass PyTorch tensors"):
        check("float8_e5m2", *views)
    with pytest.raises(ArgumentTypeError, match='or load with dtype="uint8"'):
        check("float8_e5m2", *(seen("uint8") for _ in range(2)))


@pytest.mark.parametrize(("apart", "shared"), [(-256, False), (-255, True), (0, True), (63, True), (64, False)])
def test_memory_is_compared_in_bytes(check: Any, apart: int, shared: bool) -> None:
    x, out = seen(address=1 << 16), seen("int32", address=(1 << 16) + apart)
    assert common(x, out) == common(out, x) == (SHARES if shared else "")
    operands = x, seen(address=1 << 20)
    if out.address % 4:
        return
    if shared:
        with pytest.raises(ArgumentValueError, match="out shares memory with x"):
            check("int8", *operands, out=out)
    else:
        check("int8", *operands, out=out)


def test_rows_of_two_types_share_what_numpy_says_they_do() -> None:
    for seed in range(300):
        _compare_with_numpy(seed)


def _compare_with_numpy(seed: int) -> None:
    generator = np.random.default_rng(seed)
    memory = np.zeros(4096, np.uint8)
    views = []
    for dtype in (np.int8, np.int32):
        rows, cols = (int(generator.integers(1, 5)) for _ in range(2))
        pitch = 32 // np.dtype(dtype).itemsize if seed % 2 else int(generator.integers(cols, 12))
        start = int(generator.integers(0, 40)) * 4 + 256
        whole = memory[start:].view(dtype)[: rows * pitch].reshape(rows, pitch)
        views.append(view_of(whole[:, :cols], "a"))
    truth = np.shares_memory(views[0].owner, views[1].owner)
    for found in (common(*views), common(*reversed(views))):
        assert found in ((SHARES, MAY_SHARE) if truth else ("", MAY_SHARE))
        if seed % 2:
            assert found == (SHARES if truth else "")


def test_a_call_like_an_earlier_one_counts_bytes_too() -> None:
    kernel = load_kernel("dots", KERNELS)
    device: Any = SimpleNamespace(info=SimpleNamespace(kind="cuda"))
    calls = QuickCalls(device, SimpleNamespace(), "int8", kernel.inputs[:2], None, "out")  # type: ignore[arg-type]
    x, out = seen(), seen("int32", (8, 8))
    assert calls._apart(0, x, out) == (-256, 64, False)


def test_it_is_the_emulators_too() -> None:
    checker = ArgumentChecker(load_kernel("dots", KERNELS), "int8", EmulatorDevice())
    _, (out,), _ = checker.check(operands(np.int8), None)
    assert (out.dtype, out.shape) == ("int32", (5, 7))
