"""Shared memory of a block beside what a GPU gives, in words."""

from __future__ import annotations

from autotile.devices.info import DeviceInfo
from autotile.devices.occupancy import reserved_shared_bytes, residency
from autotile.insight.explanation import SharedUse
from autotile.insight.words import size


def shared_use(device: DeviceInfo, threads: int, static_bytes: int, dynamic_bytes: int) -> SharedUse:
    """Of a block of so many threads."""
    plain, optin, total = device.shared_bytes_static, device.shared_bytes_optin, static_bytes + dynamic_bytes
    return SharedUse(
        static_bytes, dynamic_bytes, plain, optin, " ".join(_sentences(device, threads, total, dynamic_bytes))
    )


def _sentences(device: DeviceInfo, threads: int, total: int, dynamic_bytes: int) -> list[str]:
    if not total:
        return ["A block uses no shared memory: its threads share nothing but what the caches happen to hold."]
    plain = device.shared_bytes_static
    kinds = "static" if not dynamic_bytes else "dynamic" if total == dynamic_bytes else "static and dynamic"
    said = [f"A block uses {size(total)} of shared memory, {kinds}."]
    if total <= plain:
        said.append(f"Up to {size(plain)} every GPU gives without being asked.")
    else:
        said.append(
            f"That is beyond the {size(plain)} that a block gets without asking: such memory must be dynamic, and be "
            "opted in (cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize; autotile does so). This "
            f"GPU allows {size(device.shared_bytes_optin)} a block."
        )
    fit = dict(residency(device, threads, total).limits)["shared memory"]
    reserved = reserved_shared_bytes(device)
    beside = f", {size(reserved)} of the system's with each" if reserved else ""
    blocks = "one block fits" if fit == 1 else f"{fit} blocks fit"
    said.append(f"By shared memory {blocks} a multiprocessor, which has {size(device.shared_bytes_per_sm)}{beside}.")
    return said
