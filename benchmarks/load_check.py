"""A new process loads saved winners and calls them on every kind of array, on the tuned size and on five others.

    python benchmarks/load_check.py --home FOLDER [--out FOLDER]

Run it after main_job.py --home FOLDER. Writes load_check.json: the largest error over its bound for each kernel, kind
of array and size, and whether nvcc was started (it must not be: `nvcc` is replaced by a program that leaves a mark).
"""

from __future__ import annotations

import argparse
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, save

MATMUL_SIZES = ((4096, 4096, 4096), (1, 1, 1), (33, 65, 17), (1000, 1000, 1000), (128, 128, 130), (4095, 257, 1023))
TRANSPOSE_SIZES = ((8192, 8192), (1, 1), (33, 65), (1000, 1000), (4097, 8191), (100000, 33))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="AUTOTILE_HOME with the winners")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    given = parser.parse_args()
    os.environ["AUTOTILE_HOME"] = str(given.home)
    mark = trap_nvcc()

    begun = time.perf_counter()
    import autotile

    matmul = autotile.load("matmul", m=4096, n=4096, k=4096, dtype="float32", device="cuda", strict=True)
    transpose = autotile.load("transpose", rows=8192, cols=8192, dtype="float32", device="cuda", strict=True)
    load_s = time.perf_counter() - begun

    from autotile.devices.select import open_device

    info = open_device("cuda").info
    checks = [check(matmul, sizes, kind) for sizes in MATMUL_SIZES for kind in KINDS]
    checks += [check(transpose, sizes, kind) for sizes in TRANSPOSE_SIZES for kind in KINDS]
    started = mark.exists()
    document = machine(info, matmul.record.identity.compiler) | {
        "import_and_load_s": load_s,
        "nvcc_started": started,
        "checks": checks,
        "all_right": all(entry["error_over_bound"] <= 1 for entry in checks),
    }
    worst = max(entry["error_over_bound"] for entry in checks)
    print(f"{len(checks)} calls, worst error {worst:.3g} of its bound, nvcc started: {started}, load {load_s:.2f} s")
    print("wrote", save("load_check", info, document, given.out))
    if started or not document["all_right"]:
        raise SystemExit(1)


def trap_nvcc() -> Path:
    """Puts a false nvcc in the way of any other; it leaves a mark and fails."""
    folder = Path(tempfile.mkdtemp(prefix="trap-"))
    mark = folder / "started"
    trap = folder / "nvcc"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n", encoding="utf-8")
    trap.chmod(trap.stat().st_mode | stat.S_IXUSR)
    os.environ["AUTOTILE_NVCC"] = str(trap)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    return mark


def to_torch(array: Any) -> Any:
    import torch

    return torch.from_numpy(array).cuda()


def to_cupy(array: Any) -> Any:
    import cupy

    return cupy.asarray(array)


def to_gpuarray(array: Any) -> Any:
    from autotile.devices.select import open_device

    made = open_device("cuda").empty_gpuarray(array.shape, array.dtype)  # type: ignore[attr-defined]
    with open_device("cuda").active():  # type: ignore[attr-defined]
        made.set(array)
    return made


def from_gpuarray(result: Any) -> Any:
    from autotile.devices.select import open_device

    with open_device("cuda").active():  # type: ignore[attr-defined]
        return result.get()


KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "numpy": (lambda array: array, lambda result: result),
    "torch": (to_torch, lambda result: result.cpu().numpy()),
    "cupy": (to_cupy, lambda result: result.get()),
    "gpuarray": (to_gpuarray, from_gpuarray),
}


def check(tuned: Any, sizes: tuple[int, ...], kind: str) -> dict[str, Any]:
    """One call, compared with the kernel's reference within its error bound."""
    from autotile.devices.base import compare
    from autotile.kernels import load_kernel
    from autotile.measure import make_workload

    kernel = load_kernel(tuned.problem.kernel)
    problem = tuned.problem.with_sizes(**dict(zip(kernel.dimensions, sizes, strict=True)))
    workload = make_workload(kernel, problem, seed=3)
    give, take = KINDS[kind]
    result = tuned(*(give(array) for array in workload.inputs.values()))
    if kind != "numpy" and type(result).__module__.partition(".")[0] != {"gpuarray": "pycuda"}.get(kind, kind):
        raise SystemExit(f"{kind} in, {type(result)} out")
    (name,) = workload.outputs
    found = compare(np.asarray(take(result)), workload.reference[name], workload.bound[name])
    return {"kernel": kernel.name, "sizes": list(sizes), "kind": kind, "error_over_bound": found.max_error}


if __name__ == "__main__":
    main()
