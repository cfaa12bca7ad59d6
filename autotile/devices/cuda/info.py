"""A GPU's DeviceInfo from its attributes, and from the table of GPUs where the attributes say too little."""

from __future__ import annotations

from typing import Any

from autotile.devices.gpus import gpu_table, lookup_gpu, peaks_from_lanes
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES, DeviceInfo


def read_info(driver: Any, device: Any) -> DeviceInfo:
    """What the device says of itself. Rates that CUDA does not tell come from the table, or are generous bounds."""
    names = driver.device_attribute

    def attribute(name: str, default: int) -> int:
        number = getattr(names, name, None)
        if number is None:  # pycuda was built with a CUDA too old to know it
            return default
        try:
            return int(device.get_attribute(number))
        except driver.Error:
            return default

    from autotile.devices.cuda.driver import driver_version

    major, minor = device.compute_capability()
    arch = f"sm_{major}{minor}"
    sm_count = attribute("MULTIPROCESSOR_COUNT", 1)
    optin = attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 0)
    static = attribute("MAX_SHARED_MEMORY_PER_BLOCK", STATIC_SHARED_LIMIT_BYTES)
    known = lookup_gpu(device.name(), sm_count)
    clock_ghz = attribute("CLOCK_RATE", 0) / 1e6 or (known.clock_ghz if known else 3.0)
    # Memory clock in kHz, two transfers a cycle, bus in bits. Drivers of late report no memory clock at all.
    bandwidth_gbs = attribute("MEMORY_CLOCK_RATE", 0) * 2 * attribute("GLOBAL_MEMORY_BUS_WIDTH", 0) / 8 / 1e6
    if known is not None:
        bandwidth_gbs = max(bandwidth_gbs, known.bandwidth_gbs)
    fp32, fp64, fp16 = peaks_from_lanes(arch, sm_count, clock_ghz)
    registers_per_block = attribute("MAX_REGISTERS_PER_BLOCK", 65536)
    return DeviceInfo(
        name=device.name(),
        arch=arch,
        kind="cuda",
        driver=driver_version(driver),
        estimated=False,
        sm_count=sm_count,
        warp_size=attribute("WARP_SIZE", 32),
        max_threads_per_block=attribute("MAX_THREADS_PER_BLOCK", 1024),
        max_threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR", 2048),
        max_blocks_per_sm=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR", _blocks_per_sm(arch)),
        registers_per_block=registers_per_block,
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR", 65536),
        max_registers_per_thread=255,
        shared_bytes_static=min(static, STATIC_SHARED_LIMIT_BYTES),
        shared_bytes_optin=max(optin, static),
        shared_bytes_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", static),
        l2_bytes=attribute("L2_CACHE_SIZE", 0) or (known.l2_bytes if known else 32 << 20),
        clock_ghz=clock_ghz,
        bandwidth_gbs=bandwidth_gbs or float("inf"),
        fp32_tflops=max(fp32, known.fp32_tflops if known else 0.0),
        fp64_tflops=max(fp64, known.fp64_tflops if known else 0.0),
        fp16_tflops=max(fp16, known.fp16_tflops if known else 0.0),
    )


def _blocks_per_sm(arch: str) -> int:
    """For a pycuda that cannot ask: the most of any GPU of the arch in the table, else the most of any."""
    same = [gpu.max_blocks_per_sm for gpu in gpu_table().values() if gpu.arch == arch]
    return max(same, default=32)
