"""What a launch found, in words: diagnostics and the cost of each line's memory accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotile.devices.memory import SECTOR_BYTES, WAVEFRONT_BYTES

Op = Literal["load", "store"]
Space = Literal["global", "shared"]
RaceOp = Literal["read-after-write", "write-after-read", "write-after-write"]

# By weight: a fault stops the launch; a race explains the unwritten memory and the divergence around it.
KINDS = (
    "out_of_bounds", "misaligned", "read_only_write", "stack_overflow", "division_by_zero", "trap", "bad_copy_size",
    "bad_rank", "timeout", "deadlock", "split_barrier", "unstarted_block", "exited_block", "shared_race", "global_race",
    "barrier_divergence", "inactive_lane", "uninitialised_shared",
)  # fmt: skip


@dataclass(frozen=True)
class Diagnostic:
    """One fault of the kernel, merged over all the threads that showed it (`count` times).

    `kind` is one of KINDS; `op` says load or store, or how a race goes (read-after-write, …, read-before-wait). `line`
    and `other_line` are lines of the generated source, None where unknown; `thread` and `other_thread` are linear
    within the linear `block` and `other_block`, of the first case found (for a race, of one across warps if there is).
    """

    kind: str
    op: str
    line: int | None
    other_line: int | None
    thread: int | None
    other_thread: int | None
    block: int | None
    other_block: int | None
    count: int
    detail: str
    across_warps: bool = True

    @property
    def message(self) -> str:
        return _MESSAGES[self.kind](self)


@dataclass(frozen=True)
class Access:
    """The accesses of one line to one array of global memory, or to shared memory, of one op and width.

    A request is one instruction of a warp, `lanes` its mean count of active lanes. `per_request`, `ideal_per_request`
    (means), `worst` and `total` count 32-byte sectors in global memory and wavefronts in shared. `used_bytes` are what
    lanes asked for, in all, an address once a request.

    `called_from` are the lines of the calls through which it was inlined, the innermost first. `argument` is the number
    of the array in global memory, None for shared. `example` holds the addresses of the lanes of one of the costliest
    requests, relative to the array or to the block's shared memory. `from_machine_code` is true where the width is that
    of the GPU's machine code, which the compiler chose wider than the source's. `line_count` are the lines of 128 bytes
    of all requests, in global memory.
    """

    line: int | None
    op: Op
    space: Space
    access_bytes: int
    requests: int
    lanes: float
    per_request: float
    ideal_per_request: float
    worst: int
    total: int
    used_bytes: int = 0
    called_from: tuple[int, ...] = ()
    argument: int | None = None
    example: tuple[int, ...] = ()
    from_machine_code: bool = False
    line_count: int = 0

    @property
    def moved_bytes(self) -> int:
        """Bytes of the sectors, or of all banks in the wavefronts, that the requests took."""
        return self.total * (SECTOR_BYTES if self.space == "global" else WAVEFRONT_BYTES)


@dataclass(frozen=True)
class Protection:
    """Accesses of two warps to one place of shared memory that one barrier, and none but it, kept in order: one of the
    block, or of its cluster.

    `op` says how they would race without it; `first_line` came before it, `line` after. `count` says how often.
    """

    barrier_line: int
    op: RaceOp
    first_line: int | None
    line: int | None
    count: int


@dataclass(frozen=True)
class Footprint:
    """The sectors of global memory that the traced blocks touched, each once a block (a cluster counts as one block).

    `sectors` and `runs` (of sectors side by side) are sums over `blocks`. Of the `paired_runs` of blocks whose
    predecessor was traced too, `joined` go on where a run of that one begins or ends.
    """

    blocks: int = 0
    sectors: int = 0
    runs: int = 0
    paired_runs: int = 0
    joined: int = 0

    @property
    def run_bytes(self) -> float:
        """Mean length of a block's runs; 0 where it touched nothing."""
        return float(SECTOR_BYTES) * self.sectors / self.runs if self.runs else 0.0

    @property
    def joined_share(self) -> float:
        return self.joined / self.paired_runs if self.paired_runs else 0.0


@dataclass(frozen=True)
class Copies:
    """Asynchronous copies of all traced threads, how often these waited for some, and the groups of copies that the
    waits left on their way. Also the atomic operations, which are counted as stores, and the accesses that were too
    many between two barriers to be counted at all."""

    copies: int = 0
    waits: int = 0
    left: int = 0
    atomics: int = 0
    dropped: int = 0

    @property
    def depth(self) -> float:
        """Groups on their way beyond the one that is waited for, in the mean."""
        return self.left / self.waits if self.waits else 0.0


@dataclass(frozen=True)
class Report:
    """A launch: what it did wrong (nothing, if empty), how long it took, and, in mode "trace", what its accesses cost,
    what its barriers protected, how often blocks passed each, by line, and its footprint in global memory.

    `reuses` counts sectors that a block loads again: by a request that is 0, 1, 2 to 3, 4 to 7, … requests away, as
    each warp counts its own.
    """

    diagnostics: tuple[Diagnostic, ...]
    accesses: tuple[Access, ...]
    run_s: float
    protections: tuple[Protection, ...] = ()
    barriers: tuple[tuple[int, int], ...] = ()
    loaded: Footprint = Footprint()
    stored: Footprint = Footprint()
    copies: Copies = Copies()
    reuses: tuple[int, ...] = ()


def _at(line: int | None) -> str:
    return "an unknown line" if line is None else f"line {line}"


def _who(d: Diagnostic) -> str:
    return "" if d.thread is None else f" by thread {d.thread} of block {d.block}"


def _pair(d: Diagnostic) -> str:
    """The two threads of a race, by name where they are known."""
    if d.other_block is not None and d.other_block != d.block:
        other = "a thread" if d.other_thread is None else f"thread {d.other_thread}"
        return f"thread {d.thread} of block {d.block} and {other} of block {d.other_block}"
    if d.other_thread is None:
        return f"thread {d.thread} and another of block {d.block}"
    return f"threads {d.other_thread} and {d.thread} of block {d.block}"


def _out_of_bounds(d: Diagnostic) -> str:
    return f"out-of-bounds {d.op} at {_at(d.line)}{_who(d)}: {d.detail}; guard the index or correct it"


def _misaligned(d: Diagnostic) -> str:
    return f"misaligned {d.op} at {_at(d.line)}{_who(d)}: {d.detail}; pad the pitch or use a narrower vector"


def _read_only(d: Diagnostic) -> str:
    return f"store to a read-only argument at {_at(d.line)}{_who(d)}: {d.detail}"


def _shared_race(d: Diagnostic) -> str:
    if d.op == "read-before-wait":
        return (
            f"shared-memory race between the asynchronous copy of {_at(d.other_line)} and the access of {_at(d.line)}: "
            f"{_pair(d)}; the copy may still be under way: a __pipeline_wait_prior() is missing or waits for too few "
            "groups, or the barrier after it is missing"
        )
    if d.other_block not in (None, d.block):
        return (
            f"shared-memory race ({d.op}) in a cluster between {_at(d.other_line)} and {_at(d.line)}: {_pair(d)}; "
            "a sync() of the cluster is missing between them"
        )
    missing = "a __syncthreads()" if d.across_warps else "a __syncwarp() (both are in one warp) or __syncthreads()"
    where = "between them, or from one pass of a loop to the next" if d.line == d.other_line else "between them"
    return (
        f"shared-memory race ({d.op}) between {_at(d.other_line)} and {_at(d.line)}: {_pair(d)}; "
        f"{missing} is missing {where}"
    )


def _global_race(d: Diagnostic) -> str:
    if d.other_block != d.block:
        cure = "nothing orders two blocks of a launch, so give each its own place or use an atomic"
    else:
        cure = "a __syncthreads() is missing between them, or both should not touch this place"
    return f"global-memory race ({d.op}) between {_at(d.other_line)} and {_at(d.line)}: {_pair(d)}; {cure}"


def _uninitialised(d: Diagnostic) -> str:
    return (
        f"read of shared memory that the block has not written at {_at(d.line)}{_who(d)}: {d.detail}; "
        "write it first, and wait for the write"
    )


def _divergence(d: Diagnostic) -> str:
    if d.other_block is not None:
        if d.other_line is not None:
            return (
                f"barrier divergence in block {d.block}: threads {d.thread} and {d.other_thread} wait at the cluster's "
                f"barrier of {_at(d.line)} and at that of {_at(d.other_line)}; move the barrier out of the branches"
            )
        return (
            f"barrier divergence at {_at(d.line)} in the cluster of block {d.block}: {d.detail}; "
            "let every thread of all blocks of the cluster reach its sync()"
        )
    if d.other_line is None:
        return (
            f"barrier divergence at {_at(d.line)} in block {d.block}: {d.detail}; "
            "let every thread of the block reach the __syncthreads()"
        )
    return (
        f"barrier divergence in block {d.block}: thread {d.thread} waits at the __syncthreads() of {_at(d.line)} and "
        f"thread {d.other_thread} at the barrier of {_at(d.other_line)}; move the barrier out of the branches"
    )


def _deadlock(d: Diagnostic) -> str:
    return (
        f"deadlock at {_at(d.line)}: thread {d.thread} of block {d.block} waits for lanes of its warp that never come; "
        f"{d.detail or 'the mask must name just those lanes that execute the instruction'}"
    )


def _inactive(d: Diagnostic) -> str:
    return (
        f"the shuffle at {_at(d.line)} takes the value of thread {d.other_thread}, which does not take part, into "
        f"thread {d.thread} of block {d.block}"
    )


def _timeout(d: Diagnostic) -> str:
    return (
        f"the launch ran over its time limit{'' if d.line is None else f' at line {d.line}'}{_who(d)}: an endless loop?"
    )


def _stack(d: Diagnostic) -> str:
    return f"the local variables at {_at(d.line)} need more than the emulator's 256 KiB a thread{_who(d)}"


def _division(d: Diagnostic) -> str:
    return f"integer division by zero (or overflow) at {_at(d.line)}{_who(d)}"


def _trap(d: Diagnostic) -> str:
    return f"trap or failed assertion at {_at(d.line)}{_who(d)}"


def _copy_size(d: Diagnostic) -> str:
    return (
        f"asynchronous copy at {_at(d.line)}{_who(d)}: {d.detail}; only 4, 8 and 16 bytes can be copied, zfill within"
    )


def _unstarted(d: Diagnostic) -> str:
    return (
        f"{d.op} at {_at(d.line)}{_who(d)} in the shared memory of block {d.other_block}, which may not have started: "
        "a sync() of the cluster is missing before it"
    )


def _exited(d: Diagnostic) -> str:
    return (
        f"{d.op} at {_at(d.line)}{_who(d)} in the shared memory of block {d.other_block}, which may have exited: "
        "a sync() of the cluster is missing behind it"
    )


def _split(d: Diagnostic) -> str:
    return (
        f"barrier of the cluster in two halves at {_at(d.line)}{_who(d)}: {d.detail}; every barrier_arrive() needs its "
        "barrier_wait(), with nothing of another block between them"
    )


def _bad_rank(d: Diagnostic) -> str:
    return f"map_shared_rank() at {_at(d.line)}{_who(d)} of {d.detail}"


_MESSAGES = {
    "out_of_bounds": _out_of_bounds,
    "misaligned": _misaligned,
    "read_only_write": _read_only,
    "shared_race": _shared_race,
    "global_race": _global_race,
    "uninitialised_shared": _uninitialised,
    "barrier_divergence": _divergence,
    "deadlock": _deadlock,
    "inactive_lane": _inactive,
    "timeout": _timeout,
    "stack_overflow": _stack,
    "division_by_zero": _division,
    "trap": _trap,
    "bad_copy_size": _copy_size,
    "unstarted_block": _unstarted,
    "exited_block": _exited,
    "split_barrier": _split,
    "bad_rank": _bad_rank,
}
