"""Small spaces for samplers, and studies over them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import optuna
from optuna.trial import FrozenTrial, Trial

from autotile.sampler.rows import RowSampler
from autotile.space import Space, space_of_rows
from autotile.types import Value

Domains = Mapping[str, tuple[Value, ...]]

SMALL: Domains = {"tile": (8, 64, 16, 32), "mode": ("row", "column"), "pad": (False, True), "settled": (7,)}


def space_where(domains: Domains, keep: Callable[[dict[str, Value]], bool] = lambda values: True) -> Space:
    codes = itertools.product(*(range(len(domain)) for domain in domains.values()))
    named = ({name: domains[name][c] for name, c in zip(domains, row, strict=True)} for row in codes)
    kept = [[domains[name].index(value) for name, value in values.items()] for values in named if keep(values)]
    return space_of_rows(tuple(domains), tuple(domains.values()), kept)


def small() -> Space:
    """11 of 16 are feasible."""
    return space_where(SMALL, lambda values: values["mode"] == "row" or (not values["pad"] and values["tile"] != 64))


def study_of(sampler: RowSampler, storage: str | optuna.storages.BaseStorage | None = None) -> optuna.Study:
    """A study called `s`, made or gone on with."""
    return optuna.create_study(sampler=sampler, storage=storage, study_name="s", load_if_exists=True)


def suggested(space: Space, trial: Trial) -> int:
    """The row that a trial suggests, parameter by parameter, as an objective written for Optuna would ask."""
    values = {n: trial.suggest_categorical(n, d) for n, d in zip(space.names, space.domains, strict=True)}
    row = space.row_of(values)
    assert row is not None, f"{values} is infeasible"
    return row


def rows_of(space: Space, trials: Sequence[FrozenTrial]) -> list[int | None]:
    return [space.row_of(trial.params) for trial in trials]
