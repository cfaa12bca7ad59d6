"""How numbers and results read on a terminal."""

from __future__ import annotations

from autotile.kernels import Kernel
from autotile.tuner import SearchResult
from autotile.types import Problem, Record


def rate(kernel: Kernel, problem: Problem, time_ms: float) -> str:
    """TFLOP/s for kernels that compute, GB/s (read and written) for those that move."""
    flops = kernel.flops_of(problem)
    if flops:
        return f"{flops / time_ms / 1e9:.2f} TFLOP/s"
    return f"{kernel.bytes_of(problem) / time_ms / 1e6:.0f} GB/s"


def time_of(record: Record) -> str:
    """`2.741 ms`, or `≈2.741 ms (estimate)`: an estimate never looks like a measurement."""
    measurement = record.measurement
    if measurement is None:
        return "–"
    value = f"{measurement.time_ms:.4g} ms"
    return f"≈{value} (estimate)" if measurement.estimated else value


def load_line(problem: Problem) -> str:
    """The line of Python that loads the winner."""
    sizes = ", ".join(f"{name}={size}" for name, size in problem.sizes)
    return f'{problem.kernel} = autotile.load("{problem.kernel}", {sizes}, dtype="{problem.dtype}")'


def phases_line(result: SearchResult) -> str:
    p = result.phases
    return (
        f"{p.total_s:.1f} s: asking {p.ask_s:.1f}, checking {p.check_s:.1f}, timing {p.measure_s:.1f}, "
        f"finals and proof {p.finals_s:.1f}; compilers ran {p.build_s:.1f} s beside them"
    )


STOPPED = {
    "trials": "the number of trials is reached",
    "time": "the time is up",
    "exhausted": "the space is exhausted: every feasible configuration has been tried",
    "points": "every point has been tried",
    "device_lost": "a faulting kernel took the GPU's context with it; what was measured is saved: run again to go on",
    "interrupted": "interrupted; everything up to here is saved",
}
