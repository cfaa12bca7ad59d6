"""Counts as a person reads them."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size(count: float) -> str:
    """Bytes as a person reads them: 960 bytes, 48 KiB, 67.1 MB. Memory of a chip counts in KiB, traffic in MB."""
    if count < 1024:
        return f"{count:.0f} bytes"
    if count < 1 << 20:
        return f"{count / 1024:.4g} KiB"
    for unit, scale in (("TB", 1e12), ("GB", 1e9)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e6:.3g} MB"
