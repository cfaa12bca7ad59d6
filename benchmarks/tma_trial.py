"""Does the Tensor Memory Accelerator (sm_90) make a transpose faster? Its variants beside copies and autotile's winner.

    python benchmarks/tma_trial.py [--shapes 4096x4096,8192x8192] [--dtypes float32,float16,int8] [--home DIR]
    python benchmarks/tma_trial.py --dry-run    compile all variants, list them; no GPU needed

Each variant's output is compared, bit for bit, before it is timed: one that is wrong, or that cannot be launched, is
reported and not ranked. A fault that ends the process's use of the GPU starts it anew without that kind of variant.
Writes tma_trial.json.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import heat_up, machine, save, summary
from contest import Call, Data, TorchClock, in_turns, make_data, own_copies, peers, variant_call, wrong_sets
from tma_variants import KINDS, Map, Variant, best_of_kinds, maps, variants
from transpose_cases import Case, cases_of, fastest
from transpose_tables import tma_trial
from vector_copy import VARIANTS

import autotile
from autotile.build import Builder
from autotile.build.nvcc import find_nvcc
from autotile.devices.cuda.driver import error_words, libcuda
from autotile.devices.select import open_device
from autotile.dtypes import element_type
from autotile.errors import AutotileError, CompileError, LaunchError
from autotile.kernels import load_kernel
from autotile.types import Binary, Configuration

SOURCE = Path(__file__).with_suffix(".cu")
ENTRY = "tma_trial"
FLAGS = ("-cubin", "-arch=sm_90a", "-std=c++17", "-Werror", "all-warnings")
COMPILE_LIMIT_S = 120.0
HEAT_S = 0.3

# Of cuda.h.
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAP_BYTES, MAP_ALIGNMENT = 128, 64
UNSIGNED = {1: 0, 2: 1, 4: 2}  # CU_TENSOR_MAP_DATA_TYPE_UINT8, 16, 32
NO_INTERLEAVE, SWIZZLE_128B, PROMOTE_128B, ZEROS_OUTSIDE = 0, 3, 2, 0


class Poisoned(Exception):
    """A variant's kernel faulted, after which nothing runs in this process any more."""

    def __init__(self, variant: Variant, words: str) -> None:
        super().__init__(f"{variant.name}, elements of {variant.itemsize} bytes: {words}")
        self.variant = variant


def main() -> None:
    given = parsed()
    cases = cases_of(given.shapes, given.dtypes)
    sizes = sorted({element_type(case.dtype).itemsize for case in cases})
    chosen = [v for size in sizes for v in variants(size) if v.kind not in given.skip]
    with tempfile.TemporaryDirectory(prefix="autotile-tma-") as folder:
        cubins = compiled(chosen, Path(folder))
        if given.dry_run:
            print("\n".join(f"{v.itemsize} bytes: {v.name}, {v.shared_bytes} bytes shared" for v in chosen))
            return
        try:
            trial(given, cases, cubins)
        except Poisoned as fault:
            print(f"a kernel faulted: {fault}; once more without kind {fault.variant.kind}", flush=True)
            again = [sys.executable, *sys.argv, "--skip", ",".join([*given.skip, fault.variant.kind])]
            again += ["--fault", str(fault)]
            raise SystemExit(subprocess.run(again, check=False).returncode) from fault


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="4096x4096,8192x8192", help="rows x cols, by commas")
    parser.add_argument("--dtypes", default="float32,float16,int8", help="element types of 1, 2 or 4 bytes, by commas")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--home", type=Path, default=None, help="AUTOTILE_HOME (default: a temporary one)")
    parser.add_argument("--values", default="", help="name=value,...: time this configuration instead of load's")
    parser.add_argument("--skip", default="", help=f"kinds to leave out, by commas, of {', '.join(KINDS)}")
    parser.add_argument("--fault", action="append", default=[], help="a fault of an earlier start, for the notes")
    parser.add_argument("--dry-run", action="store_true", help="compile and list; no GPU needed")
    given = parser.parse_args(arguments)
    given.skip = [kind for kind in given.skip.split(",") if kind]
    return given


def compiled(chosen: Sequence[Variant], folder: Path) -> dict[Variant, bytes]:
    """A cubin for each. Raises CompileError with nvcc's words."""
    nvcc = find_nvcc()

    def build(number: int, variant: Variant) -> bytes:
        path = folder / f"{number}.cubin"
        command = [str(nvcc), *FLAGS, *variant.defines, str(SOURCE), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_LIMIT_S)
        if done.returncode or done.stdout or done.stderr:
            raise CompileError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return path.read_bytes()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(chosen, pool.map(build, range(len(chosen)), chosen), strict=True))


def trial(given: argparse.Namespace, cases: Sequence[Case], cubins: Mapping[Variant, bytes]) -> None:
    """All cases; the file is written after each. Raises Poisoned."""
    os.environ["AUTOTILE_HOME"] = str(Path(given.home or tempfile.mkdtemp(prefix="autotile-tma-home-")).absolute())
    device = open_device("cuda")
    entries: list[dict[str, Any]] = []
    kinds = {name: kind.said for name, kind in KINDS.items()}
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler) | {"kinds": kinds, "faults": given.fault, "cases": entries}
        copies = [future.result() for future in [builder.submit(variant.source) for variant in VARIANTS]]
        bench = Bench(device, builder, copies, TorchClock(), cubins, given.values, Functions())
        for case in cases:
            entries.append(measured(bench, case))
            print("\n".join(f"{case.label}: {note}" for note in entries[-1]["notes"]), flush=True)
            path = save("tma_trial", device.info, document, given.output)
    print("\n".join(tma_trial(document)))
    print("wrote", path)


@dataclass
class Bench:
    """What all cases share; `functions` are loaded when first needed, `values` are of --values."""

    device: Any
    builder: Builder
    copies: Sequence[Binary]
    clock: TorchClock
    cubins: Mapping[Variant, bytes]
    values: str
    cuda: Functions


def measured(bench: Bench, case: Case) -> dict[str, Any]:
    """Times, outcomes and shares of one case. Raises Poisoned."""
    import torch

    data = make_data(case)
    itemsize = element_type(case.dtype).itemsize
    chosen = [v for v in bench.cubins if v.itemsize == itemsize and v.divides(case.rows, case.cols)]
    notes: list[str] = []
    outcomes, right = {}, {}
    for variant in chosen:
        outcomes[variant], call = tried(bench, variant, case, data)
        if call is not None:
            right[variant.name] = call
        else:
            notes.append(f"{variant.name}: {outcomes[variant]}")
    others = own_copies(bench.device, bench.copies, case, data) | {"copy": peers(case, data)["copy"]}
    configuration = None
    try:
        configuration = configured(bench, case)
        problem = load_kernel("transpose").problem(case.sizes, case.dtype)
        call, _ = variant_call(bench.device, bench.builder, problem, configuration, data)
        if wrong_sets(call, case, data):
            notes.append("autotile's output is wrong")
        others["autotile"] = call
    except AutotileError as error:
        notes.append(f"no autotile here: {type(error).__name__}: {error}")
    contestants = others | right
    heat_up(contestants, HEAT_S)
    figures = {name: summary(times) for name, times in in_turns(contestants, case.rounds, bench.clock).items()}
    medians = {name: figure["median_ms"] for name, figure in figures.items()}
    times_ms: dict[str, float] = {name: medians[name] for name in ("copy", "autotile") if name in medians}
    times_ms["own_copy"] = medians[fastest(medians, "own_copy")]
    found = []
    for variant in chosen:
        entry = asdict(variant) | {"name": variant.name, "outcome": outcomes[variant]}
        if variant.name in right:
            time_ms = medians[variant.name]
            entry |= {"time_ms": time_ms, "of_copy": times_ms["copy"] / time_ms, "figures": figures[variant.name]}
        found.append(entry)
    del data, right, contestants, others
    torch.cuda.empty_cache()
    return {
        "shape": list(case.shape),
        "dtype": case.dtype,
        "bytes": case.moved_bytes,
        "times_ms": times_ms,
        "of_copy": {name: times_ms["copy"] / time_ms for name, time_ms in times_ms.items()},
        "configuration": None if configuration is None else dict(configuration),
        "variants": found,
        "best": {
            kind: {key: entry[key] for key in ("name", "time_ms", "of_copy")}
            for kind, entry in best_of_kinds(found).items()
        },
        "notes": notes,
    }


def configured(bench: Bench, case: Case) -> Configuration:
    """What `autotile.load` gives, or what --values names over the kernel's defaults."""
    kernel = load_kernel("transpose")
    if not bench.values:
        asked: dict[str, Any] = case.sizes
        return autotile.load("transpose", dtype=case.dtype, device="cuda", **asked).config
    pairs = (part.partition("=") for part in bench.values.split(","))
    return kernel.configuration({name: int(value) if value.isdigit() else value for name, _, value in pairs})


def tried(bench: Bench, variant: Variant, case: Case, data: Data) -> tuple[str, Call | None]:
    """Its outcome, and its call where that is right. Raises Poisoned where it leaves a context that nothing can use."""
    cuda = bench.cuda
    try:
        call = cuda.call_of(variant, bench.cubins[variant], case, data)
        call(0)
    except LaunchError as error:
        if words := cuda.fault():
            raise Poisoned(variant, words) from error
        return f"failed: {error}", None
    if words := cuda.fault():
        raise Poisoned(variant, words)
    wrong = wrong_sets(call, case, data)
    return ("right", call) if not wrong else (f"wrong on sets {wrong}", None)


class Functions:
    """Variants' kernels in PyTorch's context, which is current, launched by the driver's own functions."""

    def __init__(self) -> None:
        import torch

        torch.cuda.synchronize()  # the primary context is made and current from here on
        self._cuda = libcuda()
        self._loaded: dict[Variant, ctypes.c_void_p] = {}
        self._multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        pointer, words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
        longs = ctypes.POINTER(ctypes.c_uint64)
        self._cuda.cuTensorMapEncodeTiled.argtypes = [
            pointer, ctypes.c_int, ctypes.c_uint32, pointer, longs, longs, words, words, *[ctypes.c_int] * 4
        ]  # fmt: skip
        self._cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor.argtypes = [
            ctypes.POINTER(ctypes.c_int), pointer, ctypes.c_int, ctypes.c_size_t
        ]  # fmt: skip

    def asked(self, name: str, *arguments: Any) -> None:
        """Calls a function of the driver's. Raises LaunchError unless it succeeds."""
        status = getattr(self._cuda, name)(*arguments)
        if status != 0:
            raise LaunchError(f"{name}: {error_words(status)}")

    def fault(self) -> str:
        """Waits for queued work; what the context says of it, empty where all is well."""
        status = self._cuda.cuCtxSynchronize()
        return error_words(status) if status != 0 else ""

    def call_of(self, variant: Variant, cubin: bytes, case: Case, data: Data) -> Call:
        import torch

        function = self._function(variant, cubin)
        blocks = self._blocks(variant, function, case)
        stream = torch.cuda.current_stream().cuda_stream
        packs = []
        for source, target in zip(data.inputs, data.outputs, strict=True):
            addresses = (source.data_ptr(), target.data_ptr())
            described = zip(maps(variant, case.rows, case.cols), addresses, strict=True)
            values = [self._tensor_map(of, address) for of, address in described]
            values += [*map(ctypes.c_void_p, addresses), ctypes.c_uint32(case.rows), ctypes.c_uint32(case.cols)]
            packs.append((values, (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))))

        def call(number: int) -> None:
            shape = (blocks, 1, 1, variant.threads, 1, 1, variant.shared_bytes)
            self.asked("cuLaunchKernel", function, *shape, stream, packs[number][1], None)

        return call

    def _function(self, variant: Variant, cubin: bytes) -> ctypes.c_void_p:
        if variant not in self._loaded:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.asked("cuModuleLoadData", ctypes.byref(module), cubin)
            self.asked("cuModuleGetFunction", ctypes.byref(function), module, ENTRY.encode())
            self.asked("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, variant.shared_bytes)
            self._loaded[variant] = function
        return self._loaded[variant]

    def _blocks(self, variant: Variant, function: ctypes.c_void_p, case: Case) -> int:
        """A block a tile; or, where blocks stay, as many as the GPU holds at once."""
        tiles = variant.tiles(case.rows, case.cols)
        if KINDS[variant.kind].stages == 1:
            return tiles
        held = ctypes.c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        self.asked(name, ctypes.byref(held), function, variant.threads, variant.shared_bytes)
        return min(tiles, max(1, held.value) * int(self._multiprocessors))

    def _tensor_map(self, of: Map, address: int) -> Any:
        """128 bytes at a multiple of 64, which keep the memory around them."""
        around = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        made = (ctypes.c_ubyte * MAP_BYTES).from_buffer(around, -ctypes.addressof(around) % MAP_ALIGNMENT)
        self.asked(
            "cuTensorMapEncodeTiled", ctypes.addressof(made), UNSIGNED[of.itemsize], 2, address,
            (ctypes.c_uint64 * 2)(*of.sizes), (ctypes.c_uint64 * 1)(of.stride_bytes), (ctypes.c_uint32 * 2)(*of.box),
            (ctypes.c_uint32 * 2)(1, 1), NO_INTERLEAVE, SWIZZLE_128B, PROMOTE_128B, ZEROS_OUTSIDE,
        )  # fmt: skip
        return made


if __name__ == "__main__":
    main()
