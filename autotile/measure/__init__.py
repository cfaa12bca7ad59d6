"""Proves variants right and times them."""

from autotile.measure.session import Session, Trial, open_session
from autotile.measure.timing import TimingPlan, physical_floor_ms
from autotile.measure.variant import Variant, make_variant, prove
from autotile.measure.workload import make_workload

__all__ = [
    "Session",
    "TimingPlan",
    "Trial",
    "Variant",
    "make_variant",
    "make_workload",
    "open_session",
    "physical_floor_ms",
    "prove",
]
