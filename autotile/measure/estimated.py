"""Sessions on the emulator: small problems that have the real one's traits, and an estimate for the real one.

It is far too slow for the real problem. So a variant proves itself on a block of interior and on one that is all edges,
with every access watched. Its time is an estimate, from what a few blocks of the real launch do to memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import UnsupportedByEmulator
from autotile.kernels import Kernel
from autotile.measure.limits import Watch, unwatched
from autotile.measure.placed import held_bytes
from autotile.measure.session import TIME_SEED, Contestant, Trial
from autotile.measure.traced import Trace, scaled_trace, trace_variant
from autotile.measure.variant import (
    Variant,
    grown_problem,
    make_variant,
    require_right,
    require_still,
    serves,
    traced_problem,
)
from autotile.measure.workload import make_workload
from autotile.types import Binary, Measurement, Problem

MOST_EMULATED_BYTES = 64 << 20
"""Largest problem that the emulator runs in full where no smaller one will do."""

TRACE_S = 0.05
"""Seconds for which blocks of the real launch are traced, though it be but two."""

MOST_BLOCK_FLOPS = 2_000_000
"""Of a block that is traced as it is. What is scaled comes to the same where loops do the same in each pass."""

REGISTERS = "least_registers"

MOST_RECHECKED_BYTES = 32 << 20
MOST_RECHECKED_FLOPS = 50_000_000
"""Largest problem that a winner is checked on in full as a matter of course: some seconds."""


def emulated_in_full(kernel: Kernel, problem: Problem) -> bool:
    """Whether a winner of this problem is run on the problem itself, beside smaller ones."""
    small = max(kernel.bytes_of(problem), held_bytes(kernel, problem)) <= MOST_RECHECKED_BYTES
    return small and kernel.flops_of(problem) <= MOST_RECHECKED_FLOPS


def guessed_registers(variant: Variant) -> int | None:
    """A thread's, as far as the kernel tells by a derived value REGISTERS: the host's compiler knows none."""
    told = variant.kernel.scope(variant.problem, variant.configuration).get(REGISTERS)
    return None if told is None else int(told)


class EstimatedSession:
    """Implements Session."""

    def __init__(self, device: EmulatorDevice, kernel: Kernel, problem: Problem, watch: Watch = unwatched) -> None:
        self._device, self._kernel, self._problem, self._watch = device, kernel, problem, watch

    def __enter__(self) -> EstimatedSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def trial(self, variant: Variant, binary: Binary, best_ms: float = math.inf) -> Trial:
        begun = time.perf_counter()
        smalls = self._small_problems(variant)
        worst = self._checked(binary, smalls)
        self._watch("estimating", 1)
        checked = time.perf_counter()
        trace = self._trace(variant, binary, smalls[0])
        time_ms = trace.estimate(variant, self._device.info, guessed_registers(variant)).time_ms
        counted = tuple((name, f"{value:.4g}") for name, value in trace.per_request.items())
        measurement = Measurement(time_ms, time_ms, 0.0, 1, estimated=True)
        return Trial(measurement, worst, checked - begun, time.perf_counter() - checked, counted)

    def _trace(self, variant: Variant, binary: Binary, small: Variant) -> Trace:
        """Of the real launch, unless a block of it is long work for the emulator: then of the small one, scaled."""
        kernel, problem = self._kernel, variant.problem
        if kernel.flops_of(problem) <= MOST_BLOCK_FLOPS * variant.launch.blocks:
            return trace_variant(self._device, variant, binary, budget_s=TRACE_S)
        trace = trace_variant(self._device, small, binary, budget_s=TRACE_S)
        by_bytes = kernel.bytes_of(problem) / kernel.bytes_of(small.problem)
        by_work = kernel.flops_of(problem) / kernel.flops_of(small.problem)
        return scaled_trace(trace, variant.launch, by_work, by_bytes)

    def check(self, variant: Variant, binary: Binary) -> float:
        """The largest error over its bound, on a small problem and on one whose tiles are cut. Raises WrongResult."""
        return self._checked(binary, self._small_problems(variant))

    def _checked(self, binary: Binary, smalls: tuple[Variant, Variant | None]) -> float:
        program, worst = self._device.load(binary), 0.0
        for small in smalls:
            if small is None:
                continue
            self._watch("checking", 1)
            with self._device.stage(make_workload(self._kernel, small.problem, TIME_SEED)) as stage:
                check = stage.check(program, small.launch)
            require_right(check, f"on {small.problem.label}: ")
            worst = max(worst, check.max_error)
        return worst

    def _small_problems(self, variant: Variant) -> tuple[Variant, Variant | None]:
        """The problem to trace, and one whose tiles are cut on every side, both with this variant's very text.

        Traits may forbid the sizes that come to mind first, so sides grow until the text is the same. Where no small
        problem has it, the variant's own is traced, and has to be small enough.
        """
        base = traced_problem(replace(variant, problem=self._problem))
        if base is None:
            return self._small_enough(variant), None
        names = list(self._kernel.dimensions)
        whole: list[dict[str, int]] = [{}, *({name: 1} for name in reversed(names)), dict.fromkeys(names, 1)]
        cut = [{name: odd * (2 * i + 1) for i, name in enumerate(names)} for odd in (1, 3, 2, 4, 8, 16, 32)]
        inner = self._first_like(variant, base, whole) or self._small_enough(variant)
        return inner, self._first_like(variant, base, cut)

    def _small_enough(self, variant: Variant) -> Variant:
        moved, held = self._kernel.bytes_of(variant.problem), held_bytes(self._kernel, variant.problem)
        if max(moved, held) > MOST_EMULATED_BYTES:
            raise UnsupportedByEmulator(
                f"no small problem has the traits {dict(variant.source.traits)} of {variant.problem.label}, and that "
                "one is too large to emulate; give the kernel trace_sizes that keep them"
            )
        return variant

    def _first_like(self, variant: Variant, base: Problem, growths: Sequence[Mapping[str, int]]) -> Variant | None:
        for growth in growths:
            problem = grown_problem(self._kernel, base, {name: base[name] + more for name, more in growth.items()})
            if problem is None or not serves(variant, problem, self._device.info):
                continue
            small = make_variant(self._kernel, problem, variant.configuration)
            if small.source.text == variant.source.text:
                return small
        return None

    def finals(self, contestants: Sequence[Contestant]) -> list[Measurement]:
        """The estimates as they are: they do not change when they are asked for again."""
        return [contestant.measurement for contestant in contestants]

    def recheck(self, variant: Variant, binary: Binary, runs: int) -> float:
        """Once, since the emulator repeats itself, and where the real problem is small; the trial has said the rest."""
        if not emulated_in_full(self._kernel, variant.problem):
            return 0.0
        self._watch("checking again", 1)
        with self._device.stage(make_workload(self._kernel, variant.problem, TIME_SEED)) as stage:
            return require_still([stage.check(self._device.load(binary), variant.launch)], self._kernel)
