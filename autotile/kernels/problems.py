"""From sizes by name to a checked problem, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from autotile.errors import UsageError
from autotile.kernels.declarations import OptionalSize
from autotile.kernels.expressions import Expression
from autotile.suggest import did_you_mean
from autotile.types import IN_PLACE, OFFSET, Problem

if TYPE_CHECKING:
    from autotile.kernels.definition import Kernel

MOST_OFFSET = 4096
"""Elements; an alignment beyond a page is of no use to a kernel."""


def make_problem(kernel: Kernel, sizes: Mapping[str, Any], dtype: str | None) -> Problem:
    """Raises UsageError for a missing, unknown, or impossible size and an unknown dtype."""
    for name in sizes:
        if name not in kernel.problem_keys:
            raise UsageError(
                f"{kernel.name} has no dimension {name!r}{did_you_mean(name, kernel.problem_keys)}; "
                f"it has {', '.join(kernel.problem_keys)}"
            )
    missing = [name for name in kernel.dimensions if name not in sizes]
    if missing:
        raise UsageError(f"{kernel.name} also needs {', '.join(missing)}")
    for name, size in sizes.items():
        _check_size(kernel, name, size)
    chosen = kernel.dtypes[0] if dtype is None else str(dtype)
    if chosen not in kernel.dtypes:
        raise UsageError(
            f"{kernel.name} has no dtype {chosen!r}{did_you_mean(chosen, kernel.dtypes)}; "
            f"it has {', '.join(kernel.dtypes)}"
        )
    required = Problem(kernel.name, tuple((name, int(sizes[name])) for name in kernel.dimensions), chosen)
    required = replace(required, switches=tuple(switch.name for switch in kernel.switches if sizes.get(switch.name)))
    problem = replace(required, options=tuple(_options(kernel, required, sizes)))
    if problem.in_place:
        _check_in_place(kernel, problem)
    return problem


def sizes_of(kernel: Kernel, problem: Problem) -> dict[str, int]:
    """Every size by name, optional ones included."""
    given = dict(problem.options)
    sizes = dict(problem.sizes)
    for size in kernel.optional:
        sizes[size.name] = given[size.name] if size.name in given else _default_of(kernel, problem, size, sizes)
    return sizes


def switch_scope(kernel: Kernel, problem: Problem) -> dict[str, int]:
    """Every switch of the kernel as expressions see it."""
    return {f"problem.{switch.name}": int(switch.name in problem.switches) for switch in kernel.switches}


def _check_size(kernel: Kernel, name: str, size: Any) -> None:
    if name == IN_PLACE or name in [switch.name for switch in kernel.switches]:
        if not isinstance(size, (int, np.integer, np.bool_)) or size not in (True, False):
            raise UsageError(f"{kernel.name}: {name} must be true or false, not {size!r}")
        return
    least, most = (0, MOST_OFFSET) if name == OFFSET else (1, 2**31 - 1)
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not least <= size <= most:
        raise UsageError(f"{kernel.name}: {name} must be an integer from {least} to {most}, not {size!r}")


def _options(kernel: Kernel, problem: Problem, sizes: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What is not as usual. Raises UsageError for an optional size below its least."""
    known = dict(problem.sizes)
    for size in kernel.optional:
        least = _default_of(kernel, problem, size, known)
        given = int(sizes.get(size.name, least))
        if given < least:
            raise UsageError(f"{kernel.name}: {size.name} must be at least {least} here, not {given}")
        known[size.name] = given
        if given != least:
            yield size.name, given
    for name in (OFFSET, IN_PLACE):
        if sizes.get(name):
            yield name, int(sizes[name])


def _default_of(kernel: Kernel, problem: Problem, size: OptionalSize, known: Mapping[str, int]) -> int:
    scope = {f"problem.{name}": value for name, value in known.items()} | switch_scope(kernel, problem)
    return Expression(size.default, f"kernel {kernel.name}, optional size {size.name}").whole(scope)


def _check_in_place(kernel: Kernel, problem: Problem) -> None:
    source, target = (next(a for a in kernel.arrays if a.name == name) for name in kernel.in_place)
    if kernel.layout_of(source, problem) == kernel.layout_of(target, problem):
        return
    sizes = sizes_of(kernel, problem)
    dims = kernel.stored_dims(source, problem), kernel.stored_dims(target, problem)
    pairs = [*zip(*dims, strict=True), (source.pitch, target.pitch), (source.step, target.step)]
    differ = [f"{b} must be {a}, {sizes[a]}, not {sizes[b]}" for a, b in pairs if a and b and sizes[a] != sizes[b]]
    raise UsageError(
        f"{kernel.name} in place: {target.name} must lie as {source.name} does: "
        f"{'; '.join(differ) or 'without gaps, as only one of the two may have them'}"
    )
