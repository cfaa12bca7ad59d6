"""Kernels with one fault each: the emulator must reject them, and name the line.

A mutant is a rendered text with one string replaced (mutants.py). The same check passes the text as it was, so it can
tell; and that text is of a feasible configuration, so it is one that a search tries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matmul_mutants
import pytest
import tensor_mutants
import transpose_mutants
from mutants import KINDS, Mutant, Sizes, problem_of
from samples import sparingly

from autotile.build import Builder
from autotile.devices.base import Check
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import kernel_folders, load_kernel
from autotile.measure import Variant, make_variant
from autotile.measure.workload import Kind, make_workload
from autotile.space import violations

DEVICE = EmulatorDevice()
MUTANTS = [*matmul_mutants.MUTANTS, *transpose_mutants.MUTANTS, *tensor_mutants.MUTANTS]


@pytest.fixture(scope="session")
def builder(build_home: Path) -> Iterator[Builder]:
    with Builder(DEVICE.target, build_home, jobs=1) as made:
        yield made


def variant_of(mutant: Mutant, sizes: Sizes) -> Variant:
    kernel = load_kernel(mutant.kernel)
    point = kernel.presets.get(mutant.point) if isinstance(mutant.point, str) else mutant.point
    return make_variant(kernel, problem_of(kernel, sizes, mutant.dtype), kernel.configuration(point))


def check(builder: Builder, mutant: Mutant, text: str | None = None, inputs: Kind | None = None) -> Check:
    """One check of the mutant's problem, with its own text or another, on inputs of its own kind or another."""
    variant = variant_of(mutant, mutant.sizes)
    source = variant.source if text is None else replace(variant.source, text=text)
    with DEVICE.stage(make_workload(variant.kernel, variant.problem, 3, inputs or mutant.inputs, mutant.over)) as stage:
        return stage.check(DEVICE.load(builder.build(source)), variant.launch)


def named_lines(detail: str, text: str) -> list[str]:
    """The source lines whose numbers a message gives."""
    lines = text.splitlines()
    return [lines[int(number) - 1] for number in re.findall(r"\bline (\d+)", detail)]


@pytest.mark.parametrize("mutant", sparingly(MUTANTS, 5, lambda mutant: True), ids=str)
def test_a_mutant_is_rejected_by_name_and_line(builder: Builder, mutant: Mutant) -> None:
    text = mutant.mutated(variant_of(mutant, mutant.rendered_for or mutant.sizes).source.text)
    found = check(builder, mutant, text)
    assert not found.ok
    assert mutant.says in found.detail
    named = named_lines(found.detail, text)
    for choice in mutant.lines:
        assert any(snippet in line for snippet in choice for line in named), (choice, found.detail, named)
    if mutant.lines:
        known = [snippet for choice in mutant.lines for snippet in choice]
        assert all(any(snippet in line for snippet in known) for line in named), (found.detail, named)


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.inputs != "random"], ids=str)
def test_random_data_would_not_have_shown_it(builder: Builder, mutant: Mutant) -> None:
    text = mutant.mutated(variant_of(mutant, mutant.sizes).source.text)
    assert check(builder, mutant, text, "random").ok


@pytest.mark.parametrize(
    "mutant",
    sparingly(
        {(m.kernel, str(m.point), str(m.sizes), m.dtype, m.inputs, m.over): m for m in MUTANTS}.values(),
        6,
        lambda mutant: True,
    ),
    ids=lambda m: f"{m.kernel} {m.sizes} {m.dtype} {m.inputs} of {m.name}",
)
def test_the_text_as_it_was_is_right(builder: Builder, mutant: Mutant) -> None:
    variant = variant_of(mutant, mutant.sizes)
    assert violations(variant.kernel, variant.problem, DEVICE.info, variant.configuration) == ()
    found = check(builder, mutant)
    assert (found.ok, found.detail) == (True, "")


@pytest.mark.parametrize("kernel", kernel_folders())
def test_there_are_mutants_enough(kernel: str) -> None:
    """Ten at least, of each kind; what only moves elements has no accumulators."""
    of_this = [mutant for mutant in MUTANTS if mutant.kernel == kernel]
    assert len(of_this) >= 10
    assert len({repr(replace(mutant, name="", kind="")) for mutant in of_this}) == len(of_this), "one is there twice"
    moves_only = load_kernel(kernel).flops == "0"
    assert {mutant.kind for mutant in of_this} == set(KINDS) - ({"accumulators"} if moves_only else set())


def test_each_way_of_the_transpose_has_its_mutants() -> None:
    """Of the traits too: those whose text has another branch."""
    kernel, seen = load_kernel("transpose"), set()
    for mutant in transpose_mutants.MUTANTS:
        variant = variant_of(mutant, mutant.sizes)
        traits = [
            name for name, holds in variant.source.traits if holds and name in ("shifted", "realigned", "in_place")
        ]
        seen.add((variant.configuration["staging"], *traits))
    assert {way[0] for way in seen} == set(kernel.parameter("staging").values)
    assert {
        ("turned", "shifted", "realigned"),
        ("turned", "realigned"),
        ("turned", "in_place"),
        ("tile", "in_place"),
    } <= seen
