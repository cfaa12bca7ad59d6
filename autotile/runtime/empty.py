"""Calls with a size of 0: nothing is launched, but outputs may still have elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autotile.kernels import Kernel
from autotile.runtime.arrays import HOST, View
from autotile.runtime.scalars import Scalars
from autotile.types import Problem


def fill_empty(
    kernel: Kernel,
    loaded: Problem,
    device: Any,
    views: Sequence[View],
    outputs: Sequence[View],
    sizes: Mapping[str, int],
    scalars: Scalars,
) -> None:
    """Writes the reference's values where an output has elements (a product over k = 0 is zeros).

    On a GPU this waits for all queued work, on whichever stream, before and after.
    """
    if not any(view.nbytes for view in outputs):
        return
    on_gpu = views[0].place != HOST
    if on_gpu:
        device.synchronize()
    problem = _problem(kernel, loaded, sizes)
    inputs = {
        a.name: _on_host(view, device).reshape([sizes[name] for name in kernel.stored_dims(a, problem)])
        for a, view in zip(kernel.inputs_of(problem), views, strict=True)
    }
    numbers = {s.name: np.array(value, np.float64) for s, value in zip(kernel.scalars, scalars, strict=True)}
    reference = kernel.reference(inputs | numbers, problem)
    for argument, view in zip(kernel.outputs, outputs, strict=True):
        values = np.ascontiguousarray(reference[argument.name], view.element.numpy).reshape(view.shape)
        if on_gpu:
            for address, index in view.stretches():
                device.write(address, values[index])
        else:
            view.numpy()[...] = values
    if on_gpu:
        device.synchronize()  # a copy from pageable memory returns before it has arrived


def _problem(kernel: Kernel, loaded: Problem, sizes: Mapping[str, int]) -> Problem:
    """For the reference alone: no problem that is launched has a size of 0."""
    shapes = {name for argument in kernel.arrays for name in argument.shape}
    options = tuple((s.name, sizes[s.name]) for s in kernel.optional if s.name in shapes & sizes.keys())
    return replace(loaded.with_sizes(**sizes), options=options)


def _on_host(view: View, device: Any) -> np.ndarray[Any, Any]:
    if view.place == HOST:
        return view.numpy()
    values = np.empty(view.shape, view.element.numpy)
    if values.nbytes:
        for address, index in view.stretches():
            device.download(address, values[index])
    return values
