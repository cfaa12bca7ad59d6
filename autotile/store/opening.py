"""The store to use, on disk if the disk allows."""

from __future__ import annotations

from collections.abc import Callable

from autotile.store.memory import MemoryStore
from autotile.store.store import RecordStore, Store


def open_store(note: Callable[[str], None] = lambda message: None) -> RecordStore:
    """The store under AUTOTILE_HOME; where it cannot be written, one in memory, and `note` hears why."""
    store = Store()
    reason = store.writable()
    if reason is None:
        return store
    note(f"{reason}; results are kept in memory and lost at the end")
    return MemoryStore()
