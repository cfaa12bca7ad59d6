"""Tuned kernels on a GPU beside other users of it: streams, threads, contexts, forked processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from test_call_gpu import assert_product, operands

import autotile
from autotile.devices.cuda.driver import current_context
from autotile.errors import ArgumentTypeError, ArgumentValueError

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning"),  # nothing is tuned here
]


@pytest.fixture(scope="module")
def matmul() -> Any:
    return autotile.load("matmul", m=64, n=64, k=64, dtype="float32", device="cuda")


def test_a_stream_that_is_given(matmul: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b = operands(64, 64, 64)
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    out, stream = torch.empty(64, 64, device="cuda"), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    assert matmul(ta, tb, out=out, stream=stream) is out
    stream.synchronize()
    assert_product(out.cpu().numpy(), a, b)
    with pytest.raises(ArgumentValueError, match="torch would allocate the result on its current stream"):
        matmul(ta, tb, stream=stream)
    with pytest.raises(ArgumentTypeError, match="stream is a "):
        matmul(ta, tb, out=out, stream="default")
    with torch.cuda.stream(stream):
        result = matmul(ta, tb, stream=stream)
    stream.synchronize()
    assert_product(result.cpu().numpy(), a, b)


def test_four_threads_at_once(matmul: Any) -> None:
    """Some with arrays of numpy, some with PyTorch's on streams of their own."""
    torch = pytest.importorskip("torch")
    work = [operands(16 + i, 65, 33 + i % 3) for i in range(24)]

    def call(number: int) -> Any:
        a, b = work[number]
        if number % 2:
            return matmul(a, b)
        with torch.cuda.stream(torch.cuda.Stream()):
            return matmul(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()).cpu().numpy()

    with ThreadPoolExecutor(4) as pool:
        for (a, b), result in zip(work, pool.map(call, range(len(work))), strict=True):
            assert_product(result, a, b)


def test_calls_from_another_thread_give_their_memory_back(matmul: Any) -> None:
    """pycuda frees memory in the thread that made the context, or where the context is current, and nowhere else.

    Other processes take and give back memory of the GPU meanwhile; what is lost each time is ours.
    """
    torch = pytest.importorskip("torch")
    a = np.ones((2048, 2048), np.float32)  # 16 MiB
    lost_bytes = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(matmul, a, a).result()
        for _ in range(5):
            before = torch.cuda.mem_get_info()[0]
            for _ in range(20):
                pool.submit(matmul, a, a).result()
            lost_bytes.append(before - torch.cuda.mem_get_info()[0])
    assert min(lost_bytes) < 10 * a.nbytes


def test_a_context_of_the_users_own(matmul: Any) -> None:
    """Pushed through pycuda: it stays current, whether a call returns or raises, and its memory is out of reach."""
    torch = pytest.importorskip("torch")
    import pycuda.driver as pycuda
    from pycuda import gpuarray

    a, b = operands(33, 65, 17)
    ta, tb = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    torch.cuda.synchronize()
    before = current_context()
    own = pycuda.Device(0).make_context()
    try:
        theirs = current_context()
        assert theirs != before
        assert_product(matmul(a, b), a, b)
        assert current_context() == theirs
        result = matmul(ta, tb)
        assert current_context() == theirs
        for arrays in ((a, a), (ta, ta)):
            with pytest.raises(ArgumentValueError, match="another array says k"):
                matmul(*arrays)
            assert current_context() == theirs
        foreign = gpuarray.empty((64, 64), np.float32)
        with pytest.raises(ArgumentValueError, match=r"^a was allocated in another CUDA context"):
            matmul(foreign, foreign)
        foreign.gpudata.free()
        assert current_context() == theirs
    finally:
        own.pop()
        own.detach()
    assert current_context() == before
    torch.cuda.synchronize()
    assert_product(result.cpu().numpy(), a, b)


SCRIPT = """
import os, warnings
import numpy as np
import autotile
from autotile.errors import DeviceNotFound
warnings.simplefilter("ignore")
request = dict(m=64, n=64, k=64, device="cuda")
kernel = autotile.load("matmul", **request)
a = np.ones((64, 64), np.float32)
assert (kernel(a, a) == 64).all()
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_script_that_raises_after_a_call_ends_with_its_own_traceback() -> None:
    done = run("raise ValueError('mine')")
    assert done.returncode == 1, done.stderr
    assert "ValueError: mine" in done.stderr
    assert "context stack" not in done.stderr


def test_a_forked_child_is_told_to_spawn_and_its_parent_goes_on() -> None:
    done = run(
        """
        child = os.fork()
        if not child:
            told = 0
            for attempt in (
                lambda: kernel(a, a),
                lambda: autotile.load("matmul", **request),
                lambda: autotile.load("matmul", **{**request, "device": "auto"}),
            ):
                try:
                    attempt()
                except DeviceNotFound as error:
                    told += "spawn" in str(error)
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        assert (kernel(a, a) == 64).all()
        """
    )
    assert done.returncode == 0, done.stderr


def test_a_child_forked_before_cuda_started_can_call() -> None:
    """Importing starts nothing."""
    script = """
        import os
        import autotile, autotile.runtime
        if not os.fork():
            try:
                exec(SCRIPT)
                os._exit(0)
            except BaseException:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    """
    code = f"SCRIPT = {SCRIPT!r}\n" + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
