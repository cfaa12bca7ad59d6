"""Contestants on one GPU, timed in turns through PyTorch's events: data there, launches without Python's cost, checks.

`common.race` does this for a few contestants. Here there are dozens of short cases: the launches of a whole round are
queued before anything is waited for, and every other round goes backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from common import FLUSH_BYTES
from transpose_cases import INPUT_SETS, Case
from vector_copy import VARIANTS

from autotile.build import Builder
from autotile.devices.cuda import Pointer
from autotile.dtypes import element_type
from autotile.errors import AutotileError
from autotile.kernels import Scalar, Scratch, Size, load_kernel
from autotile.measure import make_variant
from autotile.types import Binary, Configuration, Launch, Problem

Call = Callable[[int], Any]
"""Queues one launch on the data set of that number."""

POISON = 0xA5
GEAM_DTYPES = ("float32", "float64", "complex64", "complex128")
CUPY_LACKS = ("bfloat16",)

PEER_FAULTS = (RuntimeError, TypeError, ValueError, AssertionError, AttributeError)
"""What a peer's library raises where it does not take the case: it drops out, and the case goes on."""


class Clock(Protocol):
    def launch(self, call: Call, number: int) -> Callable[[], float]:
        """Queues a flush of the L2 and a launch; what comes back gives its time in ms once `wait` has returned."""
        ...

    def wait(self) -> None: ...


class TorchClock:
    """Events of PyTorch's current stream. The flush also keeps the GPU busy while Python queues the launch."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._scratch = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def launch(self, call: Call, number: int) -> Callable[[], float]:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._scratch.zero_()
        begin.record()
        call(number)
        end.record()
        return lambda: float(begin.elapsed_time(end))

    def wait(self) -> None:
        self._torch.cuda.synchronize()


def in_turns(contestants: Mapping[str, Call], rounds: int, clock: Clock) -> dict[str, list[float]]:
    """A time in ms of each contestant and round; each round on the next of the data sets."""
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        order = list(contestants) if number % 2 == 0 else list(contestants)[::-1]
        spans = [(name, clock.launch(contestants[name], number % INPUT_SETS)) for name in order]
        clock.wait()
        for name, span_ms in spans:
            samples[name].append(span_ms())
    return samples


def without_those_that_fail(contestants: Mapping[str, Call], notes: list[str]) -> dict[str, Call]:
    """All that one call of each does not end with a fault of its library's; `notes` hears of the others."""
    taken = {}
    for name, call in contestants.items():
        try:
            call(0)
        except PEER_FAULTS as fault:
            words = str(fault).partition("\n")[0]
            notes.append(f"{name} does not take this case: {type(fault).__name__}: {words}")
        else:
            taken[name] = call
    return taken


@dataclass(frozen=True)
class Data:
    """Three sets of random input (batch × rows × cols) and of output (batch × cols × rows), PyTorch tensors."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]


def make_data(case: Case) -> Data:
    import torch

    dtype = getattr(torch, case.dtype)
    shape = (case.batch, case.rows, case.cols)
    turned = (case.batch, case.cols, case.rows)
    if dtype.is_floating_point or dtype.is_complex:
        inputs = [torch.randn(shape, dtype=dtype, device="cuda") for _ in range(INPUT_SETS)]
    else:
        limits = torch.iinfo(dtype)
        inputs = [
            torch.randint(limits.min, limits.max, shape, dtype=dtype, device="cuda") for _ in range(INPUT_SETS)
        ]  # fmt: skip
    return Data(inputs, [torch.empty(turned, dtype=dtype, device="cuda") for _ in range(INPUT_SETS)])


def build_all(builder: Builder, problems: Sequence[tuple[Problem, Configuration]]) -> None:
    """Builds in a pool what `variant_call` builds one after another; what fails here fails there, and is told there."""
    pending = []
    for problem, configuration in problems:
        with suppress(AutotileError):
            pending.append(builder.submit(make_variant(load_kernel(problem.kernel), problem, configuration).source))
    for future in pending:
        future.exception()


def variant_call(
    device: Any, builder: Builder, problem: Problem, configuration: Configuration, data: Data
) -> tuple[Call, Launch]:
    """One configuration on the data. A problem in place works on the outputs, which hold its input."""
    kernel = load_kernel(problem.kernel)
    (source,), (target,) = kernel.inputs, kernel.outputs
    sources = data.outputs if problem.in_place else data.inputs
    arrays = [{source.name: given, target.name: out} for given, out in zip(sources, data.outputs, strict=True)]
    return launched(device, builder, problem, configuration, arrays)


def launched(
    device: Any, builder: Builder, problem: Problem, configuration: Configuration, arrays: Sequence[Mapping[str, Any]]
) -> tuple[Call, Launch]:
    """One configuration on data sets: PyTorch tensors by the names of the kernel's arguments; null where one lacks.

    Scalars have their defaults. What the launch works in is allocated here, and held as long as the call. Nothing of
    Python's but the launch itself lies between the events: that a tuned kernel also looks at its arrays is left out.
    """
    kernel = load_kernel(problem.kernel)
    variant = make_variant(kernel, problem, configuration)
    program = device.load(builder.build(variant.source))
    sizes = kernel.sizes_of(problem)
    scratch = scratch_memory(variant.launch.scratch_bytes)

    def argument(held: Mapping[str, Any], declared: Any) -> Any:
        if isinstance(declared, Size):
            return sizes[declared.name]
        if isinstance(declared, Scalar):
            return element_type(problem.dtype).scalar(declared.default)
        if isinstance(declared, Scratch):
            return scratch
        return Pointer(held[declared.name].data_ptr()) if declared.name in held else None

    arguments = [[argument(held, declared) for declared in kernel.arguments] for held in arrays]
    return lambda number: device.call(program, variant.launch, arguments[number], 0), variant.launch


def scratch_memory(nbytes: int) -> Any:
    """A tensor of so many bytes, whose allocation PyTorch aligns to 512; None for 0."""
    if not nbytes:
        return None
    import torch

    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def own_copies(device: Any, binaries: Sequence[Binary], case: Case, data: Data) -> dict[str, Call]:
    """The copy kernels of vector_copy.VARIANTS, built in that order, named `own_copy: …`."""

    def call_of(program: Any, launch: Launch, sizes: tuple[int, int]) -> Call:
        pairs = [
            [Pointer(source.data_ptr()), Pointer(target.data_ptr()), *sizes]
            for source, target in zip(data.inputs, data.outputs, strict=True)
        ]
        return lambda number: device.call(program, launch, pairs[number], 0)

    return {
        f"own_copy: {variant.label}": call_of(
            device.load(binary), variant.launch(case.array_bytes), variant.sizes(case.array_bytes)
        )
        for variant, binary in zip(VARIANTS, binaries, strict=True)
    }


def peers(case: Case, data: Data) -> dict[str, Call]:
    """PyTorch's copy, and the transposes of PyTorch, CuPy and cuBLAS, as far as they are there and know the dtype.

    In place PyTorch goes through an array of its own, and the others are left out.
    """
    inputs, outputs = data.inputs, data.outputs
    flat = [array.view(source.shape) for source, array in zip(inputs, outputs, strict=True)]
    found: dict[str, Call] = {"copy": lambda number: flat[number].copy_(inputs[number])}
    if case.in_place:
        return found | {
            "torch": lambda number: outputs[number].copy_(outputs[number].transpose(-1, -2).contiguous())
        }  # fmt: skip
    found["torch"] = lambda number: outputs[number].copy_(inputs[number].transpose(-1, -2))
    if case.dtype in CUPY_LACKS:
        return found
    try:
        import cupy
    except ImportError:
        return found
    sources, targets = ([cupy.asarray(array) for array in arrays] for arrays in (inputs, outputs))
    found["cupy"] = lambda number: cupy.copyto(targets[number], sources[number].swapaxes(-1, -2))
    if case.batch == 1 and case.dtype in GEAM_DTYPES:
        from cupy import cublas

        planes = [(source[0], target[0]) for source, target in zip(sources, targets, strict=True)]
        found["geam"] = lambda number: cublas.geam(
            "T", "T", 1.0, planes[number][0], 0.0, planes[number][0], out=planes[number][1]
        )
    return found


def wrong_sets(call: Call, case: Case, data: Data) -> list[int]:
    """The data sets on which a launch leaves another output than PyTorch's transpose, bit for bit.

    Outputs are poisoned before; in place they hold the input.
    """
    import torch

    wrong = []
    for number, (source, target) in enumerate(zip(data.inputs, data.outputs, strict=True)):
        if case.in_place:
            target.copy_(source)
        else:
            as_bytes(target).fill_(POISON)
        call(number)
        if not torch.equal(as_words(target), as_words(source.transpose(-1, -2).contiguous())):
            wrong.append(number)
    return wrong


def wrong_peers(contestants: Mapping[str, Call], data: Data) -> list[str]:
    """Peers whose transposes are not one, in values: a rate of theirs would say nothing."""
    import torch

    target, expected = data.outputs[0], data.inputs[0].transpose(-1, -2)
    wrong = []
    for name in ("torch", "cupy", "geam"):
        if name in contestants:
            as_bytes(target).fill_(POISON)
            contestants[name](0)
            if not torch.equal(target, expected):
                wrong.append(name)
    return wrong


def as_bytes(array: Any) -> Any:
    import torch

    return array.reshape(-1).view(torch.uint8)


def as_words(array: Any) -> Any:
    """The same bits as integers, of 8 bytes where they are so many: NaN is equal to itself, and −0 is not 0."""
    import torch

    found = as_bytes(array)
    return found.view(torch.int64) if found.numel() % 8 == 0 else found
