"""Device memory that launches work in, between guards."""

from __future__ import annotations

from typing import Any

from autotile.types import Launch


class Scratch:
    """One allocation for all launches of a stage, made larger where one needs more."""

    def __init__(self, driver: Any, guard_bytes: int) -> None:
        self._driver, self._guard_bytes = driver, guard_bytes
        self._memory: Any = None
        self.nbytes = 0
        """What a launch may have now."""

    def take(self, nbytes: int) -> None:
        """In place of what was held. The context must be current."""
        self.free()
        self._memory = self._driver.mem_alloc(nbytes + 2 * self._guard_bytes)
        self.nbytes = nbytes

    def free(self) -> None:
        if self._memory is not None:
            self._memory.free()
        self.forget()

    def forget(self) -> None:
        """What is not to be freed: its context is gone."""
        self._memory, self.nbytes = None, 0

    def address(self, launch: Launch) -> int:
        """Null for a launch that needs none: one that uses it all the same faults."""
        return int(self._memory) + self._guard_bytes if launch.scratch_bytes else 0

    def poison(self, launch: Launch, value: int, stream: Any) -> None:
        """Fills what the launch works in, and the guards around: what it counts on there shows."""
        if launch.scratch_bytes:
            start, nbytes = self.address(launch) - self._guard_bytes, launch.scratch_bytes + 2 * self._guard_bytes
            self._driver.memset_d8_async(start, value, nbytes, stream)
