"""A point of a kernel's space, as somebody names it: a preset, and values beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotile.errors import ConfigurationError
from autotile.kernels.definition import Kernel
from autotile.suggest import did_you_mean
from autotile.types import Configuration


def point_of(kernel: Kernel, preset: str | None, values: Mapping[str, Any]) -> Configuration:
    """The preset, or without one the kernel's default, with `values` in place of its own.

    Raises ConfigurationError for an unknown preset or parameter, and for a value of another type.
    """
    if preset is not None and preset not in kernel.presets:
        hint = did_you_mean(preset, kernel.presets)
        known = f"; it has {', '.join(kernel.presets)}" if kernel.presets else ""
        raise ConfigurationError(f"{kernel.name} has no preset {preset!r}{hint}{known}")
    return kernel.configuration({**(kernel.presets[preset] if preset is not None else {}), **values})
