"""Calls with views of larger arrays and with batches, on the emulator: right, with nothing else read or written."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import autotile
from autotile.devices.emulator.device import EmulatorDevice
from autotile.dtypes import element_type
from autotile.errors import ArgumentValueError
from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, load_kernel
from autotile.runtime import arguments
from autotile.runtime.arguments import ArgumentChecker
from autotile.runtime.arrays import View, view_of
from autotile.runtime.empty import fill_empty
from autotile.runtime.strides import MAY_SHARE, SHARES, common, meets_itself, pitch_and_step

pytestmark = pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")  # nothing is tuned here
Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).parents[1] / "data" / "kernels"
F = np.float32


@pytest.fixture(scope="module")
def flip() -> Callable[[str], autotile.TunedKernel]:
    @cache
    def load(dtype: str = "float32") -> autotile.TunedKernel:
        return autotile.load("flip", rows=8, cols=8, dtype=dtype, device="emulator", templates=KERNELS)

    return load


def numbers(*shape: int, dtype: Any = F) -> Array:
    return (np.arange(np.prod(shape)) % 119 + 1).reshape(shape).astype(dtype)


def no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "contiguous_copy", lambda view: pytest.fail("an input was copied"))
    monkeypatch.setattr(View, "send_home", lambda view: view.home and pytest.fail("the result was copied"))


SOURCES = {
    "left columns": lambda: numbers(6, 20)[:, :5],
    "right columns": lambda: numbers(6, 20)[:, 15:],
    "a column": lambda: numbers(6, 20)[:, 3:4],
    "a row": lambda: numbers(6, 20)[2:3, 3:9],
    "every second row": lambda: numbers(6, 20)[::2],
    "columns of matrices": lambda: numbers(3, 6, 20)[:, :, 3:8],
    "rows of matrices": lambda: numbers(3, 6, 20)[:, 1:4],
    "rows and columns of matrices": lambda: numbers(3, 6, 20)[:, 1:4, 3:8],
    "every second matrix": lambda: numbers(6, 4, 5)[::2],
    "a matrix": lambda: numbers(3, 6, 20)[1:2, :, 3:8],
    "a row of matrices": lambda: numbers(3, 6, 20)[:, 2:3, 3:8],
    "an element of matrices": lambda: numbers(3, 6, 20)[:, 2:3, 3:4],
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("wide", [False, True])
def test_views_in_and_out_are_not_copied(flip: Any, name: str, wide: bool, monkeypatch: Any) -> None:
    no_copies(monkeypatch)
    a = SOURCES[name]()
    right = np.swapaxes(a, -1, -2)
    assert np.array_equal(flip()(a), right)
    margin = (3, 4) if wide else (0, 0)
    memory = np.full((*right.shape[:-2], right.shape[-2] + margin[0], right.shape[-1] + margin[1]), 7, F)
    out = memory[..., : right.shape[-2], : right.shape[-1]]
    assert flip()(a, out=out) is out
    assert np.array_equal(out, right)
    out[...] = 7
    assert np.all(memory == 7)  # nothing else was written


def test_calls_that_differ_in_pitch_or_step_alone(flip: Any) -> None:
    """What was worked out for one is not used for the next."""
    memory = numbers(4, 12, 30)
    for a in (memory[:2, :4, :5], memory[:, :4, :5], memory[::2, :4, :5], memory[:2, ::2, :5][:, :4]):
        assert np.array_equal(flip()(a), np.swapaxes(a, 1, 2))
        for margin in (0, 1, 2):
            out = np.zeros((len(a), 5, 4 + margin), F)[..., :4]
            assert np.array_equal(flip()(a, out=out), np.swapaxes(a, 1, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64", "complex128", "bfloat16"])
def test_pitches_are_in_elements(flip: Any, dtype: str) -> None:
    kind = element_type(dtype).numpy
    a, out = numbers(7, 11, dtype=kind)[:, 2:7], np.zeros((5, 9), kind)[:, 1:8]
    assert np.array_equal(flip(dtype)(a, out=out), a.T)


OTHERWISE = {
    "fortran": lambda: np.asfortranarray(numbers(4, 5)),
    "every second column": lambda: numbers(4, 10)[:, ::2],
    "reversed rows": lambda: numbers(4, 5)[::-1],
    "reversed columns": lambda: numbers(4, 5)[:, ::-1],
    "fields of records": lambda: np.zeros((4, 5), [("x", "<f4"), ("y", "<i2")])["x"],
    "axes in another order": lambda: numbers(5, 3, 4).transpose(1, 2, 0),
    "matrices upside down": lambda: numbers(3, 4, 5)[::-1],
    "matrices no whole number of rows apart": lambda: as_strided(numbers(70), (3, 4, 5), (92, 20, 4)),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_host_arrays_that_lie_otherwise(flip: Any, name: str) -> None:
    a = OTHERWISE[name]()
    right = np.swapaxes(a, -1, -2)
    assert np.array_equal(flip()(a), right)
    out = OTHERWISE[name]()
    assert flip()(np.ascontiguousarray(right), out=out) is out
    assert np.array_equal(out, a)


def test_only_elements_of_an_out_that_lies_otherwise_are_written(flip: Any) -> None:
    memory, a = np.full((5, 8), 7, F), numbers(4, 5)
    flip()(a, out=memory[:, ::2])
    assert np.array_equal(memory[:, ::2], a.T)
    assert np.all(memory[:, 1::2] == 7)


def test_an_input_that_repeats_itself_is_copied_and_such_an_out_refused(flip: Any) -> None:
    repeated = np.broadcast_to(numbers(5), (3, 4, 5))
    assert np.array_equal(flip()(repeated), np.swapaxes(repeated, 1, 2))
    windows = as_strided(numbers(20), (4, 5), (8, 4))
    assert np.array_equal(flip()(windows), windows.T)
    with pytest.raises(ArgumentValueError, match="elements of out may share memory with each other"):
        flip()(numbers(5, 4), out=windows)


def test_the_memory_of_a_view_ends_with_its_last_element() -> None:
    """The emulator takes an access beyond it for a fault."""
    memory = numbers(3, 6, 20)
    for a, extent in ((memory[:, 1:4, 3:8], 2 * 120 + 2 * 20 + 5), (memory[0, ::2, :5], 2 * 40 + 5), (memory, 360)):
        flat = view_of(a, "a").flat()
        assert (flat.size, flat.ctypes.data, flat.flags.c_contiguous) == (extent, a.ctypes.data, True)


# ---- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_may_be_missing(flip: Any) -> None:
    a = numbers(4, 5)
    for shape in ((4, 5), (1, 4, 5)):
        out = np.zeros((*shape[:-2], 5, 4), F)
        assert flip()(a.reshape(shape)).shape == out.shape
        assert flip()(a.reshape(shape), out=out) is out
        assert np.array_equal(out.reshape(5, 4), a.T)
    with pytest.raises(ArgumentValueError, match=r"out has shape \(1, 5, 4\), it must be \(5, 4\)"):
        flip()(a, out=np.zeros((1, 5, 4), F))
    with pytest.raises(ArgumentValueError, match=r"out has shape \(5, 4\), it must be \(1, 5, 4\)"):
        flip()(a[None], out=np.zeros((5, 4), F))


@pytest.mark.parametrize("shape", [(), (5,), (1, 2, 3, 4)])
def test_other_dimensions_may_not(flip: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ArgumentValueError, match=r"in must have 3 dimensions \(batch × rows × cols; batch may be left out\), not shape"
    ):
        flip()(np.zeros(shape, F))


def kernel(*arguments: Input | Output, optional: tuple[OptionalSize, ...]) -> Kernel:
    return Kernel(
        name="sums", doc="", dimensions=("rows", "cols"), dtypes=("float32",), arguments=arguments, optional=optional,
        parameters=(Parameter("width", (32,), 32, "threads a block"),), launch=LaunchPlan(("1",), ("width",)),
        reference=lambda inputs, problem: {}, error_bound=lambda inputs, problem: {}, flops="0", bytes="0",
    )  # fmt: skip


BATCH = OptionalSize("batch", "1", "")
PITCH = OptionalSize("pitch", "problem.cols", "")


def test_all_arrays_of_a_call_agree_on_the_batch() -> None:
    shape = ("batch", "rows", "cols")
    two = kernel(Input("x", shape), Input("y", shape), Output("z", shape), optional=(BATCH,))
    checker = ArgumentChecker(two, "float32", EmulatorDevice())
    a = numbers(4, 5)
    assert checker.check((a, a), None)[1][0].shape == (4, 5)
    for arrays in ((a, a[None]), (a[None], a)):
        with pytest.raises(ArgumentValueError, match="one array has the dimension batch, another leaves it out"):
            checker.check(arrays, None)


def test_arrays_with_one_pitch_for_both() -> None:
    shape = ("rows", "cols")
    copy = kernel(Input("x", shape, pitch="pitch"), Output("z", shape, pitch="pitch"), optional=(PITCH,))
    checker = ArgumentChecker(copy, "float32", EmulatorDevice())
    wide, other = numbers(4, 9)[:, :5], np.zeros((4, 9), F)[:, :5]
    assert checker.check((wide,), other)[2] == {"rows": 4, "cols": 5, "pitch": 9}
    for out in (None, np.zeros((4, 5), F)):
        with pytest.raises(ArgumentValueError, match="says pitch = 5, but another array pitch = 9"):
            checker.check((wide,), out)
    with pytest.raises(ArgumentValueError, match="z says pitch = 9, but another array pitch = 5; sums takes"):
        checker.check((numbers(4, 5),), other)


def test_a_pitch_without_a_step() -> None:
    shape = ("batch", "rows", "cols")
    copy = kernel(Input("x", shape, pitch="pitch"), Output("z", shape), optional=(BATCH, PITCH))
    checker = ArgumentChecker(copy, "float32", EmulatorDevice())
    memory = numbers(3, 6, 9)
    assert checker.check((memory[:, :, :5],), None)[2]["pitch"] == 9
    (copied,), _, sizes = checker.check((memory[:, :4, :5],), None)
    assert copied.contiguous
    assert "pitch" not in sizes
    with pytest.raises(ArgumentValueError, match="out is not C-contiguous"):
        checker.check((memory[:, :, :5],), np.zeros((3, 6, 9), F)[..., :5])


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 5), (4, 0)])
def test_nothing_to_do(flip: Any, shape: tuple[int, ...], monkeypatch: Any) -> None:
    monkeypatch.setattr(autotile.TunedKernel, "_run", lambda *given: pytest.fail("something was launched"))
    turned = (*shape[:-2], shape[-1], shape[-2])
    assert flip()(np.zeros(shape, F)).shape == turned
    out = np.zeros((*turned[:-1], turned[-1] + 2), F)[..., : turned[-1]]
    assert flip()(np.zeros((*shape[:-1], shape[-1] + 1), F)[..., : shape[-1]], out=out) is out


SUMS = """
import numpy as np
from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter

KERNEL = Kernel(
    name="sums",
    doc="out[b][r] = start[b][r] + the sums over a last axis of `in`",
    dimensions=("rows", "cols", "deep"),
    dtypes=("float32",),
    optional=(OptionalSize("batch", "1", ""), OptionalSize("pitch", "problem.cols", ""),
              OptionalSize("start_pitch", "problem.cols", "")),
    arguments=(Input("start", ("batch", "rows", "cols"), pitch="start_pitch"),
               Input("in", ("batch", "rows", "cols", "deep")),
               Output("out", ("batch", "rows", "cols"), pitch="pitch")),
    parameters=(Parameter("width", (32,), 32, ""),),
    launch=LaunchPlan(("1",), ("width",)),
    reference=lambda inputs, problem: {
        "out": inputs["start"].reshape(problem.asked.get("batch", 1), 2, 3) + inputs["in"].sum(3, np.float64)
    },
    error_bound=lambda inputs, problem: {"out": 1e-3},
    flops="0",
    bytes="0",
)
"""


class FlatGpu:
    """A GPU whose memory is one array of float32; address 256 is its first."""

    def __init__(self, memory: Array) -> None:
        self.memory, self.info = memory, SimpleNamespace(kind="cuda", name="a GPU")

    def synchronize(self) -> None:
        pass

    def download(self, address: int, out: Array) -> None:
        assert out.flags.c_contiguous
        out[...] = self.memory[(address - 256) // 4 :][: out.size].reshape(out.shape)

    def write(self, address: int, array: Array) -> None:
        self.memory[(address - 256) // 4 :][: array.size] = array.ravel()


@pytest.mark.parametrize("lead", [(), (1,), (2,)])
def test_values_where_nothing_is_launched_keep_out_of_the_gaps(tmp_path: Path, lead: tuple[int, ...]) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "kernel.py").write_text(SUMS)
    (folder / "kernel.cu.j2").write_text('extern "C" __global__ void {{ entry }}() {} // {{ width }}\n')
    sums = load_kernel("sums", tmp_path)
    gpu: Any = FlatGpu(numbers(60))
    before = gpu.memory.copy()
    loaded = sums.problem(dict.fromkeys(sums.dimensions, 8))

    def seen(address: int, *shape: int, strides: Any = None) -> View:
        shape = lead + shape
        strides = strides and (2 * strides[0],) * len(lead) + strides
        return View(None, "torch", "cuda", 0, address, shape, "float32", strides is None, lambda s, dtype: None,
                    lambda: 0, strides=strides)  # fmt: skip

    sizes = {"rows": 2, "cols": 3, "deep": 0, "batch": math.prod(lead)}
    start, out = seen(256, 2, 3, strides=(5, 1)), seen(256 + 4 * 20, 2, 3, strides=(7, 1))
    fill_empty(sums, loaded, gpu, [start, seen(0, 2, 3, 0)], [out], sizes, ())
    right = before.copy()
    for row in range(2 * sizes["batch"]):
        right[20 + 7 * row :][:3] = before[5 * row :][:3]
    assert np.array_equal(gpu.memory, right)


# ---- memory in common ----------------------------------------------------------------------------------------------


def test_halves_of_one_matrix(flip: Any) -> None:
    memory = numbers(6, 12)
    right = memory[:, :6].T.copy()
    flip()(memory[:, :6], out=memory[:, 6:])
    assert np.array_equal(memory[:, 6:], right)
    assert np.array_equal(memory[:, :6], right.T)
    for out in (memory[:, 5:11], memory[:, :6]):
        with pytest.raises(ArgumentValueError, match="out shares memory with in; the kernel would overwrite"):
            flip()(memory[:, :6], out=out)


def test_what_interleaves_at_other_distances_is_refused(flip: Any) -> None:
    memory = numbers(200)
    a, out = memory[:60].reshape(6, 10)[:, :5], memory[5 : 5 + 55].reshape(5, 11)[:, :6]
    with pytest.raises(ArgumentValueError, match=r"out may share memory with in: they interleave.* memory of its own"):
        flip()(a, out=out)


def test_an_out_that_lies_otherwise_shares_as_well(flip: Any) -> None:
    memory = numbers(6, 12)
    with pytest.raises(ArgumentValueError, match="out shares memory with in"):
        flip()(memory[:, :6], out=memory[:, ::2])
    before = memory[:, :3].copy()
    flip()(memory[:, :3], out=memory[:, 6:9].T)
    assert np.array_equal(memory[:, :3], before)
    assert np.array_equal(memory[:, 6:9], before)


def test_common_memory_is_told_exactly_for_equal_strides() -> None:
    """Against numpy's own answer, for parts of one array drawn at random."""
    random = np.random.default_rng(5)
    memory = np.zeros((6, 6, 8), F)

    def part() -> Array:
        cuts = []
        for size in memory.shape:
            low, high = sorted(random.choice(size + 1, 2, replace=False))
            cuts.append(slice(low, high))
        return memory[tuple(cuts)]

    seen = set()
    for _ in range(2000):
        one, other = part(), part()
        if random.random() < 0.3:
            one, other = one[::2], other[::2]
        if one.shape[0] == 1:
            one = one[0]
        exact = np.shares_memory(one, other)
        views = view_of(one, "a"), view_of(other, "b")
        if any(not view.contiguous and pitch_and_step(view) is None for view in views):
            continue
        found = common(*views)
        assert bool(found) >= exact
        if all(one.strides[-axis] == other.strides[-axis] for axis in range(1, min(one.ndim, other.ndim) + 1)):
            assert (found == SHARES) == exact
        seen.add((found, exact))
    assert {(SHARES, True), ("", False)} <= seen


def test_common_memory_at_other_strides_is_never_missed() -> None:
    random = np.random.default_rng(6)
    memory, seen = np.zeros(400, F), set()

    def part() -> Array:
        cols, rows, batch = (int(random.integers(1, most)) for most in (7, 5, 4))
        pitch, step = cols + int(random.integers(4)), rows + int(random.integers(3))
        first = int(random.integers(60))
        strides = tuple(4 * stride for stride in (pitch * step, pitch, 1))
        return as_strided(memory[first:], (batch, rows, cols), strides)

    for _ in range(2000):
        one, other = part(), part()
        found, exact = common(view_of(one, "a"), view_of(other, "b")), np.shares_memory(one, other)
        assert bool(found) or not exact
        assert found != SHARES or exact
        seen.add((found, exact))
    assert seen == {(SHARES, True), (MAY_SHARE, True), (MAY_SHARE, False), ("", False)}


@pytest.mark.parametrize(
    ("array", "meets"),
    [
        (numbers(4, 5), False),
        (numbers(4, 9)[::-1, ::-2], False),
        (np.broadcast_to(numbers(5), (1, 5)), False),
        (np.broadcast_to(numbers(5), (2, 5)), True),
        (as_strided(numbers(20), (4, 5), (16, 4)), True),
        (as_strided(numbers(20), (4, 5), (20, 4)), False),
    ],
)
def test_arrays_that_meet_themselves(array: Array, meets: bool) -> None:
    assert meets_itself(array) == meets


# ---- on a GPU, as the checker sees it ------------------------------------------------------------------------------


def on_gpu(*shape: int, strides: tuple[int, ...] | None, address: int = 256) -> View:
    return View(None, "torch", "cuda", 0, address, shape, "float32", False, lambda s, dtype: dense(*s), lambda: 0,
                strides=strides)  # fmt: skip


def dense(*shape: int, address: int = 1 << 20) -> View:
    return View(None, "torch", "cuda", 0, address, shape, "float32", True, lambda s, dtype: dense(*s), lambda: 0)


@pytest.fixture
def checker(monkeypatch: Any) -> ArgumentChecker:
    monkeypatch.setattr(arguments, "view_of", lambda view, name, empty=None: view)
    device: Any = SimpleNamespace(info=SimpleNamespace(kind="cuda"), index=0)
    return ArgumentChecker(load_kernel("flip", KERNELS), "float32", device)


@pytest.mark.parametrize(
    ("shape", "strides", "pitch", "step"),
    [
        ((4, 5), (9, 1), 9, 4),
        ((3, 4, 5), (63, 9, 1), 9, 7),
        ((3, 1, 5), (9, 77, 1), 9, 1),
        ((1, 4, 5), (77, 9, 1), 9, 4),
        ((3, 4, 1), (63, 9, 77), 9, 7),
        ((1, 1, 5), (0, 0, 1), 5, 1),
        ((3, 4, 5), (9 * (2**31 - 1), 9, 1), 9, 2**31 - 1),
    ],
)
def test_strides_that_a_kernel_takes(checker: Any, shape: Any, strides: Any, pitch: int, step: int) -> None:
    (seen,), (made,), sizes = checker.check((on_gpu(*shape, strides=strides),), None)
    assert (seen.strides, made.contiguous) == (strides, True)
    assert (sizes["in_pitch"], sizes["in_step"]) == (pitch, step)
    assert "out_pitch" not in sizes
    turned = (*shape[:-2], shape[-1], shape[-2])
    out = on_gpu(*turned, strides=(7000, 1000, 1)[-len(turned) :], address=1 << 40)
    _, (given,), sizes = checker.check((dense(*shape),), out)
    assert given is out
    assert "in_pitch" not in sizes
    assert sizes["out_pitch"] in (1000, 7000)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((4, 5), (1, 4)),
        ((4, 5), (4, 1)),
        ((4, 5), (9, 2)),
        ((4, 5), (-9, 1)),
        ((4, 5), (9, -1)),
        ((4, 5), (0, 1)),
        ((4, 5), None),
        ((4, 5), (2**31, 1)),
        ((3, 4, 5), (62, 9, 1)),
        ((3, 4, 5), (27, 9, 1)),
        ((3, 4, 5), (0, 9, 1)),
        ((3, 4, 5), (9 * 2**31, 9, 1)),
        ((3, 1, 5), (4, 9, 1)),
    ],
)
def test_strides_that_it_refuses(checker: Any, shape: Any, strides: Any) -> None:
    wanted = "must be dense: last stride 1, neighbours {} elements apart or more, matrices a whole number of rows apart"
    with pytest.raises(ArgumentValueError, match=rf"rows of `in` {wanted.format('cols')}, rows .* a contiguous copy"):
        checker.check((on_gpu(*shape, strides=strides),), None)
    turned = (*shape[:-2], shape[-1], shape[-2])
    out = on_gpu(*shape, strides=strides, address=1 << 40)
    with pytest.raises(ArgumentValueError, match=rf"rows of `out` {wanted.format('rows')}, cols .* contiguous array"):
        checker.check((dense(*turned),), out)


def test_strides_of_the_libraries_in_elements(monkeypatch: Any) -> None:
    """torch counts elements, numpy, CuPy and pycuda bytes."""
    shape, flags = (4, 5), SimpleNamespace(c_contiguous=False)

    def fake(module: str, name: str, **said: Any) -> Any:
        return type(name, (), {"__module__": module, **said})()

    tensor = fake(
        "torch", "Tensor", layout="strided", is_cuda=True, device=SimpleNamespace(type="cuda", index=0), shape=shape,
        dtype="torch.float32", is_conj=lambda _: False, is_neg=lambda _: False, data_ptr=lambda _: 4096,
        is_contiguous=lambda _: False, stride=lambda _: (9, 1),
    )  # fmt: skip
    common = {"shape": shape, "dtype": np.dtype(F), "flags": flags, "strides": (36, 4)}
    array = fake("cupy", "ndarray", __cuda_array_interface__={}, device=SimpleNamespace(id=0),
                 data=SimpleNamespace(ptr=4096), **common)  # fmt: skip
    gpuarray = fake("pycuda.gpuarray", "GPUArray", gpudata=4096, **common)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(strided="strided"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    for given in (tensor, array, gpuarray, np.zeros((4, 9), F)[:, :5]):
        assert view_of(given, "a", lambda *_: None).strides == (9, 1)
    gpuarray.strides = (38, 4)
    assert view_of(gpuarray, "a", lambda *_: None).strides is None


def test_torch_views_on_the_host(flip: Any) -> None:
    torch = pytest.importorskip("torch")
    memory = torch.zeros(5, 9)
    a = torch.from_numpy(numbers(4, 12))[:, 3:8]
    out = memory[:, :4]
    assert flip()(a, out=out) is out
    assert torch.equal(out, a.t())
    assert float(memory[:, 4:].abs().sum()) == 0
    assert torch.equal(flip()(a.t()), a)
