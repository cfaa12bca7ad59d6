"""A problem's data: inputs of several kinds, and what the outputs must be.

random      what a search measures with. Constant data hides index errors, and zeros run faster than real data.
cancelling  sums that come out as 0, of terms that are not. A check relative to the result fails a right kernel here
            (rounding is in proportion to |A||B|, and |AB| is 0) or, loosened until it does not, passes a wrong
            one; and a kernel that treats a zero in its own way (stores nothing, say) shows.
special     NaN, infinities, zeros of both signs, subnormals and tiny values among random ones. A tail of one
            operand that is not filled with zeros, times one of the other that is, is 0 on random data and NaN
            beside an infinity. What only moves elements must keep each bit: a NaN's payload, the sign of a zero.
            No huge finite values: sums in float32 may overflow where float64 does not.
scaled      random values times powers of two far from 1, as far as products and sums of the type reach: what was meant
            for numbers near 1 (a clamp, a constant in place of an epsilon) shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Literal, TypeAlias, get_args

import ml_dtypes
import numpy as np

from autotile.devices.base import Workload, WorkloadArgument, is_exact
from autotile.dtypes import ElementType, element_type
from autotile.errors import KernelError
from autotile.kernels import Argument, Arrays, Input, Kernel, Output, Scalar, Scratch, Size
from autotile.kernels.declarations import RESULT
from autotile.kernels.layout import Layout
from autotile.kernels.loader import DEFINITION
from autotile.measure.placed import logical, unwritten, with_gaps
from autotile.measure.random_data import random_array, random_scalar, range_of
from autotile.types import SCRATCH, Problem

Array: TypeAlias = np.ndarray[Any, Any]
Kind: TypeAlias = Literal["random", "cancelling", "special", "scaled"]
KINDS: tuple[Kind, ...] = get_args(Kind)

FEWEST_UNTOUCHED = 4
"""NaN and infinities reach at most one output in so many, for each input."""


def make_workload(
    kernel: Kernel, problem: Problem, seed: int = 0, kind: Kind = "random", over: bool = False
) -> Workload:
    """Inputs of a kind drawn from `seed`, the kernel's reference and its error bound, for one problem.

    Scalars are drawn too, and reach the reference and the bound beside the inputs, as float64 arrays without a shape.
    With `over`, outputs lie in the place of the inputs that may be they, where both lie alike.
    Arrays with gaps are flat, with random values in the gaps; the reference and the bound see their elements alone.
    The bound is worked out with 0 in place of NaN and infinity: an output that these do not reach keeps its bound, and
    one that they do is compared by position.
    Raises ValueError for an unknown kind, and KernelError when the kernel's reference or bound raises, changes its
    inputs (they are read-only), lacks an output, or has another shape or type than it must.
    """
    if kind not in KINDS:
        raise ValueError(f"inputs of kind {kind!r}: the kinds are {', '.join(KINDS)}")
    generator = np.random.default_rng([seed, *(size for _, size in problem.sizes)])
    layouts = layouts_of(kernel, problem)
    inputs = {argument.name: _random(kernel, problem, argument, generator) for argument in kernel.inputs_of(problem)}
    scalars = {scalar.name: random_scalar(generator) for scalar in kernel.scalars}
    views = {name: logical(array, layouts.get(name)) for name, array in inputs.items()}
    if kind == "cancelling":
        _pair(kernel, problem, views, generator)
    elif kind == "special":
        for argument in kernel.inputs_of(problem):
            values = _special_values(kernel.element_of(argument, problem), is_added(kernel, problem, argument))
            _strew(values, views[argument.name], _most_non_finite(kernel, argument, problem), generator)
    elif kind == "scaled":
        for argument in kernel.inputs_of(problem):
            _scale(kernel.element_of(argument, problem), views[argument.name], generator)
    finite = {name: _finite(array) for name, array in views.items()} if kind == "special" else views
    wide = {name: np.array(value) for name, value in scalars.items()}
    try:
        # inf - inf and 1 / 0 are what special values are there for; of any other data numpy's warning is worth reading.
        with np.errstate(invalid="ignore", divide="ignore") if kind == "special" else nullcontext():
            reference = kernel.reference(_read_only(views | wide), problem)
        bound = kernel.error_bound(_read_only(finite | wide), problem)
        references, bounds = _by_output(kernel, reference, bound)
        places = takes_place(kernel, problem, over)
        made = _workload(kernel, problem, (inputs, scalars), references, bounds, places, generator)
        if kind == "random":
            _require_telling(references, bounds)  # by index: what lies in gaps would tell in any case
        return made
    except Exception as error:  # the reference is the kernel author's code: whatever is wrong with it is said as such
        advice = "; it may not write to its inputs: copy them first" if "read-only" in str(error) else ""
        raise KernelError(
            f"{kernel.folder / DEFINITION}: the reference or the error bound of {kernel.name} does not hold for "
            f"{problem.label}: {type(error).__name__}: {error}{advice}"
        ) from error


def layouts_of(kernel: Kernel, problem: Problem) -> dict[str, Layout]:
    """Where the elements of those arrays lie that have gaps."""
    layouts = {argument.name: kernel.layout_of(argument, problem) for argument in kernel.arrays_of(problem)}
    return {name: layout for name, layout in layouts.items() if not layout.dense}


def takes_place(kernel: Kernel, problem: Problem, over: bool) -> dict[str, str]:
    """Outputs that lie in the place of an input, and that input: of a problem in place, and, with `over`, those that a
    call may pass so, where both lie alike."""
    if problem.in_place:
        return {kernel.in_place[1]: kernel.in_place[0]}
    layouts = {argument.name: kernel.layout_of(argument, problem) for argument in kernel.arrays_of(problem)}
    passed = ((a.may_be, a.name) for a in kernel.inputs_of(problem) if over and a.may_be)
    return {output: source for output, source in passed if layouts[output] == layouts[source]}


def _random(kernel: Kernel, problem: Problem, argument: Input | Output, generator: np.random.Generator) -> Array:
    """Random values for all of an array's memory: in its shape, or flat where it has gaps."""
    layout = kernel.layout_of(argument, problem)
    shape = layout.shape if layout.dense else (layout.extent,)
    added = is_added(kernel, problem, argument)
    return random_array(kernel.element_of(argument, problem), shape, generator, added)


def is_added(kernel: Kernel, problem: Problem, argument: Input | Output) -> bool:
    """Whether an array is of another type than the problem's: what is multiplied is of that one, so that this one is
    added to sums of products."""
    return argument.of == RESULT and kernel.result_type(problem) != element_type(problem.dtype)


def _by_output(kernel: Kernel, reference: Any, bound: Any) -> tuple[dict[str, Array], dict[str, Array | float]]:
    """What the kernel's functions gave, an entry an output. Raises TypeError and ValueError where one is missing."""
    names = [argument.name for argument in kernel.outputs]
    for what, given in (("reference", reference), ("error bound", bound)):
        if not isinstance(given, Mapping):
            raise TypeError(f"the {what} must be a dict with an entry an output, not {type(given).__name__}")
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(f"the {what} lacks {', '.join(missing)}; it has {', '.join(map(str, given)) or 'nothing'}")
    references = {name: np.asarray(reference[name]) for name in names}
    return references, {name: np.asarray(b) if np.ndim(b := bound[name]) else float(b) for name in names}


def _workload(
    kernel: Kernel,
    problem: Problem,
    given: tuple[dict[str, Array], dict[str, float]],
    references: Mapping[str, Array],
    bounds: Mapping[str, Array | float],
    places: dict[str, str],
    generator: np.random.Generator,
) -> Workload:
    """`references` and `bounds` are by index; those of an output with gaps are flat in the result."""
    inputs, scalars = given
    reference, bound = dict(references), dict(bounds)
    layouts = layouts_of(kernel, problem)
    before = {output: inputs[source] for output, source in places.items()}
    dtypes = {argument.name: kernel.element_of(argument, problem).numpy for argument in kernel.outputs}
    outputs = {
        argument.name: (kernel.shape_of(argument, problem), dtypes[argument.name]) for argument in kernel.outputs
    }
    for argument in kernel.outputs:
        name, layout = argument.name, layouts.get(argument.name)
        if layout is None:
            continue
        gaps = before[name] if name in before else _random(kernel, problem, argument, generator)
        reference[name], bound[name] = with_gaps(name, layout, reference[name], bound[name], gaps)
        outputs[name] = ((layout.extent,), dtypes[name])
        before.setdefault(name, unwritten(reference[name], layout, gaps))
    return Workload(
        arguments=arguments_of(kernel, problem, scalars),
        inputs=inputs,
        outputs=outputs,
        reference=reference,
        bound=bound,
        offset=problem.offset,
        layouts=layouts,
        before=before,
        takes_place=places,
    )


def arguments_of(kernel: Kernel, problem: Problem, scalars: Mapping[str, float]) -> tuple[WorkloadArgument, ...]:
    """The kernel's arguments in C order, as a Workload has them."""
    sizes, arrays = kernel.sizes_of(problem), {argument.name for argument in kernel.arrays_of(problem)}
    scalar = element_type(problem.dtype).scalar
    passed: dict[str, np.float32 | np.float64] = {name: scalar(value) for name, value in scalars.items()}

    def value(argument: Argument) -> WorkloadArgument:
        if isinstance(argument, Size):
            return sizes[argument.name]
        if isinstance(argument, Scalar):
            return passed[argument.name]
        if isinstance(argument, Scratch):
            return SCRATCH
        return argument.name if argument.name in arrays else None

    return tuple(value(argument) for argument in kernel.arguments)


FEWEST_TELLING = 16
"""Outputs of fewer elements may be 0 by chance."""


def _require_telling(references: Mapping[str, Array], bounds: Mapping[str, Array | float]) -> None:
    """Raises ValueError for an error bound that would let an output of zeros pass: it would prove nothing."""
    for name, reference in references.items():
        if is_exact(bounds[name]):
            continue  # nothing but the result itself passes
        size = np.abs(reference.astype(np.float64) if reference.dtype.kind != "c" else reference)
        if size.size >= FEWEST_TELLING and np.all(size <= bounds[name]) and np.any(size > 0):
            raise ValueError(
                f"the error bound of output {name!r} would let zeros pass: it is above the result's size everywhere"
            )


def _read_only(inputs: Arrays) -> Arrays:
    """Views through which nothing can be written: a reference that works in place would change what the kernel gets."""
    views = {name: array.view() for name, array in inputs.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


# ---- cancelling -----------------------------------------------------------------------------------------------------


def _pair(kernel: Kernel, problem: Problem, inputs: Arrays, generator: np.random.Generator) -> None:
    """Along its last axis the first input gets pairs (v, −v); the others get equal values at the same two places of
    the axis that bears the same dimension. A sum of products over it is 0; with an odd size one term is left.

    The places are drawn: were they neighbours, a tile or two steps left out would leave out whole pairs, and no trace.
    """
    first, *others = kernel.inputs_of(problem) or (None,)
    if first is None or not first.shape:
        return

    def along(argument: Input) -> Array:
        """The input with the dimension that is paired first, however it is stored."""
        return np.moveaxis(inputs[argument.name], kernel.stored_dims(argument, problem).index(dimension), 0)

    dimension = first.shape[-1]
    array = along(first)
    order = generator.permutation(len(array))
    half = len(order) // 2
    one, other = order[:half], order[half : 2 * half]
    if array.dtype.kind == "i":  # the smallest integer has no counterpart
        np.maximum(array, np.iinfo(array.dtype).min + 1, out=array)
    array[other] = -array[one]
    for argument in others:
        if dimension in argument.shape:
            along(argument)[other] = along(argument)[one]


# ---- special --------------------------------------------------------------------------------------------------------


def _special_values(element: ElementType, added: bool) -> tuple[Array, Array]:
    """Infinities and NaN, then finite values, each most telling first; of the type of a part where it is complex."""
    if not element.is_float:
        least, most = range_of(element, added)
        small = [1] if least == 0 else [least, -1]
        return np.array([], element.numpy), np.array([most, 0, *small], element.numpy)
    dtype = element.numpy.type(0).real.dtype if element.is_complex else element.numpy
    sign = 1 << (8 * dtype.itemsize - 1)
    normal = 1 << (round(-math.log2(element.unit_roundoff)) - 1)  # smallest normal number, as the bits of an IEEE type
    infinity = sign - normal
    nan = sign | infinity | normal >> 1 | 5  # quiet, negative, with a payload
    words = np.dtype(f"u{dtype.itemsize}")
    non_finite = np.array([infinity, sign | infinity, infinity, nan], words)
    if np.isfinite(non_finite[:1].view(dtype))[0]:  # e4m3fn: its only NaN has all bits set, and there are no infinities
        non_finite = np.array([sign - 1, sign | (sign - 1)], words)
    # A factor that is cut off is still no zero, or an infinity times it would be no infinity.
    least = round(element.factor_roundoff / (2 * element.unit_roundoff)) or 1
    finite = np.array([sign, least, 0, sign | (normal - 1), normal, sign | normal], words)
    return non_finite.view(dtype), finite.view(dtype)


def _most_non_finite(kernel: Kernel, argument: Input, problem: Problem) -> int:
    """How many NaN and infinities an input may hold: each may spread over all outputs with its own coordinates."""
    kept = {dimension for output in kernel.outputs for dimension in output.shape}
    sizes = kernel.sizes_of(problem)
    return math.prod(sizes[dimension] for dimension in argument.shape if dimension in kept) // FEWEST_UNTOUCHED


def _strew(values_of: tuple[Array, Array], array: Array, most_non_finite: int, generator: np.random.Generator) -> None:
    """Puts special values, non-finite and finite ones, into an array, no two in one row or column, and on at most half
    of it.

    One stands in the last row and the first column, where a read beyond the end of the row above it would land; one in
    the first row; one in the last column; the others anywhere.
    """
    non_finite, finite = values_of
    *leading, last = array.shape or (1,)
    sides = (math.prod(leading), last) if leading else (last,)  # of several matrices, the rows are counted through
    most = min((*sides, array.size // 2))
    values = [*non_finite[:most_non_finite], *finite][:most]
    places = []
    for axis, size in enumerate(sides):
        ring = np.concatenate([[size - 1, 0], 1 + generator.permutation(size - 2)]) if size > 1 else np.zeros(1, int)
        places.append(np.concatenate([np.roll(ring[:3], -axis), ring[3:]])[: len(values)].astype(int))
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    for i, value in enumerate(values):
        *row, column = (int(along[i]) for along in places)
        place = (*(int(along) for along in np.unravel_index(row[0], leading)), column) if row else (column,)
        parts[i % len(parts)][place] = value


def _finite(array: Array) -> Array:
    """A copy with 0 where NaN or an infinity stood."""
    finite: Array = array.copy()
    finite[~np.isfinite(array)] = 0
    return finite


# ---- scaled ---------------------------------------------------------------------------------------------------------

MOST_SCALE = 20
"""Exponent of two, at most: products of two such, and sums of millions of them, are finite in float32."""

ROOM = 4
"""So many times may the largest exponent of the inputs fit into that of the type; the rest is for products and sums."""


def _scale(element: ElementType, array: Array, generator: np.random.Generator) -> None:
    """Multiplies each value of a float type by a power of two of its own; 16-bit floats of few exponents only down."""
    if not element.is_float:
        return
    parts = array.view(array.real.dtype) if element.is_complex else array
    largest = math.frexp(float(ml_dtypes.finfo(parts.dtype).max))[1]
    up, down = min(MOST_SCALE, largest // ROOM - 4), min(MOST_SCALE, largest // 2)
    powers = generator.integers(-down, max(0, up), parts.shape, endpoint=True)
    parts[...] = np.ldexp(parts.astype(np.float64), powers).astype(parts.dtype)
