"""Problems that between them show every text of a kernel, and the ways in which a variant of the transpose moves."""

from __future__ import annotations

from collections.abc import Mapping

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel
from autotile.space import violations
from autotile.types import Configuration, Problem

SHAPES: dict[str, tuple[Mapping[str, int], ...]] = {
    "matmul": tuple(
        dict(zip("mnk", sizes, strict=True))
        for sizes in (
            (1, 1, 1), (31, 1, 64), (33, 65, 17), (100, 100, 100), (128, 128, 130), (65, 64, 64), (64, 65, 64),
            (64, 64, 65),
        )
    ),
    "transpose": (
        {"rows": 64, "cols": 64},
        {"rows": 128, "cols": 96},
        {"rows": 63, "cols": 95},
        {"rows": 65, "cols": 64},
        {"rows": 64, "cols": 65},
        {"rows": 100, "cols": 72},
        {"rows": 64, "cols": 96, "offset": 1},
        {"rows": 70, "cols": 44, "in_pitch": 77, "out_pitch": 71, "offset": 3},
        {"rows": 40, "cols": 48, "batch": 2, "in_pitch": 64, "out_pitch": 96, "in_step": 43, "out_step": 50},
        {"rows": 33, "cols": 50, "batch": 3},
        {"rows": 300, "cols": 9},
        {"rows": 256, "cols": 8, "batch": 2},
        {"rows": 70, "cols": 11, "batch": 2, "out_pitch": 80, "offset": 1},
        {"rows": 9, "cols": 300},
        {"rows": 8, "cols": 256, "batch": 2},
        {"rows": 11, "cols": 70, "batch": 2, "in_pitch": 80, "offset": 1},
        {"rows": 64, "cols": 64, "in_place": 1},
        {"rows": 77, "cols": 77, "in_place": 1},
        {"rows": 72, "cols": 72, "batch": 2, "in_pitch": 80, "out_pitch": 80, "in_place": 1},
        {"rows": 50, "cols": 50, "in_pitch": 66, "out_pitch": 66, "offset": 1, "in_place": 1},
    ),
}  # fmt: skip


def problems_of(kernel: Kernel, dtype: str) -> list[Problem]:
    """Aligned, odd and tiny ones; of a kernel that has such: off alignment, with gaps, of several matrices, in place.

    A kernel that has none here has those on which its winners prove themselves.
    """
    any_ = kernel.problem(dict.fromkeys(kernel.dimensions, 64), dtype)
    named = SHAPES.get(kernel.name)
    return kernel.proof_problems(any_) if named is None else [kernel.problem(sizes, dtype) for sizes in named]


def feasible(
    kernel: Kernel, problems: list[Problem], device: DeviceInfo, configuration: Configuration
) -> list[Problem]:
    return [problem for problem in problems if not violations(kernel, problem, device, configuration)]


def way_of(kernel: Kernel, problem: Problem, configuration: Configuration) -> tuple[str, str, str, str]:
    """The transpose's staging, how its loads and its stores go, and where to: what its text branches on."""
    has = kernel.traits_of(problem, configuration)
    staging = str(configuration["staging"])
    place = "in place" if has["in_place"] else ""
    if staging not in ("turned", "flat_in", "flat_out"):
        return staging, "", "", place
    loads = "words" if has["in_words"] else "shifted" if has["shifted"] else "elements"
    if staging == "flat_in":
        stores = "words" if has["turn_words"] else "elements"
    else:
        stores = "realigned" if has["realigned"] else "words" if has["out_words"] else "elements"
    return staging, loads, stores, place


STRAIGHT = {(staging, "", "", "") for staging in ("strided_reads", "strided_writes", "tile")}
FLAT = {
    (staging, loads, stores, "")
    for staging in ("flat_in", "flat_out")
    for loads in ("words", "elements")
    for stores in ("words", "elements")
}
APART = {
    ("turned", loads, stores, "") for loads in ("words", "shifted", "elements") for stores in ("words", "realigned")
}
ODD_WITHIN = ("turned", "elements", "elements", "in place")
WITHIN = {("tile", "", "", "in place"), *(("turned", "words", stores, "in place") for stores in ("words", "elements"))}
ALL_WAYS = STRAIGHT | FLAT | APART | WITHIN | {ODD_WITHIN}

WAYS: Mapping[int, set[tuple[str, str, str, str]]] = {
    1: ALL_WAYS,
    2: ALL_WAYS,
    4: ALL_WAYS,
    # a word of one element always lies on its size, and words of two, 16 bytes, are shifted where they can be
    8: {way for way in ALL_WAYS if way[:2] != ("turned", "elements") or way == ODD_WITHIN},
    # one element is a word of 16 bytes, which always lies on its size
    16: {way for way in ALL_WAYS if {"elements", "shifted"}.isdisjoint(way)},
}
"""By the bytes of an element, every way that there is."""
