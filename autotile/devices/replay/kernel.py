"""A kernel made up for a recording that another tuner made: its parameters, and a text that names them.

Nothing compiles or runs it. Its folder is a temporary one, gone when the process ends.
"""

from __future__ import annotations

import atexit
import keyword
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotile.devices.replay.recording import Recording
from autotile.kernels import Kernel, LaunchPlan, Output, Parameter
from autotile.kernels.declarations import RESERVED
from autotile.kernels.loader import DEFINITION, TEMPLATE
from autotile.types import Problem

Arrays = Mapping[str, np.ndarray[Any, Any]]


class RecordedProblem(Problem):
    """A problem of which the recording does not say the element type: its label does not either."""

    @property
    def label(self) -> str:
        return "×".join(str(size) for _, size in self.sizes) if self.sizes[0][0] != "unknown" else "(size not recorded)"


def made_up_kernel(recording: Recording) -> Kernel:
    """Parameters in the recording's order, under its names as far as a template can have them; no rules."""
    kernel = Kernel(
        name=_identifier(recording.kernel),
        doc=f"Made up from {recording.path.name}, to replay it.",
        dimensions=_dimensions(recording),
        dtypes=("float32",),
        arguments=(Output("out", _dimensions(recording)),),
        parameters=tuple(
            Parameter(name, domain, domain[0], f"as recorded in {recording.path.name}")
            for name, domain in zip(_names(recording), recording.domains, strict=True)
        ),
        launch=LaunchPlan(grid=("1",), block=("1",)),
        reference=_no_outputs,
        error_bound=_no_outputs,
        flops="0",
        bytes="0",
    )
    return kernel.at(_folder(kernel, recording))


def recorded_problem(recording: Recording, kernel: Kernel) -> Problem:
    """The problem of a made-up kernel: the recording's extents, or 1 where it has none."""
    sizes = recording.sizes or (1,)
    return RecordedProblem(kernel.name, tuple(zip(kernel.dimensions, sizes, strict=True)), kernel.dtypes[0])


def _no_outputs(inputs: Arrays, problem: Problem) -> Mapping[str, np.ndarray[Any, Any]]:
    raise AssertionError("a made-up kernel is never run")


def _dimensions(recording: Recording) -> tuple[str, ...]:
    return tuple(f"size_{axis}" for axis in range(len(recording.sizes))) or ("unknown",)


def _names(recording: Recording) -> list[str]:
    """The parameters' names, one for each, with what a template or an expression cannot have changed."""
    names: list[str] = []
    for name in recording.names:
        plain = _identifier(name)
        while plain in RESERVED or plain in names:
            plain += "_"
        names.append(plain)
    return names


def _identifier(name: str) -> str:
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"p_{plain}"


def _folder(kernel: Kernel, recording: Recording) -> Path:
    root = Path(tempfile.mkdtemp(prefix="autotile-replay-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder = root / kernel.name
    folder.mkdir()
    lines = [f"// {parameter.name} = {{{{ {parameter.name} }}}}\n" for parameter in kernel.parameters]
    text = "".join(lines) + 'extern "C" __global__ void {{ entry }}() {}\n'
    (folder / TEMPLATE).write_text(text, encoding="utf-8")
    (folder / DEFINITION).write_text(f"# {kernel.doc}\n# {recording.problem}\n", encoding="utf-8")
    return folder
