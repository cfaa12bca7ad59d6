"""How far apart two problems of a kernel are: what to serve, or to try first, where nothing fits exactly."""

from __future__ import annotations

import math
from dataclasses import replace

from autotile.kernels import Kernel
from autotile.types import Problem


def distance(kernel: Kernel, one: Problem, other: Problem) -> float:
    """Octaves between the sizes, added up. Both problems have the kernel's dimensions.

    An optional size counts by how far it is from what is usual beside the problem's other sizes: a batch of 64 is 6
    octaves from a single matrix, and two problems without gaps are no further apart for having pitches.
    """
    pairs = zip(_octaves(kernel, one), _octaves(kernel, other), strict=True)
    return sum(abs(ours - theirs) for ours, theirs in pairs)


def _octaves(kernel: Kernel, problem: Problem) -> list[float]:
    plain = [math.log2(problem[name]) for name in kernel.dimensions]
    if not problem.options:  # most are as usual in all, and a choice may look at hundreds
        return plain + [0.0] * len(kernel.optional)
    sizes, usual = kernel.sizes_of(problem), kernel.sizes_of(replace(problem, options=()))
    return plain + [math.log2(max(1, sizes[size.name]) / max(1, usual[size.name])) for size in kernel.optional]
