"""Proves variants right and times them."""

from autotile.measure.bench import Bench, LocalBench, open_bench
from autotile.measure.limits import Limits
from autotile.measure.prove import fairly, prove
from autotile.measure.session import Contestant, Session, Trial, open_session
from autotile.measure.timing import TimingPlan, physical_floor_ms
from autotile.measure.trace import Tracer
from autotile.measure.variant import Variant, make_variant
from autotile.measure.workload import make_workload

__all__ = [
    "Bench",
    "Contestant",
    "Limits",
    "LocalBench",
    "Session",
    "TimingPlan",
    "Tracer",
    "Trial",
    "Variant",
    "fairly",
    "make_variant",
    "make_workload",
    "open_bench",
    "open_session",
    "physical_floor_ms",
    "prove",
]
