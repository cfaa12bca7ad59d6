"""What a search is about to do: its space, the points it is limited to, and what is on record already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotile.build import Builder
from autotile.codegen import template_digest
from autotile.devices.base import Device
from autotile.errors import ConfigurationError
from autotile.space import Space, build_space, violations
from autotile.spec import Spec
from autotile.store import RecordStore
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

    @property
    def goal(self) -> int:
        """Distinct trials at which the search ends, those on record included."""
        wanted = len(set(self.points.values())) if self.points else self.spec.search.trials
        return min(wanted, len(self.space))

    @property
    def first_rows(self) -> list[int]:
        """What is tried before a sampler is asked: the points, or the kernel's default."""
        if self.points:
            return list(self.points.values())
        row = self.space.row_of(self.spec.kernel.configuration())
        return [] if row is None else [row]


def make_plan(spec: Spec, problem: Problem, workshop: Workshop) -> Plan:
    """Raises ConfigurationError when nothing is feasible, or a point is not."""
    device = workshop.device
    domains = _domains(spec)
    space = build_space(spec.kernel, problem, device.info, domains, spec.rules)
    if not len(space):
        raise ConfigurationError(_why_nothing(spec, problem, device, domains, space))
    points: dict[str, int] = {}
    for name, point in spec.points.items():
        row = space.row_of(point)
        if row is None:
            broken = violations(spec.kernel, problem, device.info, point, spec.rules)
            raise ConfigurationError(f"the point {name!r} is not feasible: {'; '.join(broken)}")
        points[name] = row
    identity = identity_of(device, workshop.builder, template_digest(spec.kernel))
    plan = Plan(spec, problem, identity, space, points, {})
    return plan if workshop.fresh else replace(plan, known=known_records(plan, workshop.store))


def known_records(plan: Plan, store: RecordStore) -> dict[int, Record]:
    """What is on record of the plan's problem under its identity, by row; the last of each."""
    known: dict[int, Record] = {}
    for record in store.records(plan.problem.kernel, plan.problem, plan.identity.device):
        row = plan.space.row_of(record.configuration)
        if row is not None and record.identity == plan.identity and (not plan.points or row in plan.points.values()):
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
        others = len(build_space(spec.kernel, problem, device.info, domains))
        return f"{text}. Without the file's own rules {others} are feasible"
    return f"{text}. Widen a domain"
