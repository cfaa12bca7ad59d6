"""The search for the fastest right variant."""

from autotile.search.result import Listener, Phases, SearchResult, Silent
from autotile.search.run import identity_of, search

__all__ = ["Listener", "Phases", "SearchResult", "Silent", "identity_of", "search"]
