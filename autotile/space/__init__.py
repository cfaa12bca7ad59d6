"""The feasible configurations of a kernel for one problem on one device: enumerated, counted, explained."""

from autotile.space.enumerate import build_space, enumerate_space
from autotile.space.rules import BoundRule, bind_rules, violations
from autotile.space.space import Rejection, Space, space_of_rows

__all__ = [
    "BoundRule",
    "Rejection",
    "Space",
    "bind_rules",
    "build_space",
    "enumerate_space",
    "space_of_rows",
    "violations",
]
