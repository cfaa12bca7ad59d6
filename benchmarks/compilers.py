"""nvcc processes against NVRTC in worker processes: which compiles more variants a second, cold?

    python benchmarks/compilers.py [--sources DIR] [--count 48] [--jobs N] [--out FOLDER]

The sources are `--count` configurations drawn from the matmul space; `--sources DIR` takes *.cu files instead.
Both build the same texts to cubins with the same number of jobs; nothing is cached.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from common import machine, save

from autotile.build.builder import available_cpus
from autotile.build.nvcc import find_nvcc, version_text
from autotile.codegen import render
from autotile.devices.info import DeviceInfo
from autotile.devices.select import open_device
from autotile.kernels import load_kernel
from autotile.space import build_space


@dataclass(frozen=True)
class Result:
    """One compiler's run over all sources; times are wall clock."""

    compiler: str
    sources: int
    failed: int
    jobs: int
    total_s: float
    median_s: float
    first_s: float

    @property
    def per_second(self) -> float:
        return self.sources / self.total_s


def sources_from(folder: Path, count: int) -> list[str]:
    """Texts of the variants."""
    texts = [path.read_text() for path in sorted(folder.glob("*.cu"))]
    # Repeats of few files are made different, so that nothing can be remembered from one to the next.
    return [f"// {number}\n{texts[number % len(texts)]}" for number in range(count)] if texts else []


def drawn_sources(count: int, device: DeviceInfo) -> list[str]:
    """Texts of configurations drawn from the space of a large float32 matmul."""
    kernel = load_kernel("matmul")
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 4096))
    space = build_space(kernel, problem, device)
    rows = np.random.default_rng(0).choice(len(space), count, replace=False)
    return [render(kernel, problem, space.configuration(int(row))).text for row in rows]


def gencode(arch: str) -> str:
    return arch + "a" if arch == "sm_90" else arch


def with_nvcc(nvcc: str, arch: str, text: str) -> tuple[float, bool]:
    """Seconds of one compile, and whether it succeeded."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernel.cu").write_text(text)
        command = [
            nvcc,
            "-std=c++17",
            "-cubin",
            f"-arch={gencode(arch)}",
            "-Xptxas",
            "-v",
            "-o",
            "k.cubin",
            "kernel.cu",
        ]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "TMPDIR": folder}, capture_output=True, check=False
        )
        return time.perf_counter() - start, done.returncode == 0


_library: ctypes.CDLL | None = None


def with_nvrtc(path: str, include: str, arch: str, text: str) -> tuple[float, bool]:
    """Seconds of one compile in this process, and whether it succeeded."""
    global _library
    start = time.perf_counter()
    if _library is None:
        _library = ctypes.CDLL(path)
    program = ctypes.c_void_p()
    _library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = [f"-arch={gencode(arch)}", "-std=c++17", f"-I{include}", f"-I{include}/cccl"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    status = _library.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    if status == 0:
        _library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        cubin = ctypes.create_string_buffer(size.value)
        status = _library.nvrtcGetCUBIN(program, cubin)
    _library.nvrtcDestroyProgram(ctypes.byref(program))
    return time.perf_counter() - start, status == 0 and size.value > 0


def find_nvrtc() -> str | None:
    """libnvrtc of pip's package, of PyTorch's dependencies or of the toolkit."""
    places = [f"{entry}/nvidia/*/lib/libnvrtc.so.*" for entry in sys.path]
    places += ["/usr/local/cuda/lib64/libnvrtc.so.*", "/usr/local/cuda/targets/*/lib/libnvrtc.so.*"]
    return next((found for place in places for found in sorted(glob.glob(place))), None)


def race(
    name: str, compile_one: Callable[[str], tuple[float, bool]], pool: Executor, texts: list[str], jobs: int
) -> Result:
    start = time.perf_counter()
    done = list(pool.map(compile_one, texts))
    total_s = time.perf_counter() - start
    times = sorted(seconds for seconds, _ in done)
    failed = sum(not ok for _, ok in done)
    return Result(name, len(texts), failed, jobs, total_s, times[len(times) // 2], done[0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--jobs", type=int, default=available_cpus())
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    info = open_device("auto").info
    texts = sources_from(args.sources, args.count) if args.sources else drawn_sources(args.count, info)
    nvcc = find_nvcc()
    results = []
    with ThreadPoolExecutor(args.jobs) as pool:
        results.append(race(version_text(nvcc), partial(with_nvcc, str(nvcc), info.arch), pool, texts, args.jobs))
    library = find_nvrtc()
    if library is None:
        print("libnvrtc was not found: pip install nvidia-cuda-nvrtc", file=sys.stderr)
    else:
        beside = nvcc.resolve().parents[1]
        toolkit = beside if (beside / "include").is_dir() else Path("/usr/local/cuda")
        compile_one = partial(with_nvrtc, library, str(toolkit / "include"), info.arch)
        with ProcessPoolExecutor(args.jobs, mp_context=get_context("spawn")) as pool:
            results.append(race(f"NVRTC ({Path(library).name})", compile_one, pool, texts, args.jobs))
    titles = ("sources", "failed", "jobs", "total s", "median s", "first s", "a second")
    print(f"{'compiler':26}" + "".join(f"{title:>10}" for title in titles))
    for r in results:
        counts = "".join(f"{count:10}" for count in (r.sources, r.failed, r.jobs))
        rates = "".join(f"{number:10.3f}" for number in (r.total_s, r.median_s, r.first_s, r.per_second))
        print(f"{r.compiler:26}{counts}{rates}")
    rows = [{**asdict(r), "per_second": r.per_second} for r in results]
    print("wrote", save("compilers", info, machine(info, version_text(nvcc)) | {"results": rows}, args.out))


if __name__ == "__main__":
    main()
