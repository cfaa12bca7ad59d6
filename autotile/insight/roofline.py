"""Where a problem stands under a GPU's two ceilings: arithmetic, and the bandwidth of its memory.

Attainable = min(peak, bandwidth × FLOP a byte) (Williams, Waterman, Patterson: "Roofline", CACM 52/4, 2009), with the
bytes that the work needs at least. Peaks are the data sheet's, at the boost clock; those of tensor cores are taken for
a kernel that uses them.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotile.devices.info import DeviceInfo
from autotile.devices.memory import SECTOR_BYTES
from autotile.insight.explanation import Pattern, Roofline, Traffic

MEMORY, ARITHMETIC = "memory", "arithmetic"


def roofline(
    device: DeviceInfo,
    dtype: str,
    flops: int,
    least_bytes: int,
    time_ms: float,
    estimated: bool = True,
    tensor_cores: bool = False,
) -> Roofline:
    """`time_ms` is the variant's; `tensor_cores`: its products are theirs."""
    peak = device.rate_tflops(dtype, tensor_cores)
    memory_ms = least_bytes / (device.bandwidth_gbs * 1e6)
    arithmetic_ms = flops / (peak * 1e9)
    return Roofline(
        flops=flops,
        least_bytes=least_bytes,
        flops_a_byte=flops / least_bytes if least_bytes else 0.0,
        peak_tflops=peak,
        bandwidth_gbs=device.bandwidth_gbs,
        bound=ARITHMETIC if arithmetic_ms > memory_ms else MEMORY,
        attainable_ms=max(memory_ms, arithmetic_ms),
        time_ms=time_ms,
        estimated=estimated,
    )


def traffic(
    patterns: Iterable[Pattern], flops: int, least_bytes: int, baseline: str = "", beside: Iterable[Pattern] = ()
) -> Traffic:
    """What `patterns` ask of global memory for the whole launch, beside what those of the `baseline` preset ask."""
    asked, moved = asked_and_moved(patterns)
    base_asked, base_moved = asked_and_moved(beside) if baseline else (None, None)
    return Traffic(
        asked_bytes=asked,
        moved_bytes=moved,
        asked_bytes_a_flop=asked / flops if flops else None,
        moved_bytes_a_flop=moved / flops if flops else None,
        times_least=moved / least_bytes if least_bytes else 0.0,
        baseline=baseline,
        baseline_asked_bytes=base_asked,
        baseline_moved_bytes=base_moved,
    )


def asked_and_moved(patterns: Iterable[Pattern]) -> tuple[float, float]:
    """Bytes that lanes ask of global memory, each lane by itself, and bytes of the sectors that these lie in."""
    found = [p for p in patterns if p.space == "global"]
    asked = sum(p.requests * p.lanes * p.access_bytes for p in found)
    return asked, sum(p.requests * p.per_request * SECTOR_BYTES for p in found)
