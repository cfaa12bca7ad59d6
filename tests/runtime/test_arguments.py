"""What a call takes and refuses, as the checker alone sees it: nothing is compiled, no GPU is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ArgumentTypeError, ArgumentValueError
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, load_kernel
from autotile.runtime import arguments
from autotile.runtime.arguments import ArgumentChecker
from autotile.runtime.arrays import View, view_of
from autotile.runtime.tuned import _require_current

A, B = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
HALVES = Kernel(
    name="halves",
    doc="two outputs",
    dimensions=("n",),
    dtypes=("float32",),
    arguments=(Input("in", ("n",)), Output("low", ("n",)), Output("high", ("n",))),
    parameters=(Parameter("width", (32,), 32, "threads a block"),),
    launch=LaunchPlan(grid=("1",), block=("width",)),
    reference=lambda inputs, problem: {},
    error_bound=lambda inputs, problem: {},
    flops="0",
    bytes="0",
)


@pytest.fixture
def checker() -> ArgumentChecker:
    return ArgumentChecker(load_kernel("matmul"), "float32", EmulatorDevice())


# ---- dtypes and kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [">f4", object, "S4", "datetime64[s]", "uint64", [("x", "<f4")], np.dtype("f4, f4"), np.longdouble]
)
def test_dtypes_that_no_kernel_has(checker: ArgumentChecker, dtype: Any) -> None:
    for arrays, out in (((np.empty((4, 3), dtype), B), None), ((A, B), np.empty((4, 5), dtype))):
        with pytest.raises(ArgumentTypeError, match=r"^(a|out): dtype .* is not supported; known: int8"):
            checker.check(arrays, out)


@pytest.mark.parametrize("dtype", ["<f4", "=f4", np.float32, "f"])
def test_names_of_the_same_dtype(checker: ArgumentChecker, dtype: Any) -> None:
    (a, _), _, _ = checker.check((A.astype(dtype), B), None)
    assert a.dtype == "float32"


@pytest.mark.parametrize("scalar", [3.0, 2, np.float32(3), True, None, "a", 1j, memoryview(b"abcd")])
def test_scalars_and_other_objects_are_no_arrays(checker: ArgumentChecker, scalar: Any) -> None:
    for arrays in ((scalar, B), (A, scalar)):
        with pytest.raises(ArgumentTypeError, match=rf"^[ab] is a \S*{type(scalar).__qualname__}; give a numpy array"):
            checker.check(arrays, None)


def test_masked_arrays_are_refused(checker: ArgumentChecker) -> None:
    masked = np.ma.masked_array(A, mask=A > 0)
    with pytest.raises(ArgumentTypeError, match="a: a masked array"):
        checker.check((masked, B), None)
    with pytest.raises(ArgumentTypeError, match="out: a masked array"):
        checker.check((A, B), np.ma.zeros((4, 5), np.float32))


def test_subclasses_are_read_as_plain_arrays(checker: ArgumentChecker, tmp_path: Any) -> None:
    class Mine(np.ndarray):  # type: ignore[type-arg]
        pass

    mapped = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 3))
    for a in (A.view(np.matrix), mapped, A.view(Mine), np.rec.array(A)):
        seen, (out,), _ = checker.check((a, B), None)
        assert type(seen[0].numpy()) is type(out.owner) is np.ndarray
        assert np.array_equal(seen[0].numpy(), np.asarray(a))


def torch_tensor(**said: Any) -> Any:
    """Says of itself what a PyTorch tensor would."""
    seen = {
        "layout": "strided", "is_cuda": False, "device": SimpleNamespace(type="cpu", index=None), "shape": (4, 3),
        "dtype": "torch.float32", "is_conj": lambda: False, "is_neg": lambda: False, "data_ptr": lambda: 4096,
        "is_contiguous": lambda: True, **said,
    }  # fmt: skip
    return type(
        "Tensor", (), {"__module__": "torch", **{k: staticmethod(v) if callable(v) else v for k, v in seen.items()}}
    )()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"layout": "sparse_csr"}, "layout sparse_csr; give a dense one"),
        ({"is_conj": lambda: True}, "conjugates or negates as it is read"),
        ({"is_neg": lambda: True}, "conjugates or negates as it is read"),
        ({"device": SimpleNamespace(type="meta", index=None)}, "CPU and CUDA tensors are supported"),
        ({"dtype": "torch.bool"}, "unknown dtype 'bool'"),
        ({"dtype": "torch.quint8"}, "unknown dtype 'quint8'"),
    ],
)
def test_tensors_whose_memory_holds_other_values(monkeypatch: Any, said: dict[str, Any], message: str) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(strided="strided"))
    assert view_of(torch_tensor(), "a").address == 4096
    with pytest.raises(ArgumentTypeError, match=f"a: .*{message}"):
        view_of(torch_tensor(**said), "a")


# ---- sizes ---------------------------------------------------------------------------------------------------------


def test_a_size_beyond_31_bits_is_refused_by_name(checker: ArgumentChecker, monkeypatch: Any) -> None:
    """Before anything is copied: these arrays are one element each, spread out."""
    monkeypatch.setattr(View, "contiguous_copy", lambda view: pytest.fail("copied before its shape was checked"))
    long = np.broadcast_to(np.float32(0), (2**31, 3))
    with pytest.raises(ArgumentValueError, match="a: m = 2147483648 is more than 2147483647"):
        checker.check((long, B), None)
    with pytest.raises(ArgumentValueError, match="b: n = 2147483648 is more than 2147483647"):
        checker.check((A, np.broadcast_to(np.float32(0), (3, 2**31))), None)
    with pytest.raises(ArgumentValueError, match="another array says k = 3"):
        checker.check((np.broadcast_to(A, (4, 3)), np.ones((4, 5), np.float32)), None)


def test_bytes_are_counted_without_overflow() -> None:
    view = view_of(np.empty(0, np.complex128), "a")
    assert replace(view, shape=(50_000, 50_000)).nbytes == 40_000_000_000
    assert replace(view, shape=(2**31 - 1,) * 3).nbytes == 16 * (2**31 - 1) ** 3


def test_an_array_beyond_2_31_elements_overlaps_what_lies_in_its_upper_part() -> None:
    checker = ArgumentChecker(load_kernel("transpose"), "int8", EmulatorDevice())
    memory = np.empty(50_000 * 50_000 + 1, np.int8)  # reserved, never touched
    with pytest.raises(ArgumentValueError, match="shares memory with in"):
        checker.check((memory[:-1].reshape(50_000, 50_000),), memory[1:].reshape(50_000, 50_000))


# ---- alignment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "element_bytes"), [("complex64", 8), ("complex128", 16)])
def test_complex_numbers_are_moved_whole(dtype: str, element_bytes: int) -> None:
    """numpy calls them aligned at half of that; a load of the whole would fault."""
    checker = ArgumentChecker(load_kernel("transpose"), dtype, EmulatorDevice())
    half = element_bytes // 2
    memory = np.zeros(4 * element_bytes + half, np.uint8)
    off = memory[half:].view(dtype).reshape(2, 2)
    assert off.flags.aligned
    assert off.ctypes.data % element_bytes == half
    (copied,), _, _ = checker.check((off,), None)
    assert copied.address % element_bytes == 0
    with pytest.raises(ArgumentValueError, match=f"out begins inside an element: .* {element_bytes} bytes of {dtype}"):
        checker.check((np.zeros((2, 2), dtype),), off)


# ---- memory in common ----------------------------------------------------------------------------------------------


def test_outputs_that_share_memory() -> None:
    checker = ArgumentChecker(HALVES, "float32", EmulatorDevice())
    given, memory = np.ones(8, np.float32), np.zeros(16, np.float32)
    for low, high in ((memory[:8], memory[:8]), (memory[:8], memory[7:15])):
        with pytest.raises(ArgumentValueError, match=r"out\[0\] and out\[1\] share memory"):
            checker.check((given,), (low, high))
    checker.check((given,), (memory[:8], memory[8:]))
    with pytest.raises(ArgumentTypeError, match=r"halves has 2 output\(s\), out has 1"):
        checker.check((given,), memory[:8])


def test_an_input_that_is_copied_may_lie_in_out(checker: ArgumentChecker) -> None:
    """The kernel reads the copy."""
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    (a, _), _, _ = checker.check((square.T, np.ones((4, 4), np.float32)), square)
    assert not np.shares_memory(a.numpy(), square)


# ---- on a GPU, as the checker sees it ------------------------------------------------------------------------------


def seen(**changes: Any) -> View:
    view = View(None, "cupy", "cuda", 0, 256, (4, 4), "float32", True, lambda shape, dtype: seen(), lambda: 0)
    return replace(view, **changes)


@pytest.fixture
def on_gpu(monkeypatch: Any) -> Callable[..., ArgumentChecker]:
    """A checker for cuda:0 that is given views; addresses from 1 << 20 on lie in another context."""
    monkeypatch.setattr(arguments, "view_of", lambda view, name, empty=None: view)

    def make(active: Any = None) -> ArgumentChecker:
        device: Any = SimpleNamespace(
            info=SimpleNamespace(kind="cuda"), index=0, owns=lambda address: address < 1 << 20
        )
        if active is not None:
            device.active = active
        return ArgumentChecker(load_kernel("matmul"), "float32", device)

    return make


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": 1}, " lies on cuda:1, the kernel was loaded for cuda:0"),
        ({"address": 1 << 20}, " was allocated in another CUDA context"),
        ({"contiguous": False}, "` must be dense"),
        ({"address": 258}, " begins inside an element: its address is no multiple of the 4 bytes"),
    ],
)
def test_what_a_kernel_cannot_reach_or_read(on_gpu: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentValueError, match=f"b{message}"):
        on_gpu().check((seen(), seen(**changes)), None)
    with pytest.raises(ArgumentValueError, match=f"out{message}"):
        on_gpu().check((seen(), seen()), seen(**{"address": 4096, **changes}))


def test_an_empty_array_shares_nothing(on_gpu: Any) -> None:
    """Though its address lies within another's memory."""
    on_gpu().check((seen(shape=(4, 0), address=4104), seen(shape=(0, 4), address=4108)), seen(address=4096))


@pytest.mark.parametrize("changes", [{"kind": "torch"}, {"kind": "numpy", "place": "host", "device": None}])
def test_an_out_of_another_kind_or_place(on_gpu: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match="the inputs cupy on cuda"):
        on_gpu().check((seen(), seen()), seen(address=4096, **changes))


def test_a_result_is_allocated_in_the_kernels_context(on_gpu: Any) -> None:
    happened: list[str] = []

    @contextmanager
    def active() -> Iterator[None]:
        happened.append("in")
        yield
        happened.append("out")

    def empty(shape: tuple[int, ...], dtype: str) -> View:
        happened.append("allocated")
        return seen(address=4096)

    on_gpu(active).check((seen(empty=empty), seen()), None)
    assert happened == ["in", "allocated", "out"]


@pytest.mark.parametrize(("current", "asked"), [(0, 0), (0, 1), (1, 0), (77, 77), (None, 5)])
def test_a_result_allocated_for_the_stream_that_writes_it(current: int | None, asked: int) -> None:
    _require_current(asked, seen(stream=lambda: current))


@pytest.mark.parametrize(("current", "asked"), [(0, 77), (77, 0), (77, 78), (1, 2)])
def test_a_result_allocated_for_another_stream(current: int, asked: int) -> None:
    with pytest.raises(ArgumentValueError, match="cupy would allocate the result on its current stream"):
        _require_current(asked, seen(stream=lambda: current))
