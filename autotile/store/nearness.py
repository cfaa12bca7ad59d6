"""How far apart two problems of a kernel are: what to serve, or to try first, where nothing fits exactly."""

from __future__ import annotations

import math
from dataclasses import replace

from autotile.kernels import Kernel
from autotile.types import Problem

TURNED_OCTAVES = 8.0
"""How far a problem is whose input is stored the other way round: it is read along another axis."""

SWITCH_OCTAVES = 1.0
"""How far one is that differs in another switch."""


def distance(kernel: Kernel, one: Problem, other: Problem) -> float:
    """Octaves between the sizes, added up. Both problems have the kernel's dimensions.

    An optional size counts by how far it is from what is usual beside the problem's other sizes: a batch of 64 is 6
    octaves from a single matrix, and two problems without gaps are no further apart for having pitches. Each switch
    that is on in one of them alone counts too.
    """
    pairs = zip(_octaves(kernel, one), _octaves(kernel, other), strict=True)
    return sum(abs(ours - theirs) for ours, theirs in pairs) + _switched(kernel, one, other)


def _switched(kernel: Kernel, one: Problem, other: Problem) -> float:
    differ = {*one.switches} ^ {*other.switches}
    turned = differ & {argument.turned for argument in kernel.inputs} if differ else set()
    return TURNED_OCTAVES * len(turned) + SWITCH_OCTAVES * (len(differ) - len(turned))


def _octaves(kernel: Kernel, problem: Problem) -> list[float]:
    plain = [math.log2(problem[name]) for name in kernel.dimensions]
    if not problem.options:  # most are as usual in all, and a choice may look at hundreds
        return plain + [0.0] * len(kernel.optional)
    sizes, usual = kernel.sizes_of(problem), kernel.sizes_of(replace(problem, options=()))
    return plain + [math.log2(max(1, sizes[size.name]) / max(1, usual[size.name])) for size in kernel.optional]
