"""Calls on arrays like those of an earlier call, on a GPU: the results of the long way, and its refusals."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_call_gpu import PAIRS, assert_product, operands, part
from test_context_gpu import run

import autotile
from autotile.devices.cuda.driver import current_context
from autotile.errors import ArgumentTypeError, ArgumentValueError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning"),  # nothing is tuned here
]
KERNELS = Path(__file__).parents[1] / "data" / "kernels"
KINDS = ["torch", "cupy", "pycuda"]


@pytest.fixture
def matmul() -> Any:
    return autotile.load("matmul", m=64, n=64, k=64, dtype="float32", device="cuda")


@pytest.fixture
def no_long_way(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called, a kernel whose calls must be quick ones."""

    def forbid(kernel: Any) -> None:
        def check(*given: Any) -> None:
            raise AssertionError("the long way")

        monkeypatch.setattr(kernel._checker, "check", check)

    return forbid


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [True, False], ids=["out", "no out"])
def test_results_are_those_of_the_long_way(matmul: Any, no_long_way: Any, kind: str, given: bool) -> None:
    give, take = PAIRS[kind]()
    sizes = [(64, 64, 64), (33, 65, 17), (1, 1, 1)]
    for m, n, k in sizes:
        a, b = operands(m, n, k)
        matmul(give(a), give(b), out=give(np.zeros((m, n), np.float32)) if given else None)
    no_long_way(matmul)
    for number, (m, n, k) in enumerate(3 * sizes):
        a, b = operands(m, n, k)
        a = a * (number + 1)
        out = give(np.full((m, n), np.nan, np.float32)) if given else None
        result = matmul(give(a), give(b), out=out)
        assert out is None or result is out
        assert type(result).__module__.partition(".")[0] == kind
        assert_product(take(result), a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_larger_matrices(no_long_way: Any, kind: str) -> None:
    give, take = PAIRS[kind]()
    flip = autotile.load("flip", rows=64, cols=64, device="cuda", templates=KERNELS)
    whole = np.random.default_rng(0).standard_normal((5, 40, 60), dtype=np.float32)
    there, memory = give(whole), give(np.full((5, 60, 44), 7, np.float32))
    out = part(memory, np.s_[:, :32, 4:36])
    flip(part(there, np.s_[:, 4:36, 8:40]), out=out)
    flip(part(there, np.s_[:, :32, 8:40]), out=part(memory, np.s_[:, 4:36, 8:40]))
    no_long_way(flip)
    for rows in (0, 4, 8):
        right = np.full((5, 60, 44), 7, np.float32)
        right[:, :32, 4:36] = np.swapaxes(whole[:, rows : rows + 32, 8:40], 1, 2)
        given = part(memory, np.s_[:, :32, 4:36])
        assert flip(part(there, np.s_[:, rows : rows + 32, 8:40]), out=given) is given
        assert np.array_equal(take(given), right[:, :32, 4:36])


def test_in_place(no_long_way: Any) -> None:
    torch = pytest.importorskip("torch")
    flip = autotile.load("flip", rows=64, cols=64, in_place=True, device="cuda", templates=KERNELS)
    a = torch.randn(5, 33, 33, device="cuda")
    right = a.clone()
    flip(a)
    no_long_way(flip)
    assert flip(a, out=a) is a
    assert torch.equal(a, right)
    assert flip(a) is a
    assert torch.equal(a, right.transpose(1, 2))


def test_parameters_and_gradients_asked_for(matmul: Any, no_long_way: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x).cuda() for x in operands(64, 64, 64))
    expected = matmul(a, b)
    weight = torch.nn.Parameter(b)
    assert torch.equal(matmul(a, weight), expected)
    no_long_way(matmul)
    for _ in range(3):
        assert torch.equal(matmul(a, weight), expected)
        assert torch.equal(matmul(a, b), expected)
        with torch.no_grad():
            assert torch.equal(matmul(a.clone().requires_grad_(), weight), expected)
        with torch.inference_mode():
            assert torch.equal(matmul(a + 0, b), expected)


# ---- streams, threads, contexts ------------------------------------------------------------------------------------


def foreign(cupy: Any, stream: Any) -> Any:
    """PyTorch's stream as CuPy's."""
    made = getattr(cupy.cuda.Stream, "from_external", None)
    return made(stream) if made is not None else cupy.cuda.ExternalStream(stream.cuda_stream)


@pytest.mark.parametrize("how", ["current", "given", "cupy"])
def test_another_stream(matmul: Any, no_long_way: Any, how: str) -> None:
    """What was queued there before comes before."""
    torch = pytest.importorskip("torch")
    a, b = operands(64, 64, 64)
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    out = torch.empty(64, 64, device="cuda")
    stream = torch.cuda.Stream()
    if how == "cupy":
        cupy = pytest.importorskip("cupy")
        arrays = [cupy.from_dlpack(x) for x in (ta, tb, out)]
    else:
        arrays = [ta, tb, out]
    matmul(*arrays[:2], out=arrays[2])
    torch.cuda.synchronize()
    no_long_way(matmul)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)  # clock cycles: some 50 ms
        ta.mul_(2.0)
        if how == "current":
            matmul(*arrays[:2], out=arrays[2])
    if how == "given":
        matmul(*arrays[:2], out=arrays[2], stream=stream)
    if how == "cupy":
        with foreign(cupy, stream):
            matmul(*arrays[:2], out=arrays[2])
    stream.synchronize()
    assert_product(out.cpu().numpy(), 2 * a, b)


def test_a_result_is_not_made_for_another_stream(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(64, 64, device="cuda")
    stream = torch.cuda.Stream()
    for _ in range(2):
        matmul(a, a + 1)
        with pytest.raises(ArgumentValueError, match="torch would allocate the result on its current stream"):
            matmul(a, a + 1, stream=stream)


def test_threads_do_not_mix_their_arrays(matmul: Any, no_long_way: Any) -> None:
    torch = pytest.importorskip("torch")
    matmul(*(torch.ones(64, 64, device="cuda") for _ in range(2)), out=torch.empty(64, 64, device="cuda"))
    matmul(*(torch.ones(64, 64, device="cuda") for _ in range(2)))
    no_long_way(matmul)

    def work(number: int) -> bool:
        a, b = torch.full((64, 64), float(number + 1), device="cuda"), torch.ones(64, 64, device="cuda")
        outs = [torch.empty(64, 64, device="cuda") for _ in range(50)]
        with torch.cuda.stream(torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()):
            torch.cuda.synchronize()
            for out in outs:
                matmul(a, b, out=out)
            results = [*outs, *(matmul(a, b) for _ in range(50))]
            torch.cuda.synchronize()
        return all(bool((result == 64 * (number + 1)).all()) for result in results)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))


def test_a_thread_in_which_no_context_is_current(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x).cuda() for x in operands(64, 64, 64))
    out = torch.zeros(64, 64, device="cuda")
    expected = matmul(a, b).clone()
    matmul(a, b, out=torch.empty_like(out))
    torch.cuda.synchronize()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_context).result() is None
        pool.submit(matmul, a, b, out=out).result()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_a_context_of_the_users_own(matmul: Any) -> None:
    """The launch goes to the primary context's stream, behind what is queued there, and the user's stays current."""
    torch = pytest.importorskip("torch")
    import pycuda.driver as pycuda
    from pycuda import gpuarray

    a, b = operands(64, 64, 64)
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    out = torch.zeros(64, 64, device="cuda")
    for _ in range(2):
        matmul(ta, tb, out=out)
    give, _ = PAIRS["pycuda"]()
    mine = [give(np.ones((64, 64), np.float32)) for _ in range(3)]
    for _ in range(2):
        matmul(*mine[:2], out=mine[2])
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)
    ta.mul_(2.0)
    own = pycuda.Device(0).make_context()
    try:
        theirs = current_context()
        assert matmul(ta, tb, out=out) is out
        assert current_context() == theirs
        made = matmul(ta, tb)
        assert current_context() == theirs
        foreign = gpuarray.empty((64, 64), np.float32)
        with pytest.raises(ArgumentValueError, match=r"^out was allocated in another CUDA context"):
            matmul(*mine[:2], out=foreign)
        foreign.gpudata.free()
        assert current_context() == theirs
    finally:
        own.pop()
        own.detach()
    torch.cuda.synchronize()
    for result in (out, made):
        assert_product(result.cpu().numpy(), 2 * a, b)


def test_a_forked_child_is_told_to_spawn() -> None:
    pytest.importorskip("torch")
    done = run(
        """
        import torch
        t = torch.ones(64, 64, device="cuda")
        u, out = t.clone(), t.clone()
        for _ in range(3):
            kernel(t, u, out=out)
        child = os.fork()
        if not child:
            try:
                kernel(t, u, out=out)
            except DeviceNotFound as error:
                os._exit("spawn" in str(error))
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        kernel(t, u, out=out)
        assert bool((out == 64).all())
        """
    )
    assert done.returncode == 0, done.stderr


# ---- memory, and what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_was_freed_and_given_out_again(matmul: Any, kind: str) -> None:
    give, take = PAIRS[kind]()
    for number in range(1, 6):
        a, b = (np.full((64, 64), number, np.float32) for _ in range(2))
        arrays = give(a), give(b)
        assert np.array_equal(take(matmul(*arrays)), a @ b)
        del arrays
        gc.collect()


def test_memory_of_another_context_at_a_known_address(matmul: Any) -> None:
    """PyTorch's own allocator, asked while a context of the user's is current."""
    torch = pytest.importorskip("torch")
    import pycuda.driver as pycuda

    a = torch.ones(2048, 2048, device="cuda")
    matmul(a, a)
    matmul(a, a)
    torch.cuda.synchronize()
    del a
    torch.cuda.empty_cache()
    own = pycuda.Device(0).make_context()
    try:
        foreign = torch.empty(2048, 2048, device="cuda")
    finally:
        own.pop()
    try:
        if matmul._device.owns(foreign.data_ptr()):
            pytest.skip("PyTorch allocated in the primary context")
        with pytest.raises(ArgumentValueError, match="was allocated in another CUDA context"):
            matmul(foreign, foreign)
    finally:
        own.push()
        del foreign
        torch.cuda.empty_cache()
        own.pop()
        own.detach()


def test_what_is_refused_is_refused_after_a_good_call_too(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    memory, b = torch.ones(128, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    out = torch.empty(64, 64, device="cuda")
    for _ in range(3):
        matmul(memory[:64], b, out=memory[64:])
        for shared in (memory[:64], memory[1:65], memory[63:127]):
            with pytest.raises(ArgumentValueError, match="shares memory with a"):
                matmul(memory[:64], b, out=shared)
        assert matmul(memory[:64], b, out=out) is out
        for wrong in (b.double(), b.cpu(), b.cpu().numpy(), torch._neg_view(b), b.to_sparse()):
            with pytest.raises(ArgumentTypeError):
                matmul(memory[:64], wrong, out=out)
        for wrong in (b.t()[:, :32], b[:32], b[None]):
            with pytest.raises(ArgumentValueError):
                matmul(memory[:64], wrong, out=out)
        with pytest.raises(ArgumentTypeError):
            matmul(memory[:64], out=out)
    assert bool((out == 64).all())


def test_a_tensor_that_changed_under_the_same_name(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
    out = torch.empty(64, 64, device="cuda")
    for _ in range(2):
        matmul(a, b, out=out)
    a.data = torch.full((64, 64), 2.0, device="cuda")
    assert bool((matmul(a, b, out=out) == 128).all())
    a.data = a.data.double()
    with pytest.raises(ArgumentTypeError, match="a has dtype float64"):
        matmul(a, b, out=out)
    a.data = torch.ones(64, 64)
    with pytest.raises(ArgumentTypeError, match="one kind and in one place"):
        matmul(a, b, out=out)
    a.data = torch.ones(64, 64, device="cuda")
    b.t_()
    with pytest.raises(ArgumentValueError, match="contiguous"):
        matmul(a, b, out=out)
