"""From raw launch times to a measurement, with as few launches as the spread allows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotile.devices.info import DeviceInfo
from autotile.errors import ImplausibleTime
from autotile.kernels import Kernel
from autotile.types import Measurement, Problem

L2_SPEEDUP = 10.0
"""No GPU's L2 is as many times faster than its memory: a bound, not a figure."""

LEAST_LAUNCH_MS = 0.0005
"""What events can tell apart at all (CUDA Runtime API, cudaEventElapsedTime); every launch takes more."""

MOST_ROUNDS = 40
FINALS_BUDGET_MS = 50.0
"""Launches of a final may take as long together before the usual number of rounds is all there is."""

Times = Callable[[int], tuple[float, ...]]
"""Runs the kernel so many times and gives each time in ms."""


@dataclass(frozen=True)
class TimingPlan:
    """How many launches a variant is worth.

    The check's launch warms up. When it shows a variant that takes `hopeless_ratio` times the best known median, that
    one is timed once. After `first_runs`, a variant whose best is `give_up_ratio` times the best median is clearly
    slower and is left alone. The others run until `max_runs` or until `budget_ms` of launches is spent, but
    `least_runs` times at least.
    """

    first_runs: int = 3
    max_runs: int = 9
    least_runs: int = 3
    budget_ms: float = 60.0
    give_up_ratio: float = 1.1
    hopeless_ratio: float = 2.0

    @classmethod
    def exactly(cls, runs: int) -> TimingPlan:
        """So many launches for every variant, however slow it is."""
        return cls(runs, runs, runs, give_up_ratio=math.inf, hopeless_ratio=math.inf)


LOOK_MS = 1.0
"""A first launch also pays for what is loaded lazily: less than so much more than another says nothing."""


def measure(
    times: Times, plan: TimingPlan, floor_ms: float, best_ms: float = math.inf, look_ms: float = 0.0
) -> Measurement:
    """Warm-up, a first look, then enough runs for a median. `look_ms`: what a launch just before took, 0 if there was
    none; it has warmed up, and tells a variant that is hopeless.

    Raises ImplausibleTime when the times stay below the physical floor, or are no times, on a second try.
    """
    hopeless = look_ms > max(plan.hopeless_ratio * best_ms, best_ms + LOOK_MS)
    for attempt in range(2):
        if not look_ms:
            times(1)  # the first launch pays for lazy loading
        sample = list(times(1 if hopeless else plan.first_runs))
        if attempt == 0 and not _plausible(sample, floor_ms):
            continue
        _require_plausible(sample, floor_ms)
        if hopeless or min(sample) > plan.give_up_ratio * best_ms:
            return summarise(sample, stopped_early=True)
        most = min(plan.max_runs, int(plan.budget_ms / statistics.median(sample)))
        rest = max(most, plan.least_runs) - len(sample)
        if rest > 0:
            sample += times(rest)
        if attempt == 0 and not _plausible(sample, floor_ms):
            continue
        _require_plausible(sample, floor_ms)
        return summarise(sample)
    raise AssertionError("the second attempt returns or raises")


def summarise(sample: Sequence[float], stopped_early: bool = False) -> Measurement:
    """Median, minimum and interquartile range of times in ms."""
    if len(sample) > 1:
        low, _, high = statistics.quantiles(sample, n=4, method="inclusive")
    else:
        low = high = sample[0]
    return Measurement(statistics.median(sample), min(sample), high - low, len(sample), stopped_early)


def interleaved(contestants: Sequence[Times], rounds: int = 8, runs_a_round: int = 4) -> list[Measurement]:
    """Times several kernels in turns, so that a drift of the clocks falls on all of them alike.

    Every other round goes backwards: nobody always follows the same other. Kernels that take microseconds, whose
    medians are coarse, get up to MOST_ROUNDS rounds. Raises ImplausibleTime for a launch without a time.
    """
    samples: list[list[float]] = [[] for _ in contestants]
    turns = list(zip(contestants, samples, strict=True))
    done = 0
    while done < rounds:
        for times, sample in turns if done % 2 == 0 else reversed(turns):
            sample += times(runs_a_round + 1)[1:]  # the first after another kernel finds cold instruction caches
            if not sample or not are_times(sample):
                raise ImplausibleTime(f"a launch in the finals took {sample[-1] if sample else 'no time'} ms")
        done += 1
        if done == 2:
            round_ms = sum(max(0.0, time) for sample in samples for time in sample) / 2
            rounds = max(rounds, min(MOST_ROUNDS, int(FINALS_BUDGET_MS / round_ms))) if round_ms > 0 else rounds
    return [summarise(sample) for sample in samples]


def physical_floor_ms(kernel: Kernel, problem: Problem, device: DeviceInfo) -> float:
    """No right kernel is faster: the arithmetic at the peak rate, or the bytes that the L2 cannot hold at full
    bandwidth, or all of them at the L2's, or what any launch takes, whichever is longest."""
    moved_bytes = kernel.bytes_of(problem)
    arithmetic_ms = kernel.flops_of(problem) / (device.peak_tflops(problem.dtype) * 1e9)
    traffic_ms = max(0, moved_bytes - device.l2_bytes) / (device.bandwidth_gbs * 1e6)
    l2_ms = moved_bytes / (L2_SPEEDUP * device.bandwidth_gbs * 1e6)
    return max(arithmetic_ms, traffic_ms, l2_ms, LEAST_LAUNCH_MS)


def _plausible(sample: Sequence[float], floor_ms: float) -> bool:
    return bool(sample) and are_times(sample) and statistics.median(sample) >= floor_ms


def are_times(sample: Sequence[float]) -> bool:
    return all(math.isfinite(time) and time > 0 for time in sample)


def _require_plausible(sample: Sequence[float], floor_ms: float) -> None:
    if not sample:
        raise ImplausibleTime("the device gave no times, twice")
    if not _plausible(sample, floor_ms):
        raise ImplausibleTime(
            f"measured {statistics.median(sample):.6f} ms twice, below the {floor_ms:.6f} ms that the device needs for "
            "the arithmetic and the bytes alone; the kernel does less than its work, or the clock is wrong"
        )
