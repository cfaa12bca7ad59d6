"""What passes from stage to stage: frozen, picklable, units in the field names.

Spec → Space → Configuration → Source → Binary → Measurement → Record → TunedKernel
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | str
"""What a tuning parameter can be: a boolean, an integer or a name."""

Dim3 = tuple[int, int, int]

OFFSET = "offset"
IN_PLACE = "in_place"


def digest(text: str) -> str:
    """SHA-256 of the text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Problem:
    """One concrete task: a kernel's name, its sizes (elements) in the kernel's order, and the element type's name.

    `options` are what is not as usual, in the kernel's order: optional sizes (a batch, a pitch), then `offset`
    (elements by which every array begins behind an aligned address) and `in_place` (1: the output takes the input's
    place). What is as usual is left out, so that equal problems are equal. `switches` are those of the kernel's
    switches that are on, in its order.
    """

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    options: tuple[tuple[str, int], ...] = ()
    switches: tuple[str, ...] = ()

    def __getitem__(self, dimension: str) -> int:
        return dict(self.sizes)[dimension]

    @property
    def offset(self) -> int:
        """Elements between an aligned address and the first of each array."""
        return dict(self.options).get(OFFSET, 0)

    @property
    def in_place(self) -> bool:
        return bool(dict(self.options).get(IN_PLACE, 0))

    @property
    def asked(self) -> dict[str, int]:
        """Sizes, options and the switches that are on, by name, as `Kernel.problem` takes them."""
        return dict((*self.sizes, *self.options, *((name, True) for name in self.switches)))

    @property
    def key(self) -> str:
        """A name that is safe in a path and unique among the problems of a kernel: `m4096-n4096-k4096-float32`."""
        sizes = (f"{name}{size}" for name, size in (*self.sizes, *self.options))
        return "-".join([*sizes, *self.switches, self.dtype])

    @property
    def label(self) -> str:
        unusual = [name if name == IN_PLACE else f"{name}={size}" for name, size in self.options]
        return " ".join(["×".join(str(size) for _, size in self.sizes), *unusual, *self.switches, self.dtype])

    def with_sizes(self, **sizes: int) -> Problem:
        """The same task on other sizes: as far off alignment, in place if this one is, with its switches, but without
        gaps or batches."""
        kept = tuple((name, value) for name, value in self.options if name in (OFFSET, IN_PLACE))
        changed = tuple((name, sizes.get(name, size)) for name, size in self.sizes)
        return Problem(self.kernel, changed, self.dtype, kept, self.switches)


@dataclass(frozen=True, repr=False)
class Configuration(Mapping[str, Value]):
    """A value for each parameter of a kernel, in the kernel's order. Hashable; reads as a mapping."""

    items_: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Configuration:
        return cls(tuple(values.items()))

    def __repr__(self) -> str:
        return f"Configuration({', '.join(f'{name}={value!r}' for name, value in self.items_)})"

    def __getitem__(self, name: str) -> Value:
        for key, value in self.items_:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    @property
    def key(self) -> str:
        """Canonical JSON: equal for equal configurations, whatever order the values were given in."""
        return json.dumps(dict(self.items_), sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        return " ".join(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in self.items_
        )


@dataclass(frozen=True)
class Source:
    """Generated CUDA text of one variant. `traits` are the facts about the problem that the text relies on."""

    kernel: str
    entry: str
    text: str
    traits: tuple[tuple[str, bool], ...] = ()

    @property
    def digest(self) -> str:
        return digest(self.text)


class Sentinel(enum.Enum):
    """Arguments of a launch that stand for what is known only where it happens."""

    SCRATCH = "scratch"


SCRATCH: Final = Sentinel.SCRATCH
"""Among the arguments of a launch: the address of its `scratch_bytes` of device memory, null where there are none."""


@dataclass(frozen=True)
class LaunchStep:
    """Another function of the same text, called the main one's name and `entry_suffix` (`_pack`, say), launched before
    or after it with the same arguments, without dynamic shared memory."""

    entry_suffix: str
    grid: Dim3
    block: Dim3

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class TensorMap:
    """An array as the Tensor Memory Accelerator (sm_90 on) sees it: boxes of it come to shared memory, and go back,
    with a swizzle of 128 bytes.

    The array begins `offset_bytes` behind the address that is the launch's argument number `argument`. `sizes`
    (elements of the type `dtype`) and `box` are those of each dimension, the one whose elements are neighbours first;
    `strides_bytes` lead from one to the next in every dimension but that.
    """

    argument: int
    dtype: str
    offset_bytes: int
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    """How a variant is run: blocks, threads a block, and dynamic shared memory of its main function; what is launched
    before and after it, in order, on the same stream; and the device memory that these work in.

    Not compared, as they follow from the rest and from the kernel: the tensor maps that all functions get ahead of
    their arguments, and whether the main function may begin before the one before it has ended (`overlap`)."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    scratch_bytes: int = 0
    before: tuple[LaunchStep, ...] = ()
    after: tuple[LaunchStep, ...] = ()
    maps: tuple[TensorMap, ...] = field(default=(), compare=False)
    overlap: bool = field(default=False, compare=False)

    @property
    def steps(self) -> tuple[LaunchStep, ...]:
        """All but the main function's."""
        return (*self.before, *self.after)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class Target:
    """What a device wants built: `cuda` machine code for an arch such as `sm_90`, or `host` code for this CPU."""

    kind: str
    arch: str


@dataclass(frozen=True)
class Binary:
    """A built variant in the cache. `digest` is of the machine code: equal digests are the same kernel.

    Registers and spills are a thread's, as the compiler reports them; None where the compiler does not say.
    """

    path: Path
    entry: str
    digest: str
    target: Target
    compiler: str
    registers: int | None
    spill_bytes: int | None
    static_shared_bytes: int | None
    build_s: float
    cached: bool = False


@dataclass(frozen=True)
class Measurement:
    """Time of one launch. `time_ms` is the median of `runs`; the spread is the interquartile range.

    `estimated` marks a model's answer (the emulator's): never to be shown or served as measured.
    """

    time_ms: float
    min_ms: float
    spread_ms: float
    runs: int
    stopped_early: bool = False
    estimated: bool = False


@dataclass(frozen=True)
class Identity:
    """What a result depends on beside the configuration. Results whose identities differ are not comparable.

    `flags` are what the user had the compiler take beside autotile's own; empty where nothing was added.
    """

    device: str
    arch: str
    driver: str
    compiler: str
    template: str
    schema: int
    estimated: bool
    flags: str = ""


SCHEMA_VERSION = 1
"""Version of the record format; part of every identity."""

OK = "ok"

PROVEN = ("proven", "yes")
"""The entry of a record's `extra` that a winner gets with its proof."""

OF_TRIALS = "of_trials"
"""The key in a winner's `extra` of how many trials it was the best."""


@dataclass(frozen=True)
class Record:
    """One trial, as it is kept. `outcome` is `ok` or the reason's word (see errors.VariantError)."""

    problem: Problem
    configuration: Configuration
    identity: Identity
    outcome: str
    message: str = ""
    measurement: Measurement | None = None
    launch: Launch | None = None
    source_digest: str = ""
    binary_digest: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    static_shared_bytes: int | None = None
    max_error: float | None = None
    build_s: float = 0.0
    check_s: float = 0.0
    measure_s: float = 0.0
    seed: int | None = None
    created: str = ""
    autotile_version: str = ""
    extra: tuple[tuple[str, str], ...] = field(default=())

    @property
    def proven(self) -> bool:
        """Whether it is a winner that held on other problems too: only such a record may be served as the best."""
        return self.ok and PROVEN in self.extra

    @property
    def ok(self) -> bool:
        return self.outcome == OK and self.measurement is not None

    @property
    def time_ms(self) -> float:
        """Median time; infinite for a failed trial, so that records sort."""
        return self.measurement.time_ms if self.ok and self.measurement is not None else float("inf")
