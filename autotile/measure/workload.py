"""A problem's data: random inputs, and what the outputs must be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotile.devices.base import Workload
from autotile.dtypes import ElementType, element_type
from autotile.errors import KernelError
from autotile.kernels import Arrays, Input, Kernel, Output
from autotile.kernels.loader import DEFINITION
from autotile.types import Problem

Bounds = Mapping[str, np.ndarray[Any, Any] | float]


def make_workload(kernel: Kernel, problem: Problem, seed: int = 0) -> Workload:
    """Inputs drawn from `seed`, the kernel's reference and its error bound, for one problem.

    Random values, because constant ones hide index errors and zeros run faster than real data.
    Raises KernelError when the kernel's reference or bound raises, lacks an output, or has another shape.
    """
    element = element_type(problem.dtype)
    generator = np.random.default_rng([seed, *(size for _, size in problem.sizes)])
    inputs = {
        argument.name: random_array(element, kernel.shape_of(argument, problem), generator)
        for argument in kernel.inputs
    }
    try:
        reference, bound = kernel.reference(inputs, problem), kernel.error_bound(inputs, problem)
        return _workload(kernel, problem, inputs, reference, bound)
    except Exception as error:  # the reference is the kernel author's code: whatever is wrong with it is said as such
        raise KernelError(
            f"{kernel.folder / DEFINITION}: the reference or the error bound of {kernel.name} does not hold for "
            f"{problem.label}: {type(error).__name__}: {error}"
        ) from error


def _workload(kernel: Kernel, problem: Problem, inputs: Arrays, reference: Arrays, bound: Bounds) -> Workload:
    element = element_type(problem.dtype)
    return Workload(
        arguments=tuple(
            argument.name if isinstance(argument, (Input, Output)) else problem[argument.name]
            for argument in kernel.arguments
        ),
        inputs=inputs,
        outputs={argument.name: (kernel.shape_of(argument, problem), element.numpy) for argument in kernel.outputs},
        reference={argument.name: np.asarray(reference[argument.name]) for argument in kernel.outputs},
        bound={argument.name: bound[argument.name] for argument in kernel.outputs},
    )


def random_array(element: ElementType, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Normal values for floats (both parts of complex ones), all values equally likely for integers."""
    if element.is_complex:
        parts = generator.standard_normal((*shape, 2)).astype(element.numpy.type(0).real.dtype)
        return np.ascontiguousarray(parts).view(element.numpy)[..., 0]
    if element.is_float:
        wide = np.float64 if element.name == "float64" else np.float32
        return generator.standard_normal(shape, dtype=wide).astype(element.numpy, copy=False)
    limits = np.iinfo(element.numpy)
    return generator.integers(limits.min, limits.max, shape, dtype=element.numpy, endpoint=True)
