"""NVRTC, the compiler as a library: finding it and its headers, and compiles in warm worker processes.

A compile is the same work as nvcc's, without what nvcc does anew each time: starting four programs, running the host's
preprocessor, and reading the headers of CUDA's runtime.
"""

from __future__ import annotations

import ctypes.util
import functools
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autotile.build import nvcc
from autotile.build.compiler import Built, Workdirs, set_in_environment
from autotile.build.cubin import code_digest
from autotile.build.process import Finished, ProcessPool
from autotile.build.ptxas import arch_number, check_static_shared, first_error, parse_usage
from autotile.build.workers import WorkerPool, ending
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

NAME = "NVRTC"
FLAGS = ("-std=c++17", "--ptxas-options=-v")
LINE_INFO_FLAG = "--generate-line-info"
ENVIRONMENT_FLAGS = ("AUTOTILE_NVRTC_FLAGS",)
"""The variable with which a user adds options (NVCC_PREPEND_FLAGS and NVCC_APPEND_FLAGS are read by nvcc alone)."""

WORKER = Path(__file__).with_name("nvrtc_worker.py")
PATTERN = "libnvrtc.so*"
HEADER = "cuda_fp16.h"
"""What tells a folder of CUDA's headers."""

_MACHINE_FAULTS = {"NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"}
_NO_HEADER = re.compile(r'cannot open source file "([^"]+)"')


@dataclass(frozen=True)
class Facts:
    """What a library tells of itself: `13.0.88` (of old ones `11.2`), and the archs that it compiles for."""

    version: str
    archs: tuple[str, ...]


_known: dict[tuple[Path, int], Facts] = {}
"""By library and the time of its last change, so that a second builder waits for no worker."""


def candidates() -> Iterator[tuple[str, Path]]:
    """Where the library is looked for, in order, with the reason: a file, or a folder that may hold it."""
    chosen = os.environ.get("AUTOTILE_NVRTC")
    if chosen:
        yield "AUTOTILE_NVRTC", Path(chosen)
        return  # what the user names is used or refused, never passed over
    for reason, root in toolkits():
        yield reason, root / "lib64"
        yield reason, root / "lib"
    for folder in wheels("cuda_nvrtc"):
        yield "pip's packages", folder / "lib"
    yield "the loader's search", Path(_loaders_name() or "libnvrtc.so")


def toolkits() -> Iterator[tuple[str, Path]]:
    """Folders where a CUDA toolkit may be: the environment's, nvcc's, the usual one."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield variable, Path(os.environ[variable])
    for reason, path in nvcc.candidates():
        if path.is_absolute() and reason not in ("CUDA_HOME", "CUDA_PATH"):
            yield f"nvcc's toolkit ({reason})", path.resolve().parents[1]


def programs(name: str) -> Iterator[Path]:
    """Where a program of CUDA's toolkit may be: on PATH, and in the toolkits."""
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    for _, root in toolkits():
        yield root / "bin" / name


def wheels(part: str) -> Iterator[Path]:
    """Folders that pip's packages of CUDA may have made: one for all (`nvidia/cu13`), or, before, one for each part."""
    for entry in sys.path:
        root = Path(entry, "nvidia")
        yield from sorted(root.glob("cu[0-9]*"), reverse=True)
        if (root / part).is_dir():
            yield root / part


@functools.cache
def _loaders_name() -> str | None:
    return ctypes.util.find_library("nvrtc")


def find_nvrtc() -> Path:
    """The library that is used: a path, or a bare name that the loader knows. Loads nothing.

    Raises ToolchainMissing with the places that were looked at, and how to name another.
    """
    looked: dict[str, None] = {}
    for reason, place in candidates():
        if place.is_file():
            return place.absolute()  # the workers have another current folder
        if str(place) == _loaders_name():
            return place
        # The shortest name is the one without the exact version, which is a link where both are there.
        files = sorted(place.glob(PATTERN), key=lambda file: (len(file.name), file.name)) if place.is_dir() else []
        if files:
            return files[0].absolute()
        looked[f"{reason} ({place}: {'no ' + PATTERN if place.is_dir() else 'not there'})"] = None
    raise ToolchainMissing(
        f"{NAME} was not found; looked at {', '.join(looked)}. Install the CUDA toolkit or `pip install "
        "nvidia-cuda-nvrtc`, or set AUTOTILE_NVRTC to the path of libnvrtc.so"
    )


def find_headers(library: Path) -> Path | None:
    """The folder of CUDA's headers: beside the library, a toolkit's, or pip's. None: kernels must do without."""
    roots = [library.parent.parent] if library.is_absolute() else []
    roots += [root for _, root in toolkits()]
    roots += wheels("cuda_runtime")
    found = (root.absolute() / "include" for root in roots)
    return next((folder for folder in found if (folder / HEADER).is_file()), None)


@functools.cache
def _headers_version(headers: Path) -> str:
    """`13.0`."""
    try:
        text = (headers / "cuda_runtime_api.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    match = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" if match else "unknown"


def own_flags(target: Target, line_info: bool = False) -> list[str]:
    """autotile's own options, without the folders of headers."""
    return [*FLAGS, arch_flag(target), *([LINE_INFO_FLAG] if line_info else [])]


def flags_of(target: Target, line_info: bool = False) -> str:
    """All that decides the machine code beside the source and the version, as one text. Starts nothing."""
    return " ".join([*own_flags(target, line_info), set_in_environment(ENVIRONMENT_FLAGS)]).rstrip()


def arch_flag(target: Target) -> str:
    """The option that asks for machine code of exactly this arch."""
    return f"-arch=sm_{arch_number(target)}"


class Nvrtc:
    """Compiles sources for one target. Raises ToolchainMissing when made without a usable library."""

    def __init__(self, target: Target, line_info: bool = False) -> None:
        self.target, self.line_info = target, line_info
        self.path = find_nvrtc()
        self.headers = find_headers(self.path)
        self._pool = WorkerPool([sys.executable, "-I", "-S", str(WORKER), str(self.path)], NAME)
        try:
            self._facts = self._ask_facts()
            if self._facts.archs and target.arch not in self._facts.archs:
                raise ToolchainMissing(
                    f"{self.version} ({self.path}) does not compile for {target.arch}; it knows "
                    f"{', '.join(self._facts.archs)}. Install one that knows this GPU and name it with AUTOTILE_NVRTC"
                )
        except BaseException:
            self._pool.close()
            raise

    def _ask_facts(self) -> Facts:
        changed_ns = self.path.stat().st_mtime_ns if self.path.is_file() else 0
        facts = _known.get((self.path, changed_ns))
        if facts is None:
            try:
                told = self._pool.hello()
            except ToolchainMissing as error:
                raise ToolchainMissing(f"{error} ({self.path}). {_MEND}") from None
            if "error" in told:
                raise ToolchainMissing(f"{NAME} ({self.path}) cannot be used: {told['error']}. {_MEND}")
            facts = _known[self.path, changed_ns] = Facts(told["version"], tuple(told["archs"]))
        return facts

    @property
    def version(self) -> str:
        """`NVRTC 13.0.88`. Headers of another release go into the machine code too, so they are told."""
        own = f"{NAME} {self._facts.version}"
        if self.headers is None:
            return f"{own} without headers"
        headers = _headers_version(self.headers)
        release = ".".join(self._facts.version.split(".")[:2])
        return own if headers == release else f"{own} with headers of {headers}"

    @property
    def flags(self) -> str:
        return flags_of(self.target, self.line_info)

    @property
    def users_flags(self) -> str:
        return set_in_environment(ENVIRONMENT_FLAGS)

    def options(self) -> list[str]:
        found = own_flags(self.target, self.line_info)
        if self.headers is not None:
            found += [f"-I{folder}" for folder in (self.headers, self.headers / "cccl") if folder.is_dir()]
        for name in ENVIRONMENT_FLAGS:
            found += shlex.split(os.environ.get(name, ""))
        return found

    def compile(self, source: Source, workdirs: Workdirs, processes: ProcessPool, timeout_s: float) -> Built:
        """Raises CompileError for the source's faults, ToolchainMissing for the machine's. Leaves no files."""
        options = self.options()
        reply = self._pool.ask({"options": options}, source.text.encode(), timeout_s)
        where = f"{source.kernel} ({source.entry})"
        if isinstance(reply, Finished):
            raise CompileError(f"{NAME} crashed on {where}: it {ending(reply)}; its options were `{' '.join(options)}`")
        log = reply.parts[0].decode("utf-8", errors="replace")
        status = str(reply.fields["status"])
        if status != "NVRTC_SUCCESS":
            raise self._failure(where, status, log)
        cubin = reply.parts[1]
        if not cubin:
            raise ToolchainMissing(f"{self.version} ({self.path}) gives no cubin: it is too old. {_MEND}")
        usage = parse_usage(log, source.entry)
        check_static_shared(source, usage)
        digest = code_digest(cubin, reads_data=bool(reply.fields["reads_data"]))
        return Built(nvcc.BINARY_NAME, cubin, digest, usage)

    def _failure(self, where: str, status: str, log: str) -> CompileError | ToolchainMissing:
        """The source's fault is a CompileError; the machine's, under which no other source fares better, is not."""
        fault = first_error(log) or status
        missing = _NO_HEADER.search(log)
        if missing and self.headers is None and missing[1].startswith("cuda"):
            return ToolchainMissing(
                f"{self.version} ({self.path}) has no {missing[1]}: no CUDA headers were found. Install the CUDA "
                "toolkit or `pip install nvidia-cuda-runtime`, or set CUDA_HOME to the toolkit's folder"
            )
        if status in _MACHINE_FAULTS:
            hint = f"look at {self.users_flags}" if self.users_flags else _MEND
            return ToolchainMissing(f"{self.version} ({self.path}) cannot compile: {fault}; {hint}")
        if missing:
            fault += f"; {NAME} knows no headers of the host's: include <cuda/std/…>, or set AUTOTILE_COMPILER=nvcc"
        return CompileError(f"{NAME} refused {where}: {fault}")

    def warm_up(self, jobs: int) -> None:
        self._pool.start(jobs)

    def close(self) -> None:
        self._pool.close()


_MEND = "Set AUTOTILE_NVRTC to the path of a working libnvrtc.so, or AUTOTILE_COMPILER=nvcc"
