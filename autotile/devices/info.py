"""What a device can hold and do, as rules, launches and estimates read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

STATIC_SHARED_LIMIT_BYTES = 49152
"""Most static shared memory of a block on every architecture; more must be dynamic and opted in
(CUDA C++ Programming Guide, "Compute Capabilities", note on shared memory)."""

MAX_GRID = (2**31 - 1, 65535, 65535)
"""Most blocks along x, y, z (ibid., Table "Technical Specifications per Compute Capability")."""


@dataclass(frozen=True)
class DeviceInfo:
    """One GPU. Bytes and counts are limits; the rates are peaks at the boost clock, used for floors and estimates.

    `shared_bytes_optin` is the most shared memory a block gets after opting in (48 KiB where there is no opt-in),
    `estimated` is true for a device whose times come from a model.
    """

    name: str
    arch: str
    kind: str
    driver: str
    estimated: bool
    sm_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_block: int
    registers_per_sm: int
    max_registers_per_thread: int
    shared_bytes_static: int
    shared_bytes_optin: int
    shared_bytes_per_sm: int
    l2_bytes: int
    clock_ghz: float
    bandwidth_gbs: float
    fp32_tflops: float
    fp64_tflops: float
    fp16_tflops: float

    @property
    def compute_capability(self) -> int:
        """As one number, the way CUDA counts: 90 for sm_90, 120 for sm_120."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))

    def scope(self) -> dict[str, Any]:
        """The names `device.<field>` of expressions."""
        return {f"device.{name}": value for name, value in asdict(self).items()} | {
            "device.compute_capability": self.compute_capability
        }

    def rate_tflops(self, dtype: str, tensor_cores: bool) -> float:
        """The peak of a kernel whose products are, or are not, those of tensor cores."""
        return self.peak_tflops(dtype) if tensor_cores else self.plain_tflops(dtype)

    def plain_tflops(self, dtype: str) -> float:
        """The peak without tensor cores: doubles at half the float32 rate at most, whatever the data sheet's tensor
        peak, all else at float32's."""
        doubles = dtype in ("float64", "complex128")
        return min(self.fp64_tflops, self.fp32_tflops / 2) if doubles else self.fp32_tflops

    def peak_tflops(self, dtype: str) -> float:
        """The fastest that this device multiplies and adds in a type, tensor cores included; infinite if unknown.

        Tensor cores that know integers (sm_75, Turing whitepaper) or 8-bit floats (sm_89, Ada whitepaper) do twice as
        many of these as of 16-bit floats, and half as many of tf32; an older GPU that is to multiply 8-bit floats has
        to do so in 16 bits.
        """
        float8 = self.fp16_tflops * (2 if self.compute_capability >= 89 else 1)
        peaks: Mapping[str, float] = {
            "float32": self.fp32_tflops,
            "float64": self.fp64_tflops,
            "float16": self.fp16_tflops,
            "bfloat16": self.fp16_tflops,
            "tf32": max(self.fp16_tflops / 2, self.fp32_tflops),
            "int8": self.fp16_tflops * (2 if self.compute_capability >= 75 else 1),
            "float8_e4m3fn": float8,
            "float8_e5m2": float8,
        }
        return peaks.get(dtype, float("inf"))


@dataclass(frozen=True)
class Clocks:
    """The multiprocessors' clock at one moment, and what held it down; `throttled` is empty when nothing did."""

    sm_mhz: int
    throttled: str = ""
