"""Processes of their own that write to a store, for tests of what ends them and of several at once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

_PRELUDE = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(Path(__file__).parents[2])!r}, {str(Path(__file__).parent)!r}]
from conftest import record_with
from autotile.store import FallbackStore, Store
from autotile.types import Configuration
def numbered(number, **changes):
    return record_with(configuration=Configuration((("number", number),)), **changes)
"""


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Runs the code, in which `numbered` makes records, in a new interpreter; its stdin and stdout are pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
