"""The options by which `render` and `explain` are told of a kernel, a problem and a configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from autotile.kernels import Kernel
    from autotile.kernels.instead import DeviceOf
    from autotile.types import Configuration, Problem

F = TypeVar("F", bound=Callable[..., Any])

USUAL_SIDE = 4096
"""Of a problem that the command line does not give."""


def point_options(function: F) -> F:
    """--set, --preset, --dtype and --problem, as `sets`, `preset`, `dtype` and `problem`."""
    for option in (
        click.option(
            "--problem", metavar="P",
            help=f"For this problem, say 'rows=4095, cols=4096' (default: {USUAL_SIDE} a side).",
        ),
        click.option("--dtype", help="Element type (default: the kernel's first)."),
        click.option("--preset", help="Start from a preset of the kernel instead of its default configuration."),
        click.option(
            "--set", "sets", multiple=True, metavar="NAME=VALUE", help="A parameter's value. May be given again."
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def read_point(
    kernel: str,
    sets: Sequence[str],
    preset: str | None,
    dtype: str | None,
    problem: str | None,
    templates: Sequence[Path],
    device: DeviceOf,
) -> tuple[Kernel, Problem, Configuration]:
    """What the options name, of the kernel that serves on `device`. Raises UsageError where one is at fault."""
    from autotile.kernels import load_kernel
    from autotile.kernels.instead import resolve
    from autotile.kernels.points import point_of
    from autotile.spec.load import parse_problem, parse_set

    given = {} if problem is None else parse_problem(problem)
    stated = given.pop("dtype", None)
    found, named = resolve(load_kernel(kernel, templates), stated if dtype is None else dtype, device, templates)
    configuration = point_of(found, preset, {name: value for _, name, value in map(parse_set, sets)})
    return found, found.problem({**dict.fromkeys(found.dimensions, USUAL_SIDE), **given}, named), configuration
