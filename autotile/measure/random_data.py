"""Random values of every element type; large arrays are filled by all cores."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from autotile.build.builder import available_cpus
from autotile.dtypes import ElementType

Array = np.ndarray[Any, Any]

MOST_AT_ONCE = 4 << 20
"""Elements of an array that one generator fills; beyond, they come in chunks."""

MOST_ADDED = 2**23
"""What is added to sums of integers is at most as large: exact in float32, and so is what lies next to it; and far from
the end of 32 bits, as it is with a scalar's factor."""

CHUNK = 1 << 20
"""Elements that have a generator of their own, so that the values do not depend on the number of threads."""


def random_array(
    element: ElementType, shape: tuple[int, ...], generator: np.random.Generator, added: bool = False
) -> Array:
    """Normal values for floats (both parts of complex ones), all values equally likely for integers.

    Of integers that are `added` to sums, those that `range_of` gives.
    """
    if added and not element.is_float:
        low, high = range_of(element, added)
        return generator.integers(low, high, shape, dtype=element.numpy, endpoint=True)
    if math.prod(shape) > MOST_AT_ONCE:
        return _in_chunks(element, shape, generator)
    if element.is_complex:
        parts = generator.standard_normal((*shape, 2)).astype(element.numpy.type(0).real.dtype)
        return np.ascontiguousarray(parts).view(element.numpy)[..., 0]
    if element.is_float:
        wide = np.float64 if element.name == "float64" else np.float32
        return generator.standard_normal(shape, dtype=wide).astype(element.numpy, copy=False)
    limits = np.iinfo(element.numpy)
    return generator.integers(limits.min, limits.max, shape, dtype=element.numpy, endpoint=True)


def range_of(element: ElementType, added: bool = False) -> tuple[int, int]:
    """The least and the largest integer of a type, or of what is `added` to sums of that type: a sum that leaves the
    type is no longer what any kernel must return."""
    limits = np.iinfo(element.numpy)
    most = MOST_ADDED if added else limits.max
    return max(int(limits.min), -most - 1), min(int(limits.max), most)


def random_scalar(generator: np.random.Generator) -> float:
    """Of either sign and a magnitude from 0.5 to 2, exact in float32, never 1: a kernel that leaves one out shows."""
    magnitude = (2 * int(generator.integers(2**20, 2**22)) + 1) / 2**22  # of an odd numerator, so no whole number
    return magnitude if generator.integers(2) else -magnitude


def _in_chunks(element: ElementType, shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    """numpy lets go of its lock while it draws and while it copies, so threads are enough."""
    array = np.empty(shape, element.numpy)
    flat = array.reshape(-1)
    chunks = [flat[begin : begin + CHUNK] for begin in range(0, flat.size, CHUNK)]
    seeds = np.random.SeedSequence(generator.integers(0, 2**32, 4, dtype=np.uint32).tolist()).spawn(len(chunks))
    with ThreadPoolExecutor(min(available_cpus(), len(chunks))) as pool:
        for _ in pool.map(_fill, [element] * len(chunks), chunks, seeds):
            pass
    return array


def _fill(element: ElementType, chunk: Array, seed: np.random.SeedSequence) -> None:
    generator = np.random.Generator(np.random.SFC64(seed))
    if not element.is_float:  # all values are equally likely where all bits are
        words = generator.integers(0, 2**64 - 1, -(-chunk.nbytes // 8), dtype=np.uint64, endpoint=True)
        chunk.view(np.uint8)[...] = words.view(np.uint8)[: chunk.nbytes]
        return
    parts = chunk.view(chunk.real.dtype) if element.is_complex else chunk
    if parts.dtype in (np.float32, np.float64):
        generator.standard_normal(dtype=parts.dtype, out=parts)
    else:
        parts[...] = generator.standard_normal(parts.shape, dtype=np.float32)
