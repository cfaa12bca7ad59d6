"""Whether a kernel's declaration holds together, before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotile.devices.info import DeviceInfo
from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels.declarations import OF_CUDA, RESERVED, Input, Output, Size
from autotile.kernels.definition import Kernel
from autotile.kernels.expressions import Expression
from autotile.suggest import did_you_mean
from autotile.types import IN_PLACE, OFFSET

DEVICE_NAMES = frozenset({f"device.{name}" for name in DeviceInfo.__dataclass_fields__} | {"device.compute_capability"})


def validate(kernel: Kernel) -> None:
    """Raises KernelError, or UsageError for a dtype, naming the first thing that is wrong."""
    for dtype in kernel.dtypes:
        element_type(dtype)
    if not kernel.entry.isidentifier() or kernel.entry in OF_CUDA:
        raise KernelError(f"{kernel.entry!r} cannot be the name of a function in CUDA; set `entry` to another")
    _check_arguments(kernel)
    for name in (*(derived.name for derived in kernel.derived), *(trait.name for trait in kernel.traits)):
        if name in RESERVED or not name.isidentifier():
            raise KernelError(f"{name!r} cannot be the name of a derived value or a trait: it is reserved")
    given: list[object] = [*kernel.check_sizes, *filter(None, [kernel.trace_sizes])]
    for sizes in given:
        if isinstance(sizes, Mapping):
            continue  # by name; tried below
        if not isinstance(sizes, (tuple, list)) or len(sizes) != len(kernel.dimensions):
            raise KernelError(f"check_sizes and trace_sizes want {len(kernel.dimensions)} sizes, not {sizes!r}")
    for what, text, known in _expressions(kernel):
        for name in sorted(Expression(text, what).names - known):
            raise KernelError(f"{what}: unknown name {name!r}{did_you_mean(name, known)} in {text!r}")
    for named in kernel.proof_sizes:
        kernel.problem(named)
    _check_defaults(kernel)
    _try_out(kernel)


def _try_out(kernel: Kernel) -> None:
    """Works out all that the kernel's problems and its default configuration need: text, say, is no launch."""
    configuration = kernel.configuration()
    for problem in kernel.proof_problems(kernel.problem(dict.fromkeys(kernel.dimensions, 1))):
        kernel.flops_of(problem)
        kernel.class_of(problem)
        kernel.bytes_of(problem)
        kernel.launch_of(problem, configuration)
        kernel.traits_of(problem, configuration)
        scope = kernel.scope(problem, configuration)
        Expression("static_shared_bytes", "launch").whole(scope)
        for rule in kernel.rules:
            expression = Expression(rule.expression, rule.where or "rule")
            if expression.names <= scope.keys():  # a device's limits are not known here
                expression.holds(scope)
    kernel.trace_problem(problem, configuration)


def _check_arguments(kernel: Kernel) -> None:
    if not kernel.outputs:
        raise KernelError("no argument is an Output, so nothing could tell a right kernel from a wrong one")
    for argument in kernel.arguments:
        if isinstance(argument, Size):
            names: tuple[str, ...] = (argument.name,)
        else:
            names = (*argument.shape, *filter(None, (argument.pitch, argument.step)))
        for name in names:
            if name not in kernel.sizes:
                what = "the size" if isinstance(argument, Size) else f"array {argument.name!r}: its dimension"
                raise KernelError(f"{what} {name!r} is not among the kernel's: {', '.join(kernel.sizes)}")
    for name in kernel.sizes:
        if name in RESERVED or name in (OFFSET, IN_PLACE, "alignment", "dtype") or kernel.sizes.count(name) > 1:
            raise KernelError(f"{name!r} cannot be the name of a size: it is reserved, or declared twice")
    for array in kernel.arrays:
        _check_gaps(kernel, array)
    if kernel.in_place:
        _check_in_place(kernel)
    classes = [shape_class.name for shape_class in kernel.classes]
    if repeated := {name for name in classes if classes.count(name) > 1}:
        raise KernelError(f"classes {', '.join(sorted(repeated))}: declared twice")


def _check_gaps(kernel: Kernel, array: Input | Output) -> None:
    """Pitch and step are optional sizes of their own, of arrays that have rows and matrices."""
    optional = [size.name for size in kernel.optional]
    for what, name, axes in (("pitch", array.pitch, 2), ("step", array.step, 3)):
        if name and name not in optional:
            raise KernelError(f"array {array.name!r}: its {what} {name!r} must be an optional size")
        if name and len(array.shape) < axes:
            raise KernelError(f"array {array.name!r}: a {what} needs {axes} dimensions, not {len(array.shape)}")
    if array.step and array.step == array.pitch:
        raise KernelError(f"array {array.name!r}: its pitch and its step must be two sizes")
    if array.step and not array.pitch:
        raise KernelError(f"array {array.name!r}: a step counts rows, so there must be a pitch too")


def _check_defaults(kernel: Kernel) -> None:
    """Defaults are the least allowed: rows that overlapped would be read as the matrix that they are not."""
    sides = {name: 101 + 37 * i for i, name in enumerate(kernel.dimensions)}
    for sizes in (sides, dict(zip(sides, reversed(sides.values()), strict=True)), dict.fromkeys(sides, 1)):
        found = kernel.sizes_of(kernel.problem(sizes))
        for size in kernel.optional:
            if found[size.name] < 1:
                raise KernelError(f"optional size {size.name!r}: its default is {found[size.name]} for {sizes}")
        for array in kernel.arrays:
            for what, name, axis in (("pitch", array.pitch, -1), ("step", array.step, -2)):
                if name and found[name] < found[array.shape[axis]]:
                    raise KernelError(
                        f"array {array.name!r}: the default of its {what} {name!r} is {found[name]} for {sizes}, less "
                        f"than {array.shape[axis]}, so rows or matrices would overlap; it must be "
                        f"'problem.{array.shape[axis]}' at least"
                    )


def _check_in_place(kernel: Kernel) -> None:
    inputs, outputs = [a.name for a in kernel.inputs], [a.name for a in kernel.outputs]
    if len(kernel.in_place) != 2 or kernel.in_place[0] not in inputs or kernel.in_place[1] not in outputs:
        raise KernelError(f"in_place names an input and the output that takes its place, not {kernel.in_place!r}")


def _expressions(kernel: Kernel) -> Iterator[tuple[str, str, set[str]]]:
    """Every expression of the declaration: where it stands, its text, and the names that it may use."""
    sizes = {f"problem.{name}" for name in kernel.dimensions}
    for size in kernel.optional:
        yield f"optional size {size.name}", size.default, set(sizes)
        sizes.add(f"problem.{size.name}")
    problem = sizes | {"problem.itemsize", "problem.dtype"} | ({"problem.in_place"} if kernel.in_place else set())
    for shape_class in kernel.classes:
        yield f"class {shape_class.name}", shape_class.expression, problem | {"problem.alignment"}
    known = problem | {"problem.alignment"} | {parameter.name for parameter in kernel.parameters}
    yield "flops", kernel.flops, problem
    yield "bytes", kernel.bytes, problem
    for derived in kernel.derived:
        yield f"derived {derived.name}", derived.expression, set(known)
        known.add(derived.name)
    for side in kernel.launch.block:
        yield "launch block", side, set(known)
    yield "launch shared_bytes", kernel.launch.shared_bytes, set(known)
    yield "launch static_shared_bytes", kernel.launch.static_shared_bytes, set(known)
    known |= {"threads", "shared_bytes", "static_shared_bytes"}
    for side in kernel.launch.grid:
        yield "launch grid", side, known
    for side in kernel.trace_sizes:
        yield "trace_sizes", side, known
    for trait in kernel.traits:
        yield f"trait {trait.name}", trait.expression, known
    for rule in kernel.rules:
        yield f"rule {rule.expression!r}", rule.expression, known | DEVICE_NAMES
        for part in re.findall(r"\{([^{}]+)\}", rule.message):
            yield f"message of rule {rule.expression!r}", part, known | DEVICE_NAMES
