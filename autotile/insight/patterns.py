"""How a warp's lanes lie in memory, said for someone who has never heard of sectors and banks, and what to change.

Shapes of global memory: `single` lane, `same` address for all lanes, `consecutive`, `misaligned` (consecutive, but
begun inside a sector), `structure` (a member of each of a row of structures), `strided`, `rows` (runs of some lanes
each), `scattered`. Of shared memory: `single`, `same`, `spread` (over all banks), `wide` (in parts, each spread),
`column` (of rows), `conflict`. `unknown` where no addresses were kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from autotile.devices.emulator.report import Access
from autotile.devices.memory import SECTOR_BYTES, WAVEFRONT_BYTES, WORD_BYTES
from autotile.insight import banks
from autotile.insight.banks import Addresses, Padding
from autotile.insight.words import plural

SECTOR = " (a sector is 32 bytes, the least that memory moves)"
BANK = " (shared memory has 32 banks of 4 bytes; lanes that want different words of one bank wait for each other)"
WAVEFRONT = " (a wavefront is one pass over the banks)"
TERMS = (SECTOR, BANK, WAVEFRONT)
"""Explained in passing; whoever puts several sentences together need say each only once."""

ROW_BYTES = WAVEFRONT_BYTES
"""From here on the distance between lanes is called a row's: all banks lie between two of its elements."""

NEARLY = 1.02
"""What costs so little more than the least needs no change."""


@dataclass(frozen=True)
class Shape:
    """A word for the pattern, a sentence, and what to change; `fix` is empty where nothing is wrong."""

    name: str
    words: str
    fix: str = ""


@dataclass(frozen=True)
class Lanes:
    """The addresses of one request. `reads` is what its lanes do: read or write."""

    addresses: Addresses
    access_bytes: int
    itemsize: int  # 0 where it is not known
    reads: str

    @property
    def distinct(self) -> list[int]:
        return list(dict.fromkeys(self.addresses))

    @property
    def stride(self) -> int | None:
        """Bytes from one address to the next, if all are equally far apart."""
        steps = {b - a for a, b in pairwise(self.distinct)}
        return steps.pop() if len(steps) == 1 else None


def describe(access: Access, itemsize: int, *, offset_bytes: int = 0, row_unit_bytes: int = 4) -> Shape:
    """The shape of one of the costliest requests. `itemsize` is an element's, `offset_bytes` lie between an aligned
    address and the arrays of global memory, and rows of shared memory must stay multiples of `row_unit_bytes`."""
    if not access.example:
        unit = "sectors" if access.space == "global" else "wavefronts"
        return Shape("unknown", f"{access.per_request:.1f} {unit} a request; {access.ideal_per_request:.1f} would do")
    moved = offset_bytes if access.space == "global" else 0
    own = itemsize if access.space == "global" else _tile_itemsize(access.access_bytes, itemsize)
    lanes = Lanes(
        [address + moved for address in access.example], access.access_bytes, own,
        "read" if access.op == "load" else "write",
    )  # fmt: skip
    shape = _of_global(lanes) if access.space == "global" else _of_shared(lanes, row_unit_bytes)
    if access.per_request <= NEARLY * access.ideal_per_request:  # a rare request may be worse: it does not matter
        return Shape(shape.name, shape.words)
    if shape.fix and access.worst > 1.25 * access.per_request:
        mean = f" That is the costliest request; the mean is {access.per_request:.1f}."
        shape = Shape(shape.name, shape.words + "." + mean.rstrip("."), shape.fix)
    return shape


# ---- global memory --------------------------------------------------------------------------------------------------


def _of_global(lanes: Lanes) -> Shape:
    size, reads = lanes.access_bytes, lanes.reads
    distinct, stride = lanes.distinct, lanes.stride
    touched, least = banks.sectors(distinct, size), banks.least_sectors(distinct, size)
    cost = f"{plural(touched, 'sector')} where {least} would do"
    if len(lanes.addresses) == 1:
        return Shape("single", f"one lane takes part and {reads}s {size} bytes, for which a sector{SECTOR} moves")
    if len(distinct) == 1:
        return Shape("same", f"all lanes {reads} one address, and one sector{SECTOR} serves them")
    runs = _runs(sorted(distinct), size)
    if len(runs) == 1:
        if touched <= least:
            return Shape(
                "consecutive", f"neighbouring lanes {reads} neighbouring elements: {plural(touched, 'sector')}"
            )
        beyond = min(distinct) % SECTOR_BYTES
        return Shape(
            "misaligned",
            f"neighbouring lanes {reads} neighbouring elements, but the first lies {beyond} bytes behind a boundary of "
            f"32: {cost}{SECTOR}",
            "begin rows on multiples of 32 bytes: align the array, and make the distance between rows a multiple of "
            f"{_elements(max(SECTOR_BYTES, lanes.itemsize), lanes.itemsize)}",
        )
    if stride is not None and size < abs(stride) < SECTOR_BYTES:
        return Shape(
            "structure",
            f"each lane {reads}s {size} bytes of every {abs(stride)}, as of one member of a structure: {cost}{SECTOR}",
            f"store each member in an array of its own, so that neighbouring lanes {reads} neighbouring elements; or "
            "move the whole structure at once",
        )
    if stride is not None and len(distinct) > 4:
        return _strided(lanes, abs(stride), cost)
    return _in_runs(lanes, runs, touched, least)


def _strided(lanes: Lanes, stride: int, cost: str) -> Shape:
    size, reads = lanes.access_bytes, lanes.reads
    if size >= SECTOR_BYTES // 2 and banks.sectors(lanes.distinct, size) <= banks.least_sectors(lanes.distinct, size):
        return Shape("rows", f"lanes {reads} {size} bytes each, {stride} bytes apart: no sector is moved in vain")
    rest = (
        "the rest of each sector is moved in vain, unless other warps ask for it while it is cached"
        if reads == "read"
        else "each sector is written in pieces"
    )
    return Shape(
        "strided",
        f"neighbouring lanes lie {stride} bytes apart, so each of the {len(lanes.distinct)} takes a sector for its "
        f"{size} bytes{SECTOR}: {cost}; {rest}",
        f"let neighbouring lanes {reads} neighbouring elements; where another access would be strided in its place, as "
        "in a transpose, carry a tile through shared memory, its rows padded",
    )


def _in_runs(lanes: Lanes, runs: list[tuple[int, int]], touched: int, least: int) -> Shape:
    """`runs` are (first address, lanes), in the order of the addresses."""
    size, reads, count = lanes.access_bytes, lanes.reads, len(lanes.distinct)
    if count <= 4 < len(lanes.addresses):
        return Shape(
            "same", f"{len(lanes.addresses)} lanes {reads} only {count} addresses, in {plural(touched, 'sector')}"
        )
    length, usual = Counter(length for _, length in runs).most_common(1)[0]
    if usual * 2 < len(runs) or (length == 1 and len(runs) > 4):
        return Shape(
            "scattered",
            f"lanes {reads} here and there: {plural(touched, 'sector')} where {least} would do{SECTOR}",
            "" if touched <= least else f"let neighbouring lanes {reads} neighbouring elements",
        )
    inside = sum(first % SECTOR_BYTES != 0 for first, _ in runs)
    begin = "all begin on a boundary of 32" if not inside else f"{inside} of them begin inside a sector"
    words = (
        f"{len(runs)} rows of {length} lanes ({length * size} bytes each; {begin}): "
        f"{plural(touched, 'sector')}{'' if touched <= least else f' where {least} would do'}{SECTOR}"
    )
    if touched <= least:
        return Shape("rows", words)
    if length * size < SECTOR_BYTES:
        return Shape("rows", words, f"let more lanes {reads} along a row: {SECTOR_BYTES // size} of them fill a sector")
    return Shape("rows", words, "begin rows on multiples of 32 bytes")


def _runs(addresses: list[int], size: int) -> list[tuple[int, int]]:
    """Stretches without a gap, of sorted addresses: where each begins, and how many it holds."""
    runs: list[tuple[int, int]] = []
    for address in addresses:
        if runs and address == runs[-1][0] + runs[-1][1] * size:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((address, 1))
    return runs


# ---- shared memory --------------------------------------------------------------------------------------------------


def _of_shared(lanes: Lanes, row_unit_bytes: int) -> Shape:
    size, reads, addresses = lanes.access_bytes, lanes.reads, lanes.addresses
    taken, least = banks.wavefronts(addresses, size), banks.least_wavefronts(addresses, size)
    if len(addresses) == 1:
        return Shape("single", f"one lane takes part and {reads}s {size} bytes")
    if len(lanes.distinct) == 1:
        return Shape("same", f"all lanes {reads} one address, which goes to all at once")
    if taken <= least:
        full = f"{size} bytes a lane: " if size > WORD_BYTES else ""
        return Shape("spread", f"{full}the lanes' words lie in different banks: {plural(taken, 'wavefront')}")
    groups = len(banks.parts(addresses, size))
    if taken <= groups:
        return Shape(
            "wide",
            f"{size} bytes a lane go in {groups} parts of the warp, each without a conflict: "
            f"{plural(taken, 'wavefront')}; that lanes of several parts read the same words saves none",
        )
    pitch, runs = banks.row_pitch(addresses, size), _runs(sorted(lanes.distinct), size)
    cost = f"{plural(taken, 'wavefront')} where {least} would do{WAVEFRONT}"
    padding = banks.best_padding(addresses, size, row_unit_bytes)
    fix = _shared_fix(lanes, padding, pitch, least, row_unit_bytes)
    if pitch is not None and len(runs) == len(lanes.distinct) and lanes.stride is not None:
        if pitch >= ROW_BYTES:
            row = f"a row of {_elements(pitch, lanes.itemsize)}"
            met = "one bank holds them all" if taken == len(lanes.distinct) else f"one bank holds {taken} of them"
            words = f"lanes {reads} down a column, {row} from one word to the next, and {met}{BANK}: {cost}"
            return Shape("column", words, fix)
        words = f"neighbouring lanes lie {pitch} bytes apart, so that {taken} of them meet in one bank{BANK}: {cost}"
        return Shape("conflict", words, fix)
    where = f"on rows {_elements(pitch, lanes.itemsize)} long" if pitch and pitch >= ROW_BYTES else "here and there"
    words = f"lanes {reads} {size} bytes each {where}, and up to {taken} words meet in one bank{BANK}: {cost}"
    return Shape("conflict", words, fix)


def _shared_fix(lanes: Lanes, padding: Padding | None, pitch: int | None, least: int, row_unit_bytes: int) -> str:
    swizzle = "swizzle the tile: give each row's columns another order (column XOR row), which takes no more memory"
    near = (
        "" if pitch is not None and pitch >= ROW_BYTES else f"let neighbouring lanes {lanes.reads} neighbouring words"
    )
    if padding is not None and padding.wavefronts <= least:
        longer = padding.pitch_bytes + padding.pad_bytes
        pad = (
            f"pad {'what lies between them' if near else 'the row'} from "
            f"{_elements(padding.pitch_bytes, lanes.itemsize)} to {_elements(longer, lanes.itemsize)}: "
            f"{plural(padding.wavefronts, 'wavefront')}"
        )
        return f"{near}, or {pad}" if near else pad
    if near:
        return near
    kept = f", which must stay a multiple of {row_unit_bytes} bytes," if row_unit_bytes > WORD_BYTES else ""
    left = f" (at best {padding.wavefronts}, with {padding.pad_bytes} bytes more)" if padding is not None else ""
    return f"{swizzle}; no padding of the row{kept} up to 64 bytes gives {least}{left}"


def _tile_itemsize(access_bytes: int, itemsize: int) -> int:
    """Bytes of an element of an array in shared memory that is accessed so wide; 0 where it need not be of the
    problem's elements: a tile of sums in float32, say, beside matrices in float16."""
    if access_bytes == itemsize or (itemsize >= WORD_BYTES and access_bytes % itemsize == 0):
        return itemsize
    return 0


def _elements(size_bytes: int, itemsize: int) -> str:
    fits = itemsize and size_bytes % itemsize == 0
    return f"{size_bytes // itemsize} elements" if fits else f"{size_bytes} bytes"
