"""The model behind the default sampler: its algebra against plainer ways, and that it finds what is there to find."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from statistics import mean

import numpy as np
import pytest

from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.sampler import gaussian, model
from autotile.sampler.acquisition import log_improvement
from autotile.sampler.candidates import Neighbourhood
from autotile.sampler.features import derived_columns
from autotile.sampler.gaussian import Posterior, Scales, Terms
from autotile.sampler.model import Model
from autotile.space import Space, build_space
from autotile.types import Value

MIXED: tuple[tuple[Value, ...], ...] = ((1, 2, 8, 4), ("x", "y", "z"), (False, True), (0, 1, 4), (7,))
WIDE: tuple[tuple[Value, ...], ...] = ((1, 2, 4, 8, 16, 32),) * 4 + ((False, True), ("a", "b", "c"), (0, 4))
AIM = (4, 1, 3, 2, 1, 2, 0)


def table(
    domains: tuple[tuple[Value, ...], ...], keep: Callable[[tuple[int, ...]], bool] = lambda codes: True
) -> Space:
    rows = [codes for codes in itertools.product(*(range(len(domain)) for domain in domains)) if keep(codes)]
    names = tuple(f"p{i}" for i in range(len(domains)))
    return Space(names, domains, np.asarray(rows, np.int16), math.prod(map(len, domains)), ())


def wide() -> Space:
    """10 368 rows, more than are ever looked at together: 7 776 of them feasible."""
    return table(WIDE, lambda c: c[0] + c[1] != c[2] + c[3] + c[5] and (c[4] or c[0] != 5))


def cost(space: Space, row: int) -> float:
    """Ridged: the third wants to follow the first, a name and a flag work together. Best at AIM, where it is 1 ms."""
    c = space.codes[row].astype(int)
    bend = abs(c[0] - 4) + 2 * abs(c[2] - c[0] + 1) + 0.7 * (c[1] - 1) ** 2 + 0.5 * abs(c[3] - 2) + c[6]
    return float(1 + 0.1 * bend + 0.3 * (c[4] != 1 or c[5] != 2))


def search(
    space: Space, seed: int, trials: int, ahead: int = 1, goal: int | None = None, time: object = cost
) -> tuple[list[int], list[float | None]]:
    """Rows and times in the order of asking, with so many asked for before the oldest is told."""
    sampler, asked, told = Model(space, seed, goal), [], 0
    times: list[float | None] = []
    while told < trials:
        while len(asked) < trials and len(asked) - told < ahead:
            row = sampler.choose()
            sampler.take(row)
            asked.append(row)
            times.append(time(space, row))  # type: ignore[operator]
        sampler.tell(asked[told], times[told])
        told += 1
    return asked, times


# ---- the Gaussian process ------------------------------------------------------------------------------------------


@pytest.fixture
def mixed() -> tuple[Terms, np.ndarray, np.ndarray]:
    """Terms of 72 rows with a derived column, 20 of the rows, and targets for these."""
    space, random = table(MIXED), np.random.default_rng(0)
    terms = Terms(space.domains, space.codes, random.random((len(space), 1)).astype(np.float32))
    rows = random.choice(len(space), 20, replace=False)
    return terms, rows, random.standard_normal(20) + space.codes[rows, 0]


def test_values_are_places_on_a_scale() -> None:
    assert gaussian.places((1, 2, 8, 4)) == pytest.approx([0, 1 / 3, 1, 2 / 3])
    assert gaussian.places((4, 0, 1)) == pytest.approx([1, 0, 0.5])  # no logarithm of 0: by rank


def test_distances_are_the_same_both_ways(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    terms, rows, _ = mixed
    assert len(terms) == 7  # two for each number of three values or more, one for the others, one derived
    weights = np.arange(1.0, 8.0)
    at = terms.coordinates(rows)
    assert terms.squared(at, at, terms.form(weights), weights) == pytest.approx(
        np.tensordot(weights, terms.between(rows), 1), abs=1e-9
    )


def test_the_gradient_is_the_slope(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    terms, rows, targets = mixed
    objective = gaussian._objective(terms, rows, targets)
    at = Scales.prior(terms).logs + np.random.default_rng(1).normal(0, 0.3, len(terms) + 2)
    steps = 1e-5 * np.eye(len(at))
    slopes = [(objective(at + step)[0] - objective(at - step)[0]) / 2e-5 for step in steps]
    assert objective(at)[1] == pytest.approx(slopes, abs=1e-5)


def test_minimising_ends_where_the_slope_does(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    centre = np.array([1.0, -2.0, 3.0])

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        return float((np.array([1, 10, 100]) * (x - centre) ** 2).sum()), 2 * np.array([1, 10, 100]) * (x - centre)

    value, at = gaussian.minimise(bowl, np.zeros(3), np.full(3, -9.0), np.array([9.0, 9.0, 2.0]))
    assert at == pytest.approx([1, -2, 2], abs=0.1)
    assert value == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize("count", [1, 2, gaussian.SMALL, gaussian.SMALL + 1, 101])
def test_a_triangle_is_inverted(count: int) -> None:
    lower = np.tril(np.random.default_rng(0).normal(size=(count, count))) + 3 * math.sqrt(count) * np.eye(count)
    inverse = gaussian.triangular_inverse(lower)
    assert inverse @ lower == pytest.approx(np.eye(count), abs=1e-12)
    assert (np.triu(inverse, 1) == 0).all()


def test_a_posterior_of_other_candidates_is_one_made_anew(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    terms, rows, targets = mixed
    scales, none = Scales.prior(terms), np.empty(0, np.int64)
    first = Posterior(terms, scales, np.arange(30), rows[:-1])
    other = first.of(np.arange(20, 72))
    anew = Posterior(terms, scales, np.arange(20, 72), rows[:-1])
    for posterior in (other, anew):
        posterior.add(int(rows[-1]))
    assert other.mean(targets) == pytest.approx(anew.mean(targets), abs=1e-6)
    assert other.deviation(none) == pytest.approx(anew.deviation(none), abs=1e-6)
    assert len(first.mean(targets[:-1])) == 30  # as it was


def test_the_posterior_is_the_formula(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    """Rasmussen and Williams, eq. 2.25 and 2.26, with nothing clever."""
    terms, rows, targets = mixed
    scales, every = Scales.prior(terms), np.arange(72)
    a = np.sqrt(5 * np.tensordot(scales.weights, terms.between(every), 1))
    k = scales.variance * (1 + a + a * a / 3) * np.exp(-a)
    solved = np.linalg.solve(k[np.ix_(rows, rows)] + scales.noise * np.eye(20), k[rows])
    posterior = Posterior(terms, scales, every, rows)
    assert posterior.mean(targets) == pytest.approx(targets @ solved, abs=1e-4)
    none = np.empty(0, np.int64)
    assert posterior.deviation(none) == pytest.approx(np.sqrt(np.diag(k - k[:, rows] @ solved)), abs=1e-4)


def test_growing_and_believing_are_conditioning(mixed: tuple[Terms, np.ndarray, np.ndarray]) -> None:
    terms, rows, targets = mixed
    scales, every, none = Scales.prior(terms), np.arange(72), np.empty(0, np.int64)
    whole, grown = (Posterior(terms, scales, every, known) for known in (rows, rows[:17]))
    believed = grown.deviation(rows[17:])
    for row in rows[17:]:
        grown.add(int(row))
    assert grown.mean(targets) == pytest.approx(whole.mean(targets), abs=1e-5)
    for deviation in (believed, grown.deviation(none)):
        assert deviation == pytest.approx(whole.deviation(none), abs=1e-5)


def test_expected_improvement_is_the_integral() -> None:
    """Of max(0, lead + deviation·x) over a standard normal x."""
    x = np.linspace(-10, 10, 200_001)
    for lead, deviation in ((0.5, 1.0), (-2.0, 0.5), (3.0, 2.0)):
        gains = np.maximum(0, lead + deviation * x) * np.exp(-x * x / 2)
        gain = gains.sum() * (x[1] - x[0]) / math.sqrt(2 * math.pi)
        assert log_improvement(np.array([lead]), np.array([deviation]))[0] == pytest.approx(math.log(gain), abs=1e-3)
    far = log_improvement(np.array([-40.0, -20.0, -13.0, -11.0]), np.ones(4))
    assert np.isfinite(far).all()
    assert (np.diff(far) > 0).all()


# ---- the table -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_that_differ_in_so_many() -> None:
    space = wide()
    graph = Neighbourhood(space)
    for row in (0, 77, len(space) - 1):
        differ = (space.codes != space.codes[row]).sum(axis=1)
        assert graph.of(row).tolist() == np.flatnonzero(differ == 1).tolist()
        assert np.unique(graph.within_two(row)).tolist() == np.flatnonzero(differ <= 2).tolist()
    rows = np.asarray([0, 77, 78])
    differ = (space.codes[:, None] != space.codes[rows]).sum(axis=2).min(axis=1)
    assert np.unique(graph.around(rows)).tolist() == np.flatnonzero(differ <= 1).tolist()


def test_derived_columns_are_the_kernels() -> None:
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 512, "n": 512, "k": 512})
    narrow = {"staging": ("static", "dynamic"), "pad_a": (4,), "pad_b": (0,), "unroll": (8,), "lanes_m": (4,)}
    space = build_space(kernel, problem, find_gpu("h200"), narrow)
    columns = derived_columns(kernel, problem, space, find_gpu("h200"))
    assert columns.min(axis=0).tolist() == [0.0] * columns.shape[1]
    assert columns.max(axis=0).tolist() == [1.0] * columns.shape[1]
    rows = np.linspace(0, len(space) - 1, 50).astype(int)
    threads = [math.log2(kernel.scope(problem, space.configuration(int(row)))["threads"]) for row in rows]
    likeness = [abs(np.corrcoef(threads, column[rows])[0, 1]) for column in columns.T]
    assert sum(r > 0.999 for r in likeness) == 1


def test_columns_that_tell_nothing_are_left_out() -> None:
    kernel = load_kernel("transpose")
    problem = kernel.problem({"rows": 64, "cols": 64})
    one = {parameter.name: (parameter.default,) for parameter in kernel.parameters}
    space = build_space(kernel, problem, find_gpu("h200"), one)
    assert derived_columns(kernel, problem, space, find_gpu("h200")).shape == (1, 0)


# ---- the search ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [1, 16])
def test_it_finds_what_chance_does_not(ahead: int) -> None:
    """One row of 7776 is best; 100 random rows hold one of the best 1 % with a chance of 63 %."""
    space = wide()
    costs = np.sort([cost(space, row) for row in range(len(space))])
    found = [min(search(space, seed, 100, ahead, 100)[1]) for seed in range(3)]  # type: ignore[type-var]
    random = [
        min(cost(space, int(row)) for row in np.random.default_rng(seed).choice(len(space), 100, replace=False))
        for seed in range(3)
    ]
    assert mean(found) <= costs[4] < min(random)


def rough(space: Space, row: int) -> float:
    """A third of all rows are twice as slow, in no order that a model could learn: neighbours tell it little."""
    return cost(space, row) * (2.0 if row * 2654435761 % 2**32 < 2**32 // 3 else 1.0)


@pytest.mark.parametrize("time", [cost, rough])
@pytest.mark.parametrize("ahead", [1, 8])
def test_at_last_all_neighbours_of_the_best_are_tried_first(time: Callable[[Space, int], float], ahead: int) -> None:
    """So none is left unless the best came too late. Ask i knows what the asks up to i - ahead have brought."""
    space, graph = wide(), Neighbourhood(wide())
    swept = 0
    for seed in range(2):
        rows, times = search(space, seed, 100, ahead, goal=100, time=time)
        for i in range(75, 100):
            best = rows[int(np.argmin(times[: i - ahead + 1]))]  # type: ignore[arg-type]
            left = set(graph.of(best).tolist()) - set(rows[:i])
            assert not left or rows[i] in left
            swept += bool(left)
    assert swept >= 10


def test_neighbours_of_a_best_that_stands_are_tried_without_a_goal() -> None:
    """One row is far better than all others: what lies beside it is tried long before the model thinks well of it."""
    space = wide()
    peak = space.row_of(dict(zip(space.names, (8, 8, 8, 8, True, "b", 4), strict=True)))
    assert peak is not None
    sampler = Model(space, 0)
    for row in (peak, *range(0, 70 * 7, 7)):
        sampler.take(row)
        sampler.tell(row, 1.0 if row == peak else 5.0 + row % 3)
    near = set(Neighbourhood(space).of(peak).tolist())
    asked = []
    for _ in near:
        asked.append(sampler.choose())
        sampler.take(asked[-1])
    assert set(asked) == near
    assert sampler.choose() not in near


def test_what_is_pending_is_not_asked_for_nearby() -> None:
    """With nothing told in between, 12 asks are no crowd around one row, though each alone would go to the best."""
    space, sampler = wide(), Model(wide(), 0)
    for row in range(0, len(space), 400):
        sampler.take(row)
        sampler.tell(row, cost(space, row))
    ahead = []
    for _ in range(12):
        ahead.append(sampler.choose())
        sampler.take(ahead[-1])
    assert len(set(ahead)) == 12
    apart = [(space.codes[a] != space.codes[b]).sum() for a, b in itertools.combinations(ahead, 2)]
    assert mean(apart) > 2


def test_the_same_seed_and_tells_give_the_same_asks() -> None:
    space = wide()
    first, again, other = (search(space, seed, 70, ahead=6, goal=70)[0] for seed in (5, 5, 6))
    assert first == again != other


@pytest.mark.parametrize(
    "time",
    [
        lambda space, row: None,
        lambda space, row: 2.0,
        lambda space, row: 2.0 + row % 2,
        lambda space, row: None if row % 3 else 1.0 + row,
        lambda space, row: 1.0 + 1e-16 * row,
        lambda space, row: 10.0 ** (row - 20),
    ],
    ids=["all fail", "all equal", "two times", "most fail", "equal but for rounding", "forty decades"],
)
@pytest.mark.parametrize("ahead", [1, 7])
def test_any_times_are_fine_to_the_last_row(time: Callable[[Space, int], float | None], ahead: int) -> None:
    space = table(MIXED, lambda c: c[0] != c[1])
    rows, _ = search(space, 0, len(space), ahead, goal=len(space), time=time)
    assert sorted(rows) == list(range(len(space)))


@pytest.mark.parametrize("domains", [((4,),), ((1, 2, 3, 4, 5, 6),), ((True, False), ("a", "b", "c"))])
def test_small_spaces(domains: tuple[tuple[Value, ...], ...]) -> None:
    space = table(domains)
    assert sorted(search(space, 0, len(space), time=lambda s, row: 1.0 + row)[0]) == list(range(len(space)))


def test_failures_are_avoided() -> None:
    """All with a flag set fail; after 40 trials few of those are asked for."""
    space = wide()
    rows, _ = search(space, 0, 60, time=lambda s, row: None if s.codes[row, 4] == 0 else cost(s, row))
    assert np.mean(space.codes[rows[40:], 4] == 0) < 0.2


def test_a_long_history_is_cut_to_what_can_be_afforded() -> None:
    space = wide()
    sampler = Model(space, 0)
    for row in range(0, len(space), 4):
        sampler.take(row)
        sampler.tell(row, cost(space, row))
    chosen = []
    for _ in range(5):
        chosen.append(sampler.choose())
        sampler.take(chosen[-1])
        sampler.tell(chosen[-1], cost(space, chosen[-1]))
    assert len(sampler._known) <= 1.5 * model.MOST_KNOWN
    assert len(sampler._candidates) <= 1.5 * model.MOST_CANDIDATES
    assert min(cost(space, row) for row in chosen) < min(cost(space, row) for row in range(0, len(space), 4))
