"""Tuned kernels on a GPU: every kind of array, the same kind out, on the caller's stream, the caller's context kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.cuda.driver import current_context
from autotile.errors import ArgumentTypeError, ArgumentValueError, LaunchError
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
    with pytest.raises(ArgumentValueError, match="rows of `a` must be dense"):
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
    torch.ones(1, device="cuda")
    before = current_context()
    a, b = operands(33, 65, 17)
    matmul(a, b)
    with pytest.raises(ArgumentValueError):
        matmul(a, a)
    assert current_context() == before
    assert float(torch.ones(4, device="cuda").sum()) == 4.0


# ---- other layouts, dtypes and sizes -------------------------------------------------------------------------------


def layouts(kind: str) -> list[Any]:
    """Arrays of 64 × 64 whose rows do not follow each other without gaps."""
    give, _ = PAIRS[kind]()
    square = give(np.ones((64, 64), np.float32))
    if kind == "torch":
        return [square.t(), give(np.ones((64, 128), np.float32))[:, ::2], square[:1].expand(64, 64)]
    if kind == "cupy":
        import cupy

        return [square.T, square[::-1], square[:, ::-1], cupy.broadcast_to(square[:1], (64, 64))]
    from autotile.devices.cuda import open_cuda

    with open_cuda(0).active():  # pycuda asks the current context how to launch on the view
        return [square.T]


@pytest.mark.parametrize("kind", ["torch", "cupy", "pycuda"])
def test_views_that_are_not_contiguous_are_refused(matmul: Any, kind: str) -> None:
    give, _ = PAIRS[kind]()
    a, b = (give(np.ones((64, 64), np.float32)) for _ in range(2))
    for view in layouts(kind):
        with pytest.raises(ArgumentValueError, match=r"^rows of `b` must be dense"):
            matmul(a, view)
        with pytest.raises(ArgumentValueError, match=r"^rows of `out` must be dense"):
            matmul(a, b, out=view)


def test_views_of_numpy_are_copied(matmul: Any) -> None:
    a, b = operands(64, 64, 64)
    memory = np.full(64 * 64 + 2, 7, np.float32)
    out = memory[1:-1].reshape(64, 64)
    assert matmul(np.ascontiguousarray(a.T).T, b[::-1, ::-1], out=out) is out
    assert_product(out, a, b[::-1, ::-1])
    assert memory[0] == memory[-1] == 7


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_another_dtype_is_refused(matmul: Any, kind: str, dtype: str) -> None:
    give, _ = PAIRS[kind]()
    right, wrong = (give(np.ones((64, 64), of)) for of in ("float32", dtype))
    with pytest.raises(ArgumentTypeError, match=f"^a has dtype {dtype}, the kernel was loaded for float32"):
        matmul(wrong, right)
    with pytest.raises(ArgumentTypeError, match=f"^out has dtype {dtype}, it must be float32"):
        matmul(right, right, out=wrong)


def test_an_out_off_by_one_element(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = operands(64, 64, 64)
    memory = torch.full((64 * 64 + 2,), 7.0, device="cuda")
    out = memory[1:-1].view(64, 64)
    assert matmul(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), out=out) is out
    assert_product(out.cpu().numpy(), a, b)
    assert float(memory[0]) == float(memory[-1]) == 7.0


def test_a_complex_number_at_half_its_alignment_is_refused() -> None:
    """A load of the whole number would fault, and end the context."""
    cupy = pytest.importorskip("cupy")
    transpose = autotile.load("transpose", rows=4, cols=4, dtype="complex64", device="cuda")
    whole = cupy.zeros((4, 4), cupy.complex64)
    half = cupy.zeros(33, cupy.float32)[1:].view(cupy.complex64).reshape(4, 4)
    assert half.data.ptr % 8 == 4
    with pytest.raises(ArgumentValueError, match=r"^in begins inside an element"):
        transpose(half)
    with pytest.raises(ArgumentValueError, match=r"^out begins inside an element"):
        transpose(whole, out=half)
    assert np.array_equal(cupy.asnumpy(transpose(whole)), np.zeros((4, 4), np.complex64))


def test_a_conjugated_view_of_torch_is_refused() -> None:
    torch = pytest.importorskip("torch")
    transpose = autotile.load("transpose", rows=4, cols=4, dtype="complex64", device="cuda")
    numbers = torch.arange(16, device="cuda").reshape(4, 4) * (1 + 2j)
    with pytest.raises(ArgumentTypeError, match="resolve_conj"):
        transpose(numbers.conj())
    assert torch.equal(transpose(numbers.conj().resolve_conj()), numbers.conj().t())


def test_memory_in_common(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    memory, b = torch.ones(128, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    for out in (memory[:64], memory[1:65], memory[63:127]):
        with pytest.raises(ArgumentValueError, match="shares memory with a"):
            matmul(memory[:64], b, out=out)
        with pytest.raises(ArgumentValueError, match="shares memory with b"):
            matmul(b, memory[:64], out=out)
    matmul(memory[:64], b, out=memory[64:])  # neighbours
    assert bool((memory[64:] == 64).all())
    assert bool((memory[:64] == 1).all())


@pytest.mark.parametrize("sizes", [(0, 4, 3), (3, 0, 4), (3, 4, 0), (0, 0, 0)], ids=str)
def test_sizes_of_zero(matmul: Any, sizes: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    m, n, k = sizes
    a, b = torch.empty(m, k, device="cuda"), torch.empty(k, n, device="cuda")
    assert torch.equal(matmul(a, b), torch.zeros(m, n, device="cuda"))
    assert np.array_equal(matmul(a.cpu().numpy(), b.cpu().numpy()), np.zeros((m, n), np.float32))


def test_zeros_come_after_what_is_queued(matmul: Any) -> None:
    """On a stream of PyTorch's, which does not wait for the default one."""
    torch = pytest.importorskip("torch")
    a, b = torch.empty(300, 0, device="cuda"), torch.empty(0, 300, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        out = torch.empty(300, 300, device="cuda")
        torch.cuda._sleep(100_000_000)  # clock cycles: some 50 ms
        out.fill_(5)
        matmul(a, b, out=out)
        after = out + 1
    stream.synchronize()
    assert bool((out == 0).all())
    assert bool((after == 1).all())


def test_an_input_that_is_not_empty_counts(row_sums: Path) -> None:
    torch = pytest.importorskip("torch")
    sums = autotile.load("row_sums", rows=8, cols=8, device="cuda", templates=row_sums)
    start = torch.tensor([3.0, -1.0, 7.0], device="cuda")
    assert torch.equal(sums(start, torch.empty(3, 0, device="cuda")), start)


def test_more_blocks_along_y_than_cuda_launches(row_sums: Path) -> None:
    sums = autotile.load("row_sums", rows=8, cols=8, device="cuda", templates=row_sums)
    with pytest.raises(LaunchError, match="the grid has 70000 blocks along y; CUDA allows 1 to 65535"):
        sums(np.zeros(70_000, np.float32), np.ones((70_000, 1), np.float32))
    most = 65_535
    assert np.array_equal(sums(np.ones(most, np.float32), np.ones((most, 3), np.float32)), np.full(most, 4, np.float32))


def test_two_million_rows() -> None:
    transpose = autotile.load("transpose", rows=64, cols=64, dtype="int8", device="cuda")
    a = np.random.default_rng(0).integers(-128, 128, (2_000_000, 3), np.int8)
    assert np.array_equal(transpose(a), a.T)


def test_more_than_2_31_elements() -> None:
    torch = pytest.importorskip("torch")
    side, step = 50_000, 5_000
    if torch.cuda.mem_get_info()[0] < 8e9:
        pytest.skip("needs 8 GB of the GPU's memory")
    transpose = autotile.load("transpose", rows=side, cols=side, dtype="int8", device="cuda")
    a = torch.randint(-128, 128, (side, side), dtype=torch.int8, device="cuda")
    result = transpose(a)
    for row in range(0, side, step):
        assert torch.equal(result[:, row : row + step], a[row : row + step].t())


# ---- views, batches, in place --------------------------------------------------------------------------------------

KERNELS = Path(__file__).parents[1] / "data" / "kernels"
PARTS = {
    "columns": ((40, 60), np.s_[:, 7:40]),
    "every second row": ((40, 60), np.s_[::2]),
    "a batch": ((5, 40, 60), np.s_[:]),
    "columns of a batch": ((5, 40, 60), np.s_[:, :, 8:40]),
    "rows and columns of a batch": ((5, 40, 60), np.s_[:, 3:36, 1:34]),
    "every second matrix": ((5, 40, 60), np.s_[::2]),
    "a row of each": ((5, 40, 60), np.s_[:, 3:4]),
}


def part(array: Any, index: Any) -> Any:
    """A view; pycuda asks the current context how to launch on it."""
    from autotile.devices.cuda import open_cuda

    with open_cuda(0).active():
        return array[index]


def turning(kernel: str, **request: Any) -> autotile.TunedKernel:
    return autotile.load(kernel, rows=64, cols=64, device="cuda", templates=KERNELS, **request)


@pytest.mark.parametrize("kernel", ["flip", "transpose"])
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("name", PARTS)
def test_views_in_and_out(kernel: str, kind: str, name: str) -> None:
    give, take = PAIRS[kind]()
    shape, index = PARTS[name]
    whole = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    turned = np.swapaxes(whole[index], -1, -2)
    a, memory = part(give(whole), index), np.full((*turned.shape[:-2], turned.shape[-2] + 3, turned.shape[-1] + 4), 7.0)
    memory = memory.astype(np.float32)
    call, inner = turning(kernel), np.s_[..., 1 : 1 + turned.shape[-2], 2 : 2 + turned.shape[-1]]
    assert np.array_equal(take(call(a)), turned)
    there = give(memory)
    rows, cols = inner[1:]
    out = part(there, (slice(None),) * (memory.ndim - 2) + (rows, cols))
    assert call(a, out=out) is out
    memory[inner] = turned
    assert np.array_equal(take(there), memory)  # what lies between the rows too


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("index", [np.s_[:], np.s_[:, 3:40, 20:57]], ids=["dense", "with gaps"])
def test_in_place(kind: str, index: Any) -> None:
    give, take = PAIRS[kind]()
    whole = np.random.default_rng(0).standard_normal((5, 60, 60), dtype=np.float32)
    there, flip = give(whole.copy()), turning("flip", in_place=True)
    a = part(there, index)
    assert flip(a) is a
    expected = whole.copy()
    expected[index] = np.swapaxes(whole[index], -1, -2)
    assert np.array_equal(take(there), expected)
    assert flip(a, out=a) is a
    assert np.array_equal(take(there), whole)


@pytest.mark.parametrize("kind", ["torch", "cupy", "pycuda"])
def test_halves_of_one_matrix(kind: str) -> None:
    give, take = PAIRS[kind]()
    whole = np.random.default_rng(0).standard_normal((40, 80), dtype=np.float32)
    there = give(whole.copy())
    flip, left = turning("flip"), part(there, np.s_[:, :40])
    flip(left, out=part(there, np.s_[:, 40:]))
    assert np.array_equal(take(there), np.hstack([whole[:, :40], whole[:, :40].T]))
    with pytest.raises(ArgumentValueError, match="out shares memory with in"):
        flip(left, out=part(there, np.s_[:, 39:79]))


@pytest.mark.parametrize("kind", ["torch", "cupy", "pycuda"])
def test_rows_that_are_not_dense_are_refused(kind: str) -> None:
    give, _ = PAIRS[kind]()
    flip, square = turning("flip"), give(np.ones((64, 64), np.float32))
    for view in layouts(kind):
        with pytest.raises(ArgumentValueError, match="rows of `in` must be dense"):
            flip(view)
        with pytest.raises(ArgumentValueError, match="rows of `out` must be dense"):
            flip(square, out=view)
        with pytest.raises(ArgumentValueError, match="rows of `in` must be dense"):
            turning("flip", in_place=True)(view)


@pytest.mark.parametrize("kind", PAIRS)
def test_batches_of_none(kind: str) -> None:
    give, _ = PAIRS[kind]()
    assert tuple(turning("flip")(give(np.ones((0, 4, 5), np.float32))).shape) == (0, 5, 4)
