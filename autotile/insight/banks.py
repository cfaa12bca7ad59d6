"""What a request of a warp costs, from its lanes' addresses: sectors of global memory, wavefronts of shared memory.

The same rules as the emulator counts by (devices/emulator/host/trace.h), for the one request that is looked at closely
and for what it would cost if the rows of its array were longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotile.devices.memory import BANKS, SECTOR_BYTES, WORD_BYTES

MOST_PAD_BYTES = 64

Addresses = Sequence[int]
"""In bytes, a lane after the other."""


def sectors(addresses: Addresses, access_bytes: int) -> int:
    """32-byte sectors that the lanes touch."""
    return len(_pieces(addresses, access_bytes, SECTOR_BYTES))


def least_sectors(addresses: Addresses, access_bytes: int) -> int:
    """That would hold as many bytes as the lanes ask for."""
    return -(-len(set(addresses)) * access_bytes // SECTOR_BYTES)


def wavefronts(addresses: Addresses, access_bytes: int) -> int:
    """Passes over the banks, of all parts of the warp."""
    return sum(_passes(part, access_bytes) for part in parts(addresses, access_bytes))


def parts(addresses: Addresses, access_bytes: int) -> list[Addresses]:
    """What goes together: up to 4 bytes a lane all lanes, of 8 bytes half of them, of 16 a quarter, or twice as many
    where these share addresses in pairs."""
    if access_bytes <= WORD_BYTES:
        return [addresses]
    step = 32 if access_bytes == 8 else 16
    found: list[Addresses] = []
    for first in range(0, len(addresses), step):
        here = addresses[first : first + step]
        together = len(here) if _merge(here) else step // 2
        found += [here[i : i + together] for i in range(0, len(here), together)]
    return found


def least_wavefronts(addresses: Addresses, access_bytes: int) -> int:
    """That would give as many words, if every bank gave one in each."""
    return -(-len(_pieces(addresses, access_bytes, WORD_BYTES)) // BANKS)


def row_pitch(addresses: Addresses, access_bytes: int) -> int | None:
    """Bytes from one row to the next, if the lanes lie on rows: between the beginnings of their runs, most often."""
    goes_on = (0, access_bytes)
    starts = [*addresses[:1], *(b for a, b in pairwise(addresses) if b - a not in goes_on)]
    steps = Counter(abs(b - a) for a, b in pairwise(starts) if a != b)
    return steps.most_common(1)[0][0] if steps else None


@dataclass(frozen=True)
class Padding:
    """Rows of `pitch_bytes`, each with `pad_bytes` more behind it, and the wavefronts that are left then."""

    pitch_bytes: int
    pad_bytes: int
    wavefronts: int


def best_padding(addresses: Addresses, access_bytes: int, unit_bytes: int = WORD_BYTES) -> Padding | None:
    """The least padding, in whole `unit_bytes`, with the fewest wavefronts; None where none helps, or there are no
    rows."""
    pitch = row_pitch(addresses, access_bytes)
    if pitch is None:
        return None
    now, least = wavefronts(addresses, access_bytes), least_wavefronts(addresses, access_bytes)
    best = Padding(pitch, 0, now)
    unit = max(unit_bytes, access_bytes, WORD_BYTES)
    for pad in range(unit, MOST_PAD_BYTES + 1, unit):
        longer = [address // pitch * (pitch + pad) + address % pitch for address in addresses]
        found = wavefronts(longer, access_bytes)
        if found < best.wavefronts:
            best = Padding(pitch, pad, found)
        if best.wavefronts <= least:
            break
    return best if best.wavefronts < now else None


def _pieces(addresses: Addresses, access_bytes: int, size: int) -> set[int]:
    """Numbers of the pieces of `size` bytes that the accesses touch."""
    return {piece for a in addresses for piece in range(a // size, (a + access_bytes - 1) // size + 1)}


def _passes(addresses: Addresses, access_bytes: int) -> int:
    """The most words that one bank must give."""
    words = _pieces(addresses, access_bytes, WORD_BYTES)
    return max(Counter(word % BANKS for word in words).values(), default=0)


def _merge(addresses: Addresses) -> bool:
    """Whether every lane shares its address with the next but `distance`, for a distance of 1 or of 2."""
    count = len(addresses)
    return any(
        all(i ^ distance >= count or addresses[i] == addresses[i ^ distance] for i in range(count))
        for distance in (1, 2)
    )
