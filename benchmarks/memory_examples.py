"""What docs/memory.md shows: variants of the kernels in docs/examples, and what the emulator counts of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.emulator.report import Access, Op, Space
from autotile.devices.gpus import find_gpu
from autotile.kernels import Kernel, load_kernel
from autotile.measure import Variant, make_variant
from autotile.measure.traced import Trace, trace_variant
from autotile.space import violations
from autotile.types import Problem, Value

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
COUNTERS = ROOT / "tests" / "data" / "counters" / "h200.json"
H200 = find_gpu("h200")

SIZES: Mapping[str, Mapping[str, int]] = {
    "copy": {"n": 4096},
    "points": {"n": 4096},
    "turn": {"rows": 96, "cols": 96},
    "banks": {"n": 1024},
    "product": {"n": 128},
    "window": {"n": 60_000},
}
"""Whole warps, and few enough blocks that all are traced: a request costs the same however many there are."""

SOME_S = 60.0
"""More than a trace of all blocks needs, so that no count depends on this machine's speed."""


@cache
def kernel_named(name: str) -> Kernel:
    return load_kernel(name, EXAMPLES)


@dataclass(frozen=True, eq=False)
class Example:
    """A variant of a kernel of docs/examples. `measured` is its name in the file of Nsight Compute's counts."""

    words: str
    kernel: str
    values: Mapping[str, Value] = field(default_factory=dict)
    switches: Mapping[str, bool] = field(default_factory=dict)
    measured: str = ""

    @property
    def problem(self) -> Problem:
        return kernel_named(self.kernel).problem({**SIZES[self.kernel], **self.switches})

    @cached_property
    def variant(self) -> Variant:
        kernel = kernel_named(self.kernel)
        return make_variant(kernel, self.problem, kernel.configuration(self.values))

    @property
    def text(self) -> list[str]:
        """The lines of its CUDA."""
        return self.variant.source.text.split("\n")

    @property
    def refused(self) -> tuple[str, ...]:
        """Why an H200 does not take it; empty where it does."""
        kernel = kernel_named(self.kernel)
        return violations(kernel, self.problem, H200, kernel.configuration(self.values))


PLAIN = Example("a float a thread", "copy", measured="copy")
LATE = Example("one float late", "copy", switches={"late": True}, measured="copy_late")
WORDS = Example("16 bytes a lane", "copy", {"vector": 4})
TURNS = Example("8 floats a thread, in turns", "copy", {"each": 8})
STRETCHES = tuple(
    Example(f"{each} floats a thread, a stretch each", "copy", {"each": each, "order": "stretches"})
    for each in (2, 4, 8, 32)
)
STRUCTS = Example("array of structures", "points", measured="points")
ARRAYS = Example("structure of arrays", "points", switches={"arrays": True})
STRIDED = Example("straight", "turn", {"way": "strided", "layout": "plain"}, measured="turn_strided")
TILE32 = Example("tile `[32][32]`", "turn", {"layout": "plain"}, measured="turn_tile32")
TILE33 = Example("tile `[32][33]`", "turn", {"layout": "padded"}, measured="turn_tile33")
SWIZZLED = Example("tile `[32][32]`, swizzled", "turn", {"layout": "swizzled"})
BANKS = tuple(Example(f"{stride}", "banks", {"stride": stride}) for stride in (1, 2, 4, 32, 33))
NAIVE = Example("naive", "product", {"way": "naive"}, measured="product_naive")
PRODUCT = Example("32×32 tile", "product", measured="product_tile32")
REGISTERS = tuple(
    Example(f"{32 * each}×{32 * each} tile, {each}×{each} a thread", "product", {"each": each}) for each in (2, 4)
)
WINDOWS = tuple(
    Example(f"{memory}, {kib} KiB", "window", {"memory": memory, "kib": kib})
    for memory, kib in (("static", 48), ("static", 49), ("dynamic", 49), ("dynamic", 227), ("dynamic", 228))
)

FIRST = Example("first", "product", {"barriers": "first_missing"}, measured="product_first_missing")
SECOND = Example("second", "product", {"barriers": "second_missing"}, measured="product_second_missing")
"""Wrong, on purpose."""


@dataclass(frozen=True)
class Sums:
    """Of some accesses: their requests, their sectors or wavefronts, the fewest these could be, and the bytes that all
    lanes asked for, a place as often as lanes asked for it."""

    requests: int
    total: int
    least: float
    asked_bytes: float

    @classmethod
    def of(cls, accesses: Iterable[Access]) -> Sums:
        some = list(accesses)
        return cls(
            sum(a.requests for a in some),
            sum(a.total for a in some),
            sum(a.requests * a.ideal_per_request for a in some),
            sum(a.requests * a.lanes * a.access_bytes for a in some),
        )

    @property
    def each(self) -> str:
        return f"{self.total / self.requests:.2f}"

    @property
    def used(self) -> str:
        """The part of all sectors that lanes asked for."""
        return f"{self.asked_bytes / (32 * self.total):.1%}".replace(".0%", "%")


class Runs:
    """Traces examples on the emulator, each once. `home` holds binaries, the user's own where it is None."""

    def __init__(self, home: Path | None = None) -> None:
        self.device = EmulatorDevice()
        self.builder = Builder(self.device.target, home)
        self.measured = json.loads(COUNTERS.read_text(encoding="utf-8"))
        self._traces: dict[Example, Trace] = {}

    def __enter__(self) -> Runs:
        self.builder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.builder.__exit__(kind, error, traceback)

    def prepare(self, examples: Iterable[Example]) -> None:
        """Starts to build them, side by side."""
        for example in examples:
            self.builder.submit(example.variant.source)

    def trace(self, example: Example) -> Trace:
        if example not in self._traces:
            binary = self.builder.submit(example.variant.source).result()
            self._traces[example] = trace_variant(self.device, example.variant, binary, budget_s=SOME_S)
        return self._traces[example]

    def of(self, example: Example, op: Op, space: Space = "global") -> Sums:
        """Of all accesses of that kind."""
        return Sums.of(a for a in self.trace(example).main.accesses if (a.op, a.space) == (op, space))

    def at(self, example: Example, code: str, op: Op, space: Space = "shared") -> Sums:
        """Of those on the one line that holds `code`."""
        (line,) = (number for number, text in enumerate(example.text, start=1) if code in text)
        accesses = self.trace(example).main.accesses
        return Sums.of(a for a in accesses if (a.line, a.op, a.space) == (line, op, space))

    def on_h200(self, example: Example, counter: str) -> str:
        """Nsight Compute's count, to as many digits as it was noted; a dash where there is none."""
        count = self.measured["counters"].get(example.measured, {}).get(counter)
        return "–" if count is None else f"{count:.2f}" if counter.startswith("sectors") else f"{count:.1f}"
