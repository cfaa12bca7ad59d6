"""The space of a replay: what was recorded, as far as the search allows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotile.devices.info import DeviceInfo
from autotile.devices.replay.recording import Recording
from autotile.errors import ConfigurationError
from autotile.kernels import Kernel, Rule
from autotile.space.rules import bind_rules
from autotile.space.space import Rejection, Space, space_of_rows
from autotile.types import Problem, Value

Column = np.ndarray[Any, Any]


def recorded_space(
    recording: Recording,
    kernel: Kernel,
    problem: Problem,
    device: DeviceInfo,
    domains: Mapping[str, Sequence[Value]],
    rules: Sequence[Rule],
) -> Space:
    """The recorded configurations of the domains (the kernel's own where `domains` has none) that break no rule.

    Raises ConfigurationError when the recording is of another kernel, problem or set of parameters, or when nothing is
    left.
    """
    names = tuple(parameter.name for parameter in kernel.parameters)
    what = f"{recording.kernel} {recording.problem}".strip()
    where = f"{recording.path} holds {what} on {recording.device or 'an unnamed GPU'}"
    if recording.own is not None and recording.own != problem:
        raise ConfigurationError(f"{where}, not {problem.kernel} {problem.label}: search what it holds")
    if len(names) != len(recording.names) or (recording.own is not None and names != recording.names):
        raise ConfigurationError(
            f"{where} with the parameters {', '.join(recording.names)}; kernel {kernel.name} has {', '.join(names)}. "
            f"It is searched by its own name: autotile search {recording.path}"
        )
    chosen = tuple(tuple(domains.get(p.name, p.values)) for p in kernel.parameters)
    space = space_of_rows(names, chosen, _within(recording, chosen))
    missing = space.total - len(space)
    rejections = [Rejection("recorded", str(recording.path), missing, "was not evaluated then")] if missing else []
    codes, broken = _feasible(space, kernel, problem, device, rules)
    if not len(codes):
        raise ConfigurationError(f"{where}; of its {len(recording)} configurations none is in the space of this search")
    return replace(space, codes=codes, rejections=(*rejections, *broken))


def _within(recording: Recording, domains: Sequence[Sequence[Value]]) -> Column:
    """Codes, in these domains, of the recorded rows whose every value is in its domain."""
    columns = []
    for p, domain in enumerate(domains):
        code = {(type(value), value): number for number, value in enumerate(domain)}
        moved = np.asarray([code.get((type(value), value), -1) for value in recording.domains[p]], np.int32)
        columns.append(moved[recording.codes[:, p]])
    codes = np.stack(columns, axis=1)
    return np.asarray(codes[(codes >= 0).all(axis=1)])


def _feasible(
    space: Space, kernel: Kernel, problem: Problem, device: DeviceInfo, rules: Sequence[Rule]
) -> tuple[Column, list[Rejection]]:
    """The rows that break no rule, and what each rule rejects that none before it did."""
    codes, rejections = space.codes, []
    for rule in bind_rules(kernel, problem, device, rules):
        scope: dict[str, Any] = kernel.problem_scope(problem) | device.scope()
        for p, (name, domain) in enumerate(zip(space.names, space.domains, strict=True)):
            scope[name] = np.asarray(domain)[codes[:, p]]
        for name, expression in kernel.steps:
            scope[name] = np.broadcast_to(np.asarray(expression.evaluate(scope)), (len(codes),))
        keep = np.broadcast_to(np.asarray(rule.expression.holds(scope)), (len(codes),))
        if not keep.all():
            worst = int(np.argmin(keep))
            example = rule.message({name: v[worst] if isinstance(v, np.ndarray) else v for name, v in scope.items()})
            rejections.append(Rejection(rule.text, rule.rule.where, int(np.count_nonzero(~keep)), example))
            codes = codes[keep]
    return codes, rejections
