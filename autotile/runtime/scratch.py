"""Memory that a kernel's launches work in, on one device."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

MOST_STREAMS = 8
"""Streams whose memory is kept; beyond it the one that was used longest ago gives its memory back."""

_LEGACY, _PER_THREAD = 1, 2
"""CUDA's names for the default stream: a second one for the plain one, and one for that of each thread."""


class ScratchMemory:
    """Scratch memory of one kernel, a piece a stream: launches on a stream follow each other, on two they do not.

    Whoever launches holds `lock` from asking for the address until all functions of the launch are queued, or those of
    two threads would come in turns and work in the same memory.
    """

    def __init__(self, device: Any) -> None:
        self.lock = threading.Lock()
        self._device = device
        self._held: OrderedDict[tuple[int, int], Any] = OrderedDict()

    def address(self, stream: int, nbytes: int) -> int:
        """Of `nbytes` for launches on the stream, given by its handle; 0 where none are asked for.

        Where more are asked for than before, what was held is given back first, once the work queued on it is done.
        Raises LaunchError where there is not enough.
        """
        if not nbytes:
            return 0
        key = (0 if stream == _LEGACY else stream, threading.get_ident() if stream == _PER_THREAD else 0)
        found = self._held.pop(key, None)
        if found is None or found.nbytes < nbytes:
            del found
            while len(self._held) >= MOST_STREAMS:
                self._held.popitem(last=False)
            found = self._device.memory(nbytes)
        self._held[key] = found
        return int(found.address)
