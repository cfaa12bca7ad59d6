"""The host's C++ compiler: finding it, and running it so that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autotile.errors import ToolchainMissing

ASK_LIMIT_S = 15.0
_ANY_ERROR = re.compile(
    r"(?:(?:internal compiler )?error|cannot find|undefined reference|undefined symbol)[^\n]*", re.IGNORECASE
)

Runner: TypeAlias = "Callable[[Sequence[str], str, float], tuple[int, str]]"
"""Runs a command on an input for so many seconds at most: its status and messages. Raises TimeoutError and OSError."""


@dataclass(frozen=True)
class HostToolchain:
    """A C++ compiler: where it is, and the first line of what it says of its version."""

    path: str
    version_text: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version_text


def run_alone(command: Sequence[str], text: str, timeout_s: float) -> tuple[int, str]:
    """The runner of a build that nobody else may stop."""
    # A session of its own, because the driver's children hold the pipe open after the driver has been killed.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        errors="replace", start_new_session=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        said, _ = process.communicate(text, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # reaps it and closes its pipes
            pass
    return process.returncode, said


def find_host_compiler(runner: Runner = run_alone, limit_s: float = ASK_LIMIT_S) -> HostToolchain:
    """The compiler of AUTOTILE_CXX, else of CXX, else g++, clang++ or c++.

    `runner` runs each of them, to ask for its version, for `limit_s` seconds at most. Raises ToolchainMissing.
    """
    named = os.environ.get("AUTOTILE_CXX")
    faults = []
    # CXX may hold what only make understands, such as "ccache g++": then it is passed over.
    for command in [named] if named else filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")):
        found = _ask_version(command, runner, limit_s)
        if isinstance(found, HostToolchain):
            return found
        faults.append(f"{command!r}, which {found}")
    if named:
        raise ToolchainMissing(f"AUTOTILE_CXX names {faults[0]}. Name a C++ compiler, or unset it.")
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install g++ (or dnf install gcc-c++)"
    raise ToolchainMissing(
        "the emulator compiles kernels for this machine's CPU and found no C++ compiler; it tried "
        f"{'; '.join(faults)}. Install one: {install}; or name it in AUTOTILE_CXX."
    )


def _ask_version(command: str, runner: Runner, limit_s: float) -> HostToolchain | str:
    """The compiler, or what is wrong with it."""
    path = shutil.which(command)
    if path is None:
        return "cannot be run as a program" if os.path.exists(command) else "is not there, or not on the PATH"
    try:
        status, said = runner([path, "--version"], "", limit_s)
    except TimeoutError:
        return f"did not answer `{path} --version` within {limit_s:g} s and was stopped"
    except OSError as error:
        return f"cannot be run: {error}"
    lines = said.strip().splitlines()
    if status != 0 or not lines:
        return f"answered `{path} --version` with status {status} and {first_line(said)!r}"
    numbered = [line for line in lines if re.search(r"\d\.\d", line)]  # unlike a wrapper's warning before it
    return HostToolchain(path, [*numbered, *lines][0].strip())


def first_line(errors: str) -> str:
    """The line of a compiler's messages that says most."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    telling = [line for line in lines if "ld returned" not in line]  # says only that something came before it
    match = _ANY_ERROR.search("\n".join(telling))
    return match.group() if match else ([*telling, *lines, "no message"])[0]
