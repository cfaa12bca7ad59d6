"""What a call costs the host: a small product, so that the GPU is never waited for.

    python benchmarks/call_overhead.py [--batches 25] [--out FOLDER]

Writes call_overhead.json: microseconds a call of PyTorch, CuPy, pycuda's prepared_call (of a kernel that does nothing,
with as many arguments as a plain matmul) and autotile, without and with out=, on arrays of PyTorch and CuPy.
Contestants take turns; each figure is the median over batches of 500 calls (the queue holds about
1000), with the queue drained between.
`drained_us` counts until the GPU has done them all: where `call_us` comes near it, the GPU was what took the time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, save

SIDE = 64
CALLS = 500
AIM_US = 7.0
"""Set before anything was measured, for autotile with out= on PyTorch tensors."""

NOTHING = """
extern "C" __global__ void nothing(const float* a, const float* b, float* c, int m, int n, int k) {}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=25, help="batches of 500 calls a contestant")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    given = parser.parse_args()
    import torch

    from autotile.build import compiler_at_hand
    from autotile.devices.select import open_device

    device = open_device("cuda")
    calls = contestants(device)
    times = measured(calls, given.batches, torch.cuda.synchronize)
    for name, entry in times.items():
        print(f"{name:32} {entry['call_us']:7.2f} us a call, {entry['drained_us']:7.2f} us with the GPU's work")
    document = machine(device.info, compiler_at_hand(device.target) or "none") | {
        "python": sys.version.split()[0],
        "side": SIDE,
        "calls_a_batch": CALLS,
        "batches": given.batches,
        "aim_us": AIM_US,
        "contestants": times,
    }
    print("wrote", save("call_overhead", device.info, document, given.out))


def contestants(device: Any) -> dict[str, Callable[[], Any]]:
    """One call each, on arrays that are there already; autotile's are checked first."""
    import cupy
    import torch

    import autotile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing need be tuned for this
        matmul = autotile.load("matmul", m=SIDE, n=SIDE, k=SIDE, dtype="float32", device="cuda")
    hosts = np.random.default_rng(0).standard_normal((2, SIDE, SIDE), dtype=np.float32)
    a, b = (torch.from_numpy(host).cuda() for host in hosts)
    c = torch.empty(SIDE, SIDE, device="cuda")
    x, y = (cupy.asarray(host) for host in hosts)
    z = cupy.empty((SIDE, SIDE), cupy.float32)
    exact = hosts[0].astype(np.float64) @ hosts[1]
    for result in (matmul(a, b).cpu().numpy(), matmul(a, b, out=c).cpu().numpy(), matmul(x, y, out=z).get()):
        if not np.allclose(result, exact, atol=1e-4):
            raise SystemExit("autotile's product is wrong")
    prepared, grid, block = prepared_call(device)
    pointers = (int(x.data.ptr), int(y.data.ptr), int(z.data.ptr))
    return {
        "torch.mm": lambda: torch.mm(a, b),
        "torch.mm, out=": lambda: torch.mm(a, b, out=c),
        "cupy.matmul": lambda: cupy.matmul(x, y),
        "cupy.matmul, out=": lambda: cupy.matmul(x, y, out=z),
        "pycuda prepared_call": lambda: prepared(grid, block, *pointers, SIDE, SIDE, SIDE),
        "autotile, torch": lambda: matmul(a, b),
        "autotile, torch, out=": lambda: matmul(a, b, out=c),
        "autotile, cupy": lambda: matmul(x, y),
        "autotile, cupy, out=": lambda: matmul(x, y, out=z),
        "nothing": lambda: None,
    }


def prepared_call(device: Any) -> tuple[Callable[..., Any], tuple[int, int], tuple[int, int, int]]:
    """pycuda's launch of the kernel that does nothing, with its geometry."""
    import pycuda.driver as pycuda

    from autotile.build import Builder
    from autotile.types import Source

    with Builder(device.target, jobs=1) as builder:
        binary = builder.build(Source("call_overhead", "nothing", NOTHING))
    with device.active():
        function = pycuda.module_from_file(str(binary.path)).get_function("nothing")
    function.prepare("PPPiii")
    return function.prepared_call, (1, 1), (64, 1, 1)


def measured(
    calls: dict[str, Callable[[], Any]], batches: int, drain: Callable[[], None]
) -> dict[str, dict[str, float]]:
    """Medians over the batches, and the least; the first round warms up."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for batch in range(batches + 1):
        for name, call in calls.items():
            drain()
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            queued = time.perf_counter()
            drain()
            if batch:
                found[name].append(((queued - begun) / CALLS * 1e6, (time.perf_counter() - begun) / CALLS * 1e6))
    return {
        name: {
            "call_us": statistics.median(queued for queued, _ in times),
            "least_us": min(queued for queued, _ in times),
            "drained_us": statistics.median(drained for _, drained in times),
        }
        for name, times in found.items()
    }


if __name__ == "__main__":
    main()
