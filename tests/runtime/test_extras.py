"""Inputs that are stored turned, or are there for some problems alone; scalars; an output that may be an input. On the
emulator, and as a kernel's checks see them."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.codegen import template_digest
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ArgumentTypeError, ArgumentValueError, UsageError
from autotile.kernels import Kernel, load_kernel
from autotile.runtime.choose import DEFAULT, NEAR_PROBLEM, Choice, choose
from autotile.runtime.notes import AutotileWarning
from autotile.store import MemoryStore
from autotile.types import Record

Array = np.ndarray[Any, Any]

BLEND = """
import numpy as np
from autotile.kernels import (
    Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, Rule, Scalar, Scratch, Size, Step, Switch, Trait,
)

def reference(inputs, problem):
    a = inputs["a"].astype(np.float64)
    a = np.swapaxes(a, -1, -2) if "a_turned" in problem.switches else a
    c = inputs["alpha"] * a
    if "addend" in problem.switches:
        c = c + inputs["beta"] * inputs["addend"]
    if "bias" in problem.switches:
        c = c + inputs["bias"]
    return {"c": np.broadcast_to(c, [problem["m"], problem["n"]]) + 0 * inputs["deep"].sum()}

KERNEL = Kernel(
    name="blend", doc="", dimensions=("m", "n", "k"), dtypes=("float32", "float64"),
    arguments=(
        Input("a", ("m", "n"), pitch="a_pitch", turned="a_turned"), Input("deep", ("k",)),
        Input("bias", ("n",), when="bias"),
        Input("addend", ("m", "n"), pitch="addend_pitch", when="addend", may_be="c"),
        Output("c", ("m", "n"), pitch="c_pitch"), Size("m"), Size("n"), Size("k"),
        Size("a_pitch"), Size("addend_pitch"), Size("c_pitch"),
        Scalar("alpha", 1.0), Scalar("beta", 1.0), Scratch("work"),
    ),
    optional=(
        OptionalSize("a_pitch", "problem.m if problem.a_turned else problem.n", ""),
        OptionalSize("addend_pitch", "problem.n", ""), OptionalSize("c_pitch", "problem.n", ""),
    ),
    switches=(Switch("a_turned", ""), Switch("bias", ""), Switch("addend", "")),
    parameters=(Parameter("width", (32, 64), 32, ""), Parameter("staged", (0, 1), 0, "")),
    rules=(Rule("width == 32 or not problem.bias", "no bias in wide blocks"),),
    launch=LaunchPlan(
        ("1",), ("width",), scratch_bytes="problem.m * problem.n * 8 if staged else 0",
        before=(Step("scale", ("1",), ("width",), "staged"),),
    ),
    traits=(Trait("turned", "problem.a_turned == 1", ""),),
    reference=reference, error_bound=lambda inputs, problem: {"c": 1e-5}, flops="1", bytes="1",
)
"""

BLEND_TEXT = """
{% set LIST %}
const {{ ctype }}* a, const {{ ctype }}* deep, const {{ ctype }}* bias, const {{ ctype }}* addend, {{ ctype }}* c,
int m, int n, int k, int a_pitch, int addend_pitch, int c_pitch, {{ accumulator }} alpha, {{ accumulator }} beta,
void* work
{% endset %}
{% set A %}alpha * {{ "a[size_t(j) * a_pitch + i]" if turned else "a[size_t(i) * a_pitch + j]" }}{% endset %}
{% if staged %}
extern "C" __global__ void {{ entry }}_scale({{ LIST }}) {
    for (int x = threadIdx.x; x < m * n; x += {{ width }}) {
        int i = x / n, j = x % n;
        (({{ accumulator }}*)work)[x] = {{ A }};
    }
}
{% endif %}
extern "C" __global__ void {{ entry }}({{ LIST }}) {
    for (int x = threadIdx.x; x < m * n; x += {{ width }}) {
        int i = x / n, j = x % n;
        {{ accumulator }} sum = {{ "((" ~ accumulator ~ "*)work)[x]" if staged else A }};
        if (addend) sum += beta * addend[size_t(i) * addend_pitch + j];
        if (bias) sum += bias[j];
        c[size_t(i) * c_pitch + j] = sum;
    }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "blend"
    folder.mkdir()
    (folder / "kernel.py").write_text(BLEND)
    (folder / "kernel.cu.j2").write_text(BLEND_TEXT)
    return folder.parent


@pytest.fixture
def blend(folder: Path) -> Kernel:
    return load_kernel("blend", folder)


@pytest.fixture
def load(folder: Path) -> Callable[..., autotile.TunedKernel]:
    def loaded(dtype: str = "float32", **asked: Any) -> autotile.TunedKernel:
        request = {"m": 6, "n": 8, "k": 1, "device": "emulator", "store": MemoryStore(), "templates": folder}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AutotileWarning)  # nothing is tuned
            return autotile.load("blend", dtype=dtype, **(request | asked))

    return loaded


def numbers(*shape: int, start: int = 1) -> Array:
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


A, DEEP, BIAS, ADDEND = numbers(5, 7), np.ones(3, np.float32), numbers(7, start=900), numbers(5, 7, start=300)


@pytest.mark.parametrize("staged", [0, 1])
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("addend", [False, True])
def test_every_set_of_switches(
    load: Any, blend: Kernel, saved: Any, staged: int, a_turned: bool, bias: bool, addend: bool
) -> None:
    switches = {"a_turned": a_turned, "bias": bias, "addend": addend}
    call = load(**switches)
    call._choice = Choice(blend.configuration({"staged": staged}), DEFAULT, None)
    arrays = [
        np.ascontiguousarray(A.T) if a_turned else A,
        DEEP,
        *([BIAS] if bias else []),
        *([ADDEND] if addend else []),
    ]
    right = 2 * A.astype(np.float64) - addend * 0.5 * ADDEND + bias * BIAS
    assert np.array_equal(call(*arrays, alpha=2, beta=-0.5), right)
    assert np.array_equal(call(*arrays), A + addend * ADDEND + bias * BIAS)
    out = np.full((5, 9), 7, np.float32)
    assert call(*arrays, out=out[:, 1:8], alpha=2.0, beta=np.float32(-0.5)) is not None
    assert np.array_equal(out[:, 1:8], right)
    assert np.all(out[:, [0, 8]] == 7)
    with pytest.raises(
        ArgumentTypeError, match=rf"takes {len(arrays)} array\(s\) \(a, deep.*\), not {len(arrays) + 1}"
    ):
        call(*arrays, A)


def test_a_turned_part_of_a_larger_matrix(load: Any) -> None:
    call, large = load(a_turned=True), numbers(20, 30)
    assert np.array_equal(call(large[3:9, 5:15], DEEP), large[3:9, 5:15].T)
    with pytest.raises(ArgumentValueError, match=r"a must have 2 dimensions \(n × m\), not shape \(3,\)"):
        call(DEEP, DEEP)
    a = next(argument for argument in call._kernel.inputs if argument.name == "a")
    assert "neighbours m elements apart" in call._checker._wanted(a, "a")


@pytest.mark.parametrize("place", [np.s_[:, :], np.s_[1:6, 2:9]])
def test_the_addend_may_be_out(load: Any, place: Any) -> None:
    """The very array, or another view of the same place; nothing that lies otherwise."""
    call, memory = load(addend=True), numbers(5, 7) if place == np.s_[:, :] else numbers(8, 12)
    c, before = memory[place], memory[place].copy()
    assert call(A, DEEP, c, out=c) is c
    assert np.array_equal(c, A + before)
    assert call(A, DEEP, memory[place], out=c, beta=0) is c
    assert np.array_equal(c, A)
    with pytest.raises(ArgumentValueError, match="out shares memory with a"):
        call(c, DEEP, A, out=c)
    rows = numbers(6, 7)
    with pytest.raises(ArgumentValueError, match="out shares memory with addend"):
        call(A, DEEP, rows[:5], out=rows[1:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalars_are_passed_in_the_type_of_the_sums(load: Any, dtype: str) -> None:
    call = load(dtype=dtype)
    kind = np.dtype(dtype).type
    arrays = A.astype(kind), DEEP.astype(kind)
    assert np.array_equal(call(*arrays, alpha=0.1), arrays[0] * kind(0.1))
    for number in (2, np.int16(2), np.float64(2), Fraction(2)):
        assert np.array_equal(call(*arrays, alpha=number), 2 * arrays[0])
    assert np.array_equal(call(*arrays, alpha=float("inf")), np.full(A.shape, np.inf))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"alhpa": 1},
            r"blend has no argument 'alhpa'.*alpha.*; a call takes arrays, and the keywords alpha, beta, out, st",
        ),
        ({"alpha": "2"}, "alpha must be a real number, not '2' of type str"),
        ({"alpha": 1j}, "alpha must be a real number, not 1j"),
        ({"beta": True}, "beta must be a real number, not True"),
        ({"beta": np.bool_(True)}, "beta must be a real number"),
        ({"beta": None}, "beta must be a real number, not None"),
        ({"alpha": np.ones(1)}, r"alpha must be a real number, .* \.item\(\)"),
        ({"alpha": np.array(2.0)}, r"alpha must be a real number"),
    ],
)
def test_what_is_no_scalar(load: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        load()(A, DEEP, **given)


@pytest.mark.parametrize("number", [1e39, -(10**400), np.float64(1e300)])
def test_a_number_beyond_the_type_is_refused(load: Any, number: Any) -> None:
    with pytest.raises(ArgumentValueError, match=r"alpha = .* is beyond float32"):
        load()(A, DEEP, alpha=number)


def test_a_kernel_without_scalars_takes_none(saved: Any) -> None:
    store = MemoryStore()
    store.save_best(saved(kernel="transpose", sizes={"rows": 8, "cols": 8}))
    call = autotile.load("transpose", rows=8, cols=8, device="emulator", store=store)
    with pytest.raises(ArgumentTypeError, match="transpose has no argument 'alpha'"):
        call(np.ones((8, 8), np.float32), alpha=1.0)


def test_nothing_to_launch_with_switches_and_scalars(load: Any) -> None:
    """The reference answers: of a product over nothing, what is added stays."""
    call, nothing = load(a_turned=True, bias=True, addend=True), np.empty(0, np.float32)
    c = ADDEND.copy()
    assert call(np.ascontiguousarray(A.T), nothing, BIAS, c, out=c, alpha=2, beta=3) is c
    assert np.array_equal(c, 2 * A + 3 * ADDEND + BIAS)


# ---- which configuration serves ------------------------------------------------------------------------------------


def test_another_set_of_switches_serves_last_and_is_named(folder: Path, blend: Kernel, saved: Any) -> None:
    def record(**asked: Any) -> Record:
        return saved_of(blend, saved, asked)

    def chosen(store: MemoryStore, **asked: Any) -> Any:
        problem = blend.problem({"m": 64, "n": 64, "k": 1, **asked})
        return choose(blend, problem, EmulatorDevice().info, template_digest(blend), store)

    store = MemoryStore()
    store.save_best(record(m=64, n=64, addend=True, width=64))
    choice = chosen(store, addend=True, a_turned=True)
    assert (choice.match, choice.record.problem.switches) == (NEAR_PROBLEM, ("addend",))
    assert choice.differs == ("a_turned (tuned off, asked on)",)
    assert chosen(store).differs == ("addend (tuned on, asked off)",)
    store.save_best(record(m=8, n=8, a_turned=True, addend=True))  # far in size, with the problem's own switches
    assert chosen(store, addend=True, a_turned=True).record.problem["m"] == 8
    assert chosen(store, bias=True).configuration["width"] == 32  # wide blocks are not feasible there


def saved_of(kernel: Kernel, saved: Any, asked: dict[str, Any]) -> Record:
    width = asked.pop("width", 32)
    made: Record = saved(kernel="transpose", sizes={"rows": 8, "cols": 8})
    return dataclasses.replace(
        made,
        problem=kernel.problem({"m": 1, "n": 1, "k": 1, **asked}),
        configuration=kernel.configuration({"width": width}),
        identity=dataclasses.replace(made.identity, template=template_digest(kernel)),
    )


def test_switches_and_scalars_of_a_request(load: Any) -> None:
    with pytest.raises(UsageError, match="alpha"):
        load(alpha=2.0)
    with pytest.raises(UsageError, match="a_turned must be true or false"):
        load(a_turned=3)
    assert load(a_turned=1, bias=False).problem.switches == ("a_turned",)
