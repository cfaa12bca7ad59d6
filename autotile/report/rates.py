"""A time as a rate of work: the one place that turns flops and bytes into TFLOP/s and GB/s."""

from __future__ import annotations

from autotile.kernels import Kernel
from autotile.types import Problem


def work_rates(kernel: Kernel, problem: Problem, time_ms: float) -> dict[str, float]:
    """Achieved `tflops` (where there is arithmetic) and `gbs` of the fewest bytes, for a time in ms."""
    rates = {"gbs": kernel.bytes_of(problem) / time_ms / 1e6}
    if kernel.flops_of(problem):
        rates["tflops"] = kernel.flops_of(problem) / time_ms / 1e9
    return rates


def rate(kernel: Kernel, problem: Problem, time_ms: float) -> str:
    """`46.82 TFLOP/s` for kernels that compute, `4047 GB/s` (read and written) for those that move."""
    rates = work_rates(kernel, problem, time_ms)
    if not any(rates.values()):  # a kernel made up from a recording does not know its work
        return "of unknown work"
    return f"{rates['tflops']:.2f} TFLOP/s" if "tflops" in rates else f"{rates['gbs']:.0f} GB/s"
