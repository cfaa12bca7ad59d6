"""One function of a loaded cubin: what the compiler gave it, and the geometries that it can be launched with."""

from __future__ import annotations

from typing import Any

from autotile.devices.info import MAX_GRID, DeviceInfo
from autotile.errors import LaunchError
from autotile.types import Dim3


class Function:
    """A `__global__` function of a module. Raises LaunchError where the module has none of the name."""

    def __init__(self, driver: Any, module: Any, name: str) -> None:
        self.name = name
        try:
            self.handle = module.get_function(name)
        except driver.Error as error:
            raise LaunchError(
                f'the kernel\'s text has no function {name}, declared `extern "C" __global__`: {error}'
            ) from error
        names = driver.function_attribute
        self.registers = int(self.handle.get_attribute(names.NUM_REGS))
        self.static_shared_bytes = int(self.handle.get_attribute(names.SHARED_SIZE_BYTES))
        self.local_bytes = int(self.handle.get_attribute(names.LOCAL_SIZE_BYTES))
        self.max_threads = int(self.handle.get_attribute(names.MAX_THREADS_PER_BLOCK))

    def check(self, grid: Dim3, block: Dim3, info: DeviceInfo) -> None:
        """Raises LaunchError for a geometry that cannot run.

        Numbers first: CUDA's own words for all of these are `invalid argument` or `too many resources`.
        """
        threads = block[0] * block[1] * block[2]
        if not 0 < threads <= info.max_threads_per_block:
            raise LaunchError(
                f"{self.name}: a block of {threads} threads; {info.name} allows 1 to {info.max_threads_per_block}"
            )
        if min(block) < 1 or block[2] > 64:
            raise LaunchError(f"{self.name}: a block of {block} threads; each side is at least 1 and z at most 64")
        if any(not 1 <= count <= most for count, most in zip(grid, MAX_GRID, strict=True)):
            raise LaunchError(f"{self.name}: a grid of {grid} blocks; the least is (1, 1, 1) and the most {MAX_GRID}")
        # Registers are given to warps in units of 256, which is what the limit counts.
        warps = -(-threads // info.warp_size)
        needed = -(-self.registers * info.warp_size // 256) * 256 * warps
        if needed > info.registers_per_block:
            raise LaunchError(
                f"{self.name}: {self.registers} registers × {threads} threads > {info.registers_per_block}, the "
                f"registers of a block on {info.name}"
            )
        if threads > self.max_threads:
            raise LaunchError(
                f"a block of {threads} threads; {self.name} was compiled for at most {self.max_threads} "
                "(its __launch_bounds__, or its registers)"
            )
        if self.static_shared_bytes > info.shared_bytes_static:
            raise LaunchError(
                f"{self.name}: {self.static_shared_bytes} bytes of static shared memory; a block on {info.name} gets "
                f"{info.shared_bytes_static}, and more only as dynamic shared memory"
            )
