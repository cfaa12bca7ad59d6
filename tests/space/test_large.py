"""Spaces that cannot be held: exact counts, uniform samples, and little memory."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces import one_by_one, rules_of, steps_of

from autotile.cli.search import _dry_lines
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import ConfigurationError
from autotile.report.documents import space_document
from autotile.space import Space, build_space, enumerate_space
from autotile.space.walk import Limits
from autotile.spec import load_specs

SMALL: dict[str, tuple[Any, ...]] = {"x": (1, 2, 3, 4), "p": ("s", "t", "u"), "y": (1, 2, 3, 4), "z": (0, 1, 2, 3, 4)}
TIED = ["x * y < 9", "x <= y + 1", "(x + y) % 3 != 0", "z != 2 or p == 't'", "z + x < 8", "x * y % 5 != z", "p != 'u'"]


def by_chance_of(tied: str, held: int, seeds: int, take: int) -> float:
    """How far the shares of all feasible rows are from even, in standard deviations of chi-square."""
    rules = rules_of(*tied.split("; "))
    every, _ = one_by_one(SMALL, {}, (), rules)
    drawn: Counter[tuple[int, ...]] = Counter()
    for seed in range(seeds):
        space = enumerate_space(SMALL, {}, (), rules, seed, Limits(held, take, block_rows=16))
        rows = [tuple(codes) for codes in space.codes.tolist()]
        assert (space.sampled, space.feasible, len(set(rows))) == (True, len(every), take)
        drawn.update(rows)
    assert set(drawn) <= set(every)
    expected = seeds * take / len(every)
    # draws without repeats within a seed are evener than independent ones, by this factor
    evener = 1 - (take - 1) / (len(every) - 1)
    square = sum((drawn[row] - expected) ** 2 for row in every) / expected / evener
    return float((square - (len(every) - 1)) / np.sqrt(2 * (len(every) - 1)))


@pytest.mark.parametrize(
    ("tied", "held"),
    [
        ("x * y < 9", 100),  # three groups, all held: only their product is too large
        ("x * y < 9", 9),  # the first of three groups is a sample itself
        ("x * y < 9; z != 2 or p == 't'", 8),  # two groups, both samples
        ("x * y < 9; z + x < 8; z != 2 or p == 't'", 30),  # one group
    ],
)
def test_a_sample_is_uniform(tied: str, held: int) -> None:
    assert -4 < by_chance_of(tied, held, seeds=500, take=8) < 4


@settings(max_examples=60)
@given(
    texts=st.lists(st.sampled_from(TIED), unique=True),
    held=st.integers(1, 60),
    take=st.integers(1, 60),
    block=st.sampled_from([1, 5, 64]),
    seed=st.integers(0, 3),
)
def test_counts_are_exact_and_rows_feasible_and_distinct(
    texts: list[str], held: int, take: int, block: int, seed: int
) -> None:
    rules, limits = rules_of(*texts), Limits(held, min(take, held), block_rows=block)
    every, rejected = one_by_one(SMALL, {}, (), rules)
    space = enumerate_space(SMALL, {}, (), rules, seed, limits)
    rows = [tuple(codes) for codes in space.codes.tolist()]
    assert (space.feasible, space.sampled) == (len(every), len(every) > held)
    assert {rejection.rule: rejection.count for rejection in space.rejections} == rejected
    assert rows == (sorted(set(rows) & set(every)) if space.sampled else every)
    assert len(rows) == (limits.sample_rows if space.sampled else len(every))
    again = enumerate_space(SMALL, {}, (), rules, seed, limits)
    assert np.array_equal(space.codes, again.codes)


def chain(length: int, values: int) -> tuple[Space, int, int]:
    """Neighbours in a chain must differ by more than a quarter of the range; its count by powers of a matrix, and the
    most bytes that enumeration held."""
    names = [f"p{i:02d}" for i in range(length)]
    apart = values // 4
    rules = rules_of(*(f"abs({one} - {other}) > {apart}" for one, other in itertools.pairwise(names)))
    side = np.arange(values)
    allowed = (np.abs(side[:, None] - side) > apart).astype(object)
    count = int(np.linalg.matrix_power(allowed, length - 1).sum())
    limits = Limits(held_rows=100_000, sample_rows=20_000, block_rows=2**14)
    tracemalloc.start()
    try:
        space = enumerate_space({name: tuple(range(values)) for name in names}, {}, (), rules, limits=limits)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return space, count, peak


def test_a_thousand_million_combinations_are_counted_in_little_memory() -> None:
    space, count, peak_bytes = chain(9, 10)
    assert (space.total, space.feasible, len(space)) == (10**9, count, 20_000)
    assert count > 2_000_000
    assert count + sum(rejection.count for rejection in space.rejections) == 10**9
    assert peak_bytes < 20e6 < count * 9 * 2  # all rows would not have fitted
    ones, _ = np.unique(space.codes[:, 0], return_counts=True)
    assert len(ones) == 10, "rows from all over"


def test_groups_that_nothing_ties_together_are_multiplied() -> None:
    domains = {f"p{i:02d}": tuple(range(30)) for i in range(40)}
    rules = rules_of(*(f"p{i:02d} + p{i + 1:02d} < 12" for i in range(0, 40, 2)))
    limits = Limits(held_rows=1000, sample_rows=200)
    space = enumerate_space(domains, {}, (), rules, limits=limits)
    assert (space.total, space.feasible) == (30**40, 78**20)
    assert [rejection.count for rejection in space.rejections] == [78**i * 822 * 900 ** (19 - i) for i in range(20)]
    assert space.codes.shape == (200, 40)
    assert (space.codes[:, ::2] + space.codes[:, 1::2]).max() < 12
    assert [space.row_of(space.configuration(row)) for row in range(200)] == list(range(200))
    other = dict(space.configuration(7)) | {"p39": 29}
    assert space.row_of(other) is None
    assert not np.array_equal(space.codes, enumerate_space(domains, {}, (), rules, 1, limits).codes)


def test_a_few_rows_of_a_vast_product_are_held_in_order() -> None:
    domains = {f"p{i:02d}": tuple(range(30)) for i in range(40)}
    rules = rules_of(*(f"p{i:02d} == {29 - i % 3} or p{i:02d} == 0 and {i} % 13 == 0" for i in range(40)))
    space = enumerate_space(domains, {}, (), rules)
    assert (space.total, len(space), space.sampled) == (30**40, 2**4, False)
    assert space.codes.tolist() == sorted(space.codes.tolist())
    assert space.rows_of(space.codes[::-1]).tolist() == list(range(16))[::-1]


def test_a_count_that_takes_too_long_is_given_up_with_advice() -> None:
    names = [f"p{i}" for i in range(12)]
    domains = {name: tuple(range(9)) for name in names}
    with pytest.raises(ConfigurationError, match=r"more than 100000 combinations .* narrow some domains, or add rules"):
        enumerate_space(domains, {}, (), rules_of(f"{' + '.join(names)} < 50"), limits=Limits(looked_at=100_000))
    steps = steps_of(most=" + ".join(names))  # a step that no rule goes through ties nothing together
    assert enumerate_space(domains, {}, steps, (), limits=Limits(9, 2, looked_at=1000)).feasible == 9**12


def test_what_is_shown_is_the_count_and_not_the_rows_at_hand() -> None:
    (spec,) = load_specs("matmul-quick")
    (problem,) = spec.problems
    device = EmulatorDevice()
    space = replace(build_space(spec.kernel, problem, device.info, spec.parameters, spec.rules), drawn_from=10**12)
    document = space_document(spec.kernel, problem, device.info, space)
    assert (document["feasible"], document["held"]) == (10**12, len(space))
    _, counted, sampled = itertools.islice(_dry_lines(spec, problem, device, space), 3)
    assert counted == f"  {10**12} of {space.total} configurations are feasible"
    assert sampled.endswith(f"a uniform sample of {len(space)} of them")
