"""What a search is about to do: its space, the points it is limited to, and what is on record already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotile.build import Builder
from autotile.codegen import template_digest
from autotile.devices.base import Device
from autotile.devices.replay.device import ReplayDevice
from autotile.errors import ConfigurationError
from autotile.space import Space, build_space, violations
from autotile.space.recorded import recorded_space
from autotile.spec import Spec
from autotile.store import RecordStore
from autotile.tuner.warm import estimated_rows, warm_rows
from autotile.tuner.workshop import Workshop
from autotile.types import SCHEMA_VERSION, Identity, Problem, Record


@dataclass(frozen=True)
class Plan:
    """One problem's search. `points` names rows of the space, `known` holds records of the same identity by row."""

    spec: Spec
    problem: Problem
    identity: Identity
    space: Space
    points: Mapping[str, int]
    known: Mapping[int, Record]
    built: Sequence[int] = ()
    """Rows that were built before, so that their binaries should be cached: for another driver, or left aside."""
    warm: Sequence[int] = ()
    """Rows that were the best elsewhere, and those of which the emulator expects most (see warm.py)."""

    @property
    def goal(self) -> int:
        """Distinct trials at which the search ends, those on record included."""
        wanted = len(set(self.points.values())) if self.points else self.spec.search.trials
        return min(wanted, len(self.space))

    @property
    def first_rows(self) -> list[int]:
        """What is tried before a sampler is asked: the points; or the default, what was best elsewhere, and presets."""
        if self.points:
            return list(self.points.values())
        kernel = self.spec.kernel
        named = [kernel.configuration(preset) for preset in ({}, *kernel.presets.values())]
        default, *presets = (self.space.row_of(configuration) for configuration in named)
        return list(dict.fromkeys(row for row in (default, *self.warm, *presets) if row is not None))


def make_plan(spec: Spec, problem: Problem, workshop: Workshop) -> Plan:
    """Raises ConfigurationError when nothing is feasible, or a point is not."""
    device = workshop.device
    domains = _domains(spec)
    space = space_of(spec, problem, device, domains)
    if not len(space):
        raise ConfigurationError(_why_nothing(spec, problem, device, domains, space))
    points: dict[str, int] = {}
    for name, point in spec.points.items():
        row = space.row_of(point)
        if row is None:
            broken = violations(spec.kernel, problem, device.info, point, spec.rules)
            raise ConfigurationError(f"the point {name!r} is not feasible: {'; '.join(broken) or _why_missing(space)}")
        points[name] = row
    identity = identity_of(device, workshop.builder, template_digest(spec.kernel))
    plan = Plan(spec, problem, identity, space, points, {})
    if not points:
        store = workshop.store
        best = warm_rows(space, problem, identity, store, spec.kernel)
        plan = replace(plan, warm=[*best, *estimated_rows(space, problem, identity, store)])
    known = known_records(plan, workshop.store, any_driver=True)
    built = [row for row, record in known.items() if record.binary_digest]
    same = {} if workshop.fresh else {row: record for row, record in known.items() if record.identity == identity}
    return replace(plan, known=same, built=built)


def _why_missing(space: Space) -> str:
    """Of a configuration that breaks no rule and has no row."""
    return "not in the sample of a space that is too large to hold" if space.sampled else "not recorded"


def space_of(spec: Spec, problem: Problem, device: Device, domains: Mapping[str, tuple[Any, ...]]) -> Space:
    """What a search may try of these domains: all that is feasible; of a replay, what was recorded."""
    if isinstance(device, ReplayDevice):
        return recorded_space(device.recording, spec.kernel, problem, device.info, domains, spec.rules)
    return build_space(spec.kernel, problem, device.info, domains, spec.rules)


def known_records(plan: Plan, store: RecordStore, any_driver: bool = False) -> dict[int, Record]:
    """What is on record of the plan's problem under its identity, by row; the last of each.

    With `any_driver`, also what was built alike and measured under another driver, where there is nothing better.
    """
    known: dict[int, Record] = {}
    for record in store.records(plan.problem.kernel, plan.problem, plan.identity.device):
        same = record.identity == plan.identity
        if not same and not (any_driver and replace(record.identity, driver=plan.identity.driver) == plan.identity):
            continue
        row = plan.space.row_of(record.configuration)
        if row is None or (plan.points and row not in plan.points.values()):
            continue
        if same or row not in known or known[row].identity != plan.identity:
            known[row] = record
    return known


def identity_of(device: Device, builder: Builder, template: str) -> Identity:
    """What results of this device, toolchain and template depend on."""
    info = device.info
    return Identity(
        info.name, info.arch, info.driver, builder.compiler, template, SCHEMA_VERSION, info.estimated, builder.flags
    )


def _domains(spec: Spec) -> dict[str, tuple[Any, ...]]:
    """The domains in force; with points, just the values that these have."""
    if not spec.points:
        return dict(spec.parameters)
    points = list(spec.points.values())
    return {name: tuple(dict.fromkeys(point[name] for point in points)) for name in points[0]}


def _why_nothing(
    spec: Spec, problem: Problem, device: Device, domains: Mapping[str, tuple[Any, ...]], space: Space
) -> str:
    where = f"{spec.file}: " if spec.file else ""
    text = f"{where}no configuration of {spec.kernel.name} is feasible for {problem.label} on {device.info.name}: "
    text += f"all {space.total} break a rule"
    own = [rejection for rejection in space.rejections if rejection.where in {rule.where for rule in spec.rules}]
    for rejection in own or space.rejections[-3:]:
        text += f"; {rejection.count} break `{rejection.rule}` ({rejection.where or 'of the kernel'})"
        text += "" if own else f": {rejection.example}"
    if own:
        others = build_space(spec.kernel, problem, device.info, domains).feasible
        return f"{text}. Without the file's own rules {others} are feasible"
    return f"{text}. Widen a domain"
