"""Data of problems with switches, scalars and scratch memory: what a kernel gets, and what of it shows in a result."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.devices.base import Check, Workload, compare
from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels import load_kernel
from autotile.kernels.layout import Layout
from autotile.measure.placed import held_bytes, logical
from autotile.measure.random_data import random_scalar
from autotile.measure.variant import OVER_INPUTS, PROOF_INPUTS, make_variant, proofs_of
from autotile.measure.workload import KINDS, Kind, make_workload
from autotile.types import SCRATCH, Problem

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
AFFINE = load_kernel("affine", KERNELS)
ALL = {"x_turned": True, "added": True, "bias": True}


def problem(dtype: str = "float32", m: int = 33, n: int = 20, **stated: Any) -> Problem:
    return AFFINE.problem({"m": m, "n": n, **stated}, dtype)


def view(workload: Workload, name: str, arrays: Mapping[str, Array]) -> Array:
    return logical(arrays[name], workload.layouts.get(name))


def ran(workload: Workload, asked: Problem, **others: float) -> Check:
    """A stand-in's result, from the arguments that a kernel gets, with some scalars in place of their own."""
    at = {argument.name: value for argument, value in zip(AFFINE.arguments, workload.arguments, strict=True)}
    scalars = {name: others.get(name, float(at[name])) for name in ("alpha", "beta")}  # type: ignore[arg-type]
    memory = {name: np.zeros(shape, dtype) for name, (shape, dtype) in workload.outputs.items()} | dict(workload.before)
    memory = {name: array.copy() for name, array in memory.items()}
    inputs = {name: view(workload, name, workload.inputs).astype(np.float64) for name in workload.inputs}
    with np.errstate(invalid="ignore"):
        out = scalars["alpha"] * (inputs["x"].T if "x_turned" in asked.switches else inputs["x"])
        out += scalars["beta"] * inputs["addend"] if "added" in asked.switches else 0
        out += inputs["bias"] if "bias" in asked.switches else 0
    view(workload, "out", memory)[...] = out
    return compare(memory["out"], workload.reference["out"], workload.bound["out"], workload.layouts.get("out"), "out")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", AFFINE.dtypes)
@pytest.mark.parametrize("stated", [{}, ALL, {"added": True, "out_pitch": 24}, {"x_turned": True, "x_pitch": 40}])
def test_a_right_kernel_passes_and_one_that_ignores_a_scalar_does_not(
    stated: dict[str, Any], dtype: str, kind: Kind
) -> None:
    asked = problem(dtype, **stated)
    for over in (False, True):
        made = make_workload(AFFINE, asked, 3, kind, over)
        assert ran(made, asked).ok
        assert not ran(made, asked, alpha=1.0).ok
        assert ran(made, asked, beta=1.0).ok == ("added" not in asked.switches)
        assert made.takes_place == ({"out": "addend"} if over and "added" in asked.switches else {})


def test_arguments_are_what_the_kernel_takes_in_its_order() -> None:
    sizes = (33, 20, 33, 20)
    made = make_workload(AFFINE, problem(**ALL)).arguments
    assert made[:8] == ("x", "addend", "bias", "out", *sizes)
    assert made[10] is SCRATCH
    assert make_workload(AFFINE, problem()).arguments[:4] == ("x", None, None, "out")
    for dtype, scalar in (("float32", np.float32), ("float16", np.float32), ("float64", np.float64)):
        found = make_workload(AFFINE, problem(dtype)).arguments[8:10]
        assert [type(value) for value in found] == [scalar, scalar]
        assert element_type(dtype).scalar is scalar
    assert pickle.loads(pickle.dumps(made)) == made
    assert pickle.loads(pickle.dumps(SCRATCH)) is SCRATCH


def test_scalars_are_drawn_from_the_seed_and_are_never_what_a_kernel_may_leave_out() -> None:
    generator = np.random.default_rng(0)
    drawn = np.array([random_scalar(generator) for _ in range(4000)])
    assert np.all((np.abs(drawn) > 0.5) & (np.abs(drawn) < 2) & (np.abs(drawn) != 1))
    assert np.array_equal(drawn, drawn.astype(np.float32))
    assert 0.45 < (drawn > 0).mean() < 0.55
    scalars = {seed: make_workload(AFFINE, problem(), seed).arguments[8:10] for seed in (1, 2)}
    assert scalars[1] == make_workload(AFFINE, problem(), 1).arguments[8:10]
    assert len({*scalars[1], *scalars[2]}) == 4


def test_the_reference_gets_scalars_as_float64_that_it_cannot_write_to() -> None:
    seen: dict[str, Array] = {}

    def reference(inputs: Mapping[str, Array], asked: Problem) -> Any:
        seen.update(inputs)
        return AFFINE.reference(inputs, asked)

    made = make_workload(replace(AFFINE, reference=reference), problem(bias=True, x_turned=True))
    assert seen.keys() == {"x", "bias", "alpha", "beta"}
    assert seen["x"].shape == (20, 33), "as it is stored"
    assert (seen["alpha"].shape, seen["alpha"].dtype) == ((), np.float64)
    assert seen["alpha"] == made.arguments[8]
    assert made.inputs.keys() == {"x", "bias"}

    def writing(inputs: Mapping[str, Array], asked: Problem) -> Any:
        inputs["alpha"][...] = 1

    with pytest.raises(KernelError, match="read-only"):
        make_workload(replace(AFFINE, reference=writing), problem())


def test_turned_inputs_cancel_along_the_same_dimension() -> None:
    plain = make_workload(AFFINE, problem(), 1, "cancelling").inputs["x"]
    turned = make_workload(AFFINE, problem(x_turned=True), 1, "cancelling").inputs["x"]
    assert np.all(plain.astype(np.float64).sum(axis=1) == 0)
    assert np.all(turned.astype(np.float64).sum(axis=0) == 0)


def test_over_an_input_the_output_holds_it_before_gaps_and_all() -> None:
    made = make_workload(AFFINE, problem(added=True, out_pitch=24), over=True)
    assert made.before["out"] is made.inputs["addend"]
    layout = made.layouts["out"]
    assert made.layouts["addend"] == layout == Layout((33, 20), (24, 1))
    gaps = np.ones(layout.extent, bool)
    logical(gaps, layout)[...] = False
    assert np.array_equal(made.reference["out"][gaps], made.inputs["addend"][gaps])
    bound = made.bound["out"]
    assert isinstance(bound, np.ndarray)
    assert not bound[gaps].any()


def test_a_bound_that_lets_zeros_pass_is_found_in_rows_with_gaps_too() -> None:
    loose = replace(AFFINE, error_bound=lambda inputs, asked: {"out": np.full((33, 20), 100.0)})
    with pytest.raises(KernelError, match="would let zeros pass"):
        make_workload(loose, problem(out_pitch=24))


def test_what_is_not_there_is_not_held() -> None:
    assert held_bytes(AFFINE, problem()) == 2 * 33 * 20 * 4
    assert held_bytes(AFFINE, problem(added=True, bias=True)) == (3 * 33 * 20 + 20) * 4


def test_a_winner_proves_itself_with_its_output_over_an_input_where_a_call_may_pass_it_so() -> None:
    from autotile.devices.gpus import find_gpu

    for stated, over in (({"added": True}, True), ({"bias": True}, False)):
        found = make_variant(AFFINE, problem(**stated), AFFINE.configuration())
        for proof in proofs_of(found, find_gpu("h200")):
            assert proof.variant.problem.switches == found.problem.switches
            tried = [inputs for inputs in proof.inputs if inputs.over]
            assert bool(tried) == over
            assert proof.inputs[: len(proof.inputs) - len(tried)] == PROOF_INPUTS[: len(proof.inputs) - len(tried)]
            assert set(tried) <= set(OVER_INPUTS)
