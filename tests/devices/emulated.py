"""Small kernels for the emulator, their data, and what a launch found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotile.devices.emulator import Diagnostic, EmulatedProgram, Report, device_buffer

Build = Callable[..., EmulatedProgram]
"""Of a source, an entry ("kernel") and whether it is traced (True)."""


def kernel(parameters: str, body: str, before: str = "") -> str:
    return f'{before}\nextern "C" __global__ void kernel({parameters}) {{\n{body}\n}}\n'


def line_of(source: str, text: str) -> int:
    """The one line that holds `text`."""
    (number,) = (n for n, line in enumerate(source.split("\n"), start=1) if text in line)
    return number


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return device_buffer(np.zeros(shape, dtype))


def randoms(*shape: int, seed: int = 0) -> Any:
    return device_buffer(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def only(report: Report, kind: str) -> list[Diagnostic]:
    return [d for d in report.diagnostics if d.kind == kind]


def clean(report: Report) -> bool:
    assert report.diagnostics == (), [d.message for d in report.diagnostics]
    return True


def without(source: str, marker: str) -> str:
    """The source with the statement on the line of `marker` removed; the lines keep their numbers."""
    lines = source.split("\n")
    lines[line_of(source, marker) - 1] = f"// {marker}"
    return "\n".join(lines)
