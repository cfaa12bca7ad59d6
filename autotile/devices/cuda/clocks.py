"""A GPU's clock and what holds it down, through NVIDIA's management library (NVML), which comes with the driver."""

from __future__ import annotations

import ctypes
import functools
import os

from autotile.devices.info import Clocks

_CLOCK_SM = 1  # nvmlClockType_t

THROTTLING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons that mean a clock below what was set (NVML API reference,
nvmlClocksEventReasons). The others are an idle GPU, a clock that the user set, and its like."""


class ClockMeter:
    """Reads one GPU, named by its PCI bus id (CUDA's numbers need not be NVML's)."""

    def __init__(self, pci_bus_id: str) -> None:
        self._bus_id = pci_bus_id

    def read(self) -> Clocks | None:
        """The clock now, in some microseconds; None without NVML, or where it does not say."""
        nvml, handle = _nvml(), self._handle
        if nvml is None or handle is None:
            return None
        mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM, ctypes.byref(mhz)) != 0:
            return None
        if nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle, ctypes.byref(reasons)) != 0:
            reasons.value = 0
        return Clocks(int(mhz.value), reason_words(int(reasons.value)))

    @functools.cached_property
    def _handle(self) -> ctypes.c_void_p | None:
        nvml, handle = _nvml(), ctypes.c_void_p()
        if nvml is None:
            return None
        status = nvml.nvmlDeviceGetHandleByPciBusId_v2(self._bus_id.encode(), ctypes.byref(handle))
        return handle if status == 0 else None


def reason_words(reasons: int) -> str:
    """What throttles, in words; empty for reasons that are no throttling."""
    return ", ".join(words for bit, words in THROTTLING.items() if reasons & bit)


@functools.lru_cache(maxsize=1)
def _nvml() -> ctypes.CDLL | None:
    """The library, initialised for the life of the process; None where there is none."""
    try:
        nvml = ctypes.CDLL("nvml.dll" if os.name == "nt" else "libnvidia-ml.so.1")
        nvml.nvmlDeviceGetClockInfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_uint)]
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        reasons.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulonglong)]
        return nvml if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
