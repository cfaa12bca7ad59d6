"""What a kernel's folder declares: `KERNEL = Kernel(...)` in its kernel.py.

Everything that depends on sizes, parameters or the device is an expression (see expressions.py). Names in scope:

    problem.<size>        a size, in elements            every parameter        its value
    problem.itemsize      bytes of one element           every derived value    its value
    problem.dtype         the element type's name        threads                threads a block, from the launch
    problem.alignment     bytes that divide every        shared_bytes           dynamic shared memory of the launch
                          base pointer                   static_shared_bytes    static shared memory of the source
    problem.in_place      1 where the output takes the input's place, else 0 (of a kernel that has `in_place`)
    problem.<switch>      1 where the switch is on, else 0   scratch_bytes      device memory that the launch works in
    problem.result_itemsize   bytes of one element of the arrays of="result"
    device.<field>        a field of DeviceInfo (in rules)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autotile.dtypes import ElementType, element_type
from autotile.errors import ConfigurationError, KernelError, UsageError
from autotile.kernels.declarations import (
    RESULT,
    Argument,
    Derived,
    Input,
    Instead,
    OptionalSize,
    Output,
    Parameter,
    Rule,
    Scalar,
    Scratch,
    ShapeClass,
    Switch,
    Trait,
    check_value,
)
from autotile.kernels.expressions import Expression
from autotile.kernels.launching import LaunchPlan, launch_under
from autotile.kernels.layout import Layout, layout_of
from autotile.kernels.problems import make_problem, sizes_of, switch_scope
from autotile.suggest import did_you_mean
from autotile.types import IN_PLACE, OFFSET, Configuration, Launch, Problem, Value

Arrays = Mapping[str, np.ndarray[Any, Any]]
FRESH_ALIGNMENT = 256
"""Bytes that divide the address of every fresh allocation (CUDA C++ Programming Guide, "Device Memory Accesses")."""

ODD_SIDES = (1, 31, 33, 65, 100, 129, 257)
"""Sides on which a winner proves itself when its kernel names no sizes: below, at and beyond warps and tiles."""

CheckSizes = tuple[int, ...] | Mapping[str, int]
"""Sizes in the order of the dimensions, or by name with optional ones among them."""

_TUPLES = (
    "dimensions", "optional", "switches", "dtypes", "arguments", "parameters", "derived", "rules", "traits", "classes",
    "in_place", "check_sizes", "trace_sizes", "instead",
)  # fmt: skip

_HOLDING = (("optional", OptionalSize), ("switches", Switch), ("classes", ShapeClass), ("instead", Instead))


@dataclass(frozen=True)
class Kernel:
    """All that is known about one kernel.

    `reference(inputs, problem)` gives each output in float64 (or exactly, for kernels that only move elements);
    `error_bound(inputs, problem)` the largest allowed |output − reference|, elementwise or one number; 0 is exact.
    `flops` and `bytes` are the fewest that the work needs: each input read once, each output written once.
    `presets` are named points of the space: the classics that a student may render, run and time; `baseline` is the one
    that asks memory for most, beside which `autotile explain` puts a variant's traffic.
    `optional` sizes may be left out of a problem, and so may `switches`, which are off then. `in_place` names an input
    and the output that may take its place.
    `wide` names a switch: where it is on, arrays of="result" are float32 for types that are summed in float, though the
    dtype's own `result` be shorter.
    `opaque` is true for a kernel that moves elements and never looks into them: what was tuned for one type serves all
    of its size. `classes` part the problems into those that want the same kernel.
    `check_sizes` are odd, tiny, tall and deep problems on which a winner must prove itself, in the order of the
    dimensions or by name. `trace_sizes` are expressions over parameters: a problem of one block that does all a large
    one's interior block does, small enough for the emulator. Both have defaults that suit most kernels.
    `effort` is how much the busiest multiprocessor has to do, in any unit, what is padded included: an expression over
    all that a rule may name. With it, what was tuned for other problems serves by the time that it would take; without
    it, by how near they are.
    `deterministic` is false for a kernel whose results may differ in the last bits from run to run, as sums through
    atomics do; of any other, a result that moves is a race.
    `instead` names other folders that serve under this kernel's name, each some dtypes on some devices, also such as
    this kernel does not have; the first that fits does (see instead.py).
    `tensor_cores` says that its products are theirs: estimates and rooflines take the rate of these.
    """

    name: str
    doc: str
    dimensions: tuple[str, ...]
    dtypes: tuple[str, ...]
    arguments: tuple[Argument, ...]
    parameters: tuple[Parameter, ...]
    launch: LaunchPlan
    reference: Callable[[Arrays, Problem], Mapping[str, np.ndarray[Any, Any]]]
    error_bound: Callable[[Arrays, Problem], Mapping[str, np.ndarray[Any, Any] | float]]
    flops: str
    bytes: str
    optional: tuple[OptionalSize, ...] = ()
    switches: tuple[Switch, ...] = ()
    derived: tuple[Derived, ...] = ()
    rules: tuple[Rule, ...] = ()
    traits: tuple[Trait, ...] = ()
    classes: tuple[ShapeClass, ...] = ()
    presets: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    baseline: str = ""
    in_place: tuple[str, ...] = ()
    wide: str = ""
    opaque: bool = False
    check_sizes: tuple[CheckSizes, ...] = ()
    trace_sizes: tuple[str, ...] = ()
    effort: str = ""
    deterministic: bool = True
    tensor_cores: bool = False
    instead: tuple[Instead, ...] = ()
    entry: str = ""
    folder: Path = Path()

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry", self.entry or self.name)
        for what in _TUPLES:
            if not isinstance(getattr(self, what), (tuple, list)):  # the comma after an only entry is easily left out
                raise KernelError(
                    f"kernel {self.name}: {what} must be a tuple, such as (…,), not {getattr(self, what)!r}"
                )
        for what, kind in _HOLDING:
            if not all(isinstance(entry, kind) for entry in getattr(self, what)):
                raise KernelError(f"kernel {self.name}: {what} holds {kind.__name__}(…), not {getattr(self, what)!r}")
        if not isinstance(self.opaque, bool):
            raise KernelError(f"kernel {self.name}: opaque must be True or False, not {self.opaque!r}")
        for what in ("dimensions", "dtypes", "parameters"):
            if not getattr(self, what):
                raise KernelError(f"kernel {self.name}: {what} is empty")
        names = [p.name for p in self.parameters] + [d.name for d in self.derived] + [t.name for t in self.traits]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise KernelError(f"kernel {self.name}: {', '.join(sorted(repeated))} declared twice")
        for preset in self.presets.values():
            self.configuration(preset)
        if self.baseline and self.baseline not in self.presets:
            hint = did_you_mean(self.baseline, self.presets)
            raise KernelError(f"kernel {self.name}: baseline {self.baseline!r} is no preset of it{hint}")

    # ---- parsed once -------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[tuple[str, Expression], ...]:
        """Derived values and the launch's numbers, in an order in which each can be worked out."""
        where = f"kernel {self.name}"
        threads = " * ".join(f"({side})" for side in self.launch.block)
        return (
            *((d.name, Expression(d.expression, f"{where}, derived {d.name}")) for d in self.derived),
            ("threads", Expression(threads, f"{where}, launch block")),
            ("shared_bytes", Expression(self.launch.shared_bytes, f"{where}, launch shared_bytes")),
            (
                "static_shared_bytes",
                Expression(self.launch.static_shared_bytes, f"{where}, launch static_shared_bytes"),
            ),
            ("scratch_bytes", Expression(self.launch.scratch_bytes, f"{where}, launch scratch_bytes")),
        )

    # ---- problems ----------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of all sizes, optional ones last."""
        return (*self.dimensions, *(size.name for size in self.optional))

    @property
    def problem_keys(self) -> tuple[str, ...]:
        """What a problem may say, its dtype aside; first what the least of the others may depend on."""
        switches = (switch.name for switch in self.switches)
        optional = (size.name for size in self.optional)
        return (*self.dimensions, *switches, *optional, OFFSET, *((IN_PLACE,) if self.in_place else ()))

    def problem(self, sizes: Mapping[str, Any], dtype: str | None = None) -> Problem:
        """A checked problem. Raises UsageError for a missing, unknown, or impossible size and an unknown dtype."""
        return make_problem(self, sizes, dtype)

    def sizes_of(self, problem: Problem) -> dict[str, int]:
        """Every size by name, optional ones included."""
        return sizes_of(self, problem)

    def problem_scope(self, problem: Problem, alignment: int | None = None) -> dict[str, Any]:
        scope: dict[str, Any] = {f"problem.{name}": size for name, size in self.sizes_of(problem).items()}
        scope["problem.itemsize"] = element_type(problem.dtype).itemsize
        scope["problem.result_itemsize"] = self.result_type(problem).itemsize
        scope["problem.result_dtype"] = self.result_type(problem).stored
        scope["problem.dtype"] = problem.dtype
        scope["problem.alignment"] = alignment_of(problem) if alignment is None else alignment
        if self.in_place:
            scope["problem.in_place"] = int(problem.in_place)
        return scope | switch_scope(self, problem)

    def result_type(self, problem: Problem) -> ElementType:
        """Of arrays of="result"."""
        element = element_type(problem.dtype)
        widened = self.wide and self.wide in problem.switches and element.accumulator == "float"
        return element_type("float32" if widened else element.result or element.name)

    def element_of(self, argument: Input | Output, problem: Problem) -> ElementType:
        """Of one of the kernel's arrays."""
        return self.result_type(problem) if argument.of == RESULT else element_type(problem.dtype)

    def flops_of(self, problem: Problem) -> int:
        return int(Expression(self.flops, f"kernel {self.name}, flops").amount(self.problem_scope(problem)))

    def bytes_of(self, problem: Problem) -> int:
        return int(Expression(self.bytes, f"kernel {self.name}, bytes").amount(self.problem_scope(problem)))

    def class_of(self, problem: Problem) -> str:
        """The first of `classes` that holds; empty where none does."""
        scope = self.problem_scope(problem)
        holding = (c for c in self.classes if Expression(c.expression, f"kernel {self.name}, class").holds(scope))
        return next((c.name for c in holding), "")

    def shape_of(self, argument: Input | Output, problem: Problem) -> tuple[int, ...]:
        return self.layout_of(argument, problem).shape

    def stored_dims(self, argument: Input | Output, problem: Problem) -> tuple[str, ...]:
        """The names of an array's sizes as it is stored: the last two swapped where it is turned."""
        if isinstance(argument, Input) and argument.turned in problem.switches:
            *leading, rows, cols = argument.shape
            return (*leading, cols, rows)
        return argument.shape

    def layout_of(self, argument: Input | Output, problem: Problem) -> Layout:
        """Of the array as it is stored."""
        sizes = self.sizes_of(problem)
        shape = tuple(sizes[name] for name in self.stored_dims(argument, problem))
        pitch = sizes[argument.pitch] if argument.pitch else shape[-1] if shape else 1
        return layout_of(shape, pitch, sizes[argument.step] if argument.step else shape[-2] if len(shape) > 1 else 1)

    def inputs_of(self, problem: Problem) -> tuple[Input, ...]:
        """Those that there are: an input with `when` is there where that switch is on."""
        return tuple(a for a in self.inputs if not a.when or a.when in problem.switches)

    def arrays_of(self, problem: Problem) -> tuple[Input | Output, ...]:
        """The inputs that there are, then the outputs."""
        return (*self.inputs_of(problem), *self.outputs)

    @property
    def arrays(self) -> tuple[Input | Output, ...]:
        """All inputs, then the outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, Input))

    @property
    def outputs(self) -> tuple[Output, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, Output))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, Scalar))

    @property
    def scratch(self) -> Scratch | None:
        return next((argument for argument in self.arguments if isinstance(argument, Scratch)), None)

    def proof_problems(self, problem: Problem) -> list[Problem]:
        """On which a winner of `problem` proves itself: `check_sizes`, or mixed odd ones where the kernel names none.

        Those of a winner in place are in place too, and have its switches; sizes that cannot be are passed over.
        """
        found = []
        kept = ({IN_PLACE: True} if problem.in_place else {}) | dict.fromkeys(problem.switches, True)
        for sizes in self.proof_sizes:
            with suppress(UsageError):
                found.append(self.problem({**sizes, **kept}, problem.dtype))
        return found

    @property
    def proof_sizes(self) -> list[Mapping[str, int]]:
        """`check_sizes` by name, or mixed odd ones."""
        sides = len(ODD_SIDES)
        if not self.check_sizes:
            return [
                {name: ODD_SIDES[(first + 2 * i) % sides] for i, name in enumerate(self.dimensions)}
                for first in range(sides)
            ]
        return [
            sizes if isinstance(sizes, Mapping) else dict(zip(self.dimensions, sizes, strict=True))
            for sizes in self.check_sizes
        ]

    def trace_problem(self, problem: Problem, configuration: Mapping[str, Value]) -> Problem:
        """A problem of one block, or a few, that the emulator traces in place of a large one.

        Where the kernel does not say, sides grow from 64 until the launch has two blocks, so that one is whole.
        """
        if self.trace_sizes:
            scope = self.scope(problem, configuration)
            sides = [Expression(text, f"kernel {self.name}, trace_sizes").whole(scope) for text in self.trace_sizes]
            return problem.with_sizes(**dict(zip(self.dimensions, (max(1, side) for side in sides), strict=True)))
        side = 64
        while True:
            small = problem.with_sizes(**{name: min(size, side) for name, size in problem.sizes})
            if small == problem or self.launch_of(small, configuration).blocks > 1:
                return small
            side *= 2

    # ---- configurations ----------------------------------------------------------------------------------------

    def configuration(self, overrides: Mapping[str, Any] | None = None) -> Configuration:
        """The default configuration with some values replaced, each checked against its parameter's type.

        Raises ConfigurationError for an unknown parameter or a value of another type. Values outside the declared
        list are allowed here (a search file may widen a domain); the rules decide about them.
        """
        values: dict[str, Value] = {parameter.name: parameter.default for parameter in self.parameters}
        for name, value in (overrides or {}).items():
            parameter = self.parameter(name)
            values[name] = check_value(parameter, value)
        return Configuration(tuple(values.items()))

    def parameter(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = [parameter.name for parameter in self.parameters]
        raise ConfigurationError(
            f"{self.name} has no parameter {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
        )

    def scope(
        self, problem: Problem, configuration: Mapping[str, Value], alignment: int | None = None
    ) -> dict[str, Any]:
        """Every name but `device.*`, for one problem and one configuration."""
        scope = self.problem_scope(problem, alignment) | dict(configuration)
        for name, expression in self.steps:
            scope[name] = _plain(expression.evaluate(scope))
        return scope

    def launch_of(self, problem: Problem, configuration: Mapping[str, Value], alignment: int | None = None) -> Launch:
        """Geometry, dynamic shared memory, scratch and steps. Raises ExpressionError where one is no whole number."""
        scope = self.scope(problem, configuration, alignment)
        names = [argument.name for argument in self.arguments]
        return launch_under(self.launch, scope, f"kernel {self.name}, launch", names)

    def effort_of(self, problem: Problem, configuration: Mapping[str, Value], device: Mapping[str, Any]) -> float:
        """By `effort`, which must not be empty; `device` is the scope of a DeviceInfo."""
        expression = Expression(self.effort, f"kernel {self.name}, effort")
        return float(expression.amount(self.scope(problem, configuration) | dict(device)))

    def traits_of(
        self, problem: Problem, configuration: Mapping[str, Value], alignment: int | None = None
    ) -> dict[str, bool]:
        scope = self.scope(problem, configuration, alignment)
        return {
            t.name: bool(Expression(t.expression, f"kernel {self.name}, trait {t.name}").holds(scope))
            for t in self.traits
        }

    def at(self, folder: Path) -> Kernel:
        """The same kernel, knowing its folder."""
        return replace(self, folder=folder)

    def __reduce__(self) -> tuple[Callable[[Path], Kernel], tuple[Path]]:
        """Another process reads the folder again: functions and expressions do not travel."""
        if self.folder == Path():
            raise TypeError(f"kernel {self.name} is in no folder, so it cannot be sent to another process")
        from autotile.kernels.loader import kernel_at

        return kernel_at, (self.folder.resolve(),)


def alignment_of(problem: Problem) -> int:
    """Bytes that divide every base pointer of the problem, FRESH_ALIGNMENT at most.

    An array of="result" lies as many elements of its own off, whose size is a multiple of the problem's.
    """
    offset_bytes = problem.offset * element_type(problem.dtype).itemsize
    return min(FRESH_ALIGNMENT, offset_bytes & -offset_bytes) if offset_bytes else FRESH_ALIGNMENT


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's own number, so that templates print `64` and not `np.int64(64)`."""
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, float) and math.isfinite(value) and value.is_integer() else value
