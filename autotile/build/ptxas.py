"""What nvcc and NVRTC have in common: ptxas, its archs, what it reports, and what it lets pass."""

from __future__ import annotations

import re

from autotile.build.compiler import Usage
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES
from autotile.errors import CompileError
from autotile.types import Source, Target

ARCH_SPECIFIC = frozenset({"sm_90"})
"""Archs that are built with their own feature set (`sm_90a`: wgmma, setmaxnreg), closed to plain `sm_90`."""


def arch_number(target: Target) -> str:
    """`90a` of `sm_90`, `80` of `sm_80`: what follows `sm_` and `compute_` in an option."""
    return target.arch.removeprefix("sm_") + ("a" if target.arch in ARCH_SPECIFIC else "")


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


def check_static_shared(source: Source, usage: Usage) -> None:
    """Raises CompileError for more static shared memory than a launch can have: ptxas lets it pass for sm_90a."""
    if (usage.static_shared_bytes or 0) > STATIC_SHARED_LIMIT_BYTES:
        raise CompileError(
            f"{source.kernel} ({source.entry}) uses too much shared data: {usage.static_shared_bytes} bytes "
            f"static, {STATIC_SHARED_LIMIT_BYTES} at most; more must be dynamic (extern __shared__)"
        )
