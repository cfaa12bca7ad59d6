"""What an explanation holds: numbers with their units, and sentences made of them. Everything here can go into JSON."""

from __future__ import annotations

from dataclasses import dataclass

from autotile.devices.emulator.report import Op, Space


@dataclass(frozen=True)
class Occupancy:
    """Blocks that a multiprocessor holds at once. `limits` says how many each resource would allow, by its name
    (threads, blocks, registers, shared memory); `limited_by` names those that allow fewest.

    `registers` are a thread's, None where no compiler for GPUs was at hand: then they limit nothing here.
    `waves` are the launch's blocks over those that the whole GPU holds at once.
    """

    blocks: int
    warps: int
    most_warps: int
    limits: tuple[tuple[str, int], ...]
    limited_by: tuple[str, ...]
    registers: int | None
    waves: float

    @property
    def percent(self) -> float:
        return 100.0 * self.warps / self.most_warps


@dataclass(frozen=True)
class Roofline:
    """Where the problem stands under the GPU's two ceilings, from the data sheet: arithmetic and DRAM bandwidth.

    `flops_a_byte` counts the fewest bytes that the work needs (each input read once, each output written once);
    `attainable_ms` is the longer of the two times that the ceilings allow. `time_ms` is the estimate or, where
    `estimated` is false, a measurement.
    """

    flops: int
    least_bytes: int
    flops_a_byte: float
    peak_tflops: float
    bandwidth_gbs: float
    bound: str
    attainable_ms: float
    time_ms: float
    estimated: bool

    @property
    def percent(self) -> float:
        """Of what the ceilings allow."""
        return 100.0 * self.attainable_ms / self.time_ms


@dataclass(frozen=True)
class Traffic:
    """What all threads ask of global memory, beside the kernel's plainest variant (its `baseline` preset, if it has
    one): bytes that lanes ask for, and bytes of the sectors that these lie in. Both for the whole launch."""

    asked_bytes: float
    moved_bytes: float
    asked_bytes_a_flop: float | None
    moved_bytes_a_flop: float | None
    times_least: float
    baseline: str = ""
    baseline_asked_bytes: float | None = None
    baseline_moved_bytes: float | None = None


@dataclass(frozen=True)
class Pattern:
    """One access of the source and what it costs. Counts are of the whole launch, scaled from the blocks traced.

    `per_request`, `ideal_per_request`, `worst` are 32-byte sectors (global) or wavefronts (shared); `passes` are those
    of the load/store units: one for each wavefront, and for each line of 128 bytes of a request. `shape` names the
    pattern in a word (see patterns.py), `words` says it in a sentence, `fix` what to change; empty where nothing is
    wrong. `percent_of_cost` is this access's part of all sectors, or wavefronts, of the launch.
    `addresses` are those of a warp's lanes in a request that cost most, from an aligned address before the array, or
    relative to the block's shared memory.
    """

    entry: str
    line: int | None
    called_from: tuple[int, ...]
    code: str
    op: Op
    space: Space
    array: str
    access_bytes: int
    from_machine_code: bool
    requests: float
    lanes: float
    per_request: float
    ideal_per_request: float
    worst: int
    passes: float
    used_percent: float
    percent_of_cost: float
    shape: str
    words: str
    fix: str
    addresses: tuple[int, ...]


@dataclass(frozen=True)
class Barrier:
    """A barrier of the source. `passes` are a block's; `protects` says in sentences which accesses it keeps apart."""

    entry: str
    line: int | None
    code: str
    passes: float
    protects: tuple[str, ...]


@dataclass(frozen=True)
class SharedUse:
    """Shared memory of a block beside the limits: what every GPU gives without being asked, and with the opt-in."""

    static_bytes: int
    dynamic_bytes: int
    plain_limit_bytes: int
    optin_limit_bytes: int
    words: str

    @property
    def needs_optin(self) -> bool:
        return self.static_bytes + self.dynamic_bytes > self.plain_limit_bytes


@dataclass(frozen=True)
class Change:
    """What one parameter's other value would do, by the same estimate."""

    name: str
    value: str
    time_ms: float
    words: str


@dataclass(frozen=True)
class Finding:
    """What costs, in a sentence or two, and what to change: `cure` is empty where nothing can be, as for what bounds
    the variant in any case. `line` is the source's, None where it is about no one line. `weight_ms` is how much less
    the estimate would be without it, None where the estimate does not say. `wasteful` is an access that wastes most of
    what it moves."""

    words: str
    cure: str = ""
    line: int | None = None
    weight_ms: float | None = None
    wasteful: bool = False

    def __str__(self) -> str:
        return f"{self.words} To change: {self.cure}." if self.cure else self.words


@dataclass(frozen=True)
class Explanation:
    """Why one variant of a kernel is as fast as it is, on one GPU. `findings` are accesses that waste most of what they
    move, then what else costs, by its weight, and last what bounds the variant in any case. `units_ms` is what each
    unit of the GPU alone would take (see estimate.py), the busiest first. Times are estimates where
    `roofline.estimated` says so. `instructions` are those of a pass of the machine code's hottest loop, which comes
    from `loop_line`. Of a kernel that is `wrong`, the findings are its faults, and times mean nothing.
    """

    kernel: str
    problem: str
    configuration: tuple[tuple[str, bool | int | str], ...]
    device: str
    blocks: int
    threads: int
    traced_blocks: int
    findings: tuple[Finding, ...]
    units_ms: tuple[tuple[str, float], ...]
    occupancy: Occupancy
    roofline: Roofline
    traffic: Traffic
    patterns: tuple[Pattern, ...]
    barriers: tuple[Barrier, ...]
    shared: SharedUse
    instructions: tuple[tuple[str, float], ...]
    changes: tuple[Change, ...]
    profile: tuple[tuple[str, float | None, float | None], ...]
    notes: tuple[str, ...]
    wrong: bool = False
    loop_line: int | None = None

    def __str__(self) -> str:
        """As `autotile explain` prints it."""
        from autotile.insight.text import text_of  # which reads this module

        return text_of(self)
