"""The whole job on a GPU: searches the shipped configs and times the winners beside cuBLAS and beside a copy.

    python benchmarks/main_job.py [--trials N] [--out FOLDER]

Writes main_job.json: for each search the rate, the time by phase, outcomes by kind and the winner; in the same run
cuBLAS (through PyTorch, TF32 off), a copy of the same bytes and PyTorch's transpose; the classics, and the largest
error of each winner. Records go to a store of its own, so nothing is resumed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, race, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=None, help="trials of each search (default: the config's)")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME to fill (default: a temporary one)")
    given = parser.parse_args()
    os.environ["AUTOTILE_HOME"] = str(given.home or tempfile.mkdtemp(prefix="autotile-"))

    import autotile
    from autotile.build import Builder
    from autotile.devices.select import open_device
    from autotile.report.documents import search_document

    device = open_device("cuda")
    with Builder(device.target) as builder:
        document: dict[str, Any] = machine(device.info, builder.compiler)
    results = [
        result
        for config in ("matmul", "transpose")
        for result in autotile.search(config, device="cuda", trials=given.trials)
    ]
    document |= search_document(results)
    for result, entry in zip(results, document["searches"], strict=True):
        entry["beyond_48_kib"] = beyond_48_kib(result.records)
        print(
            f"{result.kernel.name}: {len(result.records)} trials, {result.trials_per_s:.2f} a second, "
            f"{dict(result.outcomes)}"
        )
    document["matmul_beside_cublas"] = matmul_beside_cublas(autotile)
    document["transpose_beside_copy"] = transpose_beside_copy(autotile)
    document["classics"] = search_document(autotile.search("classics", device="cuda"))["searches"]
    for entry in document["classics"]:
        for name, point in entry["points"].items():
            print(f"classic {entry['kernel']:<10} {name:<16} {point['measurement']['time_ms']:.4f} ms")
    print("wrote", save("main_job", device.info, document, given.out))


def beyond_48_kib(records: Any) -> dict[str, Any]:
    """How many right configurations needed the opt-in, and the largest of them."""
    large = [r for r in records if r.ok and r.launch and r.launch.shared_bytes + (r.static_shared_bytes or 0) > 49152]
    return {
        "right": len(large),
        "largest_shared_bytes": max((r.launch.shared_bytes for r in large), default=0),
        "best_ms": min((r.time_ms for r in large), default=None),
    }


def matmul_beside_cublas(autotile: Any, size: int = 4096) -> dict[str, Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    tuned = autotile.load("matmul", m=size, n=size, k=size, dtype="float32", device="cuda", strict=True)
    sets = [[torch.randn(size, size, device="cuda") for _ in range(2)] for _ in range(3)]
    ours, theirs = (torch.empty(size, size, device="cuda") for _ in range(2))
    times = race(
        {
            "autotile": lambda i: tuned(*sets[i], out=ours),
            "cublas": lambda i: torch.mm(*sets[i], out=theirs),
        }
    )
    a, b = sets[0]
    tuned(a, b, out=ours)
    torch.mm(a, b, out=theirs)
    exact = a.double() @ b.double()
    scale = a.double().abs() @ b.double().abs()
    report: dict[str, Any] = {"problem": f"{size}x{size}x{size} float32", "config": dict(tuned.config)}
    for name, out in (("autotile", ours), ("cublas", theirs)):
        report[name] = times[name] | {
            "tflops": 2 * size**3 / times[name]["median_ms"] / 1e9,
            "max_error_over_abs_a_abs_b": float(((out.double() - exact).abs() / scale).max()),
        }
    report["over_cublas"] = times["cublas"]["median_ms"] / times["autotile"]["median_ms"]
    print(f"matmul: autotile {report['autotile']['tflops']:.2f}, cuBLAS {report['cublas']['tflops']:.2f} TFLOP/s")
    return report


def transpose_beside_copy(autotile: Any, size: int = 8192) -> dict[str, Any]:
    import torch

    tuned = autotile.load("transpose", rows=size, cols=size, dtype="float32", device="cuda", strict=True)
    sets = [torch.randn(size, size, device="cuda") for _ in range(3)]
    ours, copied, theirs = (torch.empty(size, size, device="cuda") for _ in range(3))
    times = race(
        {
            "autotile": lambda i: tuned(sets[i], out=ours),
            "copy": lambda i: copied.copy_(sets[i]),
            "torch_transpose": lambda i: theirs.copy_(sets[i].t()),
        }
    )
    tuned(sets[0], out=ours)
    wrong = int(torch.count_nonzero(ours != sets[0].t()))
    moved = 2 * size * size * np.dtype(np.float32).itemsize
    report: dict[str, Any] = {
        "problem": f"{size}x{size} float32",
        "config": dict(tuned.config),
        "wrong_elements": wrong,
    }
    for name, figures in times.items():
        report[name] = figures | {"gbs": moved / figures["median_ms"] / 1e6}
    report["of_copy"] = times["copy"]["median_ms"] / times["autotile"]["median_ms"]
    print(", ".join(f"{name} {report[name]['gbs']:.0f} GB/s" for name in times), f"wrong elements {wrong}")
    return report


if __name__ == "__main__":
    main()
