"""Every trial and the best of each problem, per device, kept between runs."""

from autotile.store.fallback import FallbackStore
from autotile.store.journal import StoreWarning
from autotile.store.memory import MemoryStore
from autotile.store.nearness import distance
from autotile.store.opening import open_store
from autotile.store.ranking import best_of, estimated
from autotile.store.serial import Unreadable
from autotile.store.shipped import ShippedStore
from autotile.store.store import DeviceEntry, RecordStore, Store

__all__ = [
    "DeviceEntry",
    "FallbackStore",
    "MemoryStore",
    "RecordStore",
    "ShippedStore",
    "Store",
    "StoreWarning",
    "Unreadable",
    "best_of",
    "distance",
    "estimated",
    "open_store",
]
