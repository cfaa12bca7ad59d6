"""Draws a request to global memory: a warp's lanes above the sectors that it moves, and the bytes of these in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from xml.etree.ElementTree import Element

from autotile.devices.memory import LINE_BYTES, SECTOR_BYTES
from autotile.insight import banks
from autotile.insight.picture_parts import (
    CARD,
    CELL,
    EDGE,
    FAINT,
    INK,
    LANES,
    LEFT,
    MARGIN,
    MOVED,
    SOFT,
    USED,
    WIDTH,
    caption,
    group,
    line,
    number,
    path,
    rect,
    text,
    tooltip,
)
from autotile.insight.words import plural

_LANE_HEIGHT, _WIRES_HEIGHT, _MEMORY_HEIGHT = 22.0, 74.0, 34.0
_THINNEST = 2.2
"""Bytes in use are drawn at least so wide, to be seen."""
_SMALL = 40.0
"""Where sectors are narrower, one of them is drawn enlarged."""


@dataclass(frozen=True)
class Reach:
    """The bytes that a request's lanes ask for, the sectors that these lie in, and the lines of those, in order."""

    used: tuple[int, ...]
    sectors: tuple[int, ...]
    lines: tuple[int, ...]


def reach(addresses: Sequence[int], access_bytes: int) -> Reach:
    used = sorted({byte for address in addresses for byte in range(address, address + access_bytes)})
    sectors, lines = ({byte // size: None for byte in used} for size in (SECTOR_BYTES, LINE_BYTES))
    return Reach(tuple(used), tuple(sectors), tuple(lines))


@dataclass(frozen=True)
class Placement:
    """Where memory lies in the picture: the left edge of each line of 128 bytes that is touched, and pixels a byte."""

    left: dict[int, float]
    scale: float

    @property
    def sector_width(self) -> float:
        return SECTOR_BYTES * self.scale

    def x(self, byte: int) -> float:
        return self.left[byte // LINE_BYTES] + byte % LINE_BYTES * self.scale


def place(lines: Sequence[int]) -> Placement:
    """Lines that follow each other touch; others have a gap between them, as wide however far apart they are.

    So any request fits: 32 lanes touch 32 lines, or 64 where each straddles two.
    """
    gaps = sum(later - earlier > 1 for earlier, later in pairwise(lines))
    gap = 20.0 if gaps < 8 else 5.0
    scale = (WIDTH - MARGIN - LEFT - gaps * gap) / (len(lines) * LINE_BYTES)
    left, x = {}, LEFT
    for index, place_ in enumerate(lines):
        if index and place_ - lines[index - 1] > 1:
            x += gap
        left[place_] = x
        x += LINE_BYTES * scale
    return Placement(left, scale)


def draw_request(parent: Element, y: float, addresses: Sequence[int], access_bytes: int, *, store: bool) -> float:
    """The lanes, their sectors and a sentence below y. Returns where it ends. Needs at least one address."""
    found = reach(addresses, access_bytes)
    placement = place(found.lines)
    memory_y = y + _LANE_HEIGHT + _WIRES_HEIGHT
    _draw_wires(group(parent, "wires"), y + _LANE_HEIGHT, memory_y, addresses, access_bytes, placement)
    _draw_lanes(parent, y, addresses)
    text(parent, MARGIN, y + 62, "write ↓" if store else "read ↑", 11, SOFT)
    text(parent, MARGIN, memory_y + 15, "sectors", 11, SOFT)
    text(parent, MARGIN, memory_y + 28, "of 32 B", 11, SOFT)
    _draw_memory(parent, memory_y, found, placement)
    y = memory_y + _MEMORY_HEIGHT
    _draw_addresses(parent, y, placement)
    y += 26
    if placement.sector_width < _SMALL:
        y = _draw_enlarged(parent, y, found, placement)
    sectors, used, fewest = len(found.sectors), len(found.used), banks.least_sectors(addresses, access_bytes)
    percent = 100 * used / (sectors * SECTOR_BYTES)
    words = f"{plural(sectors, 'sector')} for {plural(used, 'byte')}: {percent:.0f} % of what is moved is used"
    good = sectors <= fewest
    caption(parent, y + 15, words, "as few as can be" if good else f"{plural(fewest, 'sector')} would do", good=good)
    return y + 27


def _draw_lanes(parent: Element, y: float, addresses: Sequence[int]) -> None:
    text(parent, MARGIN, y + 15, "lanes", 11, SOFT)
    for lane in range(LANES):
        x = LEFT + lane * CELL
        if lane >= len(addresses):
            rect(
                parent,
                x + 1,
                y,
                CELL - 2,
                _LANE_HEIGHT,
                "none",
                "lane-idle",
                stroke=EDGE,
                stroke_dasharray="2 3",
                rx="3",
            )
            continue
        cell = rect(parent, x + 1, y, CELL - 2, _LANE_HEIGHT, "#e6f1f8", "lane", stroke=USED, rx="3")
        tooltip(cell, f"lane {lane}: byte {addresses[lane]}")
        text(parent, x + CELL / 2, y + 15, str(lane), 11, anchor="middle")


def _draw_wires(
    wires: Element, top: float, bottom: float, addresses: Sequence[int], access_bytes: int, placement: Placement
) -> None:
    """A ribbon from each lane, as wide as its cell above and as the bytes it asks for below."""
    middle = (top + bottom) / 2
    for lane, address in enumerate(addresses):
        x0, x1 = LEFT + lane * CELL + 2, LEFT + (lane + 1) * CELL - 2
        begin, end = placement.x(address), placement.x(address + access_bytes - 1) + placement.scale
        end = max(end, begin + _THINNEST)
        path(
            wires,
            ["M", x0, top, "C", x0, middle, begin, middle, begin, bottom,
             "L", end, bottom, "C", end, middle, x1, middle, x1, top, "Z"],
            USED, "wire", fill_opacity="0.3" if lane % 2 else "0.45",
        )  # fmt: skip


def _spans(used: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Of a sector's bytes in use: first byte and bytes of each stretch without a gap."""
    start = previous = used[0]
    for byte in used[1:]:
        if byte != previous + 1:
            yield start, previous + 1 - start
            start = byte
        previous = byte
    yield start, previous + 1 - start


def _draw_memory(parent: Element, y: float, found: Reach, placement: Placement) -> None:
    of_sector = dict(_by_sector(found.used))
    for place_, left in placement.left.items():
        rect(parent, left, y, LINE_BYTES * placement.scale, _MEMORY_HEIGHT, CARD, "line", stroke=EDGE)
        first = place_ * LINE_BYTES // SECTOR_BYTES
        for sector in range(first, first + LINE_BYTES // SECTOR_BYTES):
            _draw_sector(parent, y + 3, sector, of_sector.get(sector, []), placement)


def _draw_sector(parent: Element, y: float, sector: int, used: Sequence[int], placement: Placement) -> None:
    height, first = _MEMORY_HEIGHT - 6, sector * SECTOR_BYTES
    inset = 1.2 if placement.sector_width > 12 else 0.0
    left, right = placement.x(first) + inset, placement.x(first) + placement.sector_width - inset
    kind, fill, edge = ("moved", MOVED, EDGE) if used else ("idle", "none", FAINT)
    thin = "1" if inset else "0.5"
    cell = rect(parent, left, y, right - left, height, fill, f"sector {kind}", stroke=edge, stroke_width=thin)
    tooltip(cell, f"bytes {first} to {first + SECTOR_BYTES - 1}: {len(used)} of {SECTOR_BYTES} used")
    for start, count in _spans(used) if used else ():
        begin = placement.x(start)
        end = min(right, begin + max(_THINNEST, count * placement.scale))
        begin = max(left, min(begin, end - _THINNEST))
        rect(parent, begin, y, end - begin, height, USED, "used")


def _by_sector(used: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    for sector, bytes_ in groupby(used, key=lambda byte: byte // SECTOR_BYTES):
        yield sector, list(bytes_)


def _draw_addresses(parent: Element, y: float, placement: Placement) -> None:
    """The first byte of each run of lines, where there is room beside the one before."""
    text(parent, MARGIN, y + 15, "at byte", 11, SOFT)
    free, previous = LEFT, None
    for place_, left in placement.left.items():
        label = str(place_ * LINE_BYTES)
        width = 7.0 * len(label)
        begins_run = previous is None or place_ - previous > 1
        previous = place_
        x = min(left, WIDTH - MARGIN - width)
        if begins_run and x >= free:
            line(parent, left, y, left, y + 4, INK)
            text(parent, x, y + 15, label, 11, SOFT)
            free = x + width + 8


def _draw_enlarged(parent: Element, y: float, found: Reach, placement: Placement) -> float:
    """The first sector at a readable size, where those of the row are too small to see into."""
    first, width, height = found.sectors[0], 8 * CELL, 26.0
    x = placement.x(first * SECTOR_BYTES)
    path(
        parent,
        ["M", x, y - 26, "L", x + placement.sector_width, y - 26, "L", LEFT + width, y, "L", LEFT, y, "Z"],
        EDGE, fill_opacity="0.14",
    )  # fmt: skip
    rect(parent, LEFT, y, width, height, MOVED, "enlarged", stroke=EDGE)
    inside = [byte for byte in found.used if byte // SECTOR_BYTES == first]
    for start, count in _spans(inside):
        rect(
            parent,
            LEFT + start % SECTOR_BYTES * width / SECTOR_BYTES,
            y + 2,
            count * width / SECTOR_BYTES,
            height - 4,
            USED,
        )
    for word in range(1, 8):
        line(parent, LEFT + word * CELL, y, LEFT + word * CELL, y + height, EDGE, stroke_width="0.6")
    waste = SECTOR_BYTES - len(inside)
    words = f"The first sector, enlarged: lanes ask for {len(inside)} of its 32 bytes"
    text(parent, LEFT + width + 14, y + 17, words + (f", {waste} come with them" if waste else ""), 12, SOFT)
    return y + height + 8


def draw_legend(parent: Element, y: float) -> float:
    """What the colours of a request's memory mean. Returns where the next thing may begin."""
    x = MARGIN
    for fill, stroke, words in (
        (USED, USED, "bytes that a lane asks for"),
        (MOVED, EDGE, "moved with them, unused"),
        (CARD, FAINT, "not moved"),
    ):
        rect(parent, x, y - 11, 16, 14, fill, stroke=stroke)
        text(parent, x + 22, y, words, 12, SOFT)
        x += 40 + 6.7 * len(words)
    rect(parent, x, y - 11, 28, 14, "none", stroke=EDGE)
    text(parent, x + 34, y, f"a line: four sectors, {number(LINE_BYTES)} bytes", 12, SOFT)
    return y + 18
