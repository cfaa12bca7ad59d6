"""The matmul on tensor cores beside PyTorch's ways to cuBLAS: calls, and each one's error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from contest import PEER_FAULTS, Call
from matmul_contest import CUBLAS, Operands, cublas_calls
from matmul_tensor_cases import TensorCase

import autotile


def with_tf32() -> dict[str, Any]:
    """Has PyTorch multiply float32 on tensor cores, in tf32, which is what that case asks of it; says how it will."""
    import torch

    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = True
    return {
        "tf32": matmul.allow_tf32,
        "reduced_precision_bfloat16": matmul.allow_bf16_reduced_precision_reduction,
        "reduced_precision_float16": matmul.allow_fp16_reduced_precision_reduction,
    }


def tuned_call(tuned: autotile.TunedKernel, data: Operands) -> Call:
    """What `autotile.load` gives, called as anybody would; gives C."""
    arrays = [*zip(data.a, data.b, data.bias, strict=True)] if data.bias else [*zip(data.a, data.b, strict=True)]
    return lambda number: tuned(*arrays[number], out=data.c[number])


def peers(case: TensorCase, data: Operands) -> dict[str, Call]:
    """PyTorch's ways to cuBLAS for the case, by name; each gives its C."""
    import torch

    factors, c = data.factors, data.c
    if case.dtype == "int8":
        return {f"{CUBLAS}: _int_mm": lambda number: torch._int_mm(*factors[number], out=c[number])}
    if case.dtype.startswith("float8"):
        return float8_calls(data)
    if case.more == ("bias", "gelu"):
        gelu = torch.nn.functional.gelu
        return {
            f"{CUBLAS}: addmm, then gelu": lambda number: gelu(torch.addmm(data.bias[number], *factors[number])),
        }
    if case.more == ("wide",):
        return {f"{CUBLAS}: mm to float32": lambda number: torch.mm(*factors[number], out_dtype=torch.float32)}
    return cublas_calls(case, data)


def float8_calls(data: Operands) -> dict[str, Call]:
    """Sums as exact as cuBLAS makes them, and the faster ones; in C's type, or bfloat16 where PyTorch refuses that."""
    import torch

    one = torch.ones((), device=data.a[0].device)

    def call(number: int, kind: Any, fast: bool) -> Any:
        return torch._scaled_mm(*data.factors[number], one, one, out_dtype=kind, use_fast_accum=fast)

    kind, words = data.c[0].dtype, ""
    try:
        call(0, kind, False)
    except PEER_FAULTS:
        kind, words = torch.bfloat16, " to bfloat16"
    return {
        f"{CUBLAS}: _scaled_mm{words}": lambda number: call(number, kind, False),
        f"{CUBLAS}: _scaled_mm{words}, fast sums": lambda number: call(number, kind, True),
    }


def errors_of(case: TensorCase, calls: Mapping[str, Call], data: Operands) -> dict[str, float | None]:
    """‖C − C64‖ / ‖C64‖ of each contestant, the largest over all data sets.

    None where something is no finite number; C holds NaN before (of int8, the least number), so that is what an element
    is that was not written.
    """
    import torch

    worst = dict.fromkeys(calls, 0.0)
    for number in range(len(data.c)):
        expected = exact(case, data, number)
        size = torch.linalg.vector_norm(expected)
        for name, call in calls.items():
            target = data.c[number]
            target.fill_(math.nan if target.dtype.is_floating_point else torch.iinfo(target.dtype).min)
            off = float(torch.linalg.vector_norm(call(number).to(torch.float64).sub_(expected)) / size)
            worst[name] = max(worst[name], off if math.isfinite(off) else math.inf)
    return {name: off if math.isfinite(off) else None for name, off in worst.items()}


def exact(case: TensorCase, data: Operands, number: int) -> Any:
    """The product in float64 of the elements as they are, and what is done more."""
    import torch

    found = torch.matmul(*(array.to(torch.float64) for array in data.factors[number]))
    if data.bias:
        found += data.bias[number].to(torch.float64)
    return torch.nn.functional.gelu(found) if "gelu" in case.more else found
