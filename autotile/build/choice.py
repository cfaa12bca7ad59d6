"""Which compiler builds for a target."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.build import nvcc, nvrtc
from autotile.build.compiler import Compiler, set_in_environment
from autotile.errors import ArgumentValueError, ToolchainMissing
from autotile.suggest import did_you_mean
from autotile.types import Target

AUTO = "auto"
PREFERENCE = ("nvcc", "nvrtc")
"""The compilers for GPUs, the one that `auto` takes first; where it cannot be used, the next one is."""


@dataclass(frozen=True)
class _Toolchain:
    """How a compiler is made (for a target, with line information or without) and found; `variable` is the one in which
    a user names its path."""

    make: Callable[[Target, bool], Compiler]
    find: Callable[[], Path]
    flags_of: Callable[[Target], str]
    environment_flags: Sequence[str]
    variable: str


_TOOLCHAINS = {
    "nvcc": _Toolchain(nvcc.Nvcc, nvcc.find_nvcc, nvcc.flags_of, nvcc.ENVIRONMENT_FLAGS, "AUTOTILE_NVCC"),
    "nvrtc": _Toolchain(nvrtc.Nvrtc, nvrtc.find_nvrtc, nvrtc.flags_of, nvrtc.ENVIRONMENT_FLAGS, "AUTOTILE_NVRTC"),
}


def chosen(compiler: str = AUTO) -> Sequence[str]:
    """The compilers for GPUs to try, in order: the one asked for, else AUTOTILE_COMPILER's, else those whose path the
    user names (they are used or refused, never passed over), else PREFERENCE.

    Raises ArgumentValueError for a name that is none.
    """
    origin = "compiler"
    if compiler == AUTO and os.environ.get("AUTOTILE_COMPILER"):
        origin, compiler = "AUTOTILE_COMPILER", os.environ["AUTOTILE_COMPILER"]
    names = (AUTO, *PREFERENCE)
    if compiler not in names:
        raise ArgumentValueError(
            f"{origin}={compiler!r} is no compiler{did_you_mean(compiler, names)}; there are {', '.join(names)}"
        )
    if compiler != AUTO:
        return (compiler,)
    return [name for name in PREFERENCE if os.environ.get(_TOOLCHAINS[name].variable)] or PREFERENCE


def cuda_compiler(target: Target, compiler: str = AUTO, line_info: bool = False) -> Compiler:
    """The first of the chosen compilers that can be used. Raises ToolchainMissing with what is wrong with each."""
    faults = []
    for name in chosen(compiler):
        try:
            return _TOOLCHAINS[name].make(target, line_info)
        except ToolchainMissing as error:
            faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    raise ToolchainMissing("no compiler for GPUs can be used. " + " ".join(f"{fault}." for fault in faults))


def users_flags(compiler: str = AUTO) -> str:
    """The user's own flags for the compiler that would be taken, as far as its place tells. Starts nothing."""
    names = chosen(compiler)
    for name in names:
        try:
            _TOOLCHAINS[name].find()
        except ToolchainMissing:
            continue
        return set_in_environment(_TOOLCHAINS[name].environment_flags)
    return set_in_environment(_TOOLCHAINS[names[0]].environment_flags)


def flags_of(target: Target, version: str) -> str:
    """The flags with which the compiler of that version text (`nvcc 13.0.88`, `NVRTC 13.0.88`) builds now, without line
    information."""
    return _TOOLCHAINS["nvrtc" if version.startswith(nvrtc.NAME) else "nvcc"].flags_of(target)
