"""Finds the line of the generated source for an address in the emulator's shared object."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from autotile.devices.emulator.compiler import run_alone

_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"^0x([0-9a-fA-F]+)$")
_FRAME = re.compile(r"(?:^|/)kernel\.cu:(\d+)")


class LineTable:
    """Line numbers of one shared object, asked of addr2line in one call a batch and remembered."""

    def __init__(self, shared_object: Path) -> None:
        self._shared_object = shared_object
        self._known: dict[int, tuple[int, ...]] = {}

    def resolve(self, return_addresses: Iterable[int]) -> None:
        """Looks up return addresses, relative to the image. Without addr2line they stay unknown."""
        asked = sorted({address for address in return_addresses if address and address not in self._known})
        if not asked:
            return
        self._known.update(dict.fromkeys(asked, ()))
        tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
        if tool is None:
            return
        # The instruction before the return address is the call; -i lists the inlined frames, innermost first.
        command = [tool, "-a", "-i", "-e", str(self._shared_object)]
        question = "".join(f"{address - 1:#x}\n" for address in asked)
        try:
            status, said = run_alone(command, question, _TIMEOUT_S)
        except (OSError, TimeoutError):
            return
        if status != 0:
            return
        current = 0
        for text in said.splitlines():  # what it says on stderr is among them, and matches neither pattern
            address = _ADDRESS.match(text)
            frame = _FRAME.search(text)
            if address is not None:
                current = int(address.group(1), 16) + 1
            elif frame is not None and current in self._known:
                # Frames in the emulator's own headers are passed over: the kernel's line called them.
                self._known[current] += (int(frame.group(1)),)

    def line(self, return_address: int) -> int | None:
        """The line that was written for this address, wherever it was inlined."""
        return next(iter(self._known.get(return_address, ())), None)

    def called_from(self, return_address: int) -> tuple[int, ...]:
        """The lines of the calls through which that line was inlined, the innermost first."""
        return self._known.get(return_address, ())[1:]
