"""Rules bound to a problem and a device: the kernel's own, the device's limits, and the search file's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.devices.info import DeviceInfo
from autotile.errors import ExpressionError
from autotile.kernels import Kernel, Rule
from autotile.kernels.expressions import Expression
from autotile.suggest import did_you_mean
from autotile.types import Problem, Value

DEVICE_RULES = (
    Rule("threads >= 1", "the block has no threads", "every device"),
    Rule(
        "threads <= device.max_threads_per_block",
        "needs {threads} threads a block, {device.name} allows {device.max_threads_per_block}",
        "device limit",
    ),
    Rule(
        "static_shared_bytes <= device.shared_bytes_static",
        "needs {static_shared_bytes} bytes of static shared memory, every device allows {device.shared_bytes_static}; "
        "more must be dynamic",
        "device limit",
    ),
    Rule(
        "static_shared_bytes + shared_bytes <= device.shared_bytes_optin",
        "needs {static_shared_bytes + shared_bytes} bytes of shared memory, {device.name} allows "
        "{device.shared_bytes_optin}",
        "device limit",
    ),
)
"""What no configuration may exceed on any kernel; checked before the kernel's own rules."""

MESSAGE_FIELD = re.compile(r"\{([^{}]+)\}")
"""An expression in a message."""


@dataclass(frozen=True)
class BoundRule:
    """A rule, parsed, with the names that it needs."""

    rule: Rule
    expression: Expression

    @property
    def text(self) -> str:
        return self.rule.expression

    def message(self, scope: Mapping[str, Any]) -> str:
        """The rule's message with every `{…}` worked out under `scope`."""

        def fill(match: re.Match[str]) -> str:
            value = Expression(match.group(1), self.rule.where).evaluate(scope)
            return str(value.item() if hasattr(value, "item") else value)

        return MESSAGE_FIELD.sub(fill, self.rule.message)


def known_names(kernel: Kernel, problem: Problem, device: DeviceInfo) -> set[str]:
    """Every name that a rule may use."""
    names = set(kernel.problem_scope(problem)) | set(device.scope())
    names |= {parameter.name for parameter in kernel.parameters}
    return names | {name for name, _ in kernel.steps}


def bind_rules(
    kernel: Kernel, problem: Problem, device: DeviceInfo, extra: Sequence[Rule] = ()
) -> tuple[BoundRule, ...]:
    """Device limits, then the kernel's rules, then `extra`.

    Raises ExpressionError for a rule that does not parse or names what is not there.
    """
    known = known_names(kernel, problem, device)
    bound = []
    for rule in (*DEVICE_RULES, *kernel.rules, *extra):
        where = rule.where or f"kernel {kernel.name}"
        expression = Expression(rule.expression, where)
        for name in sorted(expression.names - known):
            raise ExpressionError(
                f"{where}: unknown name {name!r}{did_you_mean(name, known)} in the rule {rule.expression!r}: the "
                f"search is of the kernel {kernel.name}, which serves {problem.dtype} on {device.name}; known: "
                f"{', '.join(sorted(known))}"
            )
        bound.append(BoundRule(rule, expression))
    return tuple(bound)


def violations(
    kernel: Kernel,
    problem: Problem,
    device: DeviceInfo,
    configuration: Mapping[str, Value],
    extra: Sequence[Rule] = (),
    alignment: int | None = None,
) -> tuple[str, ...]:
    """Messages of the rules that one configuration breaks, on arrays of that alignment; empty when it is feasible."""
    scope = kernel.scope(problem, configuration, alignment) | device.scope()
    rules = bind_rules(kernel, problem, device, extra)
    return tuple(bound.message(scope) for bound in rules if not bound.expression.holds(scope))
