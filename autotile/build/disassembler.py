"""Finding nvdisasm, NVIDIA's disassembler, and one run of it.

It comes with CUDA's toolkit (but not with every image that has nvcc), and alone, 5 MB, as pip's package
`nvidia-cuda-nvdisasm`, whose wheels of CUDA 13 put it into `nvidia/cu13/bin`. It starts without a GPU or a driver, and
takes about a second for a large kernel. It reads machine code of its own release and of those before; a later one's as
far as it knows the GPU (12.4 reads what 13.0 built for sm_90a, with a warning, and refuses sm_120).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from autotile.build.nvrtc import programs, wheels
from autotile.build.process import CompileTimeout, ProcessPool
from autotile.errors import ToolchainMissing

NAME = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
OPTIONS = ("--print-code", "--print-line-info-inline")
"""The code alone, each instruction with its line and, of what was inlined, the lines of the calls."""

LIMIT_S = 60.0
"""Longest that it may take."""

_MEND = (
    "Install one at least as new as the compiler (`pip install nvidia-cuda-nvdisasm`, or CUDA's toolkit), or set "
    "AUTOTILE_NVDISASM to its path"
)


def candidates() -> Iterator[Path]:
    """Where nvdisasm is looked for, in order."""
    yield from programs(NAME)
    for root in wheels("cuda_nvdisasm"):
        yield root / "bin" / NAME


def find_nvdisasm() -> Path | None:
    """The nvdisasm that is used, None where there is none. Starts nothing.

    Raises ToolchainMissing where AUTOTILE_NVDISASM names what cannot be run: it is used or refused, never passed over.
    """
    named = os.environ.get("AUTOTILE_NVDISASM")
    if not named:
        return next((path.absolute() for path in candidates() if _can_run(path)), None)
    path = Path(shutil.which(named) or named)
    if not _can_run(path):
        raise ToolchainMissing(f"AUTOTILE_NVDISASM names {named!r}, which is no program. {_MEND}")
    return path.absolute()


def _can_run(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def disassemble(cubin: Path) -> str:
    """The machine code of a cubin, as text (see sass.py).

    Lines are named where the cubin was built with them (`Builder(…, line_info=True)`). Raises ToolchainMissing where
    there is no nvdisasm, or where it cannot read the cubin.
    """
    tool = find_nvdisasm()
    if tool is None:
        raise ToolchainMissing(f"nvdisasm, which tells what the machine code does, was not found. {_MEND}")
    try:
        done = ProcessPool().run([str(tool), *OPTIONS, str(cubin)], timeout_s=LIMIT_S)
    except CompileTimeout:
        raise ToolchainMissing(f"nvdisasm ({tool}) did not end within {LIMIT_S:g} s on {cubin}. {_MEND}") from None
    except OSError as error:
        raise ToolchainMissing(f"nvdisasm ({tool}) cannot be run: {error}. {_MEND}") from error
    if done.status != 0:
        fault = f"was ended by {done.crash}" if done.crash else done.text.strip() or f"ended with status {done.status}"
        raise ToolchainMissing(f"nvdisasm ({tool}) cannot read {cubin}: {fault}. {_MEND}")
    return done.text
