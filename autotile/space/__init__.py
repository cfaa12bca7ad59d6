"""The feasible configurations of a kernel for one problem on one device: enumerated, counted, explained."""

from autotile.space.rules import BoundRule, bind_rules, violations
from autotile.space.space import Rejection, Space, build_space

__all__ = ["BoundRule", "Rejection", "Space", "bind_rules", "build_space", "violations"]
