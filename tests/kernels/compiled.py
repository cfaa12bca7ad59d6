"""Texts compiled by nvcc for a GPU's machine code, where every warning is an error. No GPU is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from autotile.build.nvcc import BINARY_NAME, SOURCE_NAME, Nvcc
from autotile.types import Source, Target


def compiled(source: Source, arch: str, folder: Path, label: str) -> str:
    """What the compiler said: of each function the registers and the bytes that it spills."""
    (folder / SOURCE_NAME).write_text(source.text, encoding="utf-8")
    command = [*Nvcc(Target("cuda", arch)).command(), "-Werror", "all-warnings"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{label}\n{said}"
    assert "warning" not in said, f"{label}\n{said}"
    assert (folder / BINARY_NAME).read_bytes().startswith(b"\x7fELF")
    return said
