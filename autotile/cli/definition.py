"""What a kernel declares, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotile.types import IN_PLACE, OFFSET, Problem, Value

if TYPE_CHECKING:
    from autotile.kernels import Instead, Kernel, Parameter


Served = Sequence[tuple["Instead", Sequence[str]]]
"""What takes a kernel's place, each with the dtypes that it does so for."""


def definition_lines(kernel: Kernel, served: Served = ()) -> Iterator[str]:
    from autotile.kernels.declarations import RESULT
    from autotile.space.rules import DEVICE_RULES

    yield f"{kernel.name}: {kernel.doc}"
    yield f"  problem     {', '.join(kernel.dimensions)}; dtypes {', '.join(kernel.dtypes)}"
    if results := [array.name for array in kernel.arrays if array.of == RESULT]:
        types = ", ".join(dict.fromkeys(_result(kernel, dtype) for dtype in kernel.dtypes))
        wide = f", or float32 where `{kernel.wide}` is on" if kernel.wide else ""
        yield f"              of the results' type, {types}{wide}: {', '.join(results)}"
    if kernel.opaque:
        yield "              what is tuned for one dtype serves all of its size"
    if served:
        yield "  other kernels that serve under its name: dtypes, and where (the first that fits)"
    for one, dtypes in served:
        yield f"    {one.kernel:<16} {' '.join(dtypes) or 'none'}\n    {'':<16} where {one.when}"
        if one.doc:
            yield f"    {'':<16} {one.doc}"
    yield "  what a problem may say beside, and what it is where left out"
    for name, usual, doc in _options(kernel):
        yield f"    {name:<16} {usual}\n    {'':<16} {doc}"
    if kernel.classes:
        yield "  classes of problems (the first that holds), each wanting a kernel of its own"
    for c in kernel.classes:
        yield f"    {c.name:<16} {c.expression}"
    yield "  parameters (* marks the default; what stands in brackets is searched only by a file that names it)"
    for p in kernel.parameters:
        yield f"    {p.name:<16} {' '.join(_value(p, value) for value in p.values)}"
        yield f"    {'':<16} {p.doc}"
    yield "  derived values"
    for d in kernel.derived:
        yield f"    {d.name:<16} {d.expression}\n    {'':<16} {d.doc}"
    if kernel.scalars:
        yield "  scalars of a call, and what they are where left out"
    for scalar in kernel.scalars:
        yield f"    {scalar.name:<16} {scalar.default:g}"
    if kernel.launch.steps:
        yield "  launched around the kernel, where the condition holds"
    for when, steps in (("before", kernel.launch.before), ("after", kernel.launch.after)):
        for step in steps:
            yield f"    {f'{kernel.entry}_{step.name}':<16} {when}: {step.when}"
    yield "  traits of a problem"
    for t in kernel.traits:
        yield f"    {t.name:<16} {t.expression}\n    {'':<16} {t.doc}"
    yield "  rules"
    for rule in (*DEVICE_RULES, *kernel.rules):
        yield f"    {rule.expression}\n      {rule.message}"
    yield "  presets"
    for name, values in kernel.presets.items():
        yield f"    {name:<16} {' '.join(f'{key}={_shown(value)}' for key, value in values.items())}"


def kernel_document(kernel: Kernel) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "doc": kernel.doc,
        "dimensions": list(kernel.dimensions),
        "options": [{"name": name, "default": usual, "doc": doc} for name, usual, doc in _options(kernel)],
        "switches": [switch.name for switch in kernel.switches],
        "scalars": {scalar.name: scalar.default for scalar in kernel.scalars},
        "steps": [
            {"entry": f"{kernel.entry}_{step.name}", "launched": when, "when": step.when}
            for when, steps in (("before", kernel.launch.before), ("after", kernel.launch.after))
            for step in steps
        ],
        "dtypes": list(kernel.dtypes),
        "results": {dtype: _result(kernel, dtype) for dtype in kernel.dtypes},
        "wide": kernel.wide,
        "opaque": kernel.opaque,
        "classes": [{"name": c.name, "expression": c.expression} for c in kernel.classes],
        "parameters": [
            {"name": p.name, "values": list(p.values), "searched": list(p.domain), "default": p.default, "doc": p.doc}
            for p in kernel.parameters
        ],
        "rules": [{"expression": rule.expression, "message": rule.message} for rule in kernel.rules],
        "presets": {name: dict(values) for name, values in kernel.presets.items()},
    }


def instead_objects(kernel: Kernel, served: Served = ()) -> list[dict[str, Any]]:
    """What takes the kernel's place; with `served`, the dtypes too."""
    if served:
        return [{**asdict(one), "dtypes": list(dtypes)} for one, dtypes in served]
    return [asdict(one) for one in kernel.instead]


def _result(kernel: Kernel, dtype: str) -> str:
    return kernel.result_type(Problem(kernel.name, (), dtype)).name


def _options(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    """What a problem may leave out: its name, what it is then, and a line that says what it does."""
    for size in kernel.optional:
        yield size.name, size.default, size.doc
    yield OFFSET, "0", "elements by which every array begins behind an aligned address"
    if kernel.in_place:
        source, target = kernel.in_place
        yield IN_PLACE, "false", f"whether `{target}` takes the place of `{source}`"
    for switch in kernel.switches:
        yield switch.name, "false", switch.doc


def _value(parameter: Parameter, value: Value) -> str:
    text = _shown(value) + ("*" if value == parameter.default else "")
    return text if value in parameter.domain else f"[{text}]"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
