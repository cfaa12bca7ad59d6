"""What a search works with."""

from __future__ import annotations

from dataclasses import dataclass

from autotile.build import Builder
from autotile.devices.base import Device
from autotile.store import RecordStore
from autotile.tuner.result import Listener


@dataclass(frozen=True)
class Workshop:
    """Where variants run, who builds them, where results go and who hears of them.

    With `fresh`, what is on record is left aside and measured anew.
    """

    device: Device
    builder: Builder
    store: RecordStore
    listener: Listener
    fresh: bool = False
