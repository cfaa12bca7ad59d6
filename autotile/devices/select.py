"""Which device a name means: `auto`, `cuda:N`, `emulator`, `emulator:GPU` or `replay:FILE`."""

from __future__ import annotations

import re
from collections.abc import Callable

from autotile.devices.base import Device
from autotile.devices.gpus import gpu_table
from autotile.devices.info import DeviceInfo
from autotile.errors import DeviceNotFound, UsageError
from autotile.suggest import did_you_mean

KINDS = ("auto", "cuda", "emulator", "replay")


def limits_of(name: str, note: Callable[[str], None] = lambda message: None) -> DeviceInfo:
    """What is known of a device as `open_device` names it, or of a GPU of the table by its id, which nothing opens."""
    table = gpu_table()
    return table[name.lower()] if name.lower() in table else open_device(name, note).info


def open_device(name: str = "auto", note: Callable[[str], None] = lambda message: None) -> Device:
    """The device of that name. `auto` is the first GPU, or the emulator where there is none (said through `note`).

    Raises UsageError for a name of no known form and DeviceNotFound for a device that is not there.
    """
    kind, _, which = name.partition(":")
    if kind not in KINDS or (kind == "auto" and which):
        raise UsageError(
            f"unknown device {name!r}{did_you_mean(kind, KINDS)}; "
            "use auto, cuda:N, emulator, emulator:GPU or replay:FILE"
        )
    if kind == "replay":
        from autotile.devices.replay.device import open_replay

        if not which:
            raise UsageError(
                f"device {name!r}: after `replay:` comes a file of recorded times, such as replay:gemm.json.gz"
            )
        return open_replay(which)
    if kind == "emulator":
        from autotile.devices.emulator.device import DEFAULT_GPU, EmulatorDevice

        return EmulatorDevice(which or DEFAULT_GPU)
    from autotile.devices.cuda import open_cuda

    if kind == "cuda":
        if which and not re.fullmatch(r"\d{1,3}", which):
            raise UsageError(f"device {name!r}: after `cuda:` comes the GPU's number, such as cuda:0")
        return open_cuda(int(which or 0))
    try:
        return open_cuda(0)
    except DeviceNotFound as error:
        from autotile.devices.emulator.device import EmulatorDevice

        emulator = EmulatorDevice()
        note(f"no usable GPU ({error}); running on the emulator: times are estimates for {emulator.info.name}")
        return emulator
