"""The table of GPUs (`data/gpus.yaml`) as DeviceInfo."""

from __future__ import annotations

import functools
from typing import Any

from autotile.assets import DATA_DIR
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES, DeviceInfo
from autotile.errors import DeviceNotFound
from autotile.suggest import did_you_mean

_GENEROUS_FLOP = {"fp32_flop": 256, "fp64_flop": 256, "fp16_flop": 16384}
"""FLOP a clock and multiprocessor of an arch that is not in the table: bounds that hold for all known ones."""


@functools.lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    import yaml  # imported here: opening a GPU that is not in the table is all that some users do

    data: dict[str, Any] = yaml.safe_load((DATA_DIR / "gpus.yaml").read_text(encoding="utf-8"))
    return data


@functools.lru_cache(maxsize=1)
def gpu_table() -> dict[str, DeviceInfo]:
    """Every GPU of the table by its id, such as `h200`."""
    return {key: _info(row) for key, row in _data()["gpus"].items()}


def find_gpu(name: str) -> DeviceInfo:
    """The GPU of an id (`h200`) or of a marketing name (`NVIDIA H200`), however it is written.

    Raises DeviceNotFound for a GPU that is not in the table, with the ids that are.
    """
    found = _by_name().get(_normalised(name))
    if found is None:
        known = list(gpu_table())
        raise DeviceNotFound(
            f"GPU {name!r} is not in the table{did_you_mean(name.lower(), known)}; known: {', '.join(known)}"
        )
    return gpu_table()[found]


def lookup_gpu(name: str, sm_count: int | None = None) -> DeviceInfo | None:
    """The table's row of a GPU, by the name that its driver gives. None when it is not in the table, or is a part or a
    variant of that GPU with another number of multiprocessors (where that is known)."""
    found = _by_name().get(_normalised(name))
    info = None if found is None else gpu_table()[found]
    return info if info is not None and sm_count in (None, info.sm_count) else None


def peaks_from_lanes(arch: str, sm_count: int, clock_ghz: float) -> tuple[float, float, float]:
    """Peaks in float32, float64 and 16 bit, TFLOP/s: FLOP a clock × multiprocessors × clock; bounds, not promises."""
    row = _data()["arches"].get(arch, _GENEROUS_FLOP)
    fp32, fp64, fp16 = (row[f"{kind}_flop"] * sm_count * clock_ghz / 1e3 for kind in ("fp32", "fp64", "fp16"))
    return fp32, fp64, fp16


@functools.lru_cache(maxsize=1)
def _by_name() -> dict[str, str]:
    return {_normalised(name): key for key, row in _data()["gpus"].items() for name in (key, *row["names"])}


def _normalised(name: str) -> str:
    """Letters and digits, without the words that drivers and people add or leave out."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return "".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


def _info(row: dict[str, Any]) -> DeviceInfo:
    arch = _data()["arches"][row["arch"]]
    fp32, fp64, fp16 = peaks_from_lanes(row["arch"], row["sm_count"], row["clock_ghz"])
    return DeviceInfo(
        name=row["names"][0],
        arch=row["arch"],
        kind="table",
        driver="",
        estimated=True,
        sm_count=row["sm_count"],
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_sm=arch["threads_per_sm"],
        max_blocks_per_sm=arch["blocks_per_sm"],
        registers_per_block=65536,
        registers_per_sm=65536,
        max_registers_per_thread=255,
        shared_bytes_static=STATIC_SHARED_LIMIT_BYTES,
        shared_bytes_optin=arch["shared_kib_optin"] * 1024,
        shared_bytes_per_sm=arch["shared_kib_per_sm"] * 1024,
        l2_bytes=int(row["l2_mib"] * 2**20),
        clock_ghz=float(row["clock_ghz"]),
        bandwidth_gbs=float(row["bandwidth_gbs"]),
        fp32_tflops=fp32,
        fp64_tflops=fp64,
        fp16_tflops=fp16,
    )
