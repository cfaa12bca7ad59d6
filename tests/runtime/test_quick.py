"""Calls on arrays like those of an earlier call: launched at once where all is plainly right, the long way else.

On a GPU that is not there: a library of tensors of its own, and a driver that notes what it is asked to launch.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.cuda import Moving
from autotile.dtypes import element_type
from autotile.errors import ArgumentTypeError, ArgumentValueError, LaunchError
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Scalar, Scratch, Size, Switch
from autotile.runtime.choose import DEFAULT, Choice
from autotile.runtime.scratch import MOST_STREAMS, ScratchMemory
from autotile.runtime.tuned import Plan
from autotile.types import SCRATCH, Launch, LaunchStep

F4 = "torch.float32"


# ---- a library of tensors ------------------------------------------------------------------------------------------


class Storage:
    def __init__(self, device: int) -> None:
        self.device = device


@dataclass(eq=False)
class Tensor:
    """What of PyTorch's a call reads. Strides and addresses are what a test says."""

    shape: tuple[int, ...]
    address: int
    strides: tuple[int, ...] | None = None
    dtype: str = F4
    storage: Storage = field(default_factory=lambda: Storage(0))
    layout: str = "strided"
    is_cuda: bool = True
    negative: bool = False
    conjugate: bool = False
    reads: int = 0

    @property
    def device(self) -> Any:
        self.reads += 1  # of the long way alone
        return SimpleNamespace(index=self.storage.device, type="cuda")

    def data_ptr(self) -> int:
        if self.layout != "strided":
            raise RuntimeError("Tensor that doesn't have storage")
        return self.address

    def untyped_storage(self) -> Storage:
        return self.storage

    def get_device(self) -> int:
        return self.storage.device

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate

    def stride(self) -> tuple[int, ...]:
        return self.strides or tuple(int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))

    def is_contiguous(self) -> bool:
        return self.strides is None


Tensor.__module__ = "torch"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch: Any = ModuleType("torch")
    torch.Tensor, torch.nn, torch.strided = (
        Tensor,
        SimpleNamespace(Parameter=type("Parameter", (Tensor,), {})),
        "strided",
    )
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: torch.stream)
    torch.cuda = SimpleNamespace(current_stream=lambda device: SimpleNamespace(cuda_stream=torch.stream))
    torch.stream, torch.next = 7, 1 << 30
    monkeypatch.setitem(sys.modules, "torch", torch)

    def empty(shape: tuple[int, ...], *, dtype: str, device: Any) -> Tensor:
        torch.next += 1 << 20
        return Tensor(shape, torch.next, dtype=dtype)

    torch.empty = empty
    return torch


# ---- a GPU ---------------------------------------------------------------------------------------------------------


class FakeGpu:
    """Notes the launches: addresses, stream and scalars, by the way they came. `refuses` is the driver's status."""

    def __init__(self) -> None:
        self.info, self.index = SimpleNamespace(kind="cuda", name="a GPU"), 0
        self.long: list[Any] = []
        self.quick: list[Any] = []
        self.refuses, self.current, self.taken = 0, True, 1 << 40
        self.foreign: set[int] = set()
        self.asked: list[int] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def owns(self, address: int) -> bool:
        self.asked.append(address)
        return address not in self.foreign

    quick_owns = owns

    def is_current(self) -> bool:
        return self.current

    def memory(self, nbytes: int) -> Any:
        self.taken += 1 << 20
        return SimpleNamespace(address=self.taken, nbytes=nbytes)

    def call(self, program: Any, launch: Launch, arguments: list[Any], stream: Any) -> None:
        self.long.append((arguments, stream))

    def prepare(self, program: Any, launch: Launch, arguments: list[Any]) -> Any:
        def run(addresses: list[int], stream: int, values: tuple[Any, ...], scratch: int) -> int:
            if not self.refuses:
                moved = [addresses[a.index] if isinstance(a, Moving) else a for a in arguments]
                self.quick.append((moved, stream, values, scratch))
            return self.refuses

        return SimpleNamespace(launch=run)


def product(**changes: Any) -> Kernel:
    declared: dict[str, Any] = {
        "name": "product", "doc": "", "dimensions": ("m", "n"), "dtypes": ("float32",),
        "arguments": (Input("a", ("m", "n")), Input("b", ("m", "n")), Output("c", ("m", "n")), Size("m")),
        "parameters": (Parameter("width", (32,), 32, ""),), "launch": LaunchPlan(("1",), ("width",)),
        "reference": lambda inputs, problem: {}, "error_bound": lambda inputs, problem: {}, "flops": "0", "bytes": "0",
    }  # fmt: skip
    return Kernel(**declared | changes)


ONE_BLOCK = Launch((1, 1, 1), (32, 1, 1))


def tuned(gpu: Any, monkeypatch: Any, kernel: Kernel, launch: Launch = ONE_BLOCK, **asked: bool) -> Any:
    plans: dict[Any, Plan] = {}

    def plan(tuned: Any, sizes: Any, alignment: int) -> Plan:
        problem = kernel.problem({**sizes, **asked})
        return plans.setdefault((tuple(sizes.items()), alignment), Plan(None, launch, kernel.sizes_of(problem)))

    monkeypatch.setattr(autotile.TunedKernel, "_plan", plan)
    problem = kernel.problem({"m": 8, "n": 8, **asked})
    return autotile.TunedKernel(kernel, problem, Choice(kernel.configuration(), DEFAULT, None), gpu)


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def call(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> Any:
    return tuned(gpu, monkeypatch, product())


def trio(shape: tuple[int, ...] = (4, 8), start: int = 0) -> list[Tensor]:
    return [Tensor(shape, start + (i + 1) * 4096) for i in range(3)]


# ---- what is quick -------------------------------------------------------------------------------------------------


def test_the_second_call_is_launched_at_once(gpu: FakeGpu, call: Any) -> None:
    a, b, c = trio()
    assert call(a, b, out=c) is c
    assert (len(gpu.long), gpu.quick) == (1, [])
    reads = a.reads
    assert call(a, b, out=c) is c
    assert (len(gpu.long), gpu.quick) == (1, [([4096, 8192, 12288, 4], 7, (), 0)])
    assert a.reads == reads
    x, y, z = trio(start=1 << 20)
    assert call(x, y, out=z) is z
    assert gpu.quick[-1][0] == [x.address, y.address, z.address, 4]


def test_a_result_is_made(gpu: FakeGpu, call: Any, library: Any) -> None:
    a, b, _ = trio()
    first, second = call(a, b), call(a, b)
    assert second.address == library.next != first.address
    assert second.shape == (4, 8)
    assert gpu.quick[-1][0] == [4096, 8192, second.address, 4]
    gpu.current = False  # it would lie in another context
    call(a, b)
    assert (len(gpu.long), len(gpu.quick)) == (2, 1)
    call(a, b, out=first)
    gpu.current = True
    call(a, b, out=first)
    assert gpu.quick[-1][0][2] == first.address


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_a_result_is_made_of_its_own_type(gpu: FakeGpu, monkeypatch: Any, library: Any, dtype: str) -> None:
    inputs = (Input("a", ("m", "n")), Input("b", ("m", "n"), of="result"))
    kernel = product(dtypes=(dtype,), arguments=(*inputs, Output("c", ("m", "n"), of="result"), Size("m")))
    call, library.int32 = tuned(gpu, monkeypatch, kernel), "torch.int32"
    made = "torch.int32" if dtype == "int8" else "torch.float8_e4m3fn"
    a, b = Tensor((4, 8), 4096, dtype=f"torch.{dtype}"), Tensor((4, 8), 8192, dtype=made)
    assert [call(a, b).dtype for _ in range(3)] == [made] * 3
    assert (len(gpu.long), len(gpu.quick)) == (1, 2)
    c = Tensor((4, 8), 1 << 20, dtype=made)
    assert call(a, b, out=c) is call(a, b, out=c) is c
    with pytest.raises(ArgumentTypeError, match=f"out has dtype float32, it must be {made.removeprefix('torch.')}"):
        call(a, b, out=Tensor((4, 8), 1 << 20))
    nbytes = 4 * 8 * element_type(made.removeprefix("torch.")).itemsize
    for c.address in (8192 - 16, 4096 - nbytes + 4):
        with pytest.raises(ArgumentValueError, match="out shares memory"):
            call(a, b, out=c)
    for c.address in (4096 - nbytes, 4096 + 32):
        assert call(a, b, out=c) is c


def test_streams(gpu: FakeGpu, call: Any, library: Any) -> None:
    a, b, c = trio()
    call(a, b, out=c)
    call(a, b, out=c, stream=99)
    library.stream = 3
    call(a, b, out=c)
    call(a, b, out=c, stream=SimpleNamespace(cuda_stream=55))
    assert [stream for _, stream, *_ in gpu.quick] == [99, 3, 55]
    with pytest.raises(ArgumentTypeError, match="stream is a "):
        call(a, b, out=c, stream="default")
    del library._C._cuda_getCurrentRawStream
    fresh = autotile.TunedKernel(call._kernel, call._problem, call._choice, gpu)
    fresh(a, b, out=c)
    fresh(a, b, out=c)
    assert gpu.quick[-1][1] == 3


def test_in_place(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = product(in_place=("a", "c"))
    call = tuned(gpu, monkeypatch, kernel, in_place=True)
    a, b, _ = trio()
    for _ in range(2):
        assert call(a, b) is a
        assert call(a, b, out=a) is a
    assert gpu.quick == [([4096, 8192, 4096, 4], 7, (), 0)] * 3
    with pytest.raises(ArgumentValueError, match="out is another array than a"):
        call(a, b, out=Tensor((4, 8), 1 << 20))
    with pytest.raises(ArgumentValueError, match="a shares memory with b"):
        call(a, Tensor((4, 8), 4096 + 16))
    assert len(gpu.long) == 1


# ---- what is not ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (4, 9)},
        {"shape": (8, 4)},
        {"dtype": "torch.float64"},
        {"strides": (1, 4)},
        {"negative": True},
        {"layout": "sparse"},
        {"storage": Storage(1)},
        {"address": 4096 + 2},
        {"is_cuda": False, "storage": Storage(-1)},
    ],
)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_the_long_way_refuses_is_refused_after_a_good_call_too(
    gpu: FakeGpu, call: Any, changes: dict[str, Any], which: int
) -> None:
    arrays = trio()
    call(*arrays[:2], out=arrays[2])
    call(*arrays[:2], out=arrays[2])
    kept = {name: getattr(arrays[which], name) for name in changes}
    for name, value in changes.items():
        setattr(arrays[which], name, value)
    with pytest.raises((ArgumentTypeError, ArgumentValueError)):
        call(*arrays[:2], out=arrays[2])
    for name, value in kept.items():
        setattr(arrays[which], name, value)
    call(*arrays[:2], out=arrays[2])
    assert (len(gpu.long), len(gpu.quick)) == (1, 2)


@pytest.mark.parametrize("apart", [-124, -64, 0, 4, 124])
def test_an_out_in_the_memory_of_an_input_is_refused_after_a_good_call_too(gpu: FakeGpu, call: Any, apart: int) -> None:
    a, b, c = trio()
    call(a, b, out=c)
    c.address = b.address + apart
    with pytest.raises(ArgumentValueError, match="out shares memory with b"):
        call(a, b, out=c)
    for neighbour in (b.address - 128, b.address + 128):
        c.address = neighbour
        call(a, b, out=c)
    call(a, b, out=c)
    assert gpu.quick[-1][0][2] == b.address + 128


def test_other_numbers_and_kinds_of_arrays(gpu: FakeGpu, call: Any) -> None:
    a, b, c = trio()
    call(a, b, out=c)
    for arrays, out in (
        ((), c),
        ((a,), c),
        ((a, b, b), c),
        ((a, np.zeros((4, 8), "f")), c),
        ((a, b), [c]),
        ((a, b), 3),
    ):
        with pytest.raises(ArgumentTypeError):
            call(*arrays, out=out)
    assert call(a, b, out=(c,)) is c
    assert (len(gpu.long), gpu.quick) == (2, [])


def test_memory_of_another_context(gpu: FakeGpu, call: Any) -> None:
    """Each piece of memory is asked about once, by the object that holds it; whatever takes its address is new."""
    a, b, c = trio()
    call(a, b, out=c)
    call(a, b, out=c)
    gpu.asked.clear()
    call(a, b, out=c)
    assert gpu.asked == []
    gpu.foreign.add(a.address)
    a.storage = Storage(0)  # freed, and the same address given out in another context
    with pytest.raises(ArgumentValueError, match="a was allocated in another CUDA context"):
        call(a, b, out=c)
    gpu.foreign.clear()
    call(a, b, out=c)
    assert gpu.asked.count(a.address) == 3  # by either way when refused, then once
    kept = [entry() for entry in call._quick._readers[Tensor]._proven.held.values()]
    del a, kept
    gc.collect()
    assert None in [entry() for entry in call._quick._readers[Tensor]._proven.held.values()]  # nothing is kept alive


def test_alignment_counts(gpu: FakeGpu, call: Any) -> None:
    """Another text may serve what lies less well."""
    a, b, c = trio()
    call(a, b, out=c)
    b.address += 4
    call(a, b, out=c)
    assert len(gpu.long) == 2
    call(a, b, out=c)
    b.address += 8
    call(a, b, out=c)
    assert (len(gpu.long), len(gpu.quick)) == (2, 2)


def test_a_refusal_of_the_driver_goes_the_long_way(gpu: FakeGpu, call: Any) -> None:
    a, b, c = trio()
    call(a, b, out=c)
    gpu.refuses = 201  # no context is current, say
    assert call(a, b, out=c) is c
    assert (len(gpu.long), gpu.quick) == (2, [])


def test_a_launch_that_cannot_be_prepared_leaves_the_long_way(gpu: FakeGpu, call: Any) -> None:
    def fail(*given: Any) -> None:
        raise LaunchError("out of memory")

    gpu.prepare = fail  # type: ignore[method-assign]
    a, b, c = trio()
    for _ in range(2):
        assert call(a, b, out=c) is c
    assert len(gpu.long) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_goes_the_long_way(gpu: FakeGpu, call: Any) -> None:
    """Which tells it to start processes with spawn."""
    a, b, c = trio()
    call(a, b, out=c)
    child = os.fork()
    if not child:
        call(a, b, out=c)
        os._exit(len(gpu.long) * 10 + len(gpu.quick))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 20
    call(a, b, out=c)
    assert len(gpu.quick) == 1


def test_what_is_remembered_is_bounded(gpu: FakeGpu, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotile.runtime.quick.MOST_PLANS", 3)
    monkeypatch.setattr("autotile.runtime.quick_arrays.MOST_PROVEN", 4)
    for rows in range(1, 9):
        a, b, c = trio((rows, 8))
        call(a, b, out=c)
        call(a, b, out=c)
        assert len(call._quick._plans) <= 3
        assert len(call._quick._readers[Tensor]._proven.held) <= 4
    assert len(gpu.quick) == 8


# ---- scalars, scratch, switches ------------------------------------------------------------------------------------


def with_extras() -> Kernel:
    square = ("m", "n")
    return product(
        arguments=(
            Input("a", square, turned="a_turned"), Input("b", square), Input("bias", ("n",), when="bias"),
            Input("addend", square, when="addend", may_be="c"), Output("c", square), Size("m"),
            Scalar("alpha", 1), Scalar("beta", 0.5), Scratch("work"),
        ),
        switches=(Switch("a_turned", ""), Switch("bias", ""), Switch("addend", "")),
    )  # fmt: skip


def test_scalars(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    call = tuned(gpu, monkeypatch, with_extras())
    a, b, c = trio()
    call(a, b, out=c, alpha=2)
    call(a, b, out=c)
    call(a, b, out=c, beta=0.1)
    assert gpu.long[0][0][2:4] == [None, None]
    assert gpu.long[0][0][6:] == [2.0, 0.5, None]
    assert [values for *_, values, _ in gpu.quick] == [(1.0, 0.5), (1.0, np.float32(0.1))]
    assert {type(value) for *_, values, _ in gpu.quick for value in values} == {np.float32}


def test_absent_and_turned_inputs_and_an_addend_that_is_out(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    call = tuned(gpu, monkeypatch, with_extras(), a_turned=True, addend=True)
    a, (b, c, other) = Tensor((8, 4), 1 << 20), trio()
    for _ in range(2):
        assert call(a, b, c, out=c) is c
    values = (1.0, 0.5)
    assert gpu.quick == [([1 << 20, 4096, None, 8192, 8192, 4, *values, SCRATCH], 7, values, 0)]
    call(a, b, other, out=c)
    for address in (c.address + 4, c.address - 4):
        other.address = address
        with pytest.raises(ArgumentValueError, match="out shares memory with addend"):
            call(a, b, other, out=c)
    with pytest.raises(ArgumentValueError, match="out shares memory with b"):
        call(a, c, other, out=c)
    with pytest.raises(ArgumentValueError, match=r"b has shape \(4, 8\), so m = 4, but another array says m = 8"):
        call(b, b, c, out=c)


def test_scratch_memory_is_a_streams_own(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch((1, 1, 1), (32, 1, 1), 0, 1000, after=(LaunchStep("_gather", (1, 1, 1), (32, 1, 1)),))
    call = tuned(gpu, monkeypatch, with_extras(), launch)
    a, b, c = trio()
    call(a, b, out=c)
    long = gpu.long[0][0][-1].address
    call(a, b, out=c)
    call(a, b, out=c, stream=8)
    call(a, b, out=c)
    mine, others, again = [scratch for *_, scratch in gpu.quick]
    assert (long, again) == (mine, mine)
    assert others != mine


def test_scratch_memory_grows_and_goes(gpu: FakeGpu) -> None:
    memory = ScratchMemory(gpu)
    assert memory.address(5, 0) == 0
    first = memory.address(5, 100)
    assert memory.address(5, 60) == first
    assert memory.address(5, 200) != first
    assert memory.address(1, 10) == memory.address(0, 10)  # two names of the default stream
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(memory.address, 2, 10).result() != memory.address(2, 10)  # a thread's own stream
    for stream in range(10, 10 + 2 * MOST_STREAMS):
        memory.address(stream, 10)
    assert len(memory._held) == MOST_STREAMS


# ---- two libraries -------------------------------------------------------------------------------------------------


class OtherArray:
    """What CuPy's arrays and pycuda's have in common."""

    flags = SimpleNamespace(c_contiguous=True)
    dtype = np.dtype(np.float32)

    def __init__(self, shape: tuple[int, ...], address: int) -> None:
        self.shape, self.address = shape, address

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(4 * int(np.prod(self.shape[i + 1 :])) for i in range(len(self.shape)))


class CupyArray(OtherArray):
    __cuda_array_interface__: Any = {}  # noqa: RUF012 (CuPy's is no class attribute, but who asks sees no difference)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.address, device_id=0)


class PycudaArray(OtherArray):
    @property
    def gpudata(self) -> int:
        return self.address


CupyArray.__module__, PycudaArray.__module__ = "cupy", "pycuda.gpuarray"


def test_arrays_that_are_alike_but_of_two_libraries(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call gives its own library's array, whichever came before."""
    cupy: Any = ModuleType("cupy")
    cupy.ndarray, cupy.empty = CupyArray, lambda shape, dtype: CupyArray(shape, 1 << 31)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    gpuarray: Any = ModuleType("pycuda.gpuarray")
    gpuarray.GPUArray = PycudaArray
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", gpuarray)
    monkeypatch.setattr(CupyArray, "device", _Current(), raising=False)
    monkeypatch.setattr(gpu, "empty_gpuarray", lambda shape, dtype: PycudaArray(shape, 1 << 32), raising=False)
    call = tuned(gpu, monkeypatch, product())
    pairs = {kind: [kind((4, 8), 1 << 20), kind((4, 8), 1 << 21)] for kind in (CupyArray, PycudaArray)}
    for kind in (CupyArray, PycudaArray, CupyArray, PycudaArray, CupyArray):
        assert type(call(*pairs[kind])) is kind
    assert (len(gpu.long), len(gpu.quick)) == (2, 3)


class _Current:
    """CuPy's device is what `with` makes current."""

    id = 0

    def __enter__(self) -> _Current:
        return self

    def __exit__(self, *of_an_error: object) -> None: ...
