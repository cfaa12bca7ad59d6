"""Where the files that ship with autotile lie: templates, configs and data tables.

In a wheel they lie inside the package; in a checkout or an editable install, beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
DATA_DIR = PACKAGE_DIR / "data"


def _shipped(folder: str) -> Path:
    inside = PACKAGE_DIR / folder
    return inside if inside.is_dir() else PACKAGE_DIR.parent / folder


def templates_dir() -> Path:
    """The folder that holds one folder a kernel."""
    return _shipped("templates")


def configs_dir() -> Path:
    """The folder of the shipped search files."""
    return _shipped("configs")


def tuned_dir() -> Path:
    """The folder of the results that ship: a file a GPU, as `autotile export --format json` writes it."""
    return DATA_DIR / "tuned"


def config_path(name: str) -> Path | None:
    """The file that `name` means: a path, or the bare name of a shipped config (`matmul`, `configs/matmul.yaml`).

    A path from the user's own folder wins over a shipped one. None where neither is there.
    """
    path = Path(name)
    if path.is_file():
        return path
    for candidate in (path.name, f"{path.name}.yaml"):
        shipped = configs_dir() / candidate
        if path.parent in (Path(), Path("configs")) and shipped.is_file():
            return shipped
    return None


def home_dir() -> Path:
    """Where records and binaries live: AUTOTILE_HOME, or the platform's folder for a user's data."""
    chosen = os.environ.get("AUTOTILE_HOME")
    if chosen:
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError:  # `~name` of nobody
            return Path(chosen).absolute()
    import platformdirs  # imported here: `autotile --help` does not need it

    return Path(platformdirs.user_data_dir("autotile", appauthor=False))
