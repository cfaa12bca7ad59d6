"""Calls of a tuned kernel, on the emulator: a right answer or a clear error, never garbage."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Kernel, kernel_for, load_kernel
from autotile.store import MemoryStore
from autotile.types import Record

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "float16", "bfloat16")
TUNED = (64, 48, 40)


def served(dtype: str) -> Kernel:
    """What serves as matmul on the emulator: of all but float32 another kernel."""
    return kernel_for("matmul", dtype, lambda: EmulatorDevice().info)


@pytest.fixture(scope="module")
def matmul(saved: Callable[..., Record]) -> Callable[[str], autotile.TunedKernel]:
    store = MemoryStore()
    for dtype in DTYPES:
        store.save_best(saved(*TUNED, dtype=dtype, kernel=served(dtype).name))

    @cache
    def load(dtype: str = "float32") -> autotile.TunedKernel:
        m, n, k = TUNED
        return autotile.load("matmul", m=m, n=n, k=k, dtype=dtype, device="emulator", store=store, strict=True)

    return load


@pytest.fixture(scope="module")
def transpose(saved: Callable[..., Record]) -> autotile.TunedKernel:
    store = MemoryStore()
    store.save_best(saved(kernel="transpose", sizes={"rows": 40, "cols": 24}))
    return autotile.load("transpose", rows=40, cols=24, device="emulator", store=store, strict=True)


def inputs(m: int, n: int, k: int, dtype: str = "float32") -> tuple[Array, Array]:
    random = np.random.default_rng([m, n, k])
    kind = element_type(dtype).numpy
    return random.standard_normal((m, k)).astype(kind), random.standard_normal((k, n)).astype(kind)


def assert_product(c: Array, a: Array, b: Array, dtype: str = "float32") -> None:
    """Equal to numpy's within the kernel's own bound."""
    kernel = served(dtype)
    problem = kernel.problem({"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}, dtype)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = kernel.error_bound({"a": a, "b": b}, problem)["c"]
    assert c.shape == exact.shape
    assert c.dtype == element_type(dtype).numpy
    assert np.all(np.abs(c.astype(np.float64) - exact) <= bound)


# ---- right answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_on_the_tuned_size_and_others(matmul: Any, dtype: str) -> None:
    for sizes in (TUNED, (1, 1, 1), (31, 1, 64), (33, 65, 17), (5, 48, 40), (64, 80, 96)):
        a, b = inputs(*sizes, dtype)
        assert_product(matmul(dtype)(a, b), a, b, dtype)


def test_inputs_stay_as_they_are(matmul: Any) -> None:
    a, b = inputs(*TUNED)
    kept = a.copy(), b.copy()
    first = matmul()(a, b)
    assert np.array_equal(first, matmul()(a, b))  # nothing is added up from call to call
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


def test_one_array_for_both_inputs(matmul: Any) -> None:
    a, _ = inputs(48, 48, 48)
    assert_product(matmul()(a, a), a, a)


def views(a: Array) -> dict[str, Array]:
    """The values of `a`, lying in memory in other ways."""
    wide = np.zeros((a.shape[0] * 2, a.shape[1] * 2), a.dtype)
    wide[::2, ::2] = a
    slack = np.zeros(a.size + 1, a.dtype)[1:].reshape(a.shape)
    slack[...] = a
    read_only = a.copy()
    read_only.flags.writeable = False
    return {
        "strided": wide[::2, ::2],
        "fortran": np.asfortranarray(a),
        "reversed": np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "transposed": np.ascontiguousarray(a.T).T,
        "offset by one element": slack,
        "read-only": read_only,
    }


@pytest.mark.parametrize("how", sorted(views(np.zeros((2, 2)))))
def test_inputs_that_lie_otherwise(matmul: Any, how: str) -> None:
    a, b = inputs(*TUNED)
    assert_product(matmul()(views(a)[how], views(b)[how]), a, b)


def test_broadcast_inputs(matmul: Any) -> None:
    a, b = np.broadcast_to(np.float32(2), (64, 40)), np.broadcast_to(np.arange(48, dtype=np.float32), (40, 48))
    assert_product(matmul()(a, b), np.ascontiguousarray(a), np.ascontiguousarray(b))


def test_an_out_off_by_one_element(matmul: Any) -> None:
    """Its base pointer is not aligned for vectors: another text runs, with the same result."""
    a, b = inputs(*TUNED)
    memory = np.full(64 * 48 + 2, 7, np.float32)
    out = memory[1:-1].reshape(64, 48)
    assert matmul()(a, b, out=out) is out
    assert_product(out, a, b)
    assert memory[0] == memory[-1] == 7


@pytest.mark.parametrize("dtype", DTYPES)
def test_unaligned_base_pointers_of_every_dtype(matmul: Any, dtype: str) -> None:
    a, b = inputs(*TUNED, dtype)
    off_a, off_b = views(a)["offset by one element"], views(b)["offset by one element"]
    assert_product(matmul(dtype)(off_a, off_b), a, b, dtype)


def test_out_is_returned(matmul: Any) -> None:
    a, b = inputs(*TUNED)
    out = np.full((64, 48), np.nan, np.float32)
    assert matmul()(a, b, out=out) is out
    assert matmul()(a, b, out=(out,)) is out
    assert_product(out, a, b)


@pytest.mark.parametrize("sizes", [(0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0)])
def test_sizes_of_zero(matmul: Any, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = np.empty((m, k), np.float32), np.empty((k, n), np.float32)
    c = matmul()(a, b)
    assert c.dtype == np.float32
    assert np.array_equal(c, np.zeros((m, n), np.float32))
    out = np.full((m, n), np.nan, np.float32)
    assert matmul()(a, b, out=out) is out
    assert np.array_equal(out, np.zeros((m, n), np.float32))


def test_four_threads_at_once(matmul: Any) -> None:
    kernel = matmul()
    work = [inputs(16 + i, 48, 40) for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        for (a, b), c in zip(work, pool.map(lambda pair: kernel(*pair), work), strict=True):
            assert_product(c, a, b)


def test_transpose(transpose: autotile.TunedKernel) -> None:
    for shape in ((40, 24), (1, 37), (53, 1), (31, 65)):
        a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        a[0, 0] = np.nan
        assert np.array_equal(transpose(a), a.T, equal_nan=True)


def test_a_second_call_compiles_nothing(matmul: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = inputs(*TUNED)
    kernel = matmul()
    kernel(a, b)
    monkeypatch.setenv("AUTOTILE_CXX", "/nonexistent")
    assert_product(kernel(a, b), a, b)


# ---- clear errors --------------------------------------------------------------------------------------------------

A, B = inputs(*TUNED)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((A.astype(np.float64), B), "a has dtype float64, the kernel was loaded for float32"),
        ((A, B.astype(np.float16)), "b has dtype float16"),
        ((A.astype(np.int64), B), "a has dtype int64"),
        ((A.astype(bool), B), "a: dtype bool is not supported"),
        ((A.astype(">f4"), B), "a: dtype >f4 is not supported"),
        ((A.tolist(), B), "a is a builtins.list; give a numpy array"),
        ((A, None), "b is a builtins.NoneType"),
        ((3.0, B), "a is a builtins.float"),
        ((A,), r"takes 2 array\(s\) \(a, b\), not 1"),
        ((A, B, B), "not 3"),
        ((), "not 0"),
    ],
)
def test_wrong_types(matmul: Any, arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message) as raised:
        matmul()(*arrays)
    assert isinstance(raised.value, TypeError)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((A, B[:-1]), r"b has shape \(39, 48\), so k = 39, but another array says k = 40"),
        ((A.T.copy(), B), "k = 40, but another array says k = 64"),
        ((A[None], B), "one array has the dimension batch, another leaves it out"),
        ((A[0], B), "a must have 3 dimensions .* batch may be left out"),
        ((A, np.zeros((), np.float32)), "b must have 3 dimensions"),
    ],
)
def test_wrong_shapes(matmul: Any, arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentValueError, match=message) as raised:
        matmul()(*arrays)
    assert isinstance(raised.value, ValueError)


def test_wrong_outs(matmul: Any) -> None:
    kernel = matmul()
    with pytest.raises(ArgumentTypeError, match="out has dtype float64, it must be float32"):
        kernel(A, B, out=np.empty((64, 48)))
    with pytest.raises(ArgumentTypeError, match=r"out is a builtins\.list"):
        kernel(A, B, out=[0.0])
    with pytest.raises(ArgumentTypeError, match="out has 2"):
        kernel(A, B, out=(np.empty((64, 48), np.float32),) * 2)
    with pytest.raises(ArgumentValueError, match=r"out has shape \(48, 64\), it must be \(64, 48\)"):
        kernel(A, B, out=np.empty((48, 64), np.float32))
    for view in (np.empty((48, 64), np.float32).T, np.empty((64, 96), np.float32)[:, ::2]):  # filled all the same
        assert kernel(A, B, out=view) is view
        assert np.array_equal(view, kernel(A, B))


def test_an_out_that_shares_memory(matmul: Any, transpose: autotile.TunedKernel) -> None:
    square, _ = inputs(48, 48, 48)
    before = square.copy()
    for arrays in ((square, B[:1].repeat(48, 0)), (np.ones((48, 48), np.float32), square)):
        with pytest.raises(ArgumentValueError, match="shares memory"):
            matmul()(*arrays, out=square)
    with pytest.raises(ArgumentValueError, match="shares memory with in"):
        transpose(square, out=square)
    rows = np.zeros((49, 48), np.float32)
    with pytest.raises(ArgumentValueError, match="shares memory with in"):
        transpose(rows[:48], out=rows[1:])
    assert np.array_equal(square, before)
    two = np.zeros((96, 48), np.float32)
    two[:48] = square
    assert np.array_equal(transpose(two[:48], out=two[48:]), square.T)  # neighbours do not overlap


@pytest.mark.parametrize("k", [40, 0])
def test_a_read_only_out(matmul: Any, k: int) -> None:
    out = np.zeros((64, 48), np.float32)
    out.flags.writeable = False
    with pytest.raises(ArgumentValueError, match="read-only"):
        matmul()(A[:, :k], B[:k], out=out)


def odd(array: Array) -> Array:
    """The same values at an address that is no multiple of an element."""
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


def test_inputs_between_elements(matmul: Any) -> None:
    assert_product(matmul()(odd(A), odd(B)), A, B)


def test_an_out_between_elements(matmul: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"out begins inside an element: .* 4 bytes of float32"):
        matmul()(A, B, out=odd(np.zeros((64, 48), np.float32)))


# ---- other libraries -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors(matmul: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x).to(getattr(torch, dtype)) for x in inputs(*TUNED))
    c = matmul(dtype)(a, b)
    assert isinstance(c, torch.Tensor)
    assert c.dtype == a.dtype
    kind = element_type(dtype).numpy
    widened = [x.to(torch.float64).numpy().astype(kind) for x in (c, a, b)]
    assert_product(*widened, dtype)
    assert matmul(dtype)(a.T.contiguous().T, b, out=c) is c
    with pytest.raises(ArgumentTypeError, match="one kind"):
        matmul(dtype)(a, inputs(*TUNED, dtype)[1])


def test_a_foreign_array_is_refused_by_name(matmul: Any) -> None:
    class Foreign:
        __array_interface__ = A.__array_interface__

    with pytest.raises(ArgumentTypeError, match="Foreign; give a numpy array"):
        matmul()(Foreign(), B)


def test_an_array_on_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen by the checker alone: this needs no second GPU."""
    from types import SimpleNamespace

    from autotile.runtime import arguments

    elsewhere = arguments.View(
        None, "torch", "cuda", 1, 256, (4, 4), "float32", True, lambda shape, dtype: None, lambda: None
    )
    monkeypatch.setattr(arguments, "view_of", lambda *given: elsewhere)
    device: Any = SimpleNamespace(info=SimpleNamespace(kind="cuda"), index=0)
    checker = arguments.ArgumentChecker(load_kernel("matmul"), "float32", device)
    with pytest.raises(ArgumentValueError, match="a lies on cuda:1, the kernel was loaded for cuda:0"):
        checker.check([object(), object()], None)
