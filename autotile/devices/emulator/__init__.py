"""The emulator: runs a generated CUDA source on the CPU, checks it, and counts what its memory accesses cost.

`compile_host` compiles the source as host C++ with the runtime of `host/`; `EmulatedProgram` launches it. There each
CUDA thread is a fiber and `__syncthreads()` a switch; the blocks of a cluster take turns, from one of its barriers to
the next; every access passes the runtime, which knows bounds, races and banks.
It has no clock and no caches: what it says about speed is counted, never timed.
"""

from __future__ import annotations

from autotile.devices.emulator.compiler import HostToolchain, find_host_compiler
from autotile.devices.emulator.program import EmulatedProgram, device_buffer
from autotile.devices.emulator.report import Access, Diagnostic, Report
from autotile.devices.emulator.toolchain import (
    HostBuild,
    compile_host,
    flags_identity,
)
from autotile.devices.emulator.unsupported import refuse_unsupported

__all__ = [
    "Access",
    "Diagnostic",
    "EmulatedProgram",
    "HostBuild",
    "HostToolchain",
    "Report",
    "compile_host",
    "device_buffer",
    "find_host_compiler",
    "flags_identity",
    "refuse_unsupported",
]
