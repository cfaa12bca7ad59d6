"""The host's C++ compiler as a builder's compiler: variants for the emulator, as shared libraries."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from autotile.build import process
from autotile.build.compiler import Built, OneProcessEach, Usage, Workdirs, set_in_environment
from autotile.build.process import CompileTimeout, ProcessPool
from autotile.devices.emulator import toolchain as emulator
from autotile.devices.emulator.compiler import HostToolchain, Runner, find_host_compiler
from autotile.errors import CompileError
from autotile.types import Source, Target

BINARY_NAME = "kernel.so"

ENVIRONMENT_FLAGS = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS")
"""Variables with which g++ and clang++ let a user change where headers and their own parts come from, and options."""


def find_compiler() -> HostToolchain:
    """The C++ compiler that is used. Raises ToolchainMissing; a compiler that hangs is given up and leaves nothing."""
    return find_host_compiler(_runner(ProcessPool()), process.ASK_LIMIT_S)


def _runner(processes: ProcessPool, workdir: Path | None = None) -> Runner:
    """What runs the compiler; its own files go to `workdir`, which is swept when a run is cut short."""

    def run(command: Sequence[str], text: str, limit_s: float) -> tuple[int, str]:
        environment = {**os.environ, "LC_ALL": "C"} | ({} if workdir is None else {"TMPDIR": str(workdir)})
        try:
            done = processes.run(command, text=text, timeout_s=limit_s, environment=environment)
        except CompileTimeout as error:
            raise TimeoutError(str(error)) from error
        if text and done.crash:  # without a text it is no kernel that was compiled, and nothing is the variant's fault
            raise CompileError(f"{command[0]} crashed on this kernel: it was ended by {done.crash}")
        return done.status, done.text

    return run


class HostCompiler(OneProcessEach):
    """Compiles sources for this machine's CPU. Raises ToolchainMissing when made without a usable C++ compiler."""

    def __init__(self, target: Target, cache_dir: Path) -> None:
        self.target = target
        self._toolchain = find_compiler()
        self._cache_dir = cache_dir

    @property
    def version(self) -> str:
        """`g++ 12.2.0`."""
        return short_version(self._toolchain.path, self._toolchain.version_text)

    @property
    def flags(self) -> str:
        """The emulator's flags and runtime, and the compiler's full version line."""
        return f"{emulator.flags_identity(self._toolchain)} {self.users_flags}".rstrip()

    @property
    def users_flags(self) -> str:
        return set_in_environment(ENVIRONMENT_FLAGS)

    def compile(self, source: Source, workdirs: Workdirs, processes: ProcessPool, timeout_s: float) -> Built:
        """Raises CompileError, UnsupportedByEmulator or ToolchainMissing."""
        with workdirs() as folder:
            return self._compile(source, Path(folder), processes, timeout_s)

    def _compile(self, source: Source, workdir: Path, processes: ProcessPool, timeout_s: float) -> Built:
        output = workdir / BINARY_NAME
        try:
            built = emulator.compile_host(
                source.text,
                source.entry,
                output,
                self._toolchain,
                cache_dir=self._cache_dir,
                timeout_s=timeout_s,
                runner=_runner(processes, workdir),
            )
        except CompileError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise CompileTimeout(str(error.__cause__)) from None
            raise
        data = output.read_bytes()
        return Built(BINARY_NAME, data, hashlib.sha256(data).hexdigest(), Usage(None, None, built.static_shared_bytes))


def short_version(path: str, version_text: str) -> str:
    """The command's name and its version number, from a line such as `g++ (Debian 12.2.0-14+deb12u1) 12.2.0`."""
    clang = re.search(r"clang version (\d+(?:\.\d+)*)", version_text)
    numbers = [clang[1]] if clang else re.findall(r"(?<![\w.-])\d+(?:\.\d+)+", version_text)
    return f"{Path(path).name} {numbers[-1] if numbers else version_text}"
