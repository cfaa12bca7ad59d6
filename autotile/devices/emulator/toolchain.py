"""Compiles a generated CUDA source, as host C++ together with the emulator's runtime, to a shared object."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.devices.emulator.program import EmulatedProgram
from autotile.devices.emulator.source import ARENA_SYMBOL, bind_shared_arrays
from autotile.devices.emulator.unsupported import refuse_unsupported
from autotile.errors import CompileError, ToolchainMissing

HOST_FOLDER = Path(__file__).parent / "host"
SOURCE_NAME = "kernel.cu"
RUNTIME_TIMEOUT_S = 120.0

_FENCES = ("begin", "end", "arena")
_ERROR = re.compile(rf"(?:^|/){re.escape(SOURCE_NAME)}:(\d+):(?:\d+:)?\s*(?:fatal )?error: (.*)$", re.MULTILINE)
_ANY_ERROR = re.compile(r"(?:error|undefined reference|undefined symbol)[^\n]*", re.IGNORECASE)


@dataclass(frozen=True)
class HostToolchain:
    """A C++ compiler: where it is, and the first line of what it says of its version."""

    path: str
    version_text: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version_text


@dataclass(frozen=True)
class HostBuild:
    """A built variant. `static_shared_bytes` is a block's static shared memory, `build_s` the time it took."""

    shared_object: Path
    static_shared_bytes: int
    build_s: float
    flags: tuple[str, ...]
    traced: bool


def find_host_compiler() -> HostToolchain:
    """The compiler of AUTOTILE_CXX, else of CXX, else g++, clang++ or c++. Raises ToolchainMissing."""
    named = os.environ.get("AUTOTILE_CXX")
    if named:
        found = _ask_version(named)
        if found is None:
            raise ToolchainMissing(
                f"AUTOTILE_CXX names {named!r}, which does not run as a C++ compiler. Correct or unset it."
            )
        return found
    # CXX may hold what only make understands, such as "ccache g++": then it is passed over.
    for command in filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        found = _ask_version(command)
        if found is not None:
            return found
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install g++ (or dnf install gcc-c++)"
    raise ToolchainMissing(
        "the emulator compiles kernels for this machine's CPU and found no C++ compiler (g++, clang++ or c++). "
        f"Install one: {install}; or name it in AUTOTILE_CXX."
    )


def _ask_version(command: str) -> HostToolchain | None:
    path = shutil.which(command)
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return HostToolchain(path, answer.stdout.partition("\n")[0].strip())


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


_COMMON_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-w", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")


# A tail call would leave the runtime a return address in the caller of the line that made it.
_TRUE_LINES = ("-g1", "-gdwarf-4", "-fno-optimize-sibling-calls")
# g++ may schedule a call out of the range that its debug information gives an inlined function.
_TRUE_LINES_GNU = ("-gno-statement-frontiers", "-fno-schedule-insns2")


def _kernel_flags(toolchain: HostToolchain, traced: bool) -> tuple[str, ...]:
    # An endless loop must stay one, to be reported. Vectorised loops and split copies would change the width of the
    # accesses that are counted.
    flags = [*_COMMON_FLAGS, "-fno-strict-aliasing", "-fno-finite-loops", "-ffp-contract=fast", *_TRUE_LINES]
    if _has_fma():
        flags.append("-mfma")
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
    return f"{toolchain.version_text}; {' '.join(_kernel_flags(toolchain, True))}; host {_host_hash()}"


def _run(command: Sequence[str], text: str, timeout_s: float) -> str | None:
    """Runs a compiler on `text`; returns None when it succeeded, else what it wrote to stderr."""
    # A session of its own, because the driver's children hold the pipe open after the driver has been killed.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        _, errors = process.communicate(text, timeout=timeout_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CompileError(
                f"the C++ compiler did not finish within {timeout_s:g} s and was stopped. "
                "Unroll less, or allow more time for a build."
            ) from error
        raise
    return None if process.returncode == 0 else errors


def _runtime_folder(toolchain: HostToolchain, cache_dir: Path) -> Path:
    """The folder with the runtime's objects, compiled on first use; several processes may come at once."""
    key = hashlib.sha256(
        f"{toolchain.path}\0{toolchain.version_text}\0{_COMMON_FLAGS}\0{_host_hash()}".encode()
    ).hexdigest()
    folder = cache_dir / f"runtime-{key[:16]}"
    if folder.is_dir():
        return folder
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix="building-") as scratch:
        built = Path(scratch) / "runtime"
        built.mkdir()
        inputs = {name: ("fence.cpp", f"-DAUTOTILE_FENCE_{name.upper()}") for name in _FENCES}
        for part, (file, *defines) in {**inputs, "runtime": ("runtime.cpp",)}.items():
            command = [
                toolchain.path,
                *_COMMON_FLAGS,
                *defines,
                "-c",
                str(HOST_FOLDER / file),
                "-o",
                f"{built / part}.o",
            ]
            errors = _run(command, "", RUNTIME_TIMEOUT_S)
            if errors is not None:
                raise ToolchainMissing(
                    f"{toolchain.version_text} cannot compile the emulator's runtime: {_first_line(errors)}. "
                    "Install a compiler with C++17 (g++ 10 or clang++ 12 and later), or name one in AUTOTILE_CXX."
                )
        try:
            built.rename(folder)
        except OSError:
            # Another process was first, and its objects are the same.
            if not folder.is_dir():
                raise
    return folder


def _first_line(errors: str) -> str:
    match = _ANY_ERROR.search(errors)
    return match.group().strip() if match else (errors.strip().splitlines() or ["no message"])[0]


def _compile_error(errors: str, entry: str, toolchain: HostToolchain) -> CompileError:
    match = _ERROR.search(errors)
    if match is not None:
        return CompileError(f"{SOURCE_NAME}:{match.group(1)}: {match.group(2)} ({toolchain.version_text})")
    if "entry:" in errors:
        return CompileError(f"{SOURCE_NAME} has no kernel named {entry!r} that can be called from outside.")
    return CompileError(f"{SOURCE_NAME}: {_first_line(errors)} ({toolchain.version_text})")


def _link_flags(runtime: Path, dynamic_arrays: Sequence[str], shared_object: Path) -> list[str]:
    begin, *behind = (f"{runtime / part}.o" for part in (*_FENCES, "runtime"))
    linked = ["-shared", "-nostdlib", begin, "-x", "c++", "-", "-x", "none", *behind, "-o", str(shared_object)]
    if sys.platform == "darwin":
        return [*linked, "-lSystem"]
    # g++ forgets the label of an array that is declared inside a template, and leaves its plain name to the linker.
    labels = [f"-Wl,--defsym={name}={ARENA_SYMBOL}" for name in dynamic_arrays]
    return [*linked, *labels, "-Wl,-Bsymbolic", "-Wl,-z,defs", "-lm", "-lc", "-ldl", "-lpthread", "-lrt", "-lgcc"]


def compile_host(
    source_text: str,
    entry: str,
    out_path: Path,
    toolchain: HostToolchain,
    *,
    cache_dir: Path,
    traced: bool = True,
    timeout_s: float = 60.0,
) -> HostBuild:
    """Compiles the kernel `entry` of a generated source to the shared object `out_path`.

    `cache_dir` keeps the runtime's objects between builds. Without `traced` the library runs faster and checks nothing.
    Raises CompileError (with the line of the source), UnsupportedByEmulator and ToolchainMissing.
    """
    refuse_unsupported(source_text)
    runtime = _runtime_folder(toolchain, cache_dir)
    started = time.perf_counter()
    flags = _kernel_flags(toolchain, traced)
    # alignas is renamed only after the headers: after `static` it is an error, where the attribute is not.
    bound = bind_shared_arrays(source_text)
    unit = (
        f'#include "cuda_host.h"\n#define alignas(bytes) __attribute__((aligned(bytes)))\n#line 1 "{SOURCE_NAME}"\n'
        f'{bound.text}\n#line 1 "entry"\nAUTOTILE_EMULATE({entry})\n'
    )
    out_path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=out_path.parent, prefix=f".{out_path.name}.")
    os.close(descriptor)
    try:
        include = ["-I", str(HOST_FOLDER), "-I", str(HOST_FOLDER / "include")]
        link = _link_flags(runtime, bound.dynamic_arrays, Path(temporary))
        errors = _run([toolchain.path, *flags, *include, *link], unit, timeout_s)
        if errors is not None:
            raise _compile_error(errors, entry, toolchain)
        with EmulatedProgram(Path(temporary)) as program:
            static_shared_bytes = program.static_shared_bytes
        os.replace(temporary, out_path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return HostBuild(out_path, static_shared_bytes, time.perf_counter() - started, flags, traced)
