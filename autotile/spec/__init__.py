"""Search files: strict YAML, checked into frozen dataclasses, with the place of every fault."""

from autotile.spec.load import load_specs
from autotile.spec.model import SearchOptions, Spec

__all__ = ["SearchOptions", "Spec", "load_specs"]
