"""The store to use: on disk as far as the disk allows."""

from __future__ import annotations

from collections.abc import Callable

from autotile.errors import StoreError
from autotile.store.fallback import FallbackStore, in_memory
from autotile.store.memory import MemoryStore
from autotile.store.store import RecordStore, Store


def open_store(note: Callable[[str], None] = lambda message: None) -> RecordStore:
    """The store under AUTOTILE_HOME. What cannot be written, now or later, is kept in memory, and `note` hears why."""
    disk = Store()
    reason = disk.writable()
    if reason is None:
        return FallbackStore(disk, note)
    note(in_memory(reason))
    try:
        disk.devices()
    except StoreError:  # a home that cannot be read either is as good as none
        return MemoryStore()
    return FallbackStore(disk, note, refused=True)
