"""nvcc: finding it, what it knows, and one compile of a variant to a cubin for the exact arch."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.build import process
from autotile.build.process import CompileTimeout, Finished, ProcessPool
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target, digest

FLAGS = ("-std=c++17", "-cubin", "-Xptxas", "-v")
SOURCE_NAME = "kernel.cu"
BINARY_NAME = "kernel.cubin"

ARCH_SPECIFIC = frozenset({"sm_90"})
"""Archs that are built with their own feature set (`sm_90a`: wgmma, setmaxnreg), closed to plain `sm_90`."""

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


@dataclass(frozen=True)
class Usage:
    """What ptxas reports of one kernel, a thread: registers, and bytes spilled (stores and loads together)."""

    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int | None = None


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
    number = target.arch.removeprefix("sm_")
    if target.arch in ARCH_SPECIFIC:
        number += "a"
    return (f"-gencode=arch=compute_{number},code=sm_{number}",)


def flags_of(target: Target) -> str:
    """All that decides the machine code beside the source and the version, as one text. Starts nothing."""
    return " ".join([*FLAGS, *arch_flags(target), set_in_environment(ENVIRONMENT_FLAGS)]).rstrip()


def set_in_environment(names: Sequence[str]) -> str:
    """Those of the variables that are set and not empty, as a shell would take them: `NAME=value NAME='two words'`."""
    return " ".join(f"{name}={shlex.quote(os.environ[name])}" for name in names if os.environ.get(name))


class Nvcc:
    """Compiles sources for one target. Raises ToolchainMissing when made without a usable nvcc."""

    binary_name = BINARY_NAME

    def __init__(self, target: Target) -> None:
        self.target = target
        self.path = find_nvcc()
        self.version = version_text(self.path)
        check_arch(self.path, target.arch)

    @property
    def flags(self) -> str:
        return flags_of(self.target)

    @property
    def users_flags(self) -> str:
        return set_in_environment(ENVIRONMENT_FLAGS)

    def command(self) -> list[str]:
        """Run in the folder that holds the source: relative names keep paths out of the machine code."""
        return [str(self.path), *FLAGS, *arch_flags(self.target), "-o", BINARY_NAME, SOURCE_NAME]

    def compile(self, source: Source, workdir: Path, processes: ProcessPool, timeout_s: float) -> tuple[Path, Usage]:
        """Builds in `workdir`. Raises CompileError for the source's faults, ToolchainMissing for the machine's."""

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
        if (usage.static_shared_bytes or 0) > STATIC_SHARED_LIMIT_BYTES:  # ptxas lets it pass for sm_90a
            raise CompileError(
                f"{source.kernel} ({source.entry}) uses too much shared data: {usage.static_shared_bytes} bytes "
                f"static, {STATIC_SHARED_LIMIT_BYTES} at most; more must be dynamic (extern __shared__)"
            )
        return workdir / BINARY_NAME, usage

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


def first_error(text: str) -> str:
    """The first line that tells what is wrong: a front end's or ptxas's error, else the first line of any text."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if re.search(r"\b(error|fatal)\b", line) and not line.startswith("ptxas info"):
            # Names of nvcc's temporary files differ from run to run; equal faults should read the same.
            return re.sub(r"\S*tmpxft_\S+?_kernel(?=\.)", "kernel", line)
    return next((line for line in lines if not line.startswith("ptxas info")), "")


def parse_usage(text: str, entry: str) -> Usage:
    """Reads `ptxas -v`: the numbers of the entry, not of other kernels or of functions that it calls."""
    registers: int | None = None
    spilled: int | None = None
    shared: int | None = None
    kernel = function = ""
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            kernel = function = match[1]
        elif match := re.search(r"Function properties for '?([^\s']+)", line):
            function = match[1]
        elif kernel != entry:
            continue
        elif function == entry and (match := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            spilled = int(match[1]) + int(match[2])
        elif match := re.search(r"Used (\d+) registers", line):
            registers = int(match[1])
            memory = re.search(r"(\d+)(?:\+(\d+))? bytes smem", line)
            shared = sum(int(part) for part in memory.groups() if part) if memory else 0
    return Usage(registers, spilled, shared)


def code_digest(path: Path) -> str:
    """SHA-256 of a cubin in which equal code gives equal bytes.

    Names of file-local symbols carry 8 hex digits that nvcc derives from the source's text; they are blanked, so that
    a changed comment does not look like another kernel.
    """
    marker = SOURCE_NAME.replace(".", "_").encode()
    pattern = rb"_[0-9a-f]{8}(?=_%d_%s)" % (len(marker), marker)
    return hashlib.sha256(re.sub(pattern, b"_00000000", path.read_bytes())).hexdigest()
