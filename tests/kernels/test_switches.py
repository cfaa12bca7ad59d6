"""Switches, turned and absent inputs, scalars, scratch memory and steps: what a kernel declares, and what follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.codegen import render
from autotile.devices.gpus import find_gpu
from autotile.errors import AutotileError, KernelError, LaunchError, UsageError
from autotile.kernels import (
    Input,
    Kernel,
    LaunchPlan,
    OptionalSize,
    Parameter,
    Rule,
    Scalar,
    Scratch,
    Step,
    Switch,
    load_kernel,
)
from autotile.kernels.validation import validate
from autotile.measure.variant import make_variant
from autotile.space import violations
from autotile.spec import load_specs
from autotile.spec.load import parse_problem
from autotile.types import Launch, LaunchStep, Problem

KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
AFFINE = load_kernel("affine", KERNELS)
X, ADDEND, BIAS = AFFINE.inputs


def problem(**stated: Any) -> Problem:
    return AFFINE.problem({"m": 40, "n": 50, **stated})


# ---- problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [True, 1, np.True_, np.int64(1)])
def test_a_problem_says_which_switches_are_on_in_the_kernels_order(on: Any) -> None:
    found = problem(bias=on, x_turned=on, added=False, x_pitch=41)
    assert found.switches == ("x_turned", "bias")
    assert found.asked == {"m": 40, "n": 50, "x_pitch": 41, "x_turned": True, "bias": True}
    assert found.key == "m40-n50-x_pitch41-x_turned-bias-float32"
    assert found.label == "40×50 x_pitch=41 x_turned bias float32"
    assert AFFINE.problem(found.asked) == found
    assert problem(bias=0) == problem()


@pytest.mark.parametrize("value", [2, "yes", None, 1.0, [True]])
def test_a_switch_is_yes_or_no(value: Any) -> None:
    with pytest.raises(UsageError, match="bias must be true or false"):
        problem(bias=value)


def test_a_misspelt_switch_is_an_unknown_name() -> None:
    with pytest.raises(UsageError, match=r"no dimension 'x_turn' .did you mean 'x_turned'"):
        problem(x_turn=True)


def test_switches_stay_where_sizes_change_and_on_what_a_winner_proves_itself_on() -> None:
    found = problem(x_turned=True, x_pitch=99)
    assert found.with_sizes(m=7) == AFFINE.problem({"m": 7, "n": 50, "x_turned": True})
    assert AFFINE.trace_problem(found, AFFINE.configuration()).switches == ("x_turned",)
    proofs = AFFINE.proof_problems(found)
    assert len(proofs) == len(AFFINE.check_sizes)
    assert {proof.switches for proof in proofs} == {("x_turned",)}


def test_expressions_see_1_or_0_and_defaults_follow_the_switch() -> None:
    assert AFFINE.sizes_of(problem())["x_pitch"] == 50
    assert AFFINE.sizes_of(problem(x_turned=True))["x_pitch"] == 40
    assert AFFINE.bytes_of(problem(added=True)) == 3 * 40 * 50 * 4
    scope = AFFINE.problem_scope(problem(bias=True))
    assert [scope[f"problem.{switch.name}"] for switch in AFFINE.switches] == [0, 0, 1]


def test_search_files_and_texts_state_switches(tmp_path: Path) -> None:
    wanted = problem(x_turned=True, x_pitch=45)
    assert AFFINE.problem(parse_problem("m=40, n=50, x_turned=1, x_pitch=45")) == wanted
    file = tmp_path / "s.yaml"
    file.write_text(
        "kernel: affine\nproblems:\n  - {m: 40, n: 50, x_pitch: 45, x_turned: true}\nrules: [problem.x_turned == 1]\n"
    )
    assert load_specs(str(file), templates=[KERNELS])[0].problems == (wanted,)
    file.write_text("kernel: affine\nproblems:\n  - {m: 40, n: 50, x_turned: 3}\n")
    with pytest.raises(UsageError, match=r"s\.yaml:3:\d+: affine: x_turned must be true or false"):
        load_specs(str(file), templates=[KERNELS])


# ---- arrays ---------------------------------------------------------------------------------------------------------


def test_a_turned_input_lies_with_its_last_two_dimensions_swapped() -> None:
    on, off = problem(x_turned=True, x_pitch=64), problem()
    assert AFFINE.stored_dims(X, on) == ("n", "m")
    assert AFFINE.stored_dims(X, off) == ("m", "n")
    layout = AFFINE.layout_of(X, on)
    assert (layout.shape, layout.strides) == ((50, 40), (64, 1))
    assert AFFINE.shape_of(X, off) == (40, 50)
    assert AFFINE.stored_dims(AFFINE.outputs[0], on) == ("m", "n")


def test_an_input_is_there_where_its_switch_is_on() -> None:
    assert AFFINE.inputs_of(problem(bias=True)) == (X, BIAS)
    assert AFFINE.arrays_of(problem()) == (X, *AFFINE.outputs)
    assert AFFINE.arrays == (X, ADDEND, BIAS, *AFFINE.outputs)


# ---- launches -------------------------------------------------------------------------------------------------------


def test_a_launch_has_the_steps_whose_condition_holds_and_the_memory_they_work_in() -> None:
    packed, straight = AFFINE.configuration({"packed": True}), AFFINE.configuration()
    pack, finish = LaunchStep("_pack", (63, 1, 1), (32, 1, 1)), LaunchStep("_finish", (40, 1, 1), (32, 1, 1))
    whole = AFFINE.launch_of(problem(bias=True), packed)
    assert whole == Launch((2, 40, 1), (32, 1, 1), 0, 8000, (pack,), (finish,))
    assert whole.steps == (pack, finish)
    assert AFFINE.launch_of(problem(), packed) == replace(whole, after=())
    assert AFFINE.launch_of(problem(bias=True), straight) == Launch((2, 40, 1), (32, 1, 1))


def test_the_text_has_the_steps_functions_under_the_entrys_name() -> None:
    text = render(AFFINE, problem(bias=True, x_turned=True), AFFINE.configuration({"packed": True})).text
    for name in ("affine", "affine_pack", "affine_finish"):
        assert f" {name}(" in text
    assert "work[i] = x[size_t(c) * x_pitch + r]" in text


def test_rules_may_limit_scratch_memory() -> None:
    rule = Rule("scratch_bytes <= 1000", "needs {scratch_bytes} bytes of scratch memory")
    kernel = replace(AFFINE, rules=(rule,))
    found = violations(kernel, problem(), find_gpu("h200"), kernel.configuration({"packed": True}))
    assert found == ("needs 8000 bytes of scratch memory",)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"before": (Step("pack", ("1", "70000"), ("32",)),)}, "grid of affine_pack has 70000 blocks along y"),
        ({"scratch_bytes": "0 - 4"}, "-4 bytes of scratch"),
    ],
)
def test_a_step_or_scratch_memory_that_cannot_be_is_refused(plan: dict[str, Any], says: str) -> None:
    kernel = replace(AFFINE, launch=replace(AFFINE.launch, **plan))
    with pytest.raises(LaunchError, match=says):
        make_variant(kernel, problem(), kernel.configuration({"packed": True}))


# ---- declarations that do not hold together --------------------------------------------------------------------------


def changed(argument: str, **fields: Any) -> dict[str, Any]:
    return {"arguments": tuple(replace(a, **fields) if a.name == argument else a for a in AFFINE.arguments)}


def extra(argument: Any) -> dict[str, Any]:
    return {"arguments": (*AFFINE.arguments, argument)}


def launched(**fields: Any) -> dict[str, Any]:
    return {"launch": replace(AFFINE.launch, **fields)}


FAULTS: list[tuple[dict[str, Any], str]] = [
    (changed("x", turned="turned"), "array 'x': turned 'turned' is no switch"),
    (changed("bias", when="biased"), "array 'bias': when 'biased' is no switch"),
    (changed("bias", turned="bias"), "array 'bias': what is turned has two dimensions"),
    (changed("addend", may_be="x"), "may_be 'x' is no output of the same shape"),
    (changed("bias", may_be="out"), "may_be 'out' is no output of the same shape"),
    ({"in_place": ("addend", "out")}, "cannot take the place of what may not be there"),
    (changed("alpha", name="m"), "'m' cannot be the name"),
    (changed("alpha", name="beta"), "'beta' cannot be the name"),
    (changed("alpha", name="out"), "'out' cannot be the name"),
    (changed("alpha", name="stream"), "'stream' cannot be the name"),
    (changed("work", name="x_turned"), "'x_turned' cannot be the name"),
    (extra(Scratch("more")), "work, more: a kernel has one Scratch"),
    ({"arguments": AFFINE.arguments[:-1]}, "no argument is a Scratch"),
    ({"dtypes": ("float32", "int8")}, "sums of int8 are neither"),
    ({"switches": (*AFFINE.switches, Switch("m", "…"))}, "'m' cannot be the name of a size|switch"),
    ({"switches": (*AFFINE.switches, Switch("device", "…"))}, "'device' cannot be the name of a switch"),
    ({"switches": (*AFFINE.switches, Switch("bias", "…"))}, "'bias' cannot be the name of a switch"),
    ({"check_sizes": ({"m": 1, "n": 1, "bias": True},)}, "check_sizes name the switch 'bias'"),
    (launched(scratch_bytes="problem.l"), "launch scratch_bytes: unknown name 'problem.l'"),
    (launched(before=(Step("pack", ("packs",), ("1",)),)), "step pack: unknown name 'packs'"),
    (launched(before=(Step("pack", ("1",), ("1",), when="pack"),)), "step pack: unknown name 'pack'"),
    (launched(after=(Step("sum", ("0.5",), ("1",)),)), "step sum, grid"),
    ({"flops": "problem.turned"}, "flops: unknown name 'problem.turned'"),
    (
        {"optional": (OptionalSize("x_pitch", "problem.n", "…"), AFFINE.optional[1])},
        "default of its pitch 'x_pitch' is .* less than m",  # where x is turned
    ),
]


@pytest.mark.parametrize(("change", "says"), FAULTS)
def test_a_declaration_that_does_not_hold_together_is_an_error(change: dict[str, Any], says: str) -> None:
    with pytest.raises(AutotileError, match=says):
        validate(replace(AFFINE, **change))


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: Switch("x2", "…"), "not end in a digit"),
        (lambda: Switch("a b", "…"), "must be an identifier"),
        (lambda: Switch("bias", None), "doc must be a text"),
        (lambda: Scalar("alpha", float("nan")), "finite number"),
        (lambda: Scalar("alpha", "1"), "finite number"),
        (lambda: Step("a-b", ("1",), ("1",)), "identifier may end in"),
        (lambda: Step("pack", "1", ("1",)), "step pack's grid must be a tuple"),
        (lambda: LaunchPlan(("1",), ("1",), before=Step("pack", ("1",), ("1",))), "before must be a tuple of Step"),
        (
            lambda: LaunchPlan(("1",), ("1",), before=(Step("p", ("1",), ("1",)),), after=(Step("p", ("1",), ("1",)),)),
            "steps p: declared twice",
        ),
        (lambda: Parameter("scratch_bytes", (1,), 1, "…"), "reserved"),
        (lambda: replace(AFFINE, switches=("x_turned",)), "switches holds Switch"),
    ],
)
def test_a_part_that_cannot_be_is_refused_at_once(declare: Any, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        declare()


def test_a_kernel_without_any_of_it_is_as_before() -> None:
    toy = load_kernel("toy", KERNELS)
    assert (toy.switches, toy.scalars, toy.scratch) == ((), (), None)
    assert toy.launch_of(toy.problem({"n": 100}), toy.configuration()).steps == ()
    assert isinstance(toy, Kernel)
    assert Input("a", ("n",)) == Input("a", ("n",), "", "", "", "", "")
