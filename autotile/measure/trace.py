"""A second opinion on the best of a GPU search: the emulator, which sees every access.

A missing barrier can give right results on a GPU for years. Here it is a race, with the two source lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import (
    CompileError,
    LaunchError,
    TimedOut,
    ToolchainMissing,
    UnsupportedByEmulator,
    WrongResult,
)
from autotile.kernels import Kernel
from autotile.measure.estimated import EstimatedSession
from autotile.measure.variant import Variant
from autotile.types import Binary, Problem, Source

TRACED = "traced"
"""The entry of a winner's `extra` that says whether the emulator traced it: `yes`, or why not."""


class Tracer:
    """Traces variants of a device's searches on the emulator, with that device's limits. Close it after use.

    Where there is no C++ compiler for the emulator, every variant is passed over, and says why.
    """

    def __init__(self, device: Device, jobs: int | None = None) -> None:
        emulator = EmulatorDevice()
        self._emulator = emulator.like(device.info)
        self._missing = ""
        self._exit = ExitStack()
        try:
            self._builder = self._exit.enter_context(Builder(emulator.target, jobs=jobs))
        except ToolchainMissing as error:
            self._missing = str(error)

    def prepare(self, variants: Iterable[Variant]) -> None:
        """Starts to build them, in the background."""
        if not self._missing:
            for variant in variants:
                self._submit(variant.source)

    def trace(self, kernel: Kernel, problem: Problem, variant: Variant) -> str:
        """`yes`, or why the emulator could not run it. Raises WrongResult for a race and whatever else it finds."""
        if self._missing:
            return f"no: {self._missing}"
        try:
            binary = self._submit(variant.source).result()
            EstimatedSession(self._emulator, kernel, problem).check(variant, binary)
        except (CompileError, LaunchError, TimedOut, ToolchainMissing, UnsupportedByEmulator) as error:
            return f"no: {error}"
        except WrongResult as error:
            raise WrongResult(f"the emulator found, where the GPU showed nothing: {error}") from error
        return "yes"

    def _submit(self, source: Source) -> Future[Binary]:
        return self._builder.submit(source)

    def close(self) -> None:
        self._exit.close()
