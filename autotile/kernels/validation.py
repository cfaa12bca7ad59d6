"""Whether a kernel's declaration holds together, before anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from autotile.devices.info import DeviceInfo
from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels.declarations import ELEMENT, OF_CUDA, RESERVED, RESULT, Input, Output, Scalar, Scratch, Size
from autotile.kernels.definition import Kernel
from autotile.kernels.expressions import Expression
from autotile.suggest import did_you_mean
from autotile.types import IN_PLACE, OFFSET, Problem

DEVICE_NAMES = frozenset({f"device.{name}" for name in DeviceInfo.__dataclass_fields__} | {"device.compute_capability"})


SCALAR_TYPES = ("float", "double")
"""Accumulators that a scalar can be passed in."""

CALL_NAMES = ("out", "stream")
"""Keywords of a tuned kernel's call, which a scalar's would hide."""


def validate(kernel: Kernel) -> None:
    """Raises KernelError, or UsageError for a dtype, naming the first thing that is wrong."""
    for dtype in kernel.dtypes:
        element_type(dtype)
    if not kernel.entry.isidentifier() or kernel.entry in OF_CUDA:
        raise KernelError(f"{kernel.entry!r} cannot be the name of a function in CUDA; set `entry` to another")
    _check_arguments(kernel)
    _check_inputs(kernel)
    _check_maps(kernel)
    _check_types(kernel)
    _check_values(kernel)
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
        if beside := set(named) & {switch.name for switch in kernel.switches}:
            raise KernelError(f"check_sizes name the switch {min(beside)!r}: a winner proves itself with its own")
        kernel.problem(named)
    _check_instead(kernel)
    _check_defaults(kernel)
    for problem in _switched(kernel, dict.fromkeys(kernel.dimensions, 1)):
        _try_out(kernel, problem)


def _switched(kernel: Kernel, sizes: Mapping[str, int]) -> list[Problem]:
    """The problem with every switch off, with each alone on, and with all on."""
    names = [switch.name for switch in kernel.switches]
    sets = dict.fromkeys(((), *((name,) for name in names), tuple(names)))
    return [kernel.problem({**sizes, **dict.fromkeys(on, True)}) for on in sets]


def _try_out(kernel: Kernel, tried: Problem) -> None:
    """Works out all that the kernel's problems and its default configuration need: text, say, is no launch."""
    configuration = kernel.configuration()
    for problem in (tried, *kernel.proof_problems(tried)):
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
        if isinstance(argument, (Scalar, Scratch)):
            continue
        if isinstance(argument, Size):
            names: tuple[str, ...] = (argument.name,)
        else:
            names = (*argument.shape, *filter(None, (argument.pitch, argument.step)))
        for name in names:
            if name not in kernel.sizes:
                what = "the size" if isinstance(argument, Size) else f"array {argument.name!r}: its dimension"
                raise KernelError(f"{what} {name!r} is not among the kernel's: {', '.join(kernel.sizes)}")
    stated = [*kernel.sizes, *(switch.name for switch in kernel.switches)]
    for name in stated:
        if name in RESERVED or name in (OFFSET, IN_PLACE, "alignment", "dtype") or stated.count(name) > 1:
            what = "a size" if name in kernel.sizes else "a switch"
            raise KernelError(f"{name!r} cannot be the name of {what}: it is reserved, or declared twice")
    for array in kernel.arrays:
        _check_gaps(kernel, array)
    if kernel.in_place:
        _check_in_place(kernel)
    classes = [shape_class.name for shape_class in kernel.classes]
    if repeated := {name for name in classes if classes.count(name) > 1}:
        raise KernelError(f"classes {', '.join(sorted(repeated))}: declared twice")


def _check_inputs(kernel: Kernel) -> None:
    """What an input says beside its shape names what there is, and fits."""
    switches, outputs = [switch.name for switch in kernel.switches], {output.name: output for output in kernel.outputs}
    for array in kernel.inputs:
        for what, name in (("turned", array.turned), ("when", array.when)):
            if name and name not in switches:
                raise KernelError(f"array {array.name!r}: {what} {name!r} is no switch of the kernel")
        if array.turned and len(array.shape) < 2:
            raise KernelError(f"array {array.name!r}: what is turned has two dimensions at least")
        if array.when and array.name in kernel.in_place:
            raise KernelError(f"array {array.name!r}: an output cannot take the place of what may not be there")
        if array.may_be and (array.may_be not in outputs or outputs[array.may_be].shape != array.shape):
            raise KernelError(f"array {array.name!r}: may_be {array.may_be!r} is no output of the same shape")


def _check_maps(kernel: Kernel) -> None:
    pointers = [argument.name for argument in kernel.arguments if isinstance(argument, (Input, Output, Scratch))]
    for one in kernel.launch.maps:
        if one.array not in pointers:
            raise KernelError(f"map of {one.array!r}: no array and no scratch memory of the kernel is called so")
        if one.of not in ("element", "result"):
            raise KernelError(f"map of {one.array!r}: of must be element or result, not {one.of!r}")


def _check_types(kernel: Kernel) -> None:
    """Arrays are of the dtype or of the result's type, and one that may lie in another's place is of the same."""
    for array in kernel.arrays:
        if array.of not in (ELEMENT, RESULT):
            raise KernelError(f"array {array.name!r}: of must be {ELEMENT!r} or {RESULT!r}, not {array.of!r}")
    of = {array.name: array.of for array in kernel.arrays}
    pairs = [(a.name, a.may_be, "may_be") for a in kernel.inputs if a.may_be]
    for one, other, what in (*pairs, *([(*kernel.in_place, "in_place")] if kernel.in_place else [])):
        if of[one] != of[other]:
            raise KernelError(
                f"{what}: {one!r} is of {of[one]!r}, {other!r} of {of[other]!r}; they must be of one type"
            )
    if kernel.opaque and RESULT in of.values():
        raise KernelError(f"an opaque kernel moves elements as they are: it has no array of {RESULT!r}")
    if not kernel.wide:
        return
    if kernel.wide not in [switch.name for switch in kernel.switches]:
        raise KernelError(f"wide names a switch of the kernel, which {kernel.wide!r} is not")
    if RESULT not in of.values():
        raise KernelError(f"wide is {kernel.wide!r}, but no array is of {RESULT!r}, so that it would widen nothing")


def _check_values(kernel: Kernel) -> None:
    """Scalars and scratch: names of their own, a type to pass a scalar in, and one place to work in."""
    names = [argument.name for argument in kernel.arguments]
    taken = {*(s.name for s in kernel.switches), *(p.name for p in kernel.optional), *kernel.dimensions, *CALL_NAMES}
    for argument in kernel.arguments:
        if not isinstance(argument, (Scalar, Scratch)):
            continue
        if not argument.name.isidentifier() or names.count(argument.name) > 1 or argument.name in taken:
            raise KernelError(f"{argument.name!r} cannot be the name of {argument!r}: it is taken, or no identifier")
    taken_as = (*SCALAR_TYPES, "int") if any(output.of == RESULT for output in kernel.outputs) else SCALAR_TYPES
    if kernel.scalars and (odd := [n for n in kernel.dtypes if element_type(n).accumulator not in taken_as]):
        advice = "; beside an output of 'result', integers summed in int have floats" if "int" not in taken_as else ""
        raise KernelError(f"scalars are float or double; sums of {', '.join(odd)} are neither{advice}")
    scratch = [argument.name for argument in kernel.arguments if isinstance(argument, Scratch)]
    if len(scratch) > 1:
        raise KernelError(f"{', '.join(scratch)}: a kernel has one Scratch at most")
    if kernel.launch.scratch_bytes.strip() != "0" and not scratch:
        raise KernelError("the launch has scratch_bytes, but no argument is a Scratch(…), which points to them")


def _check_instead(kernel: Kernel) -> None:
    """Of those that serve in its place: another name than its own, and a `when` that comes to a yes or no."""
    fields = DeviceInfo.__dataclass_fields__.items()
    scope = {f"device.{name}": "" if field.type == "str" else 1 for name, field in fields}
    scope |= {"device.compute_capability": 1, "problem.dtype": kernel.dtypes[0]}
    for one in kernel.instead:
        if one.kernel == kernel.name:
            raise KernelError(f"instead names the kernel {one.kernel!r} itself; it names another folder")
        Expression(one.when, f"instead {one.kernel}").holds(scope)


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
        for problem in _switched(kernel, sizes):
            _check_default_sizes(kernel, problem)


def _check_default_sizes(kernel: Kernel, problem: Problem) -> None:
    found = kernel.sizes_of(problem)
    for size in kernel.optional:
        if found[size.name] < 1:
            raise KernelError(f"optional size {size.name!r}: its default is {found[size.name]} for {problem.asked}")
    for array in kernel.arrays:
        dims = kernel.stored_dims(array, problem)
        for what, name, axis in (("pitch", array.pitch, -1), ("step", array.step, -2)):
            if name and found[name] < found[dims[axis]]:
                raise KernelError(
                    f"array {array.name!r}: the default of its {what} {name!r} is {found[name]} for {problem.asked}, "
                    f"less than {dims[axis]}, so rows or matrices would overlap; it must be "
                    f"'problem.{dims[axis]}' at least"
                )


def _check_in_place(kernel: Kernel) -> None:
    inputs, outputs = [a.name for a in kernel.inputs], [a.name for a in kernel.outputs]
    if len(kernel.in_place) != 2 or kernel.in_place[0] not in inputs or kernel.in_place[1] not in outputs:
        raise KernelError(f"in_place names an input and the output that takes its place, not {kernel.in_place!r}")


def _expressions(kernel: Kernel) -> Iterator[tuple[str, str, set[str]]]:
    """Every expression of the declaration: where it stands, its text, and the names that it may use."""
    sizes = {f"problem.{name}" for name in (*kernel.dimensions, *(switch.name for switch in kernel.switches))}
    for size in kernel.optional:
        yield f"optional size {size.name}", size.default, set(sizes)
        sizes.add(f"problem.{size.name}")
    types = {"problem.itemsize", "problem.result_itemsize", "problem.dtype"}
    problem = sizes | types | ({"problem.in_place"} if kernel.in_place else set())
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
    yield "launch scratch_bytes", kernel.launch.scratch_bytes, set(known)
    known.add("scratch_bytes")
    for side in kernel.launch.grid:
        yield "launch grid", side, known
    for step in kernel.launch.steps:
        for text in (step.when, *step.grid, *step.block):
            yield f"launch step {step.name}", text, known
    yield "launch overlap", kernel.launch.overlap, known
    for one in kernel.launch.maps:
        for text in one.expressions:
            yield f"map of {one.array}", text, known
    for side in kernel.trace_sizes:
        yield "trace_sizes", side, known
    if kernel.effort:
        yield "effort", kernel.effort, known | DEVICE_NAMES
    for other in kernel.instead:
        yield f"instead {other.kernel}", other.when, {"problem.dtype"} | DEVICE_NAMES
    for trait in kernel.traits:
        yield f"trait {trait.name}", trait.expression, known
    for rule in kernel.rules:
        yield f"rule {rule.expression!r}", rule.expression, known | DEVICE_NAMES
        for part in re.findall(r"\{([^{}]+)\}", rule.message):
            yield f"message of rule {rule.expression!r}", part, known | DEVICE_NAMES
