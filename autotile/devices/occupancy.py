"""How many blocks a multiprocessor holds at once, and what keeps it from holding more.

As NVIDIA's occupancy calculator counts (cuda_occupancy.h of the CUDA toolkit; CUDA C++ Programming Guide,
"Multiprocessor Level" and "Compute Capabilities").
"""

from __future__ import annotations

from dataclasses import dataclass

from autotile.devices.info import DeviceInfo

REGISTER_UNIT = 256
"""Registers are given to a warp in so many."""

WARP_SCHEDULERS = 4
"""Each has a quarter of a multiprocessor's registers for warps of its own; so it has been from sm_70 on."""

AMPERE = 80


@dataclass(frozen=True)
class Residency:
    """Blocks of one multiprocessor, the number that each resource would allow, and the resources that allow fewest.

    `blocks` is 0 for a block that no multiprocessor can hold.
    """

    blocks: int
    limits: tuple[tuple[str, int], ...]
    limited_by: tuple[str, ...]


def reserved_shared_bytes(device: DeviceInfo) -> int:
    """What the system takes of shared memory for each block (CUDA C++ Programming Guide, "Compute Capability 8.x")."""
    return 1024 if device.compute_capability >= AMPERE else 0


def residency(device: DeviceInfo, threads: int, shared_bytes: int, registers: int | None = None) -> Residency:
    """For blocks of so many threads and bytes of shared memory, static and dynamic together.

    `registers` are a thread's; where they are not known, they limit nothing and are not among the limits.
    """
    warps = -(-threads // device.warp_size)
    limits = {
        "threads": device.max_threads_per_sm // device.warp_size // warps,
        "blocks": device.max_blocks_per_sm,
    }
    if registers:
        limits["registers"] = _by_registers(device, warps, registers)
    if shared_bytes:
        unit = 128 if device.compute_capability >= AMPERE else 256
        taken = -(-(shared_bytes + reserved_shared_bytes(device)) // unit) * unit
        limits["shared memory"] = device.shared_bytes_per_sm // taken
    fewest = min(limits.values())
    return Residency(fewest, tuple(limits.items()), tuple(name for name, most in limits.items() if most == fewest))


def _by_registers(device: DeviceInfo, warps: int, registers: int) -> int:
    """A warp's registers lie with its scheduler. A block must also fit as if each scheduler took equally many warps."""
    of_warp = -(-registers * device.warp_size // REGISTER_UNIT) * REGISTER_UNIT
    even_warps = -(-warps // WARP_SCHEDULERS) * WARP_SCHEDULERS
    if even_warps * of_warp > device.registers_per_block or registers > device.max_registers_per_thread:
        return 0
    return device.registers_per_sm // WARP_SCHEDULERS // of_warp * WARP_SCHEDULERS // warps
