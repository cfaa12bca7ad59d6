"""The search for the fastest right variant. (The room is `tuner`, since `autotile.search` is the public function.)"""

from autotile.tuner.plan import identity_of
from autotile.tuner.result import Listener, Phases, SearchResult, Silent
from autotile.tuner.searches import search, search_all

__all__ = ["Listener", "Phases", "SearchResult", "Silent", "identity_of", "search", "search_all"]
