"""How a kernel is launched, as expressions, and worked out for one scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels.declarations import ELEMENT, RESULT
from autotile.kernels.expressions import Expression
from autotile.types import Dim3, Launch, LaunchStep, TensorMap


@dataclass(frozen=True)
class Step:
    """Another `__global__` function of the same text, `{{ entry }}_<name>`, with the main one's parameters.

    It is launched on the same stream where `when` holds, and has static shared memory alone.
    """

    name: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    when: str = "1"

    def __post_init__(self) -> None:
        if not f"_{self.name}".isidentifier():
            raise KernelError(f"step {self.name!r}: the name must be what an identifier may end in")
        _require_sides(f"step {self.name}", self.grid, self.block)


@dataclass(frozen=True)
class Map:
    """A tensor map (see types.TensorMap) of the memory that the argument `array` points to, where `when` holds.

    `sizes`, `strides`, `box` and `offset` count elements: of the problem's dtype, or, with `of="result"`, of its
    results'. The functions of the text take the maps that there are, in order, ahead of the kernel's arguments, as
    `const __grid_constant__` structures of 128 bytes, aligned to 64.
    """

    array: str
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[str, ...]
    offset: str = "0"
    of: str = ELEMENT
    when: str = "1"

    def __post_init__(self) -> None:
        if len(self.box) != len(self.sizes) or len(self.strides) != len(self.sizes) - 1 or len(self.sizes) > 5:
            raise KernelError(
                f"map of {self.array}: up to 5 sizes, as many sides of a box, and a stride for all but the first size, "
                f"not {len(self.sizes)}, {len(self.box)} and {len(self.strides)}"
            )

    @property
    def expressions(self) -> tuple[str, ...]:
        return (self.when, self.offset, *self.sizes, *self.strides, *self.box)


@dataclass(frozen=True)
class LaunchPlan:
    """Geometry as expressions. `shared_bytes` (dynamic) has its one home here: template, launch and opt-in read it.

    `scratch_bytes` of device memory are what the argument `Scratch` points to. `before` and `after` are launched, in
    order, around the main function: to pack an operand, say, or to gather partial sums. Where `overlap` holds, the main
    function may begin while the last step before it still runs: it must wait itself (`griddepcontrol.wait`, sm_90 on)
    before it touches what that step writes, or writes what that reads.
    """

    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared_bytes: str = "0"
    static_shared_bytes: str = "0"
    scratch_bytes: str = "0"
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    maps: tuple[Map, ...] = ()
    overlap: str = "0"

    def __post_init__(self) -> None:
        _require_sides("launch", self.grid, self.block)
        for what, steps in (("before", self.before), ("after", self.after)):
            if not isinstance(steps, (tuple, list)) or not all(isinstance(step, Step) for step in steps):
                raise KernelError(f"the launch's {what} must be a tuple of Step(…), such as (…,), not {steps!r}")
        names = [step.name for step in self.steps]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise KernelError(f"steps {', '.join(sorted(repeated))}: declared twice")

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.before, *self.after)

    @property
    def expressions(self) -> tuple[str, ...]:
        """All that the launch is worked out from."""
        own = (*self.grid, *self.block, self.shared_bytes, self.static_shared_bytes, self.scratch_bytes)
        steps = (text for step in self.steps for text in (step.when, *step.grid, *step.block))
        return (*own, self.overlap, *steps, *(text for one in self.maps for text in one.expressions))


def launch_under(plan: LaunchPlan, scope: Mapping[str, Any], where: str, arguments: Sequence[str] = ()) -> Launch:
    """The launch where every name is known; `arguments` are the names of the kernel's, in order.

    Raises ExpressionError for a side or a count that is no whole number.
    """
    return Launch(
        _sides(plan.grid, scope, f"{where} grid"),
        _sides(plan.block, scope, f"{where} block"),
        Expression(plan.shared_bytes, f"{where} shared_bytes").whole(scope),
        Expression(plan.scratch_bytes, f"{where} scratch_bytes").whole(scope),
        _steps(plan.before, scope, where),
        _steps(plan.after, scope, where),
        tuple(
            _map(one, scope, f"{where} map of {one.array}", arguments.index(one.array))
            for one in plan.maps
            if Expression(one.when, f"{where} map of {one.array}, when").holds(scope)
        ),
        bool(Expression(plan.overlap, f"{where} overlap").holds(scope)),
    )


def _map(plan: Map, scope: Mapping[str, Any], where: str, argument: int) -> TensorMap:
    dtype = str(scope["problem.result_dtype" if plan.of == RESULT else "problem.dtype"])
    itemsize = element_type(dtype).itemsize

    def whole(texts: Sequence[str], what: str) -> tuple[int, ...]:
        return tuple(Expression(text, f"{where}, {what}").whole(scope) for text in texts)

    strides = tuple(stride * itemsize for stride in whole(plan.strides, "strides"))
    (offset,) = whole((plan.offset,), "offset")
    return TensorMap(argument, dtype, offset * itemsize, whole(plan.sizes, "sizes"), strides, whole(plan.box, "box"))


def _steps(steps: Sequence[Step], scope: Mapping[str, Any], where: str) -> tuple[LaunchStep, ...]:
    return tuple(
        LaunchStep(
            f"_{step.name}",
            _sides(step.grid, scope, f"{where} step {step.name}, grid"),
            _sides(step.block, scope, f"{where} step {step.name}, block"),
        )
        for step in steps
        if Expression(step.when, f"{where} step {step.name}, when").holds(scope)
    )


def _sides(texts: Sequence[str], scope: Mapping[str, Any], where: str) -> Dim3:
    x, y, z = ([Expression(text, where).whole(scope) for text in texts] + [1, 1])[:3]
    return x, y, z


def _require_sides(whose: str, grid: object, block: object) -> None:
    for what, sides in (("grid", grid), ("block", block)):
        if not isinstance(sides, (tuple, list)) or not 1 <= len(sides) <= 3:
            raise KernelError(f"the {whose}'s {what} must be a tuple of one to three expressions, not {sides!r}")
