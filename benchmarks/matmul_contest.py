"""The matmul's contestants on one GPU: random operands, cuBLAS through PyTorch, CuPy, and each one's error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contest import PEER_FAULTS, Call, launched
from matmul_cases import Case
from transpose_cases import INPUT_SETS

from autotile.build import Builder
from autotile.dtypes import element_type
from autotile.types import Configuration, Problem

CUBLAS = "cublas"
"""How the names of all ways to cuBLAS begin."""

NO_KERNELS = ("Memset", "Memcpy")


@dataclass(frozen=True)
class Operands:
    """Three sets of A, B (random, as the case stores them) and C, PyTorch tensors; `factors` are views of A and B as
    they are multiplied: m × k and k × n, with a leading batch where there is one; `bias` empty where none is."""

    a: Sequence[Any]
    b: Sequence[Any]
    c: Sequence[Any]
    factors: Sequence[tuple[Any, Any]]
    bias: Sequence[Any] = ()


def without_tf32() -> dict[str, Any]:
    """Has PyTorch multiply float32 in float32, without shorter factors on tensor cores; says how it will."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    return {"tf32": torch.backends.cuda.matmul.allow_tf32, "precision": torch.get_float32_matmul_precision()}


def make_operands(case: Case, device: str = "cuda") -> Operands:
    """Normally distributed (of int8, evenly), from a fixed seed: other data draws other power, and other clocks."""
    import torch

    torch.manual_seed(0)
    stored, result = element_type(case.dtype).stored, case.result
    shapes = case.stored_shapes
    a, b = ([random_tensor(shape, stored, device) for _ in range(INPUT_SETS)] for shape in shapes[:2])
    c = [torch.empty(shapes[2], dtype=getattr(torch, result), device=device) for _ in range(INPUT_SETS)]
    factors = [
        tuple(array.transpose(-1, -2) if turned else array for array, turned in zip(pair, case.turned, strict=True))
        for pair in zip(a, b, strict=True)
    ]
    bias = [random_tensor((case.mnk[1],), result, device) for _ in range(INPUT_SETS if "bias" in case.more else 0)]
    return Operands(a, b, c, [(left, right) for left, right in factors], bias)


def random_tensor(shape: Sequence[int], dtype: str, device: str) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not kind.is_floating_point:
        limits = torch.iinfo(kind)
        return torch.randint(limits.min, limits.max + 1, tuple(shape), dtype=kind, device=device)
    if kind.itemsize == 1:  # which randn does not know
        return torch.randn(tuple(shape), device=device).to(kind)
    return torch.randn(tuple(shape), dtype=kind, device=device)


def call_of(device: Any, builder: Builder, problem: Problem, configuration: Configuration, data: Operands) -> Call:
    """One configuration of autotile's, on the arrays as they are stored."""
    arrays = [dict(zip("abc", held, strict=True)) for held in zip(data.a, data.b, data.c, strict=True)]
    return launched(device, builder, problem, configuration, arrays)[0]


def cublas_calls(case: Case, data: Operands) -> dict[str, Call]:
    """cuBLAS as PyTorch calls it: the plain product, and the one that adds to C, with a factor of 0 for what is there;
    for some problems these take other kernels."""
    import torch

    plain, adding = (torch.mm, torch.addmm) if case.batch == 1 else (torch.bmm, torch.baddbmm)
    return {
        f"{CUBLAS}: {plain.__name__}": lambda number: plain(*data.factors[number], out=data.c[number]),
        f"{CUBLAS}: {adding.__name__}": lambda number: adding(
            data.c[number], *data.factors[number], beta=0, out=data.c[number]
        ),
    }


def peers(case: Case, data: Operands) -> dict[str, Call]:
    """cuBLAS through PyTorch, and CuPy's matmul where CuPy is there."""
    found = cublas_calls(case, data)
    try:
        import cupy
    except ImportError:
        return found
    factors = [tuple(cupy.asarray(array) for array in pair) for pair in data.factors]
    targets = [cupy.asarray(array) for array in data.c]
    return found | {"cupy": lambda number: cupy.matmul(*factors[number], out=targets[number])}


def errors_of(calls: Mapping[str, Call], data: Operands) -> dict[str, float | None]:
    """The largest |error| / (|A||B|) of each contestant over all data sets, beside PyTorch's product in float64.

    None where something is no finite number; C holds NaN before, so that is what an element is that was not written.
    """
    import torch

    worst = dict.fromkeys(calls, 0.0)
    for number, pair in enumerate(data.factors):
        a, b = (array.to(torch.float64) for array in pair)
        expected, size = torch.matmul(a, b), torch.matmul(a.abs(), b.abs())  # `a` may be the operand itself
        for name, call in calls.items():
            target = data.c[number].fill_(math.nan)
            call(number)
            off = float(target.to(torch.float64).sub_(expected).abs_().div_(size).max())
            worst[name] = max(worst[name], off if math.isfinite(off) else math.inf)
    return {name: off if math.isfinite(off) else None for name, off in worst.items()}


def kernels_of(call: Call, notes: list[str]) -> list[str]:
    """The names of the kernels that a call launches, as PyTorch's profiler sees them; none where it cannot."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            call(0)
            torch.cuda.synchronize()
        events = [event for event in seen.key_averages() if str(event.device_type).endswith("CUDA")]
    except PEER_FAULTS as fault:
        notes.append(f"the profiler does not work: {type(fault).__name__}: {fault}")
        return []
    return [event.key for event in events if not event.key.startswith(NO_KERNELS)]
