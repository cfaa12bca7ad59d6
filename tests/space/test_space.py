"""The space's table is exactly the feasible part of the product of the domains."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from autotile.devices.gpus import find_gpu
from autotile.errors import ExpressionError
from autotile.kernels import Kernel, LaunchPlan, Parameter, Rule, load_kernel
from autotile.space import bind_rules, build_space, violations
from autotile.types import Value

H200 = find_gpu("h200")
NARROWED: dict[str, dict[str, Sequence[Value]]] = {
    "matmul": {
        "block_k": (8, 16, 32), "lanes_m": (1, 4, 8), "warp_order": ("rows",), "stages": (1, 2, 4), "unroll": (4, 8),
        "order": ("rows", "serpentine"), "spread": (False,), "slices": (1, 4), "cluster": (1, 2), "parts": (1,),
        "wave": (0,), "pack_a": (False,), "pack_b": (False,), "store_rows": (False,), "min_blocks": (1,),
        "group": (1,), "pad_b": (0,),
    }
}  # fmt: skip
"""Domains of kernels whose space is too large to be counted as it is declared."""


def toy(**changes: object) -> Kernel:
    fields: dict[str, object] = {
        "name": "toy",
        "doc": "a space to enumerate",
        "dimensions": ("n",),
        "dtypes": ("float32",),
        "arguments": (),
        "parameters": (
            Parameter("x", (1, 2, 4, 8, 64), 4, "columns of threads"),
            Parameter("y", (1, 3, 16, 32), 1, "rows of threads"),
            Parameter("mode", ("none", "tile"), "none", "how"),
            Parameter("flag", (False, True), False, "whether"),
        ),
        "rules": (
            Rule("mode == 'tile' or not flag", "flag does nothing without a tile"),
            Rule("problem.n % x == 0", "{x} does not divide {problem.n}"),
            Rule("x * y >= 4", "only {x * y} threads"),
        ),
        "launch": LaunchPlan(("1",), ("x", "y"), "x * y * 4096 if mode == 'tile' else 0"),
        "reference": lambda inputs, problem: {},
        "error_bound": lambda inputs, problem: {},
        "flops": "0",
        "bytes": "1",
    }
    return Kernel(**(fields | changes))  # type: ignore[arg-type]


def test_equals_the_product_filtered_one_by_one() -> None:
    kernel = toy()
    problem = kernel.problem({"n": 24})
    space = build_space(kernel, problem, H200)
    every = [
        kernel.configuration(dict(zip(space.names, values, strict=True)))
        for values in itertools.product(*(parameter.values for parameter in kernel.parameters))
    ]
    feasible = [c for c in every if not violations(kernel, problem, H200, c)]
    assert [space.configuration(row) for row in range(len(space))] == feasible
    assert space.total == len(every)
    assert 0 < len(feasible) < len(every)


@pytest.mark.parametrize("name", ["matmul", "transpose"])
def test_every_configuration_is_feasible_or_rejected_by_exactly_one_rule(name: str) -> None:
    kernel = load_kernel(name)
    space = build_space(kernel, kernel.problem(dict.fromkeys(kernel.dimensions, 4096)), H200, NARROWED.get(name))
    assert len(space) + sum(rejection.count for rejection in space.rejections) == space.total
    assert len(space) > 1000


@pytest.mark.parametrize("name", ["matmul", "transpose"])
def test_sampled_rows_break_no_rule_and_know_their_row(name: str) -> None:
    kernel = load_kernel(name)
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 1000))
    space = build_space(kernel, problem, H200, NARROWED.get(name))
    for row in np.random.default_rng(0).integers(0, len(space), 50):
        configuration = space.configuration(int(row))
        assert violations(kernel, problem, H200, configuration) == ()
        assert space.row_of(configuration) == row


@pytest.mark.parametrize("name", ["matmul", "transpose"])
def test_default_and_presets_are_rows(name: str) -> None:
    kernel = load_kernel(name)
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 4096))
    for preset in ({}, *kernel.presets.values()):
        configuration = kernel.configuration(preset)
        own = {parameter: (value,) for parameter, value in configuration.items()} if name in NARROWED else {}
        space = build_space(kernel, problem, H200, own)
        if preset.get("parts", 1) == 1:  # in parts a matrix so large takes more scratch memory than there may be
            assert space.row_of(configuration) is not None


def test_each_rejection_is_of_configurations_that_break_the_rule() -> None:
    kernel = toy()
    problem = kernel.problem({"n": 24})
    space = build_space(kernel, problem, H200)
    broken: Counter[str] = Counter()
    for values in itertools.product(*(parameter.values for parameter in kernel.parameters)):
        configuration = kernel.configuration(dict(zip(space.names, values, strict=True)))
        scope = kernel.scope(problem, configuration) | H200.scope()
        broken.update(rule.text for rule in bind_rules(kernel, problem, H200) if not rule.expression.evaluate(scope))
    assert {rejection.rule for rejection in space.rejections} <= set(broken)
    assert len(space.rejections) > 2
    for rejection in space.rejections:
        assert 0 < rejection.count <= broken[rejection.rule]
    assert sum(rejection.count for rejection in space.rejections) == space.total - len(space)


def test_too_much_shared_memory_is_named_with_both_numbers() -> None:
    kernel = toy()
    problem = kernel.problem({"n": 64})
    big = kernel.configuration({"x": 64, "y": 1, "mode": "tile"})
    assert violations(kernel, problem, H200, big) == ("needs 262144 bytes of shared memory, NVIDIA H200 allows 232448",)
    fits = kernel.configuration({"x": 8, "y": 3, "mode": "tile"})
    assert violations(kernel, problem, H200, fits) == ()  # 96 KiB: beyond 48, within the opt-in
    assert violations(kernel, problem, find_gpu("t4"), fits) == (
        "needs 98304 bytes of shared memory, Tesla T4 allows 65536",
    )


def test_static_arrays_above_48_kib_never_reach_the_compiler() -> None:
    kernel = toy(launch=LaunchPlan(("1",), ("x", "y"), static_shared_bytes="x * y * 4096"))
    broken = violations(kernel, kernel.problem({"n": 64}), H200, kernel.configuration({"x": 64}))
    assert any("262144 bytes of static shared memory" in message and "49152" in message for message in broken)


def test_a_block_of_2048_threads_is_rejected_before_compile() -> None:
    kernel = toy()
    broken = violations(kernel, kernel.problem({"n": 64}), H200, kernel.configuration({"x": 64, "y": 32}))
    assert broken == ("needs 2048 threads a block, NVIDIA H200 allows 1024",)


def test_an_unknown_name_in_a_rule_is_an_error_with_its_place() -> None:
    kernel = toy()
    problem = kernel.problem({"n": 64})
    with pytest.raises(ExpressionError, match=r"c\.yaml:7:5: unknown name 'thread' \(did you mean 'threads'\?\)"):
        bind_rules(kernel, problem, H200, [Rule("thread > 2", "", "c.yaml:7:5")])


def test_true_and_one_are_different_values() -> None:
    kernel = toy()
    space = build_space(kernel, kernel.problem({"n": 64}), H200)
    values = dict(kernel.configuration({"mode": "tile", "flag": True}))
    assert space.row_of(values) is not None
    assert space.row_of({**values, "flag": 1}) is None
