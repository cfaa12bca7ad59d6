"""What the matmul is measured on, what is asked of it there, and what measured times say of it. No GPU needed.

Times are medians in ms by contestant: `autotile`; `cublas`, the faster of its ways through PyTorch (mm and addmm, or
bmm and baddbmm); `cupy`, CuPy's matmul. A ratio is cuBLAS's time over autotile's: above 1 autotile is the faster one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from autotile.dtypes import element_type
from autotile.errors import UsageError
from autotile.types import Problem

DTYPES = ("float32",)
"""What is measured where nobody says: float32, of which alone something is asked."""

DEFAULT = "default"
"""The word that stands for all of `default_cases` in a list of shapes."""

LAYOUTS = ("nn", "nt", "tn", "tt")
"""How A and how B is stored: n as it is multiplied, t turned (A as k × m, B as n × k)."""

SWITCHES = ("a_turned", "b_turned")
"""The kernel's names for a t in the layout's first and in its second place."""

Shape = tuple[int, ...]

ASKED: tuple[tuple[Shape, str, float], ...] = (
    ((256, 256, 256), "nn", 1.6),
    ((512, 512, 512), "nn", 1.35),
    ((1024, 1024, 1024), "nn", 1.18),
    ((1000, 1000, 1000), "nn", 1.18),
    ((511, 513, 1025), "nn", 1.1),
    ((2048, 2048, 2048), "nn", 1.0),
    ((4096, 4096, 4096), "nn", 1.02),
    ((8192, 8192, 8192), "nn", 1.04),
    ((4096, 11008, 4096), "nn", 1.03),
    ((2048, 50257, 768), "nn", 1.0),
    ((4095, 4097, 4093), "nn", 1.0),
    ((8192, 32, 8192), "nn", 1.28),
    ((16, 4096, 4096), "nn", 3.2),
    ((1, 4096, 4096), "nn", 1.0),
    ((128, 128, 65536), "nn", 1.18),
    ((65536, 128, 128), "nn", 1.15),
    ((16, 512, 512, 512), "nn", 1.0),
    ((4096, 4096, 4096), "nt", 1.0),
    ((4096, 4096, 4096), "tn", 1.0),
    ((4096, 4096, 4096), "tt", 1.0),
)
"""Shapes, layouts, and the least ratio that is asked for there, in float32."""

ASKED_MEAN = 1.25
"""The least geometric mean of the ratios of all plain cases above: single matrices, neither turned."""

MEAN_OF = tuple(shape for shape, layout, _ in ASKED if len(shape) == 3 and layout == "nn")

TURN_BUDGET_MS = 2000.0
"""About how long the turns of a case may take in all."""

MOST_ROUNDS, LEAST_ROUNDS = 101, 21

FLUSH_MS = 0.3
"""About what the flush before each launch takes (see common.FLUSH_BYTES)."""

CONTESTANTS = 4

SLOW_TFLOPS, SLOW_GBS = 30.0, 1500.0
"""What any contestant reaches on a large GPU: only the number of rounds depends on it."""


@dataclass(frozen=True)
class Case:
    """One matmul: `shape` is m × n × k, or batch × m × n × k; `layout` one of LAYOUTS; `more` are the kernel's other
    switches that are on, in its order."""

    shape: Shape
    dtype: str
    layout: str = "nn"
    more: tuple[str, ...] = ()

    slow_tflops: ClassVar[float] = SLOW_TFLOPS

    @property
    def batch(self) -> int:
        return self.shape[0] if len(self.shape) == 4 else 1

    @property
    def mnk(self) -> tuple[int, int, int]:
        m, n, k = self.shape[-3:]
        return m, n, k

    @property
    def turned(self) -> tuple[bool, bool]:
        """Whether A, and whether B, is stored turned."""
        return self.layout[0] == "t", self.layout[1] == "t"

    @property
    def stored_shapes(self) -> tuple[Shape, Shape, Shape]:
        """The shapes of A, B and C as they lie in memory; with a leading batch where there is one."""
        m, n, k = self.mnk
        a, b = ((k, m) if self.turned[0] else (m, k)), ((n, k) if self.turned[1] else (k, n))
        batch = (self.batch,) if self.batch != 1 else ()
        return (*batch, *a), (*batch, *b), (*batch, m, n)

    @property
    def label(self) -> str:
        return f"{self.product} {self.dtype}"

    @property
    def product(self) -> str:
        """Its sizes, its layout where that is not nn, and what is done more: `5x6x7:nt+bias`."""
        layout = "" if self.layout == "nn" else f":{self.layout}"
        return "".join(["x".join(map(str, self.shape)), layout, *(f"+{name}" for name in self.more)])

    @property
    def sizes(self) -> dict[str, int]:
        """As `Kernel.problem` and `autotile.load` take them."""
        found = dict(zip("mnk", self.mnk, strict=True))
        if self.batch != 1:
            found["batch"] = self.batch
        found |= {name: True for name, on in zip(SWITCHES, self.turned, strict=True) if on}
        return found | dict.fromkeys(self.more, True)

    @property
    def result(self) -> str:
        """The type of C."""
        element = element_type(self.dtype)
        return "float32" if "wide" in self.more and element.accumulator == "float" else element.result or element.name

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each of the m·n·k products."""
        return 2 * self.batch * math.prod(self.mnk)

    @property
    def array_bytes(self) -> tuple[int, int, int]:
        """Of A, B and C."""
        types = (self.dtype, self.dtype, self.result)
        a, b, c = (math.prod(s) * element_type(t).itemsize for s, t in zip(self.stored_shapes, types, strict=True))
        return a, b, c

    @property
    def moved_bytes(self) -> int:
        """A and B are read once, C is written once: the fewest."""
        return sum(self.array_bytes)

    @property
    def intensity(self) -> float:
        """FLOP a byte of the fewest."""
        return self.flops / self.moved_bytes

    @property
    def asked(self) -> float | None:
        """The least ratio to cuBLAS's time; None where none is asked for."""
        if self.dtype != "float32":
            return None
        return next((least for shape, layout, least in ASKED if (shape, layout) == (self.shape, self.layout)), None)

    @property
    def rounds(self) -> int:
        """Launches of each contestant: an odd number, more where they are short."""
        launch_ms = self.flops / self.slow_tflops / 1e9 + self.moved_bytes / SLOW_GBS / 1e6 + FLUSH_MS
        fitting = int(TURN_BUDGET_MS / (CONTESTANTS * launch_ms))
        return min(MOST_ROUNDS, max(LEAST_ROUNDS, fitting // 2 * 2 + 1))

    @property
    def config(self) -> str:
        """The shipped search file that serves it."""
        return next(name for name, serves in CONFIGS if serves(self))


CONFIGS: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    ("matmul-skinny", lambda case: min(case.mnk[:2]) <= 32),
    ("matmul-deep", lambda case: case.mnk[2] >= 32 * max(case.mnk[:2])),
    ("matmul-small", lambda case: case.batch * case.mnk[0] * case.mnk[1] <= 1024 * 1024),
    ("matmul", lambda case: True),
)
"""Which configs/*.yaml serves which case: the first that takes it."""


def default_cases(dtypes: Sequence[str] = DTYPES) -> Iterator[Case]:
    for dtype in dtypes:
        for shape, layout, _ in ASKED:
            yield Case(shape, dtype, layout)


def cases_of(shapes: str, dtypes: str) -> list[Case]:
    """Every shape of a list such as `default,4096x4096x4096:nt,16x512x512x512` with every dtype of another, each once.

    Raises UsageError for what is no shape, another layout, and an unknown dtype.
    """
    types = [name.strip() for name in dtypes.split(",") if name.strip()] or list(DTYPES)
    for name in types:
        element_type(name)
    found: list[Case] = []
    for text in (part.strip() for part in shapes.split(",")):
        if text == DEFAULT:
            found += default_cases(types)
            continue
        sides, colon, layout = text.partition(":")
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){2,3}", sides):
            raise UsageError(
                f"{text!r} is no shape; write m x n x k or batch x m x n x k, such as 16x512x512x512, and :nt, :tn or "
                ":tt behind it where B, A or both are stored turned"
            )
        if colon and layout not in LAYOUTS:
            raise UsageError(f"{text!r}: there is no layout {layout!r}; there are {', '.join(LAYOUTS)}")
        found += [Case(shape_of(sides), dtype, layout or "nn") for dtype in types]
    return list(dict.fromkeys(found))


def shape_of(text: str) -> Shape:
    """`16x512x512x512` in numbers; a batch of 1 is none."""
    shape = tuple(int(side) for side in text.split("x"))
    return shape[1:] if len(shape) == 4 and shape[0] == 1 else shape


def case_of(problem: Problem) -> Case:
    """The case of a kernel's problem. Raises UsageError for one with pitches, an offset, or more than a product."""
    asked = problem.asked
    more = set(asked) - {"m", "n", "k", "batch", *SWITCHES}
    if more:
        raise UsageError(f"{problem.label} is no plain product: {', '.join(sorted(more))}")
    batch = (asked["batch"],) if asked.get("batch", 1) != 1 else ()
    layout = "".join("t" if asked.get(name) else "n" for name in SWITCHES)
    return Case((*batch, *(asked[name] for name in "mnk")), problem.dtype, layout)


def compared(case: Case, times_ms: Mapping[str, float]) -> dict[str, Any]:
    """Rates (TFLOP/s; GB/s of the fewest bytes), the ratio to cuBLAS, and how many times as fast as each peer.

    Where cuBLAS has no time there is no ratio, and what was asked is not met.
    """
    ours = times_ms["autotile"]
    times_as_fast = {name: times_ms[name] / ours for name in ("cublas", "cupy") if name in times_ms}
    ratio, asked = times_as_fast.get("cublas"), case.asked
    return {
        "times_ms": dict(times_ms),
        "tflops": {name: case.flops / time_ms / 1e9 for name, time_ms in times_ms.items()},
        "gbs": {name: case.moved_bytes / time_ms / 1e6 for name, time_ms in times_ms.items()},
        "times_as_fast_as": times_as_fast,
        "ratio": ratio,
        "asked": asked,
        "met": None if asked is None else ratio is not None and ratio >= asked,
    }


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of at least one positive ratio."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def mean_of(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The geometric mean over the plain default cases in float32; met only where all of them have a right result."""
    ratios = {
        tuple(entry["shape"]): entry["ratio"]
        for entry in entries
        if (entry["dtype"], entry["layout"]) == ("float32", "nn")
        and tuple(entry["shape"]) in MEAN_OF
        and entry.get("right")
        and entry.get("ratio")
    }
    mean = geometric_mean(list(ratios.values())) if ratios else None
    return {
        "cases": len(ratios),
        "of": len(MEAN_OF),
        "ratio": mean,
        "asked": ASKED_MEAN,
        "met": mean is not None and len(ratios) == len(MEAN_OF) and mean >= ASKED_MEAN,
    }


def gamma(count: int, unit_roundoff: float) -> float:
    """What `count` roundings may add up to (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1)."""
    return count * unit_roundoff / (1 - count * unit_roundoff)


def error_limit(case: Case) -> float:
    """The largest |error| / (|A||B|) of any right product of k terms, beside a reference in float64 (ibid., §3.5).

    Sums of 16-bit elements are kept in float32, and rounded once more in the end.
    """
    k, element = case.mnk[2], element_type(case.dtype)
    accumulator = element_type("float64" if element.accumulator == "double" else "float32")
    limit = gamma(k, accumulator.unit_roundoff)
    if element is not accumulator:
        limit += element.unit_roundoff * (1 + limit)
    return limit + gamma(k, element_type("float64").unit_roundoff)
