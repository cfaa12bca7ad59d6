"""The profiler's counters beside the emulator's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotile.devices.base import Device
from autotile.errors import CompileError, EnvironmentalError, TimedOut
from autotile.insight.explanation import Explanation, Pattern
from autotile.measure.variant import Variant


def with_profile(explanation: Explanation, variant: Variant, device: Device) -> Explanation:
    """The same with what Nsight Compute counts of one launch on the GPU; where it cannot, with a note that says why."""
    from autotile.insight.profile import profile_variant  # it is asked for rarely

    try:
        profile = profile_variant(variant, device)
    except (CompileError, EnvironmentalError, TimedOut) as error:
        return replace(explanation, notes=(*explanation.notes, f"Nsight Compute counted nothing: {error}"))
    notes = (*explanation.notes, *profile.notes)
    counted = profile.ratios() | {"time_ms": profile.time_ms}  # of all functions, as the estimate is
    return replace(explanation, profile=beside(explanation, counted), notes=notes)


def beside(
    explanation: Explanation, profiled: Mapping[str, float | None]
) -> tuple[tuple[str, float | None, float | None], ...]:
    """By name: what the emulator says of the main function, None where it says nothing, and what the profiler does."""
    ours: dict[str, float | None] = {
        "sectors_a_load_request": _ratio(explanation, "load", "global"),
        "sectors_a_store_request": _ratio(explanation, "store", "global"),
        "wavefronts_a_shared_load": _ratio(explanation, "load", "shared"),
        "wavefronts_a_shared_store": _ratio(explanation, "store", "shared"),
        "bank_conflicts": sum(p.requests * (p.per_request - p.ideal_per_request) for p in _main(explanation, "shared")),
        "occupancy_percent": explanation.occupancy.percent,
        "time_ms": explanation.roofline.time_ms if explanation.roofline.estimated else None,
        "registers": explanation.occupancy.registers,
    }
    return tuple((name, ours.get(name), counted) for name, counted in profiled.items())


def _ratio(explanation: Explanation, op: str, space: str) -> float | None:
    found = [p for p in _main(explanation, space) if p.op == op]
    requests = sum(p.requests for p in found)
    return sum(p.requests * p.per_request for p in found) / requests if requests else None


def _main(explanation: Explanation, space: str) -> list[Pattern]:
    return [p for p in explanation.patterns if not p.entry and p.space == space]
