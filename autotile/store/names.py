"""Folder and file names: safe on every file system, distinct for distinct names, also where case does not count.

A device's folder reads `nvidia-h200-0f3c9a1b2d-sm_90`: a readable part, a hash of the exact name (so that names that
differ only in case or in punctuation stay apart), and the architecture. The exact name is kept in the folder's
device.json. Kernels and problems keep their own names, which are safe and lower-case already; others get a hash too.
"""

from __future__ import annotations

import hashlib
import re

LONGEST_NAME = 180
"""Characters; file systems stop at 255 bytes, and suffixes such as `.records.jsonl` come on top."""

_SAFE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?")
_SAFE_ARCH = re.compile(r"[a-z0-9_]{1,24}")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)  # Windows' own devices
_HASHED = re.compile(r"-[0-9a-f]{10}$")
"""How a name with a hash ends: a text that ends so by itself gets one of its own."""


def _hash(text: str) -> str:
    # surrogatepass: a name that the driver gave in a broken encoding is still a name
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def slug(text: str) -> str:
    """A readable form: lower-case letters, digits and underscores, the rest as single hyphens; at most 60 long."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower())[:60].strip("-") or "unnamed"


def is_safe(text: str) -> bool:
    """Whether the text can be a file's name as it stands, on Linux, macOS and Windows."""
    return len(text) <= LONGEST_NAME and _SAFE.fullmatch(text) is not None and _RESERVED.fullmatch(text) is None


def path_name(text: str) -> str:
    """The text itself where it is safe and like no other's; otherwise a readable form and a hash of it."""
    kept = is_safe(text) and text == text.lower() and _HASHED.search(text) is None
    return text if kept else f"{slug(text)}-{_hash(text)}"


def device_prefix(device: str) -> str:
    """What the folders of a device begin with, whatever the architecture."""
    return f"{slug(device)}-{_hash(device)}-"


def device_folder(device: str, arch: str) -> str:
    """The folder's name of a device: `nvidia-h200-0f3c9a1b2d-sm_90`."""
    return device_prefix(device) + (arch if _SAFE_ARCH.fullmatch(arch) else f"{slug(arch)}-{_hash(arch)}")
