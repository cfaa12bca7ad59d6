"""Compiles a generated CUDA source, as host C++ together with the emulator's runtime, to a shared object."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.devices.emulator.compiler import ASK_LIMIT_S, HostToolchain, Runner, first_line, run_alone
from autotile.devices.emulator.entries import GlobalFunction, entry_points
from autotile.devices.emulator.program import EmulatedProgram
from autotile.devices.emulator.ptx import bind_instructions
from autotile.devices.emulator.source import ARENA_SYMBOL, bind_shared_arrays
from autotile.devices.emulator.unsupported import refuse_unsupported
from autotile.errors import CompileError, LaunchError, ToolchainMissing

HOST_FOLDER = Path(__file__).parent / "host"
SOURCE_NAME = "kernel.cu"
RUNTIME_TIMEOUT_S = 120.0

_FENCES = ("begin", "end", "arena")
_OBJECTS = tuple(f"{part}.o" for part in (*_FENCES, "runtime"))
_LIST_NAME = "objects.json"
_VERIFIED: set[Path] = set()  # runtime folders whose objects this process found, or made, intact
_ERROR = re.compile(rf"(?:^|/){re.escape(SOURCE_NAME)}:(\d+):(?:\d+:)?\s*(?:fatal )?error: (.*)$", re.MULTILINE)
_NO_ENTRY = re.compile(r"(?:^|/)entry:\d+:", re.MULTILINE)
# Said of the machine even where a line of the source is named, as when the disk is full.
_MACHINE_FAULT = re.compile(
    r"No space left on device|Disk quota exceeded|Input/output error|Read-only file system|Permission denied"
    r"|[Cc]annot create temporary|cannot execute|unrecognized (?:command[- ]line )?(?:option|argument)"
)
_EMPTY_KERNEL = 'extern "C" __global__ void empty() {}\n'


@dataclass(frozen=True)
class HostBuild:
    """A built variant. `static_shared_bytes` is a block's static shared memory, `build_s` the time it took."""

    shared_object: Path
    static_shared_bytes: int
    build_s: float
    flags: tuple[str, ...]
    traced: bool


@functools.lru_cache(maxsize=1)
def _has_fma() -> bool:
    """Whether this x86-64 machine can fuse a multiply with an add, as the GPU does."""
    if platform.machine() not in ("x86_64", "AMD64") or not sys.platform.startswith("linux"):
        return False
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return "fma" in words


@functools.lru_cache(maxsize=1)
def _host_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(HOST_FOLDER.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(HOST_FOLDER).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


# Some distributions' compilers fortify by default: with a memcpy of libc's, where the runtime has its own.
_NOT_FORTIFIED = "-U_FORTIFY_SOURCE"
_COMMON_FLAGS = (
    _NOT_FORTIFIED,
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-w",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
)


# A tail call would leave the runtime a return address in the caller of the line that made it.
_TRUE_LINES = ("-g1", "-gdwarf-4", "-fno-optimize-sibling-calls")
# g++ may schedule a call out of the range that its debug information gives an inlined function, and make one call of
# those in which two branches end.
_TRUE_LINES_GNU = ("-gno-statement-frontiers", "-fno-schedule-insns2", "-fno-crossjumping")


# A local variable that was never written holds no convenient zero, as it does in a fresh page or as g++ chooses.
_FILL = "-ftrivial-auto-var-init=pattern"


_FILLS: dict[HostToolchain, bool] = {}


def _fills_variables(toolchain: HostToolchain, runner: Runner, timeout_s: float) -> bool:
    """Whether the compiler knows the flag: g++ 12 and clang++ 8, or later. Asked once in a process."""
    if toolchain not in _FILLS:
        try:
            status, _ = runner([toolchain.path, _FILL, "-x", "c++", "-fsyntax-only", "-"], "", timeout_s)
        except OSError:
            return False  # the compile itself will tell what is wrong
        _FILLS[toolchain] = status == 0
    return _FILLS[toolchain]


def _kernel_flags(toolchain: HostToolchain, traced: bool, fill: bool) -> tuple[str, ...]:
    # An endless loop must stay one, to be reported. Vectorised loops and split copies would change the width of the
    # accesses that are counted.
    flags = [*_COMMON_FLAGS, "-fno-strict-aliasing", "-fno-finite-loops", "-ffp-contract=fast", *_TRUE_LINES]
    if _has_fma():
        flags.append("-mfma")
    if fill:
        flags.append(_FILL)
    if toolchain.is_clang:
        flags += ["-fno-vectorize", "-fno-slp-vectorize"]
    else:
        # GNU's unique symbols would give two loaded variants one and the same shared array.
        flags += ["-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-gnu-unique", *_TRUE_LINES_GNU]
    if traced:
        flags.append("-fsanitize=thread")
        if toolchain.is_clang:
            flags += ["-mllvm", "-tsan-instrument-func-entry-exit=0"]
        else:
            flags += ["--param", "tsan-instrument-func-entry-exit=0"]
    return tuple(flags)


def flags_identity(toolchain: HostToolchain) -> str:
    """Names compiler, flags and the emulator's own files: what a cached build depends on besides its source."""
    # The version tells as well whether variables are filled; starting the compiler to ask is left to the builds.
    return f"{toolchain.version_text}; {' '.join(_kernel_flags(toolchain, True, True))}; host {_host_hash()}"


def _runtime_folder(toolchain: HostToolchain, cache_dir: Path, runner: Runner) -> Path:
    """The folder with the runtime's objects, compiled on first use; several processes may come at once.

    What a crash or a full disk damaged is compiled again. Looked at once in a process.
    """
    key = hashlib.sha256(
        f"{toolchain.path}\0{toolchain.version_text}\0{_COMMON_FLAGS}\0{_host_hash()}".encode()
    ).hexdigest()
    folder = cache_dir / f"runtime-{key[:16]}"
    if not (folder in _VERIFIED and folder.is_dir()) and not _is_intact(folder):
        try:
            _build_runtime(toolchain, folder, runner)
        except TimeoutError:
            raise ToolchainMissing(
                f"{toolchain.path} did not finish the emulator's runtime within {RUNTIME_TIMEOUT_S:g} s and was stopped"
            ) from None
        except OSError as error:
            raise ToolchainMissing(
                f"the emulator's runtime cannot be built with {toolchain.path} in {cache_dir}: {error}"
            ) from error
    _VERIFIED.add(folder)
    return folder


def _is_intact(folder: Path) -> bool:
    """Whether a runtime folder holds exactly the objects that were compiled."""
    try:
        listed = json.loads((folder / _LIST_NAME).read_text(encoding="utf-8"))
        return bool(listed == _listing(folder))
    except (OSError, ValueError):
        return False


def _listing(folder: Path) -> dict[str, list[int | str]]:
    """Size and SHA-256 of each of the runtime's objects."""
    contents = {name: (folder / name).read_bytes() for name in _OBJECTS}
    return {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in contents.items()}


def _build_runtime(toolchain: HostToolchain, folder: Path, runner: Runner) -> None:
    cache_dir = folder.parent
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix="building-", ignore_cleanup_errors=True) as scratch:
        built = Path(scratch) / "runtime"
        built.mkdir()
        inputs = {name: ("fence.cpp", f"-DAUTOTILE_FENCE_{name.upper()}") for name in _FENCES}
        for part, (file, *defines) in {**inputs, "runtime": ("runtime.cpp",)}.items():
            output = built / f"{part}.o"
            command = [toolchain.path, *_COMMON_FLAGS, *defines, "-c", str(HOST_FOLDER / file), "-o", str(output)]
            status, errors = runner(command, "", RUNTIME_TIMEOUT_S)
            if status != 0 or not output.is_file() or not output.stat().st_size:
                said = first_line(errors) if status else "it wrote no object file"
                raise ToolchainMissing(
                    f"{toolchain.version_text} cannot compile the emulator's runtime: {said}. "
                    "Install a compiler with C++17 (g++ 10 or clang++ 12 and later), or name one in AUTOTILE_CXX."
                )
        (built / _LIST_NAME).write_text(json.dumps(_listing(built)), encoding="utf-8")
        for attempt in range(8):
            try:
                built.rename(folder)
                return
            except OSError:
                # Another process was first, and its objects are the same; or a damaged folder stands there.
                if not folder.is_dir():
                    raise
            if _is_intact(folder):
                return
            with contextlib.suppress(OSError):  # another process may clear the same damaged folder
                folder.rename(Path(scratch) / f"damaged-{attempt}")
        raise OSError(f"{folder} cannot be replaced")


def _failure(
    errors: str, entry: str, toolchain: HostToolchain, runtime: Path, fault_of_machine: Callable[[], str | None]
) -> CompileError | ToolchainMissing:
    """The source's fault is a CompileError; the machine's, under which no other source would fare better, is not."""
    named = f"{toolchain.path} ({toolchain.version_text})"
    machine = _MACHINE_FAULT.search(errors)
    if machine is not None:
        line = next(line for line in errors.splitlines() if machine.group() in line)
        return ToolchainMissing(f"{named} cannot compile on this machine: {line.strip()}")
    match = _ERROR.search(errors)
    if match is not None:
        return CompileError(f"{SOURCE_NAME}:{match.group(1)}: {match.group(2)} ({toolchain.version_text})")
    if _NO_ENTRY.search(errors):
        return CompileError(f"{SOURCE_NAME} has no kernel named {entry!r} that can be called from outside.")
    if not _is_intact(runtime):
        _VERIFIED.discard(runtime)
        return ToolchainMissing(
            f"the emulator's runtime in {runtime} was damaged or removed while it was in use: run again, to rebuild it"
        )
    fault = fault_of_machine()
    if fault is None:
        return CompileError(f"{SOURCE_NAME}: {first_line(errors)} ({toolchain.version_text})")
    return ToolchainMissing(
        f"{named} does not even compile an empty kernel: {fault}. Mend it, or name another compiler in AUTOTILE_CXX."
    )


def _link_flags(runtime: Path, dynamic_arrays: Sequence[str], shared_object: Path) -> list[str]:
    begin, *behind = (str(runtime / name) for name in _OBJECTS)
    linked = ["-shared", "-nostdlib", begin, "-x", "c++", "-", "-x", "none", *behind, "-o", str(shared_object)]
    if sys.platform == "darwin":
        return [*linked, "-lSystem"]
    # g++ forgets the label of an array that is declared inside a template, and leaves its plain name to the linker.
    labels = [f"-Wl,--defsym={name}={ARENA_SYMBOL}" for name in dynamic_arrays]
    return [*linked, *labels, "-Wl,-Bsymbolic", "-Wl,-z,defs", "-lm", "-lc", "-ldl", "-lpthread", "-lrt", "-lgcc"]


def _entry_table(functions: Sequence[GlobalFunction]) -> str:
    """The end of a unit: what makes its functions known to the runtime."""
    clusters = "".join(f"AUTOTILE_CLUSTER({f.name}, {' '.join(f.cluster.split())})\n" for f in functions)
    calls = "".join(f"AUTOTILE_CALL({f.name})\n" for f in functions)
    table = ", ".join(f"AUTOTILE_ENTRY({f.name})" for f in functions)
    return f'#line 1 "clusters"\n{clusters}#line 1 "entry"\n{calls}AUTOTILE_EMULATE({functions[0].name}, {table})\n'


def compile_host(
    source_text: str,
    entry: str,
    out_path: Path,
    toolchain: HostToolchain,
    *,
    cache_dir: Path,
    traced: bool = True,
    timeout_s: float = 60.0,
    runner: Runner = run_alone,
) -> HostBuild:
    """Compiles the kernel `entry` of a generated source, with its steps, to the shared object `out_path`.

    `cache_dir` keeps the runtime's objects between builds. Without `traced` the library runs faster and checks nothing.
    `runner` runs the compiler. Raises CompileError (with the line of the source), UnsupportedByEmulator and, when
    compiler or machine are at fault, ToolchainMissing.
    """
    refuse_unsupported(source_text)
    runtime = _runtime_folder(toolchain, cache_dir, runner)
    started = time.perf_counter()
    flags = _kernel_flags(toolchain, traced, _fills_variables(toolchain, runner, min(timeout_s, ASK_LIMIT_S)))
    out_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=out_path.parent, prefix=f".{out_path.name}.")
    os.close(descriptor)

    def run(text: str, name: str) -> tuple[int, str]:
        # alignas is renamed only after the headers: after `static` it is an error, where the attribute is not.
        called = bind_instructions(text)
        functions = entry_points(called, name)
        bound = bind_shared_arrays(called, [function.body for function in functions[1:]])
        header = "cuda_host.h" if called == text else "ptx.h"  # which few kernels need
        unit = (
            f'#include "{header}"\n#define alignas(bytes) __attribute__((aligned(bytes)))\n'
            f"{'AUTOTILE_STEPS_SECTION' if bound.step_arrays else ''}\n"
            f'#line 1 "{SOURCE_NAME}"\n{bound.text}\n{_entry_table(functions)}'
        )
        include = ["-I", str(HOST_FOLDER), "-I", str(HOST_FOLDER / "include")]
        link = _link_flags(runtime, bound.dynamic_arrays, Path(temporary))
        try:
            return runner([toolchain.path, *flags, *include, *link], unit, timeout_s)
        except TimeoutError as error:
            raise CompileError(
                f"the C++ compiler did not finish within {timeout_s:g} s and was stopped. "
                "Unroll less, or allow more time for a build."
            ) from error
        except OSError as error:
            raise ToolchainMissing(f"{toolchain.path} cannot be run: {error}") from error

    def fault_of_machine() -> str | None:
        status, errors = run(_EMPTY_KERNEL, "empty")
        return None if status == 0 else first_line(errors)

    try:
        status, errors = run(source_text, entry)
        if status != 0:
            raise _failure(errors, entry, toolchain, runtime, fault_of_machine)
        static_shared_bytes = _static_shared_bytes(Path(temporary), toolchain)
        os.replace(temporary, out_path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return HostBuild(out_path, static_shared_bytes, time.perf_counter() - started, flags, traced)


def _static_shared_bytes(built: Path, toolchain: HostToolchain) -> int:
    """Loads what the compiler calls a success."""
    if not built.is_file() or not built.stat().st_size:
        raise ToolchainMissing(
            f"{toolchain.path} ({toolchain.version_text}) ended without an error and without a library. "
            "Name another compiler in AUTOTILE_CXX."
        )
    try:
        with EmulatedProgram(built) as program:
            return program.static_shared_bytes
    except LaunchError as error:
        raise ToolchainMissing(
            f"{toolchain.path} ({toolchain.version_text}) built a library that this machine cannot load: {error}"
        ) from error
