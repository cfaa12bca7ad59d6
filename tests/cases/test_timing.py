"""What lies between the two events of a timed launch, by a stand-in for the driver: the launch, and nothing else."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from autotile.devices.cuda.stage import CudaStage
from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.measure import make_workload
from autotile.types import Launch


class Driver:
    """Notes, in order, what is queued and what is waited for."""

    def __init__(self) -> None:
        self.log: list[str] = []
        driver = self

        class Event:
            def __init__(self) -> None:
                self.place = -1

            def query(self) -> bool:
                return False

            def record(self, stream: Any) -> None:
                self.place = len(driver.log)
                driver.log.append("event")

            def time_since(self, begin: Any) -> float:
                driver.log.append(f"read {self.place - begin.place}")
                return 1.0

        self.Event = Event
        self.Stream = lambda: SimpleNamespace(synchronize=lambda: driver.log.append("wait"))

    def mem_get_info(self) -> tuple[int, int]:
        return 2**36, 2**37

    def mem_alloc(self, nbytes: int) -> Any:
        return _Memory(4096)

    def memset_d8_async(self, at: int, value: int, nbytes: int, stream: Any) -> None:
        self.log.append("fill")

    def memcpy_htod(self, at: int, array: Any) -> None:
        self.log.append("copy")

    def memcpy_dtod(self, to: int, at: int, nbytes: int) -> None:
        self.log.append("copy")


class _Memory(int):
    def free(self) -> None:
        return None


def test_launches_alone_are_timed_and_read_when_all_have_ended() -> None:
    """CNugteren/CLBlast#116 and JuliaGPU/CUDA.jl#279: a flush or a wait inside, or times read too early."""
    driver = Driver()
    device: Any = SimpleNamespace(info=find_gpu("h200"), active=contextlib.nullcontext, guard_bytes=1024)
    kernel = load_kernel("transpose")
    workload = make_workload(kernel, kernel.problem({"rows": 8, "cols": 4}))
    program: Any = SimpleNamespace(bound=lambda *given: lambda: driver.log.append("launch"))
    with CudaStage(device, driver, workload, None) as stage:
        driver.log.clear()
        assert stage.times_ms(program, Launch((1, 1, 1), (32, 1, 1)), 5) == (1.0,) * 5
    fills = driver.log.index("event")
    assert set(driver.log[:fills]) == {"fill"}
    assert driver.log[fills - 1 :] == ["fill", "event", "launch", "event"] * 5 + ["wait"] + ["read 2"] * 5
