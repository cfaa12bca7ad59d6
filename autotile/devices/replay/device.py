"""The device that a recording is: it has a GPU's name and limits, and runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from autotile.devices.base import Device, Stage, Workload
from autotile.devices.gpus import gpu_table, lookup_gpu
from autotile.devices.info import Clocks, DeviceInfo
from autotile.devices.replay.recording import Recording, read_recording
from autotile.errors import EnvironmentalError
from autotile.types import Binary, Launch, Source, Target

KIND = "replay"

UNKNOWN_ARCH = "sm_0"
"""Of a GPU that neither the table nor the recording knows; no compiler takes it."""


class ReplayDevice:
    """Implements Device as far as a search needs it (measure/replayed.py answers); whatever would run a kernel raises.

    A GPU that the table does not know has the limits of the largest one that it knows: what was recorded did run.
    """

    poisoned: str | None = None
    comparer: Source | None = None
    reopen: Callable[[], Device] | None = None
    launch_limit_s = 1.0

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @property
    def info(self) -> DeviceInfo:
        recording = self.recording
        known = lookup_gpu(recording.device.removeprefix("emulated "))
        limits = known or gpu_table()["h200"]
        return replace(
            limits,
            name=f"replayed {recording.device or 'unnamed GPU'}",
            arch=recording.arch or (known.arch if known else UNKNOWN_ARCH),
            kind=KIND,
            estimated=True,
        )

    @property
    def target(self) -> Target:
        return Target(KIND, self.info.arch)

    def clocks(self) -> Clocks | None:
        return None

    def load(self, binary: Binary) -> Any:
        self._refuse()

    def stage(self, workload: Workload, comparer: Binary | None = None) -> Stage:
        self._refuse()

    def call(self, program: Any, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EnvironmentalError(
            f"a replay of {self.recording.path} knows times and runs nothing; use cuda:N or emulator to run a kernel"
        )


def open_replay(path: str | Path) -> ReplayDevice:
    """The device of a recording's file. Raises UsageError for a file that is none."""
    return ReplayDevice(read_recording(path))
