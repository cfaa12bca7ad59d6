"""How many configurations a second: autotile beside Kernel Tuner, on Kernel Tuner's own CUDA example, a matmul.

    python benchmarks/tuning_rate.py [--device cuda] [--size 4096] [--rounds 2] [--out FOLDER]

Both try the same 40 configurations of the same kernel (tests/data/kernels/tiled_matmul says which), compare the output
of each with a reference and time RUNS launches of it. Each run is a process of its own with cold caches, one after the
other; the order turns from round to round. The clock runs from the call of `tune_kernel` or `autotile.search` to its
return: imports come before it, on both sides. autotile's data, its reference and the proof of its winner lie within;
Kernel Tuner is given its data and its answer ready-made.

Writes tuning_rate.json. Kernel Tuner must be importable (`pip install kernel_tuner==1.5.0`); it runs with its pycuda
backend. With `--device emulator --size 128` nothing is measured: autotile's half runs on the emulator, and of Kernel
Tuner only the space is made.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import ROOT, machine, save

RUNS = 7
"""Timed launches of a configuration: Kernel Tuner's default number."""

CONFIGURATIONS = 40
AUTOTILE = {
    "autotile": ("nvcc", f", runs: {RUNS}"),
    "autotile with NVRTC": ("nvrtc", f", runs: {RUNS}"),
    "autotile with NVRTC, launches as each is worth": ("nvrtc", ""),
}
"""autotile's contestants: the compiler, and what the search says of launches."""

KERNELS = ROOT / "tests" / "data" / "kernels"
NAME = "tiled_matmul"

PARAMETERS = {
    "block_size_x": [16, 32, 64],
    "block_size_y": [1, 2, 4, 8, 16, 32],
    "tile_size_x": [1, 2, 4, 8],
    "tile_size_y": [1, 2, 4, 8],
}
RESTRICTION = "block_size_x == block_size_y * tile_size_y"
WITHIN_STATIC = "block_size_x * (block_size_y * tile_size_y + block_size_x * tile_size_x) * 4 <= 49152"
"""Leaves out what needs more shared memory than may be declared."""

THREADS = 1024

ATOL = 1e-2
"""Of Kernel Tuner's check. A sum of 4096 products of standard normals is some 64, its rounding in float32 some 1e-4."""

TEXT = """
#define ROWS (block_size_y * tile_size_y)  // of C, for a block
#define COLS (block_size_x * tile_size_x)

extern "C" __global__ void __launch_bounds__(block_size_x * block_size_y)
tiled_matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float As[ROWS][block_size_x];
    __shared__ float Bs[block_size_x][COLS];
    const int ty = threadIdx.y, tx = threadIdx.x;
    const size_t row = blockIdx.y * ROWS + ty, col = blockIdx.x * COLS + tx;
    a += row * k + tx;
    b += size_t(ty) * n + col;
    float sum[tile_size_y][tile_size_x] = {};
    for (int k_left = k; k_left > 0; k_left -= block_size_x) {
        #pragma unroll
        for (int i = 0; i < tile_size_y; i++) {
            As[ty + i * block_size_y][tx] = a[size_t(i * block_size_y) * k];
            #pragma unroll
            for (int j = 0; j < tile_size_x; j++)
                Bs[ty + i * block_size_y][tx + j * block_size_x] = b[size_t(i * block_size_y) * n + j * block_size_x];
        }
        __syncthreads();
        #pragma unroll
        for (int kk = 0; kk < block_size_x; kk++)
            #pragma unroll
            for (int i = 0; i < tile_size_y; i++)
                #pragma unroll
                for (int j = 0; j < tile_size_x; j++)
                    sum[i][j] += As[ty + i * block_size_y][kk] * Bs[kk][tx + j * block_size_x];
        __syncthreads();
        a += block_size_x;
        b += size_t(block_size_x) * n;
    }
    c += row * n + col;
    #pragma unroll
    for (int i = 0; i < tile_size_y; i++)
        #pragma unroll
        for (int j = 0; j < tile_size_x; j++) c[size_t(i * block_size_y) * n + j * block_size_x] = sum[i][j];
}
"""
"""The text of the kernel for whole tiles, as Kernel Tuner takes it: the parameters are macros."""

Report = dict[str, Any]


# ---- one tuner, in a process of its own -----------------------------------------------------------------------------


def with_autotile(tuner: str, device: str, size: int) -> Report:
    """One search of the whole space, the winner proven."""
    import autotile

    search = autotile.search  # imports all that a search needs, as `import kernel_tuner` does
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "search.yaml")
        options = f"{{sampler: grid, trials: {CONFIGURATIONS}{AUTOTILE[tuner][1]}}}"
        file.write_text(f"kernel: {NAME}\nproblems:\n  - {{m: {size}, n: {size}, k: {size}}}\nsearch: {options}\n")
        begun = time.perf_counter()
        (result,) = search(file, device=device, templates=KERNELS)
        wall_s = time.perf_counter() - begun
    phases = result.phases
    right = [record for record in result.records if record.ok]
    report = summary(
        {label(record.configuration): record.time_ms for record in right}, len(result.records), wall_s, tuner
    )
    return report | {
        "per_s_without_finals": len(result.records) / (wall_s - phases.finals_s),
        "phases_s": {
            "data, reference, opening": phases.data_s,
            "asking": phases.ask_s,
            "loading": phases.other_s,
            "waiting for compilers": phases.idle_s,
            "checking": phases.check_s,
            "timing": phases.measure_s,
            "finals and proof": phases.finals_s,
            "all in the search": phases.total_s,
            "compilers, beside the rest": phases.build_s,
        },
        "not_right": {label(r.configuration): f"{r.outcome}: {r.message}" for r in result.records if not r.ok},
        "timed_launches": sorted({record.measurement.runs for record in right}),
        "proven_best": None if result.best is None else label(result.best.configuration),
    }


def with_kernel_tuner(device: str, size: int, restrictions: list[str]) -> Report:
    """One brute-force `tune_kernel` with every output verified; on the emulator just the space."""
    import kernel_tuner
    from kernel_tuner.observers.observer import BenchmarkObserver
    from kernel_tuner.searchspace import Searchspace

    if not device.startswith("cuda"):
        space = Searchspace(PARAMETERS, restrictions, THREADS)
        return {"version": kernel_tuner.__version__, "space": space.size}
    import_if_there("cupy")  # Kernel Tuner looks for it when it checks its first output

    class Verdict(BenchmarkObserver):  # type: ignore[misc]
        """Puts what the check has found into the configuration's result, so that a wrong output is no end."""

        right: bool | None = None

        def verify(self, answer: list[Any], result: list[Any], atol: float) -> bool:
            self.right = bool(np.allclose(answer[2].ravel(), result[2].ravel(), atol=atol))
            return True

        def get_results(self) -> dict[str, Any]:
            found, self.right = self.right, None
            return {"right": found}

    verdict = Verdict()
    a, b, product = data(size)
    begun = time.perf_counter()
    results, environment = kernel_tuner.tune_kernel(
        NAME,
        TEXT,
        (size, size),
        [a, b, np.zeros_like(product), *[np.int32(size)] * 3],
        PARAMETERS,
        grid_div_x=["block_size_x", "tile_size_x"],
        grid_div_y=["block_size_y", "tile_size_y"],
        restrictions=restrictions,
        answer=[None, None, product, None, None, None],
        atol=ATOL,
        verify=verdict.verify,
        observers=[verdict],
        lang="PYCUDA",
        device=int(device.partition(":")[2] or 0),
        iterations=RUNS,
        strategy="brute_force",
        quiet=True,
    )
    wall_s = time.perf_counter() - begun
    return of_kernel_tuner(results, environment, wall_s) | {"version": kernel_tuner.__version__}


def of_kernel_tuner(results: list[dict[str, Any]], environment: dict[str, Any], wall_s: float) -> Report:
    """A report from what `tune_kernel` gives: a dict a configuration, and totals in ms."""
    right = {label(row): statistics.median(map(float, row["times"])) for row in results if row.get("right")}
    totals = ("compile", "verification", "benchmark", "strategy", "framework")
    phases = {name: environment[f"total_{name}_time"] / 1e3 for name in totals}
    return summary(right, len(results), wall_s, "kernel_tuner") | {
        "phases_s": phases | {"the rest (its warm-up, too)": environment["overhead_time"] / 1e3},
        "not_right": {
            label(row): str(row.get("__error__", "wrong_result, which ends a run of Kernel Tuner as it comes"))
            for row in results
            if not row.get("right")
        },
        "timed_launches": sorted({len(row["times"]) for row in results if row.get("right")}),
    }


def summary(times_ms: dict[str, float], tried: int, wall_s: float, tuner: str) -> Report:
    """What is said of both: rates, the best, and the least time in which a GPU could have done the timed launches."""
    best = min(times_ms, key=lambda name: times_ms[name], default=None)
    return {
        "tuner": tuner,
        "tried": tried,
        "right": len(times_ms),
        "wall_s": wall_s,
        "per_s": tried / wall_s,
        "right_per_s": len(times_ms) / wall_s,
        "launches_need_s": RUNS * sum(times_ms.values()) / 1e3,
        "best": best,
        "best_ms": None if best is None else times_ms[best],
        "times_ms": times_ms,
    }


def data(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    """A, B and their product (summed in float64), float32, size × size."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size), np.float32) for _ in range(2))
    return a, b, (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def label(configuration: Any) -> str:
    """A configuration's name, whichever tuner it is of."""
    x, y, tile_x, tile_y = (configuration[name] for name in PARAMETERS)
    return f"block {x}x{y}, tile {tile_x}x{tile_y}"


def import_if_there(name: str) -> None:
    try:
        __import__(name)
    except ImportError:
        return


# ---- all runs, and what they say together ---------------------------------------------------------------------------


def apart(tuner: str, device: str, size: int, *more: str) -> Report:
    """A tuner's report, from a fresh process with cold caches. Raises CalledProcessError when that fails."""
    with tempfile.TemporaryDirectory(prefix="tuning-rate-") as folder:
        caches = {
            name: str(Path(folder, name.lower()))
            for name in ("AUTOTILE_HOME", "XDG_CACHE_HOME", "PYCUDA_CACHE_DIR", "CUDA_CACHE_PATH", "CUPY_CACHE_DIR")
        }
        for path in caches.values():
            Path(path).mkdir()
        compiler = {"AUTOTILE_COMPILER": AUTOTILE[tuner][0]} if tuner in AUTOTILE and device.startswith("cuda") else {}
        into = Path(folder, "report.json")
        command = [sys.executable, __file__, "--tuner", tuner, "--device", device, "--size", str(size), *more]
        begun = time.perf_counter()
        subprocess.run([*command, "--into", str(into)], env=os.environ | caches | compiler, check=True)
        report: Report = json.loads(into.read_text(encoding="utf-8"))
        return report | {"process_s": time.perf_counter() - begun}


def kernel_tuner_apart(device: str, size: int) -> Report:
    """Kernel Tuner's report; without the configurations of more than 48 KiB where these end its run."""
    try:
        return apart("kernel_tuner", device, size)
    except subprocess.CalledProcessError as error:
        print(f"Kernel Tuner ended with status {error.returncode}; once more without what is above 48 KiB", flush=True)
    return apart("kernel_tuner", device, size, "--within-static") | {"ended_before": True}


def compared(reports: list[Report]) -> Report:
    """The tuners side by side: medians over the rounds, and how far their bests are apart in each one's own times."""
    ours, theirs = ([r for r in reports if r["tuner"] == tuner] for tuner in ("autotile", "kernel_tuner"))
    rates = {
        tuner: statistics.median(report["per_s"] for report in reports if report["tuner"] == tuner)
        for tuner in (*AUTOTILE, "kernel_tuner")
    }
    return {
        "per_s": rates,
        "times_as_fast": {tuner: rates[tuner] / rates["kernel_tuner"] for tuner in AUTOTILE},
        "bests": [
            {
                "autotile": our["proven_best"],
                "kernel_tuner": their["best"],
                "same": our["proven_best"] == their["best"],
                "theirs_slower_in_our_times": slower(their["best"], our),
                "ours_slower_in_their_times": slower(our["proven_best"], their),
            }
            for our, their in zip(ours, theirs, strict=True)
        ],
    }


def slower(name: str | None, report: Report) -> float | None:
    """By what share a configuration is slower than a report's best, in the report's own times; None if not timed."""
    time_ms = report["times_ms"].get(name)
    return None if time_ms is None else time_ms / report["best_ms"] - 1


def show(report: Report) -> None:
    if "space" in report:
        print(f"kernel_tuner {report['version']}: a space of {report['space']} configurations", flush=True)
        return
    best = "none is right" if report["best"] is None else f"best {report['best']}, {report['best_ms']:.4g} ms"
    print(
        f"{report['tuner']}: {report['tried']} tried, {report['right']} right, in {report['wall_s']:.2f} s: "
        f"{report['per_s']:.2f} a second (their launches alone need {report['launches_need_s']:.2f} s); {best}"
    )
    for name, seconds in report["phases_s"].items():
        print(f"  {name:<28} {seconds:8.2f} s  {seconds / report['wall_s']:7.1%}", flush=True)
    for name, why in report["not_right"].items():
        print(f"  not right: {name}: {why}", flush=True)


def main() -> None:
    given = arguments()
    if given.tuner:
        if given.tuner in AUTOTILE:
            report = with_autotile(given.tuner, given.device, given.size)
        else:
            restrictions = [RESTRICTION, WITHIN_STATIC] if given.within_static else [RESTRICTION]
            report = with_kernel_tuner(given.device, given.size, restrictions)
        given.into.write_text(json.dumps(report), encoding="utf-8")
        return
    if importlib.util.find_spec("kernel_tuner") is None:
        raise SystemExit("kernel_tuner cannot be imported: pip install kernel_tuner==1.5.0")
    halves: tuple[Callable[[], Report], ...] = (
        lambda: kernel_tuner_apart(given.device, given.size),
        *(partial(apart, tuner, given.device, given.size) for tuner in AUTOTILE),
    )
    reports = []
    for number in range(given.rounds):
        for half in halves if number % 2 == 0 else reversed(halves):
            reports.append(half())
            show(reports[-1])

    from autotile.build import Builder
    from autotile.devices.select import open_device

    device = open_device(given.device)
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler)
    document |= {"problem": f"{given.size}x{given.size}x{given.size} float32", "runs": RUNS, "reports": reports}
    if given.device.startswith("cuda"):
        document["compared"] = compared(reports)
        for tuner, times in document["compared"]["times_as_fast"].items():
            print(f"{tuner}: {times:.1f} times as fast")
    print("wrote", save("tuning_rate", device.info, document, given.out))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or the emulator for a dry run")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrices")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each tuner")
    parser.add_argument("--out", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--tuner", choices=(*AUTOTILE, "kernel_tuner"), help=argparse.SUPPRESS)
    parser.add_argument("--within-static", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
