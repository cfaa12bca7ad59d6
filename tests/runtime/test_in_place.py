"""Kernels loaded with in_place=True: the result takes the input's place, wherever the input lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ArgumentValueError
from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, load_kernel
from autotile.runtime import arguments
from autotile.runtime.arguments import ArgumentChecker
from autotile.runtime.arrays import View
from autotile.runtime.choose import DEFAULT, Choice
from autotile.runtime.tuned import Plan
from autotile.types import Launch

pytestmark = pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")  # nothing is tuned here
Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).parents[1] / "data" / "kernels"
F = np.float32


def load(**request: Any) -> autotile.TunedKernel:
    return autotile.load("flip", rows=8, cols=8, device="emulator", templates=KERNELS, **request)


@pytest.fixture(scope="module")
def flip() -> autotile.TunedKernel:
    return load(in_place=True)


def numbers(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=F).reshape(shape) + 1


def odd(*shape: int) -> Array:
    memory = np.zeros(4 * int(np.prod(shape)) + 1, np.uint8)[1:].view(F).reshape(shape)
    memory[...] = numbers(*shape)
    return memory


SQUARES: dict[str, Callable[[], tuple[Array, Array]]] = {
    "dense": lambda: (m := numbers(7, 7), m),
    "columns": lambda: (m := numbers(7, 12), m[:, 2:9]),
    "batch": lambda: (m := numbers(3, 7, 7), m),
    "parts of a batch": lambda: (m := numbers(3, 9, 12), m[:, 1:8, 2:9]),
    "every second matrix": lambda: (m := numbers(6, 7, 7), m[::2]),
    "one element": lambda: (m := numbers(3, 3), m[1:2, 1:2]),
    "fortran": lambda: (m := numbers(7, 7), m.T),
    "every second column": lambda: (m := numbers(7, 14), m[:, ::2]),
    "upside down": lambda: (m := numbers(3, 7, 9), m[:, ::-1, 1:8]),
    "between elements": lambda: (m := odd(7, 7), m),
}


@pytest.mark.parametrize("name", SQUARES)
@pytest.mark.parametrize("how", ["alone", "as out", "as another view of the same"])
def test_the_result_takes_the_inputs_place(flip: autotile.TunedKernel, name: str, how: str) -> None:
    memory, a = SQUARES[name]()
    right = np.swapaxes(a, -1, -2).copy()
    outside = [x for x in memory.ravel() if x not in a]
    out = {"alone": None, "as out": a}.get(how, a[...])
    assert flip(a, out=out) is (a if out is None else out)
    assert np.array_equal(a, right)
    assert [x for x in memory.ravel() if x not in right] == outside


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numbers(3, 4), r"needs an array whose shape stays: in has \(3, 4\), out would have \(4, 3\); load .* without"),
        (numbers(2, 3, 4), "needs an array whose shape stays"),
        (np.broadcast_to(F(1), (3, 3)), "in is read-only, and flip in place writes into it"),
        (
            np.lib.stride_tricks.as_strided(numbers(9), (3, 3), (8, 4)),
            "elements of in may share memory with each other",
        ),
    ],
)
def test_arrays_that_cannot_be_worked_in(flip: autotile.TunedKernel, array: Array, message: str) -> None:
    before = array.copy()
    with pytest.raises(ArgumentValueError, match=message):
        flip(array)
    assert np.array_equal(array, before)


def test_another_out_is_refused(flip: autotile.TunedKernel) -> None:
    a = numbers(12, 12)
    square = a[:6, :6]
    for out in (np.zeros((6, 6), F), a[:6, 1:7], a[::2, :6], a.ravel()[:36].reshape(6, 6), a[:5, :5]):
        with pytest.raises(ArgumentValueError, match="out is another array than in, but flip was loaded to work in pl"):
            flip(square, out=out)
    assert np.array_equal(a, numbers(12, 12))


def test_nothing_to_do(flip: autotile.TunedKernel) -> None:
    for shape in ((0, 0), (0, 4, 4), (2, 0, 0)):
        a = np.zeros(shape, F)
        assert flip(a) is a


def test_a_kernel_not_loaded_so_says_how_it_could_be() -> None:
    flip, a = load(), numbers(6, 6)
    with pytest.raises(ArgumentValueError, match=r"out shares memory with in; .*: load it with in_place=True$"):
        flip(a, out=a)
    with pytest.raises(
        ArgumentValueError, match=r"out shares memory with in; the kernel would overwrite what it reads$"
    ):
        flip(a[:2], out=a.reshape(12, 3)[:6, :2])
    assert np.array_equal(a, numbers(6, 6))
    assert np.array_equal(flip(a), a.T)


def test_only_a_kernel_that_can_is_loaded_so() -> None:
    with pytest.raises(autotile.errors.UsageError, match="toy has no dimension 'in_place'"):
        autotile.load("toy", n=8, in_place=True, device="emulator", templates=KERNELS)
    with pytest.raises(autotile.errors.UsageError, match="flip in place"):
        autotile.load("flip", rows=8, cols=9, in_place=True, device="emulator", templates=KERNELS)


@pytest.mark.parametrize("cols", [6, 9])
def test_the_emulator_gets_one_array_for_both(cols: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    flip = load_kernel("flip", KERNELS)
    plan = Plan(None, None, flip.sizes_of(flip.problem({"rows": 6, "cols": 6})))  # type: ignore[arg-type]
    monkeypatch.setattr(autotile.TunedKernel, "_plan", lambda *_: plan)
    device: Any = SimpleNamespace(
        info=SimpleNamespace(kind="emulator"), call=lambda program, launch, arguments, stream: given.extend(arguments)
    )
    problem = flip.problem({"rows": 8, "cols": 8, "in_place": True})
    autotile.TunedKernel(flip, problem, Choice(flip.configuration(), DEFAULT, None), device)(numbers(6, cols)[:, :6])
    assert given[0] is given[1]
    assert given[0].flags.writeable


# ---- beside other arrays -------------------------------------------------------------------------------------------


def kernel(pitches: tuple[str, str] = ("", "")) -> Kernel:
    return Kernel(
        name="add", doc="y += x", dimensions=("rows", "cols"), dtypes=("float32",),
        arguments=(
            Input("x", ("rows", "cols")),
            Input("y", ("rows", "cols"), pitch=pitches[0]),
            Output("sum", ("rows", "cols"), pitch=pitches[1]),
            Output("most", ("rows",)),
        ),
        optional=tuple(OptionalSize(name, "problem.cols", "") for name in sorted(set(filter(None, pitches)))),
        parameters=(Parameter("width", (32,), 32, "threads a block"),), launch=LaunchPlan(("1",), ("width",)),
        reference=lambda inputs, problem: {}, error_bound=lambda inputs, problem: {}, flops="0", bytes="0",
        in_place=("y", "sum"),
    )  # fmt: skip


def checker(*pitches: str) -> ArgumentChecker:
    made = kernel(pitches) if pitches else kernel()  # type: ignore[arg-type]
    return ArgumentChecker(made, "float32", EmulatorDevice(), in_place=True)


def test_other_inputs_must_not_share_its_memory() -> None:
    memory = numbers(8, 5)
    _, (total, most), _ = checker().check((memory[:4], memory[4:]), None)
    assert total.owner is not None
    assert np.shares_memory(total.owner, memory[4:])
    assert most.shape == (4,)
    with pytest.raises(ArgumentValueError, match="y shares memory with x; the kernel would overwrite what it reads"):
        checker().check((memory[:4], memory[1:5]), None)
    with pytest.raises(ArgumentValueError, match="out shares memory with y"):
        checker().check((memory[:4], memory[4:]), (memory[4:], memory[4, :4]))
    with pytest.raises(ArgumentValueError, match="y shares memory with x"):  # through a copy, too
        checker().check((memory[:4].reshape(5, 4), memory.reshape(8, 5)[:4].T), None)


def test_gaps_count_for_both_or_none() -> None:
    x, memory = numbers(4, 5), numbers(4, 9)
    wide = memory[:, :5]
    _, (total, _), sizes = checker("in_pitch", "out_pitch").check((x, wide), None)
    assert (sizes["in_pitch"], sizes["out_pitch"], total.owner is wide) == (9, 9, True)
    assert checker("pitch", "pitch").check((x, wide), None)[2]["pitch"] == 9
    assert checker("pitch", "pitch").check((x, x + 1), None)[2].get("pitch", 5) == 5
    for pitches in (("in_pitch", ""), ("", "out_pitch")):
        _, (total, _), sizes = checker(*pitches).check((x, wide), None)
        assert sizes == {"rows": 4, "cols": 5}
        assert total.contiguous
        assert total.home is not None
        assert total.home.owner is wide


# ---- on a GPU ------------------------------------------------------------------------------------------------------


ONE_BLOCK = Launch((1, 1, 1), (1, 1, 1))


class FakeGpu:
    """Transposes each matrix of what it is given, where it lies; counts what came and went."""

    def __init__(self) -> None:
        self.info = SimpleNamespace(kind="cuda", name="a GPU")
        self.asked: list[str] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def upload(self, array: Array) -> Any:
        self.asked.append("upload")
        return SimpleNamespace(values=np.ascontiguousarray(array).copy(), free=lambda: self.asked.append("free"))

    def empty_gpuarray(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self.asked.append("empty")
        return SimpleNamespace(gpudata=None)

    def call(self, program: Any, launch: Any, arguments: list[Any], stream: None) -> None:
        given, out, rows, cols, in_pitch, out_pitch, in_step, out_step = arguments
        assert given is out
        assert (rows, in_pitch, out_pitch, in_step, out_step) == (cols,) * 5
        out.values = np.ascontiguousarray(np.swapaxes(out.values, -1, -2))

    def download(self, source: Any, out: Array) -> None:
        assert out.flags.c_contiguous
        self.asked.append("download")
        out[...] = source.values


@pytest.mark.parametrize("name", SQUARES)
def test_host_arrays_go_there_and_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = FakeGpu()
    flip = load_kernel("flip", KERNELS)
    seen: list[Any] = []

    def plan(tuned: Any, sizes: Any, alignment: int) -> Plan:
        seen.append(dict(sizes))
        problem = flip.problem({**sizes, "in_place": True})
        return Plan(None, ONE_BLOCK, flip.sizes_of(problem))

    monkeypatch.setattr(autotile.TunedKernel, "_plan", plan)
    problem = flip.problem({"rows": 8, "cols": 8, "in_place": True})
    tuned = autotile.TunedKernel(flip, problem, Choice(flip.configuration(), DEFAULT, None), gpu)
    memory, a = SQUARES[name]()
    outside, right = [x for x in memory.ravel() if x not in a], np.swapaxes(a, -1, -2).copy()
    assert tuned(a) is a
    assert np.array_equal(a, right)
    assert [x for x in memory.ravel() if x not in right] == outside
    assert gpu.asked == ["upload", "download", "free"]
    assert seen[0].keys() == {"rows", "cols", "batch"}


def on_gpu(strides: tuple[int, ...] | None, contiguous: bool = False) -> View:
    return View(object(), "torch", "cuda", 0, 256, (4, 4), "float32", contiguous, lambda shape, dtype: None, lambda: 5,
                strides=strides)  # fmt: skip


def test_arrays_on_a_gpu_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "view_of", lambda view, name, empty=None: view)
    gpu: Any = SimpleNamespace(info=SimpleNamespace(kind="cuda"), index=0)
    checks = ArgumentChecker(load_kernel("flip", KERNELS), "float32", gpu, in_place=True)
    (view,), (out,), sizes = checks.check((on_gpu((9, 1)),), None)
    assert out is view
    assert (sizes["in_pitch"], sizes["out_pitch"], sizes["in_step"], sizes["out_step"]) == (9, 9, 4, 4)
    for strides in ((1, 4), (3, 1), (0, 1), None):
        with pytest.raises(ArgumentValueError, match="rows of `in` must be dense: last stride 1"):
            checks.check((on_gpu(strides),), None)


def test_no_result_is_made_so_any_stream_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "view_of", lambda view, name, empty=None: view)
    streams: list[Any] = []
    gpu: Any = SimpleNamespace(
        info=SimpleNamespace(kind="cuda", name="a GPU"), call=lambda *given: streams.append(given[-1])
    )
    flip = load_kernel("flip", KERNELS)
    sizes = flip.sizes_of(flip.problem({"rows": 4, "cols": 4}))
    monkeypatch.setattr(autotile.TunedKernel, "_plan", lambda *given: Plan(None, ONE_BLOCK, sizes))
    problem = flip.problem({"rows": 8, "cols": 8, "in_place": True})
    view = on_gpu(None, contiguous=True)
    tuned = autotile.TunedKernel(flip, problem, Choice(flip.configuration(), DEFAULT, None), gpu)
    assert tuned(view, stream=77) is view.owner
    assert tuned(view) is view.owner
    assert streams == [77, 5]
