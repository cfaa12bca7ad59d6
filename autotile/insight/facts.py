"""What findings are made of: a variant's patterns, units and limits beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotile.devices.emulator.estimate import joined_ms
from autotile.devices.info import DeviceInfo
from autotile.insight.explanation import Occupancy, Pattern, Roofline
from autotile.types import Launch

FEW_LANES = 0.75
"""Of a warp, in the mean of all requests: fewer are a finding."""


@dataclass(frozen=True)
class Facts:
    """All that findings are made of."""

    device: DeviceInfo
    launch: Launch
    patterns: tuple[Pattern, ...]
    units_ms: Mapping[str, float]
    alone: float
    occupancy: Occupancy
    roofline: Roofline
    shared_bytes: int
    spill_bytes: int
    waited_loads: float = 0.0
    """A thread's loads from global memory, without asynchronous copies."""
    local_arrays: tuple[tuple[int, str], ...] = ()
    """Lines, with their code, whose arrays the machine code keeps in local memory, the most used first."""

    def saved_ms(self, factors: Mapping[str, float]) -> float:
        """What the estimate would lose if these units had so much less to do (a factor of 0 to 1 each): units overlap,
        so that only a busy one counts."""
        before = joined_ms(self.units_ms, self.alone)
        after = joined_ms({name: ms * factors.get(name, 1.0) for name, ms in self.units_ms.items()}, self.alone)
        return self.roofline.time_ms * (1 - after / before) if before else 0.0

    @property
    def passes(self) -> float:
        return sum(p.passes for p in self.patterns)

    @property
    def lanes(self) -> float:
        """That take part in a request, in the mean."""
        requests = sum(p.requests for p in self.patterns)
        return sum(p.requests * p.lanes for p in self.patterns) / requests if requests else self.device.warp_size

    @property
    def few_lanes(self) -> bool:
        return self.lanes <= FEW_LANES * self.device.warp_size

    @property
    def busiest(self) -> str:
        return max(self.units_ms, key=lambda name: self.units_ms[name])
