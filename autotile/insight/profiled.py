"""The program that Nsight Compute runs: launches variants once each, in order, and checks nothing.

    python -m autotile.insight.profiled FILE

FILE is a pickled Job, which profile.py writes and removes.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotile.devices.base import Array, WorkloadArgument
from autotile.devices.cuda.device import CudaDevice
from autotile.devices.cuda.packing import Pointer
from autotile.kernels import Input
from autotile.measure.random_data import random_array, random_scalar
from autotile.measure.variant import Variant
from autotile.measure.workload import arguments_of, is_added, takes_place
from autotile.types import SCRATCH, Binary


@dataclass(frozen=True)
class Job:
    """What to open, and what to launch there, built already."""

    open_device: Callable[[], Any]
    variants: tuple[tuple[Variant, Binary], ...]


def main(file: str | Path) -> None:
    """Raises LaunchError when a launch is refused or faults: what comes after it is not launched."""
    job: Job = pickle.loads(Path(file).read_bytes())
    device: CudaDevice = job.open_device()
    for variant, binary in job.variants:
        launch_once(device, variant, binary)


def launch_once(device: CudaDevice, variant: Variant, binary: Binary) -> None:
    """On random data; memory is given back. Waits for the end."""
    program = device.load(binary)
    arrays, arguments = operands_of(variant)
    leads = {name: variant.problem.offset * array.itemsize for name, array in arrays.items()}
    places = takes_place(variant.kernel, variant.problem, over=False)
    held = {name: device.upload(behind(array, leads[name])) for name, array in arrays.items() if name not in places}
    scratch = device.memory(variant.launch.scratch_bytes) if variant.launch.scratch_bytes else None
    addresses = {name: int(allocation) + leads[name] for name, allocation in held.items()}
    addresses |= {output: addresses[source] for output, source in places.items()}
    try:
        device.call(program, variant.launch, _packed(arguments, addresses, scratch.address if scratch else 0))
        device.synchronize()
    finally:
        with device.active():
            for allocation in held.values():
                allocation.free()


def operands_of(variant: Variant) -> tuple[dict[str, Array], tuple[WorkloadArgument, ...]]:
    """Each array's memory, flat, gaps included (inputs random, outputs 0), and the kernel's arguments."""
    kernel, problem = variant.kernel, variant.problem
    generator = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    for argument in kernel.arrays_of(problem):
        shape, element = (kernel.layout_of(argument, problem).extent,), kernel.element_of(argument, problem)
        arrays[argument.name] = (
            random_array(element, shape, generator, is_added(kernel, problem, argument))
            if isinstance(argument, Input)
            else np.zeros(shape, element.numpy)
        )
    scalars = {scalar.name: random_scalar(generator) for scalar in kernel.scalars}
    return arrays, arguments_of(kernel, problem, scalars)


def behind(array: Array, offset_bytes: int) -> Array:
    """The array's bytes, so many behind the start."""
    raw = np.zeros(offset_bytes + array.nbytes, np.uint8)
    raw[offset_bytes:] = array.view(np.uint8)
    return raw


def _packed(arguments: tuple[WorkloadArgument, ...], addresses: Mapping[str, int], scratch: int) -> list[Any]:
    return [
        Pointer(scratch)
        if argument is SCRATCH
        else Pointer(addresses[argument])
        if isinstance(argument, str)
        else argument
        for argument in arguments
    ]


if __name__ == "__main__":
    main(sys.argv[1])
