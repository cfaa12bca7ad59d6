"""Finds kernel folders and reads their kernel.py.

A kernel is a folder with `kernel.py` (one `KERNEL = Kernel(...)`) and `kernel.cu.j2`. Folders whose name begins with
an underscore hold what templates share.
"""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from autotile.assets import templates_dir
from autotile.errors import AutotileError, KernelError, UsageError
from autotile.kernels.definition import Kernel
from autotile.kernels.validation import validate
from autotile.suggest import did_you_mean

TEMPLATE = "kernel.cu.j2"
DEFINITION = "kernel.py"


Roots = str | Path | Sequence[str | Path]
"""A folder of kernel folders, or several."""


def kernel_folders(extra: Roots = ()) -> dict[str, Path]:
    """Kernel name → folder: the shipped ones, then those of `extra` roots (a later root wins)."""
    roots = [extra] if isinstance(extra, (str, Path)) else extra
    found: dict[str, Path] = {}
    for root in (templates_dir(), *map(Path, roots)):
        if not root.is_dir():
            raise KernelError(f"{root} is not a folder of kernels")
        for folder in sorted(root.iterdir()):
            if not folder.name.startswith(("_", ".")) and (folder / DEFINITION).is_file():
                found[folder.name] = folder
    return found


def load_kernel(name: str, extra: Roots = ()) -> Kernel:
    """The kernel in the folder called `name`. Raises KernelError when there is none, or one whose files are at odds."""
    folders = kernel_folders(extra)
    if name not in folders:
        raise KernelError(f"no kernel {name!r}{did_you_mean(name, folders)}; there are: {', '.join(folders)}")
    return read_folder(folders[name])


def beside(file: str, name: str) -> dict[str, Any]:
    """The names that another file of a kernel's folder defines: a long kernel.py may keep its parts in such.

    `beside(__file__, "rules.py")["RULES"]`. A name may lead to what folders share, `"../_lib/matmul.py"`. All files of
    Python in a folder count for the identity of its kernel, and so do shared ones whose place, `_lib/matmul.py`, is
    written out in them.
    """
    return runpy.run_path(str(Path(file).parent / name), run_name=f"autotile_kernel_{Path(file).parent.name}")


def read_folder(folder: Path) -> Kernel:
    """The kernel that a folder declares. Raises KernelError, with file and line, for whatever is wrong with it."""
    path = folder / DEFINITION
    try:
        namespace = runpy.run_path(str(path), run_name=f"autotile_kernel_{folder.name}")
    except SyntaxError as error:
        raise KernelError(f"{path}:{error.lineno}: {error.msg}") from error
    except Exception as error:  # kernel.py is the user's code: whatever it raises is a fault of that file
        kind = "" if isinstance(error, AutotileError) else f"{type(error).__name__}: "
        raise KernelError(f"{path}:{_line_in(path, error)}: {kind}{error}") from error
    kernel = namespace.get("KERNEL")
    if not isinstance(kernel, Kernel):
        raise KernelError(f"{path}: it must define KERNEL = Kernel(...)")
    if kernel.name != folder.name:
        raise KernelError(f"{path}: the kernel is called {kernel.name!r} but its folder {folder.name!r}")
    if not (folder / TEMPLATE).is_file():
        raise KernelError(f"{folder}: {TEMPLATE} is missing")
    try:
        validate(kernel)
    except UsageError as error:
        raise KernelError(f"{path}: {error}") from error
    return kernel.at(folder)


@lru_cache(maxsize=32)
def kernel_at(folder: Path) -> Kernel:
    """`read_folder`, once a process: how a kernel arrives from another process."""
    return read_folder(folder)


def _line_in(path: Path, error: BaseException) -> int | str:
    """The last line of the file that the error passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines and lines[-1] is not None else "?"
