"""What the matmul on tensor cores is measured on, what is asked of it there, and how far off it may be. No GPU needed.

Times and ratios are those of matmul_cases: `cublas` is the fastest of cuBLAS's ways through PyTorch. An error is
‖C − C64‖ / ‖C64‖, C64 the product in float64 of the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from matmul_cases import Case, Shape

from autotile.dtypes import element_type
from autotile.errors import UsageError

SIXTEEN_BIT = ("bfloat16", "float16")

SQUARE: Shape = (4096, 4096, 4096)
ODD: Shape = (4095, 4097, 4093)

ASKED: tuple[tuple[Shape, float], ...] = (
    ((1024, 1024, 1024), 0.97),
    ((2048, 2048, 2048), 1.0),
    (SQUARE, 1.0),
    ((8192, 8192, 8192), 1.03),
    ((4096, 11008, 4096), 1.05),
    ((2048, 50304, 768), 1.1),
    (ODD, 3.8),
    ((2048, 50257, 768), 4.0),
    ((511, 513, 1025), 1.5),
    ((1000, 1000, 1000), 1.0),
    ((16, 4096, 4096), 1.0),
    ((1, 4096, 4096), 1.0),
    ((64, 512, 512, 512), 1.0),
)
"""Shapes, and the least ratio that is asked for there, in float16 and in bfloat16."""

ASKED_TF32: tuple[tuple[Shape, float], ...] = ((SQUARE, 0.95), (ODD, 2.5))

ASKED_PORTABLE = 0.52
"""The least ratio of tier mma, in bfloat16 at 4096 a side."""

MOST_ERROR = 1.1
"""The most times cuBLAS's error that autotile's may be."""

SUM_ROUNDOFF: Mapping[str, float] = {
    "int8": 0.0,
    "float64": 2.0**-50,
    "float8_e4m3fn": 2.0**-12,
    "float8_e5m2": 2.0**-12,
}
"""About what an addition of a tensor core may lose, several times over (see the kernel's reference.py)."""

ORDINARY_SUM_ROUNDOFF = 2.0**-18

AGAIN: tuple[Shape, ...] = (SQUARE, (2048, 2048, 2048))
"""What is searched a second time, in bfloat16."""

MOST_APART = 0.02
"""How far apart the winners of two searches may be."""


@dataclass(frozen=True)
class TensorCase(Case):
    """`tier` is that of the kernel's tiers to which the search is held; empty where it is free."""

    tier: str = ""

    slow_tflops: ClassVar[float] = 300.0

    @property
    def name(self) -> str:
        """In one word: `bfloat16/4096x4096x4096:nt+bias@mma`."""
        return f"{self.dtype}/{self.product}" + (f"@{self.tier}" if self.tier else "")

    @property
    def label(self) -> str:
        return self.name

    @property
    def asked(self) -> float | None:
        """The least ratio to cuBLAS's time; None where none is asked for."""
        if self.layout != "nn" or self.more:
            return None
        if self.tier:
            return ASKED_PORTABLE if (self.dtype, self.shape) == ("bfloat16", SQUARE) else None
        asked = ASKED if self.dtype in SIXTEEN_BIT else ASKED_TF32 if self.dtype == "tf32" else ()
        return dict(asked).get(self.shape)

    @property
    def config(self) -> str:
        """The shipped search file that serves it."""
        return "matmul-portable" if self.tier == "mma" else "matmul-tensor"

    @property
    def error_limit(self) -> float:
        """What rounding may come to in the norm, several times over; 0 where all is exact."""
        if self.dtype == "int8":
            return 0.0
        sums = SUM_ROUNDOFF.get(self.dtype, ORDINARY_SUM_ROUNDOFF) * math.sqrt(self.mnk[2])
        return sums + element_type(self.result).unit_roundoff + 2 * element_type(self.dtype).factor_roundoff


def all_cases() -> Iterator[TensorCase]:
    for dtype in SIXTEEN_BIT:
        for shape, _ in ASKED:
            yield TensorCase(shape, dtype)
    for shape, _ in ASKED_TF32:
        yield TensorCase(shape, "tf32")
    yield TensorCase(SQUARE, "bfloat16", tier="mma")
    yield TensorCase(SQUARE, "float64")
    yield TensorCase(SQUARE, "int8", "nt")  # as cuBLAS wants it: B turned
    yield TensorCase(SQUARE, "float8_e4m3fn", "nt", ("wide",))
    for layout in ("nt", "tn", "tt"):
        yield TensorCase(SQUARE, "bfloat16", layout)
    yield TensorCase(SQUARE, "bfloat16", "nn", ("bias", "gelu"))
    yield TensorCase(SQUARE, "bfloat16", "nn", ("wide",))


def chosen(patterns: str) -> list[TensorCase]:
    """The cases whose names fit one of a list of patterns, such as `bfloat16/*,tf32/4096x4096x4096`, in their order.

    Raises UsageError for a pattern that none fits.
    """
    cases, wanted = list(all_cases()), [part.strip() for part in patterns.split(",") if part.strip()]
    for pattern in wanted:
        if not any(fnmatchcase(case.name, pattern) for case in cases):
            names = ", ".join(case.name for case in cases)
            raise UsageError(f"no case is called {pattern!r}; there are {names}")
    return [case for case in cases if any(fnmatchcase(case.name, pattern) for pattern in wanted)]


def judged(case: TensorCase, errors: Mapping[str, float | None]) -> dict[str, Any]:
    """Whether autotile's result is right, and whether its error is one that is allowed beside cuBLAS's; None for that
    where cuBLAS has none, and for float64, where cuBLAS's product is what both are compared with."""
    ours, theirs = errors["autotile"], errors.get("cublas")
    allowed = None if theirs is None or case.dtype == "float64" else ours is not None and ours <= MOST_ERROR * theirs
    right = ours is not None and ours <= case.error_limit
    return {"errors": dict(errors), "error_limit": case.error_limit, "right": right, "error_met": allowed}


# ---- results of several runs ----------------------------------------------------------------------------------------

SAME = ("device", "driver", "compiler", "torch")
"""What has to be the same where results are put together."""


def joined(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The results of two runs: the new ones, and those of the old run that the new one did not renew.

    A search makes the times of an older winner void; times alone leave the search that they belong to. Raises
    UsageError for runs on different machines.
    """
    for fact in SAME:
        if old.get(fact) != new.get(fact):
            raise UsageError(f"results of {fact} {old.get(fact)} and of {new.get(fact)} are not put together")
    found = {entry["case"]: entry for entry in old["cases"]}
    for entry in new["cases"]:
        former = found.get(entry["case"], {})
        kept = {"search": former["search"]} if "search" in former and "search" not in entry else {}
        found[entry["case"]] = entry | kept
    order = {case.name: place for place, case in enumerate(all_cases())}
    cases = sorted(found.values(), key=lambda entry: order.get(entry["case"], len(order)))
    commits = dict.fromkeys(entry["commit"] for entry in sorted(cases, key=lambda entry: str(entry["date"])))
    return {**new, "commit": ", ".join(commits), "date": max(old["date"], new["date"]), "cases": cases}


def apart(times_ms: Sequence[float]) -> float:
    """How much slower the slowest is than the fastest."""
    return max(times_ms) / min(times_ms) - 1
