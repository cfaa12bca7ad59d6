"""The runtime's structures and functions as ctypes sees them: the twin of abi.h, state.h, trace.h, protections.h and
runtime.cpp."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p

VERSION = 4
LAUNCHED = 0
ARGUMENT_SHIFT = 40
"""Where the number of its buffer stands in a traced address of global memory (trace_address of memory.h)."""
WINDOW_ADDRESS = 1 << 24
"""From here on the traced addresses of shared memory are those of a cluster's windows (kWindowAddress of memory.h)."""
WARP_LANES = 32

# AutotileParameterKind
POINTER_KIND, SIGNED_KIND, UNSIGNED_KIND, FLOATING_KIND, OPAQUE_KIND = range(5)

# DiagnosticKind, from 1
DIAGNOSTIC_KINDS = (
    "out_of_bounds", "misaligned", "read_only_write", "shared_race", "global_race", "uninitialised_shared",
    "barrier_divergence", "deadlock", "inactive_lane", "timeout", "stack_overflow", "division_by_zero", "trap",
    "bad_copy_size", "unstarted_block", "exited_block", "split_barrier", "bad_rank",
)  # fmt: skip
# DiagnosticOp, from 0
DIAGNOSTIC_OPS = ("load", "store", "read-after-write", "write-after-write", "write-after-read", "read-before-wait")


class Parameter(ctypes.Structure):
    _fields_ = [("kind", c_uint32), ("bytes", c_uint32)]


class EntryPoint(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("call", c_void_p), ("cluster", POINTER(c_uint32)), ("fits", c_uint32)]


class SharedPlaces(ctypes.Structure):
    _fields_ = [("fixed", c_void_p), ("dynamic", c_void_p), ("windows", c_void_p), ("window_stride", c_uint64)]


class LaunchBuffer(ctypes.Structure):
    _fields_ = [("begin", c_void_p), ("bytes", c_uint64), ("unit_shift", c_uint32), ("writable", c_uint32)]


class Widening(ctypes.Structure):
    _fields_ = [("pc", c_uint32), ("store", c_uint32), ("shared", c_uint32), ("group", c_uint32), ("bytes", c_uint32)]


class LaunchRequest(ctypes.Structure):
    _fields_ = [
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("level", c_uint32),
        ("backward", c_uint32),
        ("buffer_count", c_uint32),
        ("buffers", POINTER(LaunchBuffer)),
        ("arguments", POINTER(c_void_p)),
        ("blocks", c_void_p),
        ("block_count", c_int64),
        ("limit_s", c_double),
        ("entry", c_uint32),
        ("cluster_blocks", c_uint32),
        ("widenings", POINTER(Widening)),
        ("widening_count", c_uint64),
    ]


class FoundDiagnostic(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint32),
        ("op", c_uint32),
        ("count", c_uint64),
        ("pc", c_uint64),
        ("other_pc", c_uint64),
        ("line", c_uint32),
        ("other_line", c_uint32),
        ("thread", c_int32),
        ("other_thread", c_int32),
        ("block", c_int64),
        ("other_block", c_int64),
        ("address", c_uint64),
        ("bytes", c_uint64),
        ("across_warps", c_uint32),
        ("waiting", c_uint32),
    ]


class FoundSite(ctypes.Structure):
    _fields_ = [
        ("pc", c_uint64),
        ("store", c_uint32),
        ("shared", c_uint32),
        ("bytes", c_uint32),
        ("merged", c_uint32),
        ("requests", c_uint64),
        ("lanes", c_uint64),
        ("total", c_uint64),
        ("ideal", c_uint64),
        ("worst", c_uint64),
        ("used_bytes", c_uint64),
        ("lines", c_uint64),
        ("group", c_uint32),
        ("widest", c_uint32),
        ("example_lanes", c_uint32),
        ("matrices", c_uint32),
        ("example", c_uint64 * WARP_LANES),
    ]


class FoundProtection(ctypes.Structure):
    _fields_ = [("line", c_uint32), ("op", c_uint32), ("first_pc", c_uint32), ("pc", c_uint32), ("count", c_uint64)]


class FoundBarrier(ctypes.Structure):
    _fields_ = [("line", c_uint64), ("passes", c_uint64)]


class FoundFootprint(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("blocks", "sectors", "runs", "pairs", "paired_runs", "joined")]


REUSE_BUCKETS = 24


class FoundCopies(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("copies", "waits", "left", "atomics", "dropped")]


def declare(library: ctypes.CDLL) -> None:
    """Gives the library's functions their types; without them ctypes would cut pointers to ints."""
    library.autotile_launch.argtypes = [POINTER(LaunchRequest)]
    library.autotile_launch.restype = c_int
    library.autotile_parameters.restype = POINTER(Parameter)
    library.autotile_diagnostics.argtypes = [POINTER(c_uint64)]
    library.autotile_diagnostics.restype = POINTER(FoundDiagnostic)
    library.autotile_sites.argtypes = [POINTER(c_uint64)]
    library.autotile_sites.restype = POINTER(FoundSite)
    library.autotile_protections.argtypes = [POINTER(c_uint64)]
    library.autotile_protections.restype = POINTER(FoundProtection)
    library.autotile_barriers.argtypes = [POINTER(c_uint64)]
    library.autotile_barriers.restype = POINTER(FoundBarrier)
    library.autotile_footprints.restype = POINTER(FoundFootprint)
    library.autotile_reuses.restype = POINTER(c_uint64)
    library.autotile_copy_counts.restype = POINTER(FoundCopies)
    library.autotile_call_sites.argtypes = [POINTER(c_uint64)]
    library.autotile_call_sites.restype = POINTER(c_uint32)
    library.autotile_static_shared_bytes.restype = c_uint64
    library.autotile_static_shared_bytes.argtypes = [c_uint32]
    library.autotile_shared_places.restype = SharedPlaces
    library.autotile_release.restype = None
