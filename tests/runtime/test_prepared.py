"""Launches that were made ready: what the driver reads when it is asked."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from autotile.devices.cuda import launching
from autotile.devices.cuda.prepared import Moving, PreparedCall, PreparedLaunch
from autotile.types import SCRATCH


class Driver:
    """Reads what cuLaunchKernelEx is given, out of memory."""

    def __init__(self, kinds: list[Any], extended: bool = True) -> None:
        self.kinds, self.extended = kinds, extended
        self.seen: list[Any] = []
        self.statuses: list[int] = []
        self.during: Any = None

    def __getitem__(self, name: str) -> Any:
        if name != "cuLaunchKernelEx" or not self.extended:
            raise AttributeError(name)
        return self.launch

    def launch(self, config: Any, function: Any, parameters: Any, extra: None) -> int:
        given = ctypes.cast(config, ctypes.POINTER(launching.LaunchConfig)).contents
        return self.note(function, tuple(given.grid), tuple(given.block), given.shared_bytes, given.stream, parameters)

    def cuLaunchKernel(self, function: Any, *given: Any) -> int:  # noqa: N802
        return self.note(function, given[:3], given[3:6], given[6], given[7], given[8])

    def note(self, function: Any, grid: Any, block: Any, shared: int, stream: Any, parameters: Any) -> int:
        if self.during:
            self.during()
        values = [kind.from_address(place).value for kind, place in zip(self.kinds, parameters, strict=True)]
        self.seen.append((function.value, grid, block, shared, stream or 0, values))
        return self.statuses.pop(0) if self.statuses else 0


KINDS = [ctypes.c_uint64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_float, ctypes.c_uint64, ctypes.c_double,
         ctypes.c_uint64]  # fmt: skip
ARGUMENTS = [Moving(1), 40, None, np.float32(0.1), Moving(0), np.float64(0.1), SCRATCH]
CALLS = [
    PreparedCall(ctypes.c_void_p(11), (1, 2, 3), (4, 5, 6)),
    PreparedCall(ctypes.c_void_p(12), (7, 1, 1), (32, 1, 1), 99),
]


@pytest.mark.parametrize("extended", [True, False])
def test_what_the_driver_is_given(monkeypatch: pytest.MonkeyPatch, extended: bool) -> None:
    driver = Driver(KINDS, extended)
    monkeypatch.setattr(launching, "libcuda", lambda: driver)
    launch = PreparedLaunch(None, CALLS, ARGUMENTS)
    far = (1 << 47) + 256
    defaults = (np.float32(0.1), np.float64(0.1))
    assert launch.launch([64, far], 5, defaults, far) == 0
    values = [far, 40, None, float(np.float32(0.1)), 64, 0.1, far]
    assert driver.seen == [(11, (1, 2, 3), (4, 5, 6), 0, 5, values), (12, (7, 1, 1), (32, 1, 1), 99, 5, values)]
    launch.launch([0, 1], 0, (np.float32(2), np.float64(3)), 64)
    assert driver.seen[-1] == (12, (7, 1, 1), (32, 1, 1), 99, 0, [1, 40, None, 2.0, 0, 3.0, 64])
    launch.launch([0, 1], 0, defaults, 64)
    assert driver.seen[-1][-1][3] == float(np.float32(0.1))
    driver.statuses = [700]
    del driver.seen[:]
    assert launch.launch([0, 1], 0, defaults) == 700
    assert len(driver.seen) == 1  # what follows a refusal is not launched


def test_threads_do_not_mix_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launches while another is about to: between writing the arguments and the driver's reading them."""
    driver = Driver([ctypes.c_uint64, ctypes.c_uint64])
    monkeypatch.setattr(launching, "libcuda", lambda: driver)
    launch = PreparedLaunch(None, CALLS[:1], [Moving(0), Moving(1)])

    def meanwhile() -> None:
        driver.during = None
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(launch.launch, [3, 4], 9).result() == 0

    driver.during = meanwhile
    launch.launch([1, 2], 0)
    assert [(stream, values) for *_, stream, values in driver.seen] == [(9, [3, 4]), (0, [1, 2])]
    assert len(launch._free) == 2


def test_an_array_that_is_two_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver([ctypes.c_uint64] * 3)
    monkeypatch.setattr(launching, "libcuda", lambda: driver)
    launch = PreparedLaunch(None, CALLS[:1], [Moving(0), Moving(1), Moving(0)])
    assert launch.launch([3, 4], 0) == 0
    assert driver.seen[0][-1] == [3, 4, 3]
