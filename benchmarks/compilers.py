"""nvcc processes against NVRTC in warm worker processes: which compiles more variants a second, cold?

    python benchmarks/compilers.py [--sources DIR] [--count 200] [--jobs N] [--compilers nvcc,nvrtc] [--out FOLDER]

The sources are `--count` configurations drawn from the matmul space; `--sources DIR` takes *.cu files instead.
Each compiler is the product's own Builder with a cache of its own that is empty. `nvrtc` starts at once, as a search
that is its own first work; of `nvrtc, warm` the workers are ready before the clock runs, as when a search opens its
device meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, save

from autotile.build import Builder
from autotile.build.builder import available_cpus
from autotile.codegen import render
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.errors import CompileError, ToolchainMissing
from autotile.kernels import load_kernel
from autotile.space import build_space
from autotile.types import Binary, Source, Target

WARM_S = 3.0
"""How long the workers may take to get ready before a warm run."""


@dataclass(frozen=True)
class Result:
    """One compiler's run over all sources, from before its builder is made. Times are wall clock.

    `first_s` is the time until the first binary is there; `median_s` is of one compile, in its thread. `cpu_s` is what
    the compilers' processes took of all CPUs, their start included: it does not depend on who else uses them.
    """

    compiler: str
    warm: bool
    sources: int
    failed: int
    jobs: int
    total_s: float
    median_s: float
    first_s: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.sources / self.total_s


def sources_from(folder: Path, count: int) -> list[Source]:
    """Variants from files that are named for their entry: `ENTRY.cu` or `ENTRY-anything.cu`."""
    files = sorted(folder.glob("*.cu"))
    texts = [(path.stem.partition("-")[0], path.read_text(encoding="utf-8")) for path in files]
    chosen = (texts[number % len(texts)] for number in range(count)) if texts else ()
    # Repeats of few files are made different, so that nothing can be remembered from one to the next.
    return [Source(entry, entry, f"// {number}\n{text}") for number, (entry, text) in enumerate(chosen)]


def drawn_sources(count: int, device: DeviceInfo) -> list[Source]:
    """Configurations drawn from the space of a large float32 matmul."""
    kernel = load_kernel("matmul")
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 4096))
    space = build_space(kernel, problem, device)
    rows = np.random.default_rng(0).choice(len(space), count, replace=False)
    return [render(kernel, problem, space.configuration(int(row))) for row in rows]


def race(compiler: str, target: Target, sources: list[Source], jobs: int, warm: bool) -> tuple[Result, list[Binary]]:
    """Raises ToolchainMissing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        start, cpu_before_s = time.perf_counter(), cpu_of_children_s()
        with Builder(target, Path(home), jobs, compiler=compiler) as builder:
            builder.warm_up()
            if warm:
                time.sleep(WARM_S)
                start = time.perf_counter()
            futures = [builder.submit(source) for source in sources]
            first_s, binaries, failed = 0.0, [], 0
            for future in as_completed(futures):
                try:
                    binaries.append(future.result())
                except CompileError:
                    failed += 1
                first_s = first_s or time.perf_counter() - start
            total_s = time.perf_counter() - start
            name = builder.compiler + (", warm" if warm else "")
    cpu_s = cpu_of_children_s() - cpu_before_s  # of those that have ended, as all have by now
    median_s = statistics.median(binary.build_s for binary in binaries) if binaries else 0.0
    return Result(name, warm, len(sources), failed, jobs, total_s, median_s, first_s, cpu_s), binaries


def cpu_of_children_s() -> float:
    spent = os.times()
    return spent.children_user + spent.children_system


def measured(args: argparse.Namespace, target: Target, sources: list[Source]) -> list[dict[str, Any]]:
    """A row a run; `kernels` counts the different digests: the fewer, the more twins are told."""
    rows = []
    for name in args.compilers.split(","):
        for warm in (False, True) if name == "nvrtc" else (False,):
            try:
                # NVRTC remembers texts by itself, in the driver's cache: another first line, and it compiles again.
                texts = [replace(source, text=f"// {name} {warm}\n{source.text}") for source in sources]
                result, binaries = race(name, target, texts, args.jobs, warm)
            except ToolchainMissing as error:
                print(error, file=sys.stderr)
                break
            kernels = len({binary.digest for binary in binaries})
            rows.append({**asdict(result), "per_second": result.per_second, "kernels": kernels})
            show(rows[-1])
    return rows


def show(row: dict[str, Any], write: Callable[[str], None] = print) -> None:
    write(
        f"{row['compiler']:40} {row['sources']:4} sources ({row['failed']} failed, {row['kernels']} kernels), "
        f"{row['jobs']} jobs: {row['total_s']:.2f} s, first {row['first_s']:.3f} s, median {row['median_s']:.3f} s, "
        f"{row['per_second']:.1f} a second, {row['cpu_s'] / row['sources']:.3f} CPU s a source"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=available_cpus())
    parser.add_argument("--compilers", default="nvcc,nvrtc")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    info = open_device("auto").info
    target = Target("cuda", info.arch)
    sources = sources_from(args.sources, args.count) if args.sources else drawn_sources(args.count, info)
    if not sources:
        raise SystemExit(f"no *.cu files in {args.sources}")
    rows = measured(args, target, sources)
    if not rows:
        raise SystemExit(1)
    named = rows[0]["compiler"]
    print("wrote", save("compilers", info, machine(info, named) | {"results": rows}, args.out))


if __name__ == "__main__":
    main()
