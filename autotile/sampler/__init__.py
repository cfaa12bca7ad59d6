"""Which configuration next: the feasible ones not yet tried, through an Optuna study. Only this room imports optuna."""

from autotile.sampler.feasible import FeasibleSampler
from autotile.sampler.features import derived_columns
from autotile.sampler.rows import RowSampler
from autotile.sampler.strategy import Strategy

__all__ = ["FeasibleSampler", "RowSampler", "Strategy", "derived_columns"]
