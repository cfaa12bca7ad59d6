"""How long the parts of a trial may take, and who is told when one begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

TRIAL_LIMIT_S = 300.0
"""Longest that the check and the timing of one variant may take together, where the search file does not say."""

BEGIN_LIMIT_S = 1800.0
"""Longest that a problem's data and its reference may take to be made."""


@dataclass(frozen=True)
class Limits:
    """`launch_s`: the launches of one check, or one timed launch. `trial_s`: check and timing of a variant together."""

    launch_s: float
    trial_s: float = TRIAL_LIMIT_S


Watch = Callable[[str, int], None]
"""Told what begins now ("checking", "timing") and how many launches' time it may take; 0: no launch, no limit."""


def unwatched(step: str, launches: int) -> None:
    """Nobody waits with a clock in hand: a hang in this process cannot be ended anyway."""
