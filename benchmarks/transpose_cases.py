"""What the transpose is measured on, what is asked of it there, and what measured times say of it. No GPU needed.

Times are medians in ms by contestant: `autotile`; `copy` (PyTorch's copy_), `own_copy` (the fastest of the copy kernels
in vector_copy.py); `torch`, `cupy` and `geam`, the transposes of PyTorch, CuPy and cuBLAS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.dtypes import element_type
from autotile.errors import UsageError

INPUT_SETS = 3
DTYPES = ("float32", "float16", "float64", "int8", "complex128")
DEFAULT = "default"
"""The word that stands for all of `default_cases` in a list of shapes."""

Shape = tuple[int, ...]

SQUARES: tuple[Shape, ...] = ((4096, 4096), (8192, 8192), (16384, 16384))
SKINNY: tuple[Shape, ...] = ((100000, 33), (33, 100000))

ASKED: tuple[tuple[Sequence[Shape], Sequence[str], Mapping[str, float]], ...] = (
    (SQUARES, ("float32", "float16"), {"of_copy": 0.97}),
    (SQUARES[:2], ("float64",), {"of_copy": 0.97}),
    (SQUARES[2:], ("float64",), {"of_copy": 0.95}),
    (SQUARES, ("int8", "complex128"), {"of_copy": 0.95}),
    (((4097, 8191),), ("float64",), {"of_copy": 0.95}),
    (((4097, 8191),), ("float32",), {"of_copy": 0.94}),
    (((4097, 8191),), ("float16",), {"of_copy": 0.88}),
    (((4097, 8191),), ("int8",), {"of_copy": 0.83}),
    (SKINNY, ("float32", "float16"), {"of_copy": 1.0, "of_own_copy": 0.90}),
    (((64, 512, 512),), DTYPES, {"of_copy": 0.98}),
    (((1024, 1024),), DTYPES, {"of_copy": 0.92}),
)
"""Shapes, element types, and the least shares of a copy's bandwidth that are asked for there."""


@dataclass(frozen=True)
class Case:
    """One transpose: `shape` is rows × cols, or batch × rows × cols, in elements."""

    shape: Shape
    dtype: str
    in_place: bool = False

    @property
    def batch(self) -> int:
        return self.shape[0] if len(self.shape) == 3 else 1

    @property
    def rows(self) -> int:
        return self.shape[-2]

    @property
    def cols(self) -> int:
        return self.shape[-1]

    @property
    def label(self) -> str:
        return f"{shape_text(self.shape)} {self.dtype}{' in place' if self.in_place else ''}"

    @property
    def sizes(self) -> dict[str, int]:
        """As `Kernel.problem` and `autotile.load` take them."""
        found = {"rows": self.rows, "cols": self.cols}
        if self.batch != 1:
            found["batch"] = self.batch
        return found | ({"in_place": 1} if self.in_place else {})

    @property
    def array_bytes(self) -> int:
        return self.batch * self.rows * self.cols * element_type(self.dtype).itemsize

    @property
    def moved_bytes(self) -> int:
        """Each element is read once and written once."""
        return 2 * self.array_bytes

    @property
    def asked(self) -> dict[str, float]:
        """Least shares of the copies; empty where none is asked for."""
        if self.in_place:
            return {}
        for shapes, dtypes, shares in ASKED:
            if self.shape in shapes and self.dtype in dtypes:
                return dict(shares)
        return {}

    @property
    def rounds(self) -> int:
        """Launches of each contestant: the medians of short ones, which are coarse, are of more."""
        return 63 if self.moved_bytes < 64 << 20 else 21


def shape_text(shape: Sequence[int]) -> str:
    return "x".join(str(side) for side in shape)


def default_cases(dtypes: Sequence[str] = DTYPES, in_place: bool = False) -> Iterator[Case]:
    """All that something is asked of, with one of these element types; in place only what is square."""
    for shapes, types, _ in ASKED:
        for dtype in types:
            for shape in shapes:
                if dtype in dtypes and (not in_place or shape[-1] == shape[-2]):
                    yield Case(shape, dtype, in_place)


def cases_of(shapes: str, dtypes: str, in_place: bool = False) -> list[Case]:
    """Every shape of a list such as `default,2048x2048,64x512x512` with every dtype of another, each case once.

    Raises UsageError for what is no shape, an unknown dtype, and a shape that cannot be transposed in place.
    """
    types = [name.strip() for name in dtypes.split(",") if name.strip()] or list(DTYPES)
    for name in types:
        element_type(name)
    found: list[Case] = []
    for text in (part.strip() for part in shapes.split(",")):
        if text == DEFAULT:
            found += default_cases(types, in_place)
            continue
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", text):
            raise UsageError(f"{text!r} is no shape; write rows x cols or batch x rows x cols, such as 64x512x512")
        shape = tuple(int(side) for side in text.split("x"))
        if in_place and shape[-1] != shape[-2]:
            raise UsageError(f"{text} cannot be transposed in place: only square matrices can")
        found += [Case(shape, dtype, in_place) for dtype in types]
    return list(dict.fromkeys(found))


def compared(case: Case, times_ms: Mapping[str, float]) -> dict[str, Any]:
    """Bandwidths (GB/s, read and written), shares of the copies, and how many times as fast as each peer."""
    ours = times_ms["autotile"]
    copies = [times_ms[name] for name in ("copy", "own_copy") if name in times_ms]
    shares = {f"of_{name}": times_ms[name] / ours for name in ("copy", "own_copy") if name in times_ms}
    if copies:
        shares["of_best_copy"] = min(copies) / ours
    asked = case.asked
    return {
        "times_ms": dict(times_ms),
        "gbs": {name: case.moved_bytes / time_ms / 1e6 for name, time_ms in times_ms.items()},
        **shares,
        "times_as_fast_as": {
            name: times_ms[name] / ours for name in ("torch", "cupy", "geam") if name in times_ms
        },
        "asked": asked,
        "met": all(shares.get(name, 0.0) >= least for name, least in asked.items()) if asked else None,
    }  # fmt: skip


def fastest(times_ms: Mapping[str, float], prefix: str) -> str:
    """The contestant with the least time among those whose names begin so."""
    return min((name for name in times_ms if name.startswith(prefix)), key=lambda name: times_ms[name])
