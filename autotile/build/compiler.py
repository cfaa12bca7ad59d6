"""What the builder asks of a compiler, whichever it is."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from autotile.build.process import ProcessPool
from autotile.types import Source

Workdirs: TypeAlias = Callable[[], AbstractContextManager[str]]
"""Makes a fresh folder, which is removed at the end of its `with`: for compilers that leave files."""


@dataclass(frozen=True)
class Usage:
    """What a compiler reports of one kernel, a thread: registers, and bytes spilled (stores and loads together)."""

    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int | None = None


@dataclass(frozen=True)
class Built:
    """A compiled source: its bytes, the name of the file that is to hold them, and the digest of its code."""

    name: str
    data: bytes
    digest: str
    usage: Usage = Usage()


class Compiler(Protocol):
    """One toolchain for one target. `version` and `flags` are part of a binary's key."""

    @property
    def version(self) -> str: ...

    @property
    def flags(self) -> str: ...

    @property
    def users_flags(self) -> str:
        """Those of `flags` that the user sets in the environment, as `NAME=value`; "" for none."""

    def compile(self, source: Source, workdirs: Workdirs, processes: ProcessPool, timeout_s: float) -> Built:
        """Raises CompileError for the source's faults, ToolchainMissing for the machine's."""

    def warm_up(self, jobs: int) -> None:
        """Starts what `jobs` compiles at once will need, and does not wait for it. May do nothing."""

    def close(self) -> None:
        """Ends what was started; compiles that are under way end with a CompileError."""


class OneProcessEach:
    """What compilers share that start a process for every compile: nothing is kept between two."""

    def warm_up(self, jobs: int) -> None:
        return None

    def close(self) -> None:
        return None  # the builder's ProcessPool ends what runs


def set_in_environment(names: Sequence[str]) -> str:
    """Those of the variables that are set and not empty, as a shell would take them: `NAME=value NAME='two words'`."""
    return " ".join(f"{name}={shlex.quote(os.environ[name])}" for name in names if os.environ.get(name))
