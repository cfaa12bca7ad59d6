"""The Python face: load what was tuned and call it; start a search; explain a configuration."""

from autotile.runtime.explain import explain
from autotile.runtime.load import load
from autotile.runtime.search import search
from autotile.runtime.tuned import TunedKernel

__all__ = ["TunedKernel", "explain", "load", "search"]
