"""Problems that between them show every text of a kernel, and the ways in which a variant of the transpose moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel, Parameter
from autotile.space import build_space, violations
from autotile.types import Configuration, Problem, Value

SKINNY: dict[str, Value] = {
    "staging": "skinny", "thread_n": 4, "block_n": 128, "block_k": 32, "a_layout": "row", "pad_a": 0, "vector": 4,
    "lanes_m": 1, "slices": 4, "cluster": 2,
}  # fmt: skip
STARTS: dict[str, tuple[Mapping[str, Value], ...]] = {
    "matmul": (
        *({**SKINNY, "block_m": rows, "thread_m": rows} for rows in (2, 4, 8, 16)),
        {**SKINNY, "block_m": 4, "thread_m": 4, "lanes_m": 8, "block_n": 16, "slices": 1, "cluster": 1},
        {"staging": "dynamic", "stages": 3, "vector": 4, "wave": 132},
        {"staging": "dynamic", "stages": 3, "vector": 4, "wave": 264, "min_blocks": 2, "slices": 2},
        {"staging": "dynamic", "stages": 3, "vector": 4, "parts": 2, "a_layout": "row", "block_m": 32, "block_n": 32},
    )
}  # fmt: skip
"""Kernels whose space is too large to be enumerated as it is declared (a search narrows it), and what walks over it
begin from, beside the named points."""

MEANT_FOR: Mapping[str, tuple[str, ...]] = {
    "tall_words": ("tf32",), "tall_registers": ("tf32",), "large_bytes": ("float8_e4m3fn", "float8_e5m2", "int8"),
}  # fmt: skip
"""Presets of the matmul on tensor cores that are not for its first type."""

EMULATED: Mapping[str, Mapping[str, Sequence[Value]]] = {"matmul_tensor": {"tier": ("mma",)}}
"""Kernels some of whose variants ask for what the emulator does not have, and the values that leave out those alone."""

SHAPES: dict[str, tuple[Mapping[str, int], ...]] = {
    "matmul": (
        {"m": 33, "n": 65, "k": 17},
        {"m": 64, "n": 64, "k": 64},
        {"m": 64, "n": 128, "k": 40, "b_turned": 1, "bias": 1, "offset": 1},
        {"m": 70, "n": 36, "k": 52, "batch": 3, "a_pitch": 80, "b_pitch": 84, "c_pitch": 40, "a_step": 90,
         "c_step": 71},
        {"m": 1, "n": 1, "k": 1, "addend": 1},
        {"m": 132, "n": 260, "k": 36, "addend": 1, "relu": 1},
        {"m": 45, "n": 51, "k": 37, "batch": 2, "a_turned": 1, "bias": 1, "gelu": 1},
        {"m": 40, "n": 44, "k": 129, "a_turned": 1, "b_turned": 1, "addend": 1, "c_pitch": 47, "offset": 1},
        {"m": 300, "n": 5, "k": 7, "b_turned": 1},
        {"m": 8, "n": 130, "k": 300},
    ),
    "matmul_tensor": (
        {"m": 64, "n": 64, "k": 64},
        {"m": 45, "n": 51, "k": 37, "batch": 2, "a_turned": 1, "bias": 1},
        # Lines that begin on words of 16 bytes and do not end on them.
        {"m": 40, "n": 44, "k": 50, "a_pitch": 80, "b_pitch": 64, "c_pitch": 48, "b_turned": 1, "addend": 1, "relu": 1},
        {"m": 70, "n": 65, "k": 17, "wide": 1, "gelu": 1, "offset": 1},
        {"m": 70, "n": 40, "k": 56, "batch": 3, "a_pitch": 80, "b_pitch": 88, "c_pitch": 48, "a_step": 90,
         "c_step": 71, "wide": 1},
        {"m": 132, "n": 264, "k": 104, "addend": 1, "bias": 1},
        {"m": 1, "n": 1, "k": 1, "addend": 1},
        {"m": 48, "n": 80, "k": 144, "a_turned": 1, "b_turned": 1, "bias": 1, "relu": 1},
        {"m": 300, "n": 5, "k": 7, "b_turned": 1, "gelu": 1},
        {"m": 8, "n": 130, "k": 300, "bias": 1},
        {"m": 40, "n": 47, "k": 129, "a_turned": 1, "b_turned": 1, "addend": 1, "c_pitch": 49, "offset": 3},
        {"m": 33, "n": 72, "k": 96, "batch": 2, "b_pitch": 80, "offset": 8},
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


CHANGES = 20
"""Steps of a walk."""


def sparingly(cases: Iterable[Any], every: int, of: Callable[[Any], bool]) -> list[Any]:
    """A test's cases. Of those that `of` names only each `every`th is tried always, the others where slow tests are
    asked for."""
    params, seen = [], 0
    for case in cases:
        named = isinstance(case, type(pytest.param()))
        values = case.values if named else case if isinstance(case, tuple) else (case,)
        counted = of(values if len(values) > 1 else values[0])
        slow = [pytest.mark.slow] if counted and seen % every else []
        params.append(
            pytest.param(*values, marks=[*(case.marks if named else ()), *slow], id=case.id if named else None)
        )
        seen += counted
    return params


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


def drawn(kernel: Kernel, problem: Problem, device: DeviceInfo, count: int, seed: int) -> list[Configuration]:
    """So many that are feasible, none twice: equally likely, or, of a space too large, walked to from named points."""
    random = np.random.default_rng(seed)
    if kernel.name not in STARTS:
        space = build_space(kernel, problem, device, domains_of(kernel, device))
        rows = random.choice(len(space), min(count, len(space)), replace=False)
        return [space.configuration(int(row)) for row in rows]
    points = [point for point in starts(kernel) if feasible(kernel, [problem], device, point)]
    found: dict[Configuration, None] = {}
    while len(found) < count:
        at = points[int(random.integers(len(points)))]
        for _ in range(CHANGES):
            nearby = changed(kernel, at, int(random.integers(1, 4)), random)
            if not violations(kernel, problem, device, nearby):
                at = nearby
        found[at] = None
    return list(found)


def covering(kernel: Kernel, problem: Problem, device: DeviceInfo, seed: int) -> list[Configuration]:
    """Feasible ones that between them have every value of every parameter that one can have on this device."""
    random = np.random.default_rng(seed)
    space = None if kernel.name in STARTS else build_space(kernel, problem, device, domains_of(kernel, device))
    found: list[Configuration] = []
    for p, parameter in enumerate(kernel.parameters):
        for code, value in enumerate(parameter.values):
            if any(one[parameter.name] == value for one in found) or value in elsewhere(kernel, parameter, device):
                continue
            if space is None:
                found += _near(kernel, problem, device, {parameter.name: value}, random)
            elif (rows := np.flatnonzero(space.codes[:, p] == code)).size:
                found.append(space.configuration(int(random.choice(rows))))
    return found


NOT_EMULATED: Mapping[str, set[tuple[str, bool]]] = {"matmul_tensor": {("flat", True)}}
"""Traits, as they are of no variant that the emulator runs."""


def domains_of(kernel: Kernel, device: DeviceInfo) -> dict[str, Sequence[Value]]:
    """All values of the parameters, but those that the device does not run."""
    rest = EMULATED.get(kernel.name, {}) if device.kind == "emulator" else {}
    return {**{parameter.name: parameter.values for parameter in kernel.parameters}, **rest}


def emulated(kernel: Kernel, configuration: Configuration) -> bool:
    """Whether the emulator has all that this variant asks for."""
    return all(configuration[name] in values for name, values in EMULATED.get(kernel.name, {}).items())


def emulated_points(kernel: Kernel) -> list[str]:
    """The default and the presets, without those that the emulator does not run."""
    points = ("default", *kernel.presets)
    return [point for point in points if emulated(kernel, kernel.configuration(kernel.presets.get(point)))]


WGMMA_ALONE: Mapping[str, set[Value]] = {
    "tier": {"wgmma"}, "block_m": {192}, "block_n": {192}, "stages": {10, 12}, "groups": {2, 3}, "pingpong": {True},
    "multicast": {"a", "b"}, "cluster": {2, 4, 8}, "rooms": {1, 2, 3},
    "registers": {True},
}  # fmt: skip


def elsewhere(kernel: Kernel, parameter: Parameter, device: DeviceInfo) -> set[Value]:
    """Values that no configuration for this device in the kernel's first dtype has. Matmul's waves are one or two
    blocks for each of a GPU's multiprocessors."""
    if kernel.name == "matmul_tensor" and device.kind == "emulator":
        return set(parameter.values) - {0} if parameter.name == "wave" else WGMMA_ALONE.get(parameter.name, set())
    if (kernel.name, parameter.name) == ("matmul", "wave"):
        return set(parameter.values) - {0, device.sm_count, 2 * device.sm_count}
    if kernel.name == "transpose" and parameter.name in ("load_vector", "turn_rows"):
        return {value for value in parameter.values if int(value) > 4}  # more than 16 bytes
    return set()


def _near(
    kernel: Kernel, problem: Problem, device: DeviceInfo, values: dict[str, Value], random: np.random.Generator
) -> list[Configuration]:
    """One near a start that has these values, or none."""
    for count in range(3):
        for point in starts(kernel):
            one = kernel.configuration({**changed(kernel, point, count, random), **values})
            if not violations(kernel, problem, device, one):
                return [one]
    return []


def starts(kernel: Kernel) -> list[Configuration]:
    """The default, the presets, and where else walks begin."""
    return [kernel.configuration(values) for values in ({}, *kernel.presets.values(), *STARTS.get(kernel.name, ()))]


def changed(kernel: Kernel, at: Configuration, count: int, random: np.random.Generator) -> Configuration:
    """Some parameters drawn anew."""
    chosen = random.choice(len(kernel.parameters), count, replace=False)
    parameters = [kernel.parameters[int(number)] for number in chosen]
    return kernel.configuration({**at, **{p.name: p.values[int(random.integers(len(p.values)))] for p in parameters}})


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
