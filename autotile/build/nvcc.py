"""nvcc: finding it, what it knows, and one compile of a variant to a cubin for the exact arch."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from autotile.build import process
from autotile.build.compiler import Built, OneProcessEach, Workdirs, set_in_environment
from autotile.build.cubin import code_digest
from autotile.build.process import CompileTimeout, Finished, ProcessPool
from autotile.build.ptxas import arch_number, check_static_shared, first_error, parse_usage
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target, digest

FLAGS = ("-std=c++17", "-cubin", "-Xptxas", "-v")
LINE_INFO_FLAG = "-lineinfo"
SOURCE_NAME = "kernel.cu"
BINARY_NAME = "kernel.cubin"

USUAL_PLACE = Path("/usr/local/cuda/bin")

ENVIRONMENT_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
"""Variables with which nvcc itself lets a user change its command line."""

_HOST_COMPILER_FAULT = re.compile(
    r"unsupported (?:GNU|clang|Microsoft Visual Studio) version|Failed to preprocess host compiler properties"
    r"|Cannot find compiler 'cl\.exe'"
    r"|^(?:.*[ /])?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|cc1plus)[-.\d]*: .*(?:not found|No such file)",
    re.MULTILINE,
)
_MACHINE_FAULT = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system|Input/output error")
_SOURCE_FAULT = re.compile(r"\bkernel\.cu[(:]|_kernel\.ptx, line|^ptxas error", re.MULTILINE)
"""Words that name a place in the source, or are ptxas's about it: then nothing else needs to be asked."""
_EMPTY_KERNEL = Source("empty", "empty", 'extern "C" __global__ void empty() {}\n')


def candidates() -> Iterator[tuple[str, Path]]:
    """Where nvcc is looked for, in order, with the reason to look there."""
    chosen = os.environ.get("AUTOTILE_NVCC")
    if chosen:
        yield "AUTOTILE_NVCC", Path(shutil.which(chosen) or chosen)
        return  # what the user names is used or refused, never passed over
    name = "nvcc.exe" if os.name == "nt" else "nvcc"
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield variable, Path(os.environ[variable]) / "bin" / name
    on_path = shutil.which(name)
    yield "PATH", Path(on_path) if on_path else Path(name)
    yield "the usual place", USUAL_PLACE / name


def find_nvcc() -> Path:
    """The nvcc that is used.

    Raises ToolchainMissing with the places that were looked at, what is wrong there, and how to name another.
    """
    looked: list[str] = []
    for reason, path in candidates():
        fault = _fault_of(path)
        if not fault:
            return path
        looked.append(f"{reason} ({path}: {fault})" if path.is_absolute() else f"{reason} ({fault})")
    raise ToolchainMissing(
        f"nvcc was not found; looked at {', '.join(looked)}. Install the CUDA toolkit, or set AUTOTILE_NVCC to nvcc's "
        "path or CUDA_HOME to the toolkit's folder"
    )


def _fault_of(path: Path) -> str:
    if path.is_dir():
        return "a folder"
    if not path.is_absolute() or not path.is_file():
        return "not there"
    return "" if os.access(path, os.X_OK) else "not executable"


def _ask(nvcc: Path, option: str) -> str:
    command = f"`{nvcc} {option}`"
    try:
        done = ProcessPool().run([str(nvcc), option], timeout_s=process.ASK_LIMIT_S)
    except CompileTimeout:
        fault = f"did not answer within {process.ASK_LIMIT_S:g} s and was stopped"
    except OSError as error:
        fault = f"cannot be run: {error}"
    else:
        said = done.text.strip()
        if done.status == 0 and said:
            return said
        fault = f"was ended by {done.crash}" if done.crash else f"ended with status {done.status}"
        fault += f", saying: {said or 'nothing'}"
    raise ToolchainMissing(f"{command} {fault}. Set AUTOTILE_NVCC to the path of a working nvcc")


@functools.lru_cache(maxsize=16)
def _version_of(nvcc: Path, changed_ns: int) -> str:
    text = _ask(nvcc, "--version")
    match = re.search(r"\bV(\d+\.\d+\.\d+)", text) or re.search(r"release (\d+\.\d+)", text)
    return f"nvcc {match[1]}" if match else f"nvcc (unknown version {digest(text)[:12]})"


@functools.lru_cache(maxsize=16)
def _archs_of(nvcc: Path, changed_ns: int) -> tuple[str, ...]:
    try:
        text = _ask(nvcc, "--list-gpu-code")
    except ToolchainMissing:
        return ()  # before CUDA 11.1 nvcc has no such option: the compile itself will tell
    return tuple(re.findall(r"\bsm_\d+[af]?\b", text))


def version_text(nvcc: Path) -> str:
    """`nvcc 13.0.88`. Asked again when the file changes."""
    return _version_of(nvcc, nvcc.stat().st_mtime_ns)


def supported_archs(nvcc: Path) -> tuple[str, ...]:
    """The real archs that this nvcc compiles for; empty when it cannot say."""
    return _archs_of(nvcc, nvcc.stat().st_mtime_ns)


def check_arch(nvcc: Path, arch: str) -> None:
    """Raises ToolchainMissing when this nvcc is too old, or too new, for the arch."""
    known = supported_archs(nvcc)
    if known and arch not in known:
        raise ToolchainMissing(
            f"{version_text(nvcc)} ({nvcc}) does not compile for {arch}; it knows {', '.join(known)}. "
            "Install a CUDA toolkit that knows this GPU and name it with AUTOTILE_NVCC"
        )


def arch_flags(target: Target) -> tuple[str, ...]:
    """The option that asks for machine code of exactly this arch."""
    number = arch_number(target)
    return (f"-gencode=arch=compute_{number},code=sm_{number}",)


def own_flags(target: Target, line_info: bool = False) -> list[str]:
    """autotile's own options, without the names of files."""
    return [*FLAGS, *arch_flags(target), *([LINE_INFO_FLAG] if line_info else [])]


def flags_of(target: Target, line_info: bool = False) -> str:
    """All that decides the machine code beside the source and the version, as one text. Starts nothing."""
    return " ".join([*own_flags(target, line_info), set_in_environment(ENVIRONMENT_FLAGS)]).rstrip()


class Nvcc(OneProcessEach):
    """Compiles sources for one target. Raises ToolchainMissing when made without a usable nvcc."""

    def __init__(self, target: Target, line_info: bool = False) -> None:
        self.target, self.line_info = target, line_info
        self.path = find_nvcc()
        self.version = version_text(self.path)
        check_arch(self.path, target.arch)

    @property
    def flags(self) -> str:
        return flags_of(self.target, self.line_info)

    @property
    def users_flags(self) -> str:
        return set_in_environment(ENVIRONMENT_FLAGS)

    def command(self) -> list[str]:
        """Run in the folder that holds the source: relative names keep paths out of the machine code."""
        return [str(self.path), *own_flags(self.target, self.line_info), "-o", BINARY_NAME, SOURCE_NAME]

    def compile(self, source: Source, workdirs: Workdirs, processes: ProcessPool, timeout_s: float) -> Built:
        """Raises CompileError for the source's faults, ToolchainMissing for the machine's."""
        with workdirs() as folder:
            return self._compile(source, Path(folder), processes, timeout_s)

    def _compile(self, source: Source, workdir: Path, processes: ProcessPool, timeout_s: float) -> Built:
        def run(source: Source, folder: Path) -> Finished:
            (folder / SOURCE_NAME).write_text(source.text, encoding="utf-8")
            # nvcc puts its own files under TMPDIR, and fails without a word where that is not there.
            environment = {**os.environ, "TMPDIR": str(folder)}
            try:
                return processes.run(self.command(), cwd=folder, timeout_s=timeout_s, environment=environment)
            except OSError as error:
                raise ToolchainMissing(f"{self.path} cannot be run: {error}") from error

        def fault_of_machine() -> str | None:
            folder = workdir / "empty"
            folder.mkdir()
            done = run(_EMPTY_KERNEL, folder)
            return None if _has_built(done, folder) else first_error(done.text) or _silence(done)

        done = run(source, workdir)
        if not _has_built(done, workdir):
            raise self._failure(source, done, fault_of_machine)
        usage = parse_usage(done.text, source.entry)
        check_static_shared(source, usage)
        data = (workdir / BINARY_NAME).read_bytes()
        return Built(BINARY_NAME, data, code_digest(data), usage)

    def _failure(
        self, source: Source, done: Finished, fault_of_machine: Callable[[], str | None]
    ) -> CompileError | ToolchainMissing:
        """The source's fault is a CompileError; the machine's, under which no other source fares better, is not."""
        fault = first_error(done.text)
        if _HOST_COMPILER_FAULT.search(done.text):
            said = "; ".join(line.strip() for line in done.text.splitlines() if line.strip()).rstrip(".")
            return ToolchainMissing(
                f"{self.version} ({self.path}) cannot use the host's C++ compiler: {said}. Install one that it "
                "supports and name it with NVCC_PREPEND_FLAGS='-ccbin /path/to/g++'"
            )
        if "Unsupported gpu architecture" in done.text:
            return ToolchainMissing(
                f"{self.version} ({self.path}) does not compile for {self.target.arch}: {fault}. "
                "Install a CUDA toolkit that knows this GPU and name it with AUTOTILE_NVCC"
            )
        if machine := _MACHINE_FAULT.search(done.text):
            line = next(line for line in done.text.splitlines() if machine.group() in line)
            return ToolchainMissing(f"{self.version} ({self.path}) cannot compile on this machine: {line.strip()}")
        where = f"{source.kernel} ({source.entry})"
        command = f"the command was `{' '.join(self.command())}`"
        if done.crash:
            return CompileError(f"nvcc crashed on {where}: it was ended by {done.crash}; {command}")
        if not _SOURCE_FAULT.search(done.text):
            machine_fault = fault_of_machine()
            if machine_fault is not None:
                return ToolchainMissing(
                    f"{self.version} ({self.path}) does not even compile an empty kernel: {machine_fault}; {command}. "
                    "Mend it, or name another with AUTOTILE_NVCC"
                )
        return CompileError(f"nvcc refused {where}: {fault}" if fault else f"{_silence(done)} on {where}; {command}")


def _has_built(done: Finished, folder: Path) -> bool:
    output = folder / BINARY_NAME
    return done.status == 0 and output.is_file() and output.stat().st_size > 0


def _silence(done: Finished) -> str:
    made = "no message" if done.status else "no cubin"
    return f"nvcc ended with status {done.status} and {made}"
