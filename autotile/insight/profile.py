"""Variants under Nsight Compute: what the GPU itself counted of each function that a launch calls."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.errors import DeviceNotFound, EnvironmentalError
from autotile.insight.ncu import WANTED, Counters, Launched, find_ncu, launches, ratios, total
from autotile.insight.profiled import Job
from autotile.measure.variant import Variant

START = "import sys; sys.path[:] = {path!r}; from autotile.insight.profiled import main; main({file!r})"
"""The program imports from where this process does. `python -m autotile.insight.profiled FILE` does the same."""

BEGIN_S, EACH_S = 120.0, 4.0
"""How long ncu may take to begin and end, and for one variant, each of whose launches it repeats many times over."""


@dataclass(frozen=True)
class Profile:
    """Counters by the names of ncu.WANTED, of each function by its name: the main one's is `entry`.

    `notes` say what could not be counted here.
    """

    entry: str
    functions: Mapping[str, Counters]
    notes: tuple[str, ...] = ()

    def ratios(self, function: str = "") -> dict[str, float | None]:
        """Of the main function where none is named: see ncu.ratios. Raises KeyError for one that was not launched."""
        return ratios(self.functions[function or self.entry])

    @property
    def time_ms(self) -> float | None:
        """Of all functions, one after the other, each with a cold cache."""
        time_ns = total(counters.get("time_ns") for counters in self.functions.values())
        return None if time_ns is None else time_ns / 1e6


def profile_variant(variant: Variant, device: Device, *, ncu: Path | None = None) -> Profile:
    """One launch of a variant, on random data, under `ncu` (default: where it usually is). Results are not checked.

    Raises what `profile_variants` does.
    """
    return profile_variants([variant], device, ncu=ncu)[0]


def profile_variants(variants: Sequence[Variant], device: Device, *, ncu: Path | None = None) -> list[Profile]:
    """One launch of each, in one run of ncu.

    Raises DeviceNotFound where the device is no GPU, ToolchainMissing without ncu or a compiler, CompileError for a
    variant that does not compile, TimedOut where ncu does not end, and EnvironmentalError where it may not read the
    counters or tells of other launches than there were.
    """
    reopen = device.reopen
    if device.target.kind != "cuda" or reopen is None:
        raise DeviceNotFound(f"Nsight Compute counts on a GPU, and {device.info.name} is none: use --device cuda:0")
    ncu = find_ncu(ncu)
    with Builder(device.target) as builder:
        futures = [builder.submit(variant.source) for variant in variants]
        job = Job(reopen, tuple(zip(variants, [future.result() for future in futures], strict=True)))
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="autotile-profile-") as folder:
        file = Path(folder) / "job.pickle"
        file.write_bytes(pickle.dumps(job))
        program = [sys.executable, "-c", START.format(path=sys.path, file=str(file))]
        found = launches(ncu, name_of(variants), WANTED, program, notes, BEGIN_S + EACH_S * len(variants))
    return profiles_of(variants, found, notes)


def name_of(variants: Sequence[Variant]) -> str:
    """For ncu's --kernel-name: the functions that these call, and no other."""
    names = sorted({name for variant in variants for name in functions_of(variant)})
    return f"regex:^({'|'.join(names)})$"


def functions_of(variant: Variant) -> list[str]:
    """In the order in which they are launched."""
    entry, launch = variant.source.entry, variant.launch
    suffixes = [*(step.entry_suffix for step in launch.before), "", *(step.entry_suffix for step in launch.after)]
    return [entry + suffix for suffix in suffixes]


def profiles_of(variants: Sequence[Variant], found: Sequence[Launched], notes: Sequence[str] = ()) -> list[Profile]:
    """Each variant's launches, told apart by their order.

    Raises EnvironmentalError where there are others than these variants make.
    """
    left, profiles = list(found), []
    for variant in variants:
        names = functions_of(variant)
        own, left = left[: len(names)], left[len(names) :]
        if [launch.name for launch in own] != names:
            told = ", ".join(launch.name for launch in own) or "none"
            raise EnvironmentalError(
                f"ncu told of other launches than there were: for {variant.configuration.label} of "
                f"{variant.problem.label} {told} instead of {', '.join(names)}; a launch before it may have failed"
            )
        profiles.append(Profile(variant.source.entry, {launch.name: launch.counters for launch in own}, tuple(notes)))
    if left:
        raise EnvironmentalError(f"ncu told of {len(left)} launches more than there were, {left[0].name} first")
    return profiles
