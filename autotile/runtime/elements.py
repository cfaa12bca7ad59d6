"""Whether an array of a call is of the type that the kernel takes there."""

from __future__ import annotations

from dataclasses import replace

from autotile.errors import ArgumentTypeError
from autotile.kernels import Input, Kernel, Output
from autotile.kernels.declarations import RESULT
from autotile.runtime.arrays import View
from autotile.types import Problem

FLOAT8_HEADER = "cuda_fp8.h"


def require_dtype(kernel: Kernel, problem: Problem, argument: Input | Output, view: View) -> None:
    """Raises ArgumentTypeError, with the dtype that is wanted, for an array of another. An output is called `out`."""
    element = kernel.element_of(argument, problem)
    if view.dtype == element.stored:
        return
    name = argument.name if isinstance(argument, Input) else "out"
    words = f"{name} has dtype {view.dtype}, "
    if argument.of == RESULT or isinstance(argument, Output):
        raise ArgumentTypeError(f"{words}it must be {element.stored}{_where_wide(kernel, problem, argument, view)}")
    arrays = f", whose arrays are {element.stored}" if element.stored != problem.dtype else ""
    words += f"the kernel was loaded for {problem.dtype}{arrays}: convert the array, "
    if view.kind == "cupy" and element.header == FLOAT8_HEADER:
        raise ArgumentTypeError(f"{words}which CuPy, having no {element.name}, cannot: pass PyTorch tensors")
    raise ArgumentTypeError(f'{words}or load with dtype="{view.dtype}"')


def _where_wide(kernel: Kernel, problem: Problem, argument: Input | Output, view: View) -> str:
    """What to say of an array that would be right were the kernel loaded otherwise."""
    if not kernel.wide or argument.of != RESULT:
        return ""
    on = kernel.wide in problem.switches
    switches = [name for name in problem.switches if name != kernel.wide]
    other = replace(problem, switches=(*switches, *([] if on else [kernel.wide])))
    if kernel.element_of(argument, other).stored != view.dtype:
        return ""
    return f", or load the kernel {'without' if on else 'with'} {kernel.wide}=True"
