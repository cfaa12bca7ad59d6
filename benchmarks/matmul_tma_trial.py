"""Does the Tensor Memory Accelerator (sm_90) make a float32 matmul faster? Its variants beside autotile's and cuBLAS.

    python benchmarks/matmul_tma_trial.py [--sizes 4096,8192] [--output DIR]
    python benchmarks/matmul_tma_trial.py --dry-run    compile all variants, list them; no GPU needed

All multiply by plain multiply-adds; what differs is who brings the tiles to shared memory. Square matrices, A as it is
multiplied and A stored turned. Each variant is checked first in another process, on small problems: one that faults,
hangs or is wrong there is reported, and costs the others nothing. Before it is timed it is compared with the product
in float64 once more, at full size. Writes matmul_tma_trial.json.
"""

from __future__ import annotations

import argparse
import ctypes
import json
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
from contest import Call, TorchClock, build_all, in_turns
from matmul_cases import Case, error_limit
from matmul_contest import Operands, call_of, cublas_calls, errors_of, make_operands, without_tf32
from matmul_tma_variants import CHECKED, OURS, Map, Variant, maps, report, variants

from autotile.build import Builder
from autotile.build.nvcc import find_nvcc
from autotile.build.ptxas import parse_usage
from autotile.devices.cuda.driver import error_words, libcuda
from autotile.devices.select import open_device
from autotile.errors import AutotileError, LaunchError
from autotile.kernels import load_kernel

SOURCE = Path(__file__).with_suffix(".cu")
ENTRY = "matmul_tma_trial"
FLAGS = ("-cubin", "-arch=sm_90a", "-std=c++17", "-Werror", "all-warnings", "-Xptxas", "-v")
COMPILE_LIMIT_S, CHECK_LIMIT_S = 120.0, 45.0
CHECKERS, MOST_STARTS = 4, 4
"""Processes that check side by side, and how often one is started again without what it fell over."""

PRESETS = ("large", "large_wide")
ROUNDS = {4096: 15, 8192: 7}
LEAST_ROUNDS = 5
HEAT_S = 0.4

# Of cuda.h.
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAP_BYTES, MAP_ALIGNMENT = 128, 64
FLOAT32 = 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32
NO_INTERLEAVE, PROMOTE_128B, ZEROS_OUTSIDE = 0, 2, 0


class Poisoned(Exception):
    """A variant's kernel faulted at full size, after which nothing runs in this process any more."""

    def __init__(self, variant: Variant, words: str) -> None:
        super().__init__(f"{variant.name}: {words}")
        self.variant = variant


def main() -> None:
    given = parsed()
    numbers = {number: variant for number, variant in enumerate(variants()) if number not in given.skip}
    if given.check:
        check({number: variant for number, variant in numbers.items() if number in given.check}, given.cubins)
        return
    with tempfile.TemporaryDirectory(prefix="autotile-matmul-tma-") as name:
        folder = Path(name)
        facts = compiled(numbers, folder)
        if given.dry_run:
            print("\n".join(f"{variant.name}: {facts[number]}" for number, variant in numbers.items()))
            return
        tell_first_checks(facts, folder)
        try:
            trial(given, numbers, facts, folder)
        except Poisoned as fault:
            (number,) = (number for number, variant in numbers.items() if variant == fault.variant)
            print(f"a kernel faulted: {fault}; once more without it", flush=True)
            again = [sys.executable, *sys.argv, "--skip", ",".join(map(str, [*given.skip, number]))]
            raise SystemExit(subprocess.run([*again, "--fault", str(fault)], check=False).returncode) from fault


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=numbers, default=[4096, 8192], help="m = n = k, by commas")
    parser.add_argument("--output", type=Path, default=None, help="folder for the JSON file")
    parser.add_argument("--skip", type=numbers, default=[], help="numbers of variants to leave out, by commas")
    parser.add_argument("--fault", action="append", default=[], help="a fault of an earlier start, for the notes")
    parser.add_argument("--dry-run", action="store_true", help="compile and list; no GPU needed")
    parser.add_argument(
        "--check", type=numbers, default=[], help="only check these, and tell in the folder of --cubins"
    )
    parser.add_argument("--cubins", type=Path, default=None, help="folder of what is compiled")
    return parser.parse_args(arguments)


def cubin_path(folder: Path, number: int) -> Path:
    return folder / f"{number}.cubin"


def compiled(numbers: Mapping[int, Variant], folder: Path) -> dict[int, dict[str, Any]]:
    """Writes a cubin for each; gives its registers and spills, or an outcome where there is none."""
    nvcc = find_nvcc()

    def build(number: int) -> dict[str, Any]:
        variant = numbers[number]
        command = [str(nvcc), *FLAGS, *variant.defines, str(SOURCE), "-o", str(cubin_path(folder, number))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILE_LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"outcome": f"not compiled within {COMPILE_LIMIT_S:.0f} s"}
        if done.returncode:
            return {"outcome": f"does not compile: {done.stdout}{done.stderr}"}
        usage = parse_usage(done.stderr, ENTRY)
        return {"registers": usage.registers, "spill_bytes": usage.spill_bytes}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(numbers, pool.map(build, numbers), strict=True))


# ---- first checks, in processes that may fall -----------------------------------------------------------------------


def tell_first_checks(facts: Mapping[int, dict[str, Any]], folder: Path) -> None:
    """Adds an outcome to the facts of each that is compiled: `right`, or why not."""
    waiting = [number for number, fact in facts.items() if "outcome" not in fact]
    with ThreadPoolExecutor(CHECKERS) as pool:
        for outcomes in pool.map(
            lambda part: first_checks(part, folder), [waiting[i::CHECKERS] for i in range(CHECKERS)]
        ):
            for number, outcome in outcomes.items():
                facts[number]["outcome"] = outcome


def first_checks(waiting: Sequence[int], folder: Path) -> dict[int, str]:
    """The outcome of each. One that ends its process is told by its silence, and the others go on in the next."""
    outcomes: dict[int, str] = {}
    left = list(waiting)
    for _ in range(MOST_STARTS):
        if not left:
            return outcomes
        command = [sys.executable, __file__, "--cubins", str(folder), "--check", ",".join(map(str, left))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECK_LIMIT_S)
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        except subprocess.TimeoutExpired:
            why = f"nothing within {CHECK_LIMIT_S:.0f} s"
        outcomes |= told(folder, left)
        left = [number for number in left if number not in outcomes]
        if left:
            outcomes[left.pop(0)] = f"faulted: {why}"
    return outcomes | dict.fromkeys(left, "not checked: too many before it faulted")


def told(folder: Path, numbers: Sequence[int]) -> dict[int, str]:
    """What processes have told so far of these."""
    found = {}
    for number in numbers:
        path = outcome_path(folder, number)
        if path.exists():
            found[number] = json.loads(path.read_text(encoding="utf-8"))
    return found


def outcome_path(folder: Path, number: int) -> Path:
    return folder / f"{number}.json"


def check(numbers: Mapping[int, Variant], folder: Path) -> None:
    """Each on small problems; its outcome goes to a file. Ends the process at the first fault."""
    without_tf32()
    cuda = Functions()
    data: dict[Case, Operands] = {}
    for number, variant in numbers.items():
        outcome = "right"
        for shape in CHECKED:
            case = Case(shape, "float32", variant.layout)
            if case not in data:
                data[case] = make_operands(case)
            try:
                call = cuda.call_of(variant, cubin_path(folder, number).read_bytes(), case, data[case])
                error = errors_of({variant.name: call}, data[case])[variant.name]
            except RuntimeError as fault:  # PyTorch's, of a context that is lost
                raise SystemExit(str(fault).partition("\n")[0]) from fault
            except LaunchError as failure:
                if words := cuda.fault():
                    raise SystemExit(words) from failure
                outcome = f"failed: {failure}"
                break
            if not is_right(error, case):
                outcome = f"wrong at {case.label}: error {error}, limit {error_limit(case)}"
                break
        outcome_path(folder, number).write_text(json.dumps(outcome), encoding="utf-8")


def is_right(error: float | None, case: Case) -> bool:
    return error is not None and error <= error_limit(case)


# ---- at full size ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    """What all cases share. `facts` of each variant: registers, spills, the outcome of its first check."""

    device: Any
    builder: Builder
    clock: TorchClock
    cuda: Functions
    numbers: Mapping[int, Variant]
    facts: Mapping[int, dict[str, Any]]
    folder: Path


def trial(
    given: argparse.Namespace, numbers: Mapping[int, Variant], facts: Mapping[int, dict[str, Any]], folder: Path
) -> None:
    """All cases; the file is written after each. Raises Poisoned."""
    precision = without_tf32()
    device = open_device("cuda")
    kernel = load_kernel("matmul")
    cases = [Case((size, size, size), "float32", layout) for size in given.sizes for layout in ("nn", "tn")]
    entries: list[dict[str, Any]] = []
    with Builder(device.target) as builder:
        document = machine(device.info, builder.compiler) | {
            "cublas": precision,
            "faults": given.fault,
            "cases": entries,
        }
        configurations = [kernel.configuration(dict(kernel.presets[name])) for name in PRESETS]
        problems = [kernel.problem(case.sizes, case.dtype) for case in cases]
        build_all(builder, [(problem, each) for problem in problems for each in configurations])
        bench = Bench(device, builder, TorchClock(), Functions(), numbers, facts, folder)
        for case in cases:
            entries.append(measured(bench, case))
            print("\n".join(report(entries[-1])), flush=True)
            path = save(ENTRY, device.info, document, given.output)
    print("wrote", path)


def measured(bench: Bench, case: Case) -> dict[str, Any]:
    """Times, outcomes and rates of one case. Raises Poisoned."""
    import torch

    data = make_operands(case)
    notes: list[str] = []
    contestants = {name: call for name, call in cublas_calls(case, data).items() if name.endswith(": mm")}
    contestants |= preset_calls(bench, case, data, notes)
    chosen = [
        (number, variant)
        for number, variant in bench.numbers.items()
        if variant.layout == case.layout and variant.divides(*case.mnk)
    ]
    outcomes = {}
    for number, variant in chosen:
        outcomes[number] = bench.facts[number]["outcome"]
        if outcomes[number] == "right":
            outcomes[number], call = tried(bench, number, case, data)
            contestants |= {} if call is None else {variant.name: call}
    errors = errors_of(contestants, data)
    right = {name: call for name, call in contestants.items() if is_right(errors[name], case)}
    notes += [f"{name} is wrong: error {errors[name]}" for name in contestants if name not in right]
    heat_up(right, HEAT_S)
    rounds = ROUNDS.get(case.mnk[0], LEAST_ROUNDS)
    figures = {name: summary(times) for name, times in in_turns(right, rounds, bench.clock).items()}
    entries = []
    for number, variant in chosen:
        entry = asdict(variant) | {"name": variant.name} | bench.facts[number] | {"outcome": outcomes[number]}
        if outcomes[number] == "right" and variant.name not in right:
            entry["outcome"] = f"wrong: error {errors[variant.name]}"
        entries.append(entry)
    del data, contestants, right
    torch.cuda.empty_cache()
    return {
        "shape": list(case.shape),
        "layout": case.layout,
        "flops": case.flops,
        "figures": figures,
        "tflops": {name: case.flops / figure["median_ms"] / 1e9 for name, figure in figures.items()},
        "errors": errors,
        "error_limit": error_limit(case),
        "variants": entries,
        "notes": notes,
    }


def preset_calls(bench: Bench, case: Case, data: Operands, notes: list[str]) -> dict[str, Call]:
    """autotile's presets for large matrices, as they are without this trial."""
    kernel = load_kernel("matmul")
    problem = kernel.problem(case.sizes, case.dtype)
    found = {}
    for name in PRESETS:
        try:
            call = call_of(bench.device, bench.builder, problem, kernel.configuration(dict(kernel.presets[name])), data)
            call(0)
            found[f"{OURS}: {name}"] = call
        except AutotileError as error:
            notes.append(f"no {name} here: {type(error).__name__}: {error}")
    return found


def tried(bench: Bench, number: int, case: Case, data: Operands) -> tuple[str, Call | None]:
    """One launch at full size: `right` so far, with its call; or why not. Raises Poisoned."""
    variant, call = bench.numbers[number], None
    outcome = "right"
    try:
        call = bench.cuda.call_of(variant, cubin_path(bench.folder, number).read_bytes(), case, data)
        call(0)
    except LaunchError as error:
        outcome, call = f"failed: {error}", None
    if words := bench.cuda.fault():
        raise Poisoned(variant, words)
    return outcome, call


class Functions:
    """Variants' kernels in PyTorch's context, which is current, launched by the driver's own functions."""

    def __init__(self) -> None:
        import torch

        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()  # the primary context is made and current from here on
        self._cuda = libcuda()
        self._loaded: dict[Variant, ctypes.c_void_p] = {}
        pointer, words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
        longs = ctypes.POINTER(ctypes.c_uint64)
        self._cuda.cuTensorMapEncodeTiled.argtypes = [
            pointer, ctypes.c_int, ctypes.c_uint32, pointer, longs, longs, words, words, *[ctypes.c_int] * 4
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

    def call_of(self, variant: Variant, cubin: bytes, case: Case, data: Operands) -> Call:
        """A launch of the variant on the data set of a number. Raises LaunchError."""
        import torch

        function = self._function(variant, cubin)
        m, n, k = case.mnk
        blocks = (m // variant.tile_m) * (n // variant.tile_n)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        packs = []
        for a, b, c in zip(data.a, data.b, data.c, strict=True):
            described = zip(maps(variant, m, n, k), (a.data_ptr(), b.data_ptr()), strict=True)
            values = [self._tensor_map(of, address) for of, address in described]
            values += [ctypes.c_void_p(c.data_ptr()), *map(ctypes.c_int, (m, n, k))]
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

    def _tensor_map(self, of: Map, address: int) -> Any:
        """128 bytes at a multiple of 64, which keep the memory around them."""
        around = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
        made = (ctypes.c_ubyte * MAP_BYTES).from_buffer(around, -ctypes.addressof(around) % MAP_ALIGNMENT)
        self.asked(
            "cuTensorMapEncodeTiled", ctypes.addressof(made), FLOAT32, 2, address,
            (ctypes.c_uint64 * 2)(*of.sizes), (ctypes.c_uint64 * 1)(of.stride_bytes), (ctypes.c_uint32 * 2)(*of.box),
            (ctypes.c_uint32 * 2)(1, 1), NO_INTERLEAVE, of.swizzle, PROMOTE_128B, ZEROS_OUTSIDE,
        )  # fmt: skip
        return made


if __name__ == "__main__":
    main()
