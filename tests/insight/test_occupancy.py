"""Blocks a multiprocessor, against numbers worked out by hand from cuda_occupancy.h."""

from __future__ import annotations

import pytest

from autotile.devices.gpus import find_gpu
from autotile.devices.occupancy import residency


@pytest.mark.parametrize(
    ("gpu", "threads", "shared_bytes", "registers", "blocks", "limited_by"),
    [
        ("h200", 1024, 0, None, 2, ("threads",)),
        ("h200", 32, 0, 16, 32, ("blocks",)),
        ("h200", 256, 0, 255, 1, ("registers",)),  # 8160 registers a warp are 8192: two warps a scheduler
        ("h200", 256, 0, 128, 2, ("registers",)),
        ("h200", 256, 0, 129, 1, ("registers",)),  # 4128 are 4352: three warps a scheduler, twelve in all
        ("h200", 96, 0, 168, 4, ("registers",)),  # 5376 a warp: three a scheduler, twelve in all
        ("h200", 1024, 0, 65, 0, ("registers",)),  # 32 warps of 2304 are more than there are
        ("h200", 1024, 4096, 64, 1, ("registers",)),
        ("h200", 128, 48 * 1024, 32, 4, ("shared memory",)),  # 49 KiB with what the system takes, of 228
        ("h200", 128, 227 * 1024, 32, 1, ("shared memory",)),
        ("h200", 512, 56192, 32, 4, ("threads", "registers", "shared memory")),  # 57216 of 233472
        ("h200", 512, 57345, 32, 3, ("shared memory",)),  # 58369 are 58496, in pieces of 128
        ("v100", 256, 12 * 1024, None, 8, ("threads", "shared memory")),  # the system takes nothing
        ("v100", 256, 12 * 1024 + 1, None, 7, ("shared memory",)),
    ],
)
def test_what_limits_the_blocks_of_a_multiprocessor(
    gpu: str, threads: int, shared_bytes: int, registers: int | None, blocks: int, limited_by: tuple[str, ...]
) -> None:
    found = residency(find_gpu(gpu), threads, shared_bytes, registers)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)


def test_what_is_not_known_or_used_is_no_limit() -> None:
    assert {name for name, _ in residency(find_gpu("h200"), 256, 0).limits} == {"threads", "blocks"}
