"""Tuned kernels on a GPU: every kind of array, the same kind out, on the caller's stream, the caller's context kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import load_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning"),  # nothing is tuned here
]
SIZES = [(64, 64, 64), (1, 1, 1), (33, 65, 17), (128, 130, 126), (257, 64, 31)]


@pytest.fixture(scope="module")
def matmul() -> Any:
    return autotile.load("matmul", m=64, n=64, k=64, dtype="float32", device="cuda")


def operands(m: int, n: int, k: int) -> tuple[Any, Any]:
    random = np.random.default_rng([m, n, k])
    return random.standard_normal((m, k), dtype=np.float32), random.standard_normal((k, n), dtype=np.float32)


def assert_product(result: Any, a: Any, b: Any) -> None:
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]})
    bound = kernel.error_bound({"a": a, "b": b}, problem)["c"]
    assert np.all(np.abs(result - a.astype(np.float64) @ b) <= bound)


def torch_pair() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    torch = pytest.importorskip("torch")
    return lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy()


def cupy_pair() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    cupy = pytest.importorskip("cupy")
    return cupy.asarray, cupy.asnumpy


def gpuarray_pair() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    from autotile.devices.cuda import open_cuda

    device = open_cuda(0)

    def give(array: Any) -> Any:
        made = device.empty_gpuarray(array.shape, array.dtype)
        with device.active():
            made.set(array)
        return made

    def take(array: Any) -> Any:
        with device.active():
            return array.get()

    return give, take


PAIRS = {"numpy": lambda: (lambda x: x, lambda x: x), "torch": torch_pair, "cupy": cupy_pair, "pycuda": gpuarray_pair}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_same_kind_comes_out_and_is_right(matmul: Any, kind: str, sizes: tuple[int, int, int]) -> None:
    give, take = PAIRS[kind]()
    a, b = operands(*sizes)
    result = matmul(give(a), give(b))
    assert type(result).__module__.partition(".")[0] == kind
    assert_product(take(result), a, b)


@pytest.mark.parametrize("kind", PAIRS)
def test_out_is_filled_and_returned(matmul: Any, kind: str) -> None:
    give, take = PAIRS[kind]()
    a, b = operands(33, 65, 17)
    out = give(np.full((33, 65), np.nan, np.float32))
    assert matmul(give(a), give(b), out=out) is out
    assert_product(take(out), a, b)


@pytest.mark.parametrize("kind", ["torch", "cupy"])
def test_a_k_of_zero_gives_zeros(matmul: Any, kind: str) -> None:
    give, take = PAIRS[kind]()
    result = matmul(give(np.empty((3, 0), np.float32)), give(np.empty((0, 4), np.float32)))
    assert np.array_equal(take(result), np.zeros((3, 4), np.float32))


def test_a_stream_of_torch_is_used(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = operands(257, 64, 31)
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ta.mul_(2.0)  # what is queued on the stream before comes before
        result = matmul(ta, tb)
    stream.synchronize()
    assert_product(result.cpu().numpy(), 2 * a, b)


def test_a_view_off_alignment_is_right(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = operands(64, 64, 64)
    memory = torch.zeros(a.size + 1, device="cuda")
    view = memory[1:].view(64, 64)
    view.copy_(torch.from_numpy(a))
    assert_product(matmul(view, torch.from_numpy(b).cuda()).cpu().numpy(), a, b)


def test_what_cannot_be_right_is_refused(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    square = torch.ones(64, 64, device="cuda")
    with pytest.raises(ArgumentValueError, match="not C-contiguous"):
        matmul(torch.ones(64, 32, device="cuda").t(), square)
    with pytest.raises(ArgumentValueError, match="shares memory"):
        matmul(square, square, out=square)
    with pytest.raises(ArgumentTypeError, match="float64"):
        matmul(square.double(), square)
    with pytest.raises(ArgumentTypeError, match="one kind and in one place"):
        matmul(square, np.ones((64, 64), np.float32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kernel = autotile.load("matmul", m=64, n=64, k=64, dtype=dtype, device="cuda")
    a, b = (torch.randn(64, 64, device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    exact = a.double() @ b.double()
    result = kernel(a, b)
    assert result.dtype == a.dtype
    assert float((result.double() - exact).abs().max()) < {"float16": 0.05, "bfloat16": 0.4, "float64": 1e-12}[dtype]


def test_the_callers_context_stays_current(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    from autotile.devices.cuda.driver import current_context

    torch.ones(1, device="cuda")
    before = current_context()
    a, b = operands(33, 65, 17)
    matmul(a, b)
    with pytest.raises(ArgumentValueError):
        matmul(a, a)
    assert current_context() == before
    assert float(torch.ones(4, device="cuda").sum()) == 4.0
