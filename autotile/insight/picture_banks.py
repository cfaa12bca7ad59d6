"""Draws a request to shared memory: in which wavefront each bank serves which lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

from autotile.devices.memory import BANKS, WORD_BYTES
from autotile.insight import banks
from autotile.insight.patterns import ROW_BYTES
from autotile.insight.picture_parts import (
    CARD,
    CELL,
    EDGE,
    FAINT,
    INK,
    LEFT,
    MARGIN,
    SERVED,
    SOFT,
    WAITING,
    caption,
    group,
    lanes_text,
    line,
    queue_colour,
    rect,
    text,
    tooltip,
)
from autotile.insight.words import plural

_ROW = 17.0


@dataclass(frozen=True)
class Wavefront:
    """One pass over the banks: `lanes` by the bank that serves them, all of one word a bank.

    Lanes of a part of the warp (`first_lane` to `last_lane`) go together; `turn` counts the part's passes from 1.
    """

    first_lane: int
    last_lane: int
    turn: int
    lanes: dict[int, tuple[int, ...]]


def serve(addresses: Sequence[int], access_bytes: int) -> tuple[Wavefront, ...]:
    """The wavefronts of a request, as many as banks.wavefronts() counts; each bank serves in the order of the lanes."""
    found: list[Wavefront] = []
    first_lane = 0
    for part in banks.parts(addresses, access_bytes):
        found += _serve_part(part, access_bytes, first_lane)
        first_lane += len(part)
    return tuple(found)


def _words(address: int, access_bytes: int) -> range:
    return range(address // WORD_BYTES, (address + access_bytes - 1) // WORD_BYTES + 1)


def _serve_part(addresses: Sequence[int], access_bytes: int, first_lane: int) -> Iterator[Wavefront]:
    """Of lanes that go together, `first_lane` being the first of them."""
    queues: dict[int, dict[int, list[int]]] = {}
    for lane, address in enumerate(addresses, first_lane):
        for word in _words(address, access_bytes):
            queues.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    for turn in range(max(map(len, queues.values()))):
        served = {bank: tuple(list(queue.values())[turn]) for bank, queue in queues.items() if turn < len(queue)}
        yield Wavefront(first_lane, first_lane + len(addresses) - 1, turn + 1, served)


@dataclass(frozen=True)
class Padded:
    """The lanes' addresses on rows of `row_bytes` with `pad_bytes` more behind each, after which no bank waits."""

    row_bytes: int
    pad_bytes: int
    addresses: tuple[int, ...]

    def distance(self, row_bytes: int) -> str:
        words = row_bytes // WORD_BYTES
        return f"rows of {words} words" if self.row_bytes >= ROW_BYTES else f"{words} words from lane to lane"


def with_pad(addresses: Sequence[int], access_bytes: int, row_unit_bytes: int) -> Padded | None:
    """The same request with the padding that mends it; None where nothing waits, or no padding is enough."""
    found = banks.best_padding(addresses, access_bytes, row_unit_bytes)
    if found is None or found.wavefronts > banks.least_wavefronts(addresses, access_bytes):
        return None
    pitch, pad = found.pitch_bytes, found.pad_bytes
    return Padded(pitch, pad, tuple(address + address // pitch * pad for address in addresses))


def draw_request(
    parent: Element, y: float, addresses: Sequence[int], access_bytes: int, row_unit_bytes: int = WORD_BYTES
) -> float:
    """The banks, the wavefronts and a sentence below y. Returns where it ends. Needs at least one address.

    Rows of the array stay multiples of `row_unit_bytes` where padding is tried.
    """
    wavefronts = serve(addresses, access_bytes)
    padded = with_pad(addresses, access_bytes, row_unit_bytes)
    after = serve(padded.addresses, access_bytes) if padded else ()
    y = _draw_grid(group(parent, "banks"), y, wavefronts) + 20
    words = _caption(addresses, access_bytes, wavefronts, padded)
    if padded:
        words += f"; with a pad of {plural(padded.pad_bytes // WORD_BYTES, 'word')}: {len(after)}"
    fewest = banks.least_wavefronts(addresses, access_bytes)
    good = len(wavefronts) <= fewest
    caption(parent, y, words, "as few as can be" if good else f"{plural(fewest, 'wavefront')} would do", good=good)
    if padded:
        y += 28
        longer = padded.distance(padded.row_bytes + padded.pad_bytes)
        text(parent, LEFT, y, f"The same lanes with {longer}:", 12, SOFT)
        y = _draw_grid(group(parent, "padded"), y + 7, after)
    return y + 12


def _caption(
    addresses: Sequence[int], access_bytes: int, wavefronts: Sequence[Wavefront], padded: Padded | None
) -> str:
    count, pitch = plural(len(wavefronts), "wavefront"), banks.row_pitch(addresses, access_bytes)
    words = len({word for address in addresses for word in _words(address, access_bytes)})
    lanes = plural(len(addresses), "lane")
    deepest = max(wavefront.turn for wavefront in wavefronts)
    if len(set(addresses)) == 1:
        return f"{lanes} share {plural(words, 'word')}: {count}"
    if deepest == 1:
        return f"{plural(words, 'word')} for {lanes}, none waits for a bank: {count}"
    steps = {abs(b - a) for a, b in pairwise(dict.fromkeys(addresses))}
    if steps == {pitch} and pitch is not None and pitch % ROW_BYTES == 0:
        return f"column of a tile of {pitch // WORD_BYTES} words a row: {count}"
    if padded:
        return f"{padded.distance(padded.row_bytes)}: {count}"
    return f"up to {deepest} words of one bank, given one after another: {count}"


def _draw_grid(parent: Element, y: float, wavefronts: Sequence[Wavefront]) -> float:
    """Banks as columns, wavefronts as rows; above the rows of each part of the warp stands which lanes it is."""
    text(parent, MARGIN, y + 12, "bank", 11, SOFT)
    for bank in range(BANKS):
        text(parent, LEFT + (bank + 0.5) * CELL, y + 12, str(bank), 10, SOFT, anchor="middle")
    y += 17
    in_parts = len({wavefront.first_lane for wavefront in wavefronts}) > 1
    for index, wavefront in enumerate(wavefronts):
        if in_parts and wavefront.turn == 1:
            words = f"lanes {wavefront.first_lane} to {wavefront.last_lane} go together:"
            text(parent, LEFT, y + 12, words, 11, SOFT)
            y += 16
        _draw_wavefront(group(parent, "wavefront"), y, index + 1, wavefront)
        y += _ROW
    return y


def _draw_wavefront(row: Element, y: float, ordinal: int, wavefront: Wavefront) -> None:
    rect(row, LEFT, y, BANKS * CELL, _ROW, CARD, stroke=FAINT)
    for bank in range(1, BANKS):
        line(row, LEFT + bank * CELL, y, LEFT + bank * CELL, y + _ROW, FAINT, stroke_width="0.6")
    text(row, LEFT - 8, y + 12.5, str(ordinal), 11, SOFT, anchor="end")
    for bank, lanes in sorted(wavefront.lanes.items()):
        x = LEFT + bank * CELL
        colour = queue_colour(wavefront.turn)
        cell = rect(row, x + 0.5, y + 0.5, CELL - 1, _ROW - 1, colour, "cell", stroke=EDGE, stroke_width="0.6", rx="2")
        tooltip(cell, f"bank {bank}, wavefront {ordinal}: lane {', '.join(map(str, lanes))}")
        words = lanes_text(lanes)
        size = {1: 11, 2: 11, 3: 10, 4: 9}.get(len(words), 8)
        text(row, x + CELL / 2, y + 12.5, words, size, CARD if wavefront.turn > 16 else INK, anchor="middle")


def draw_legend(parent: Element, y: float) -> float:
    """What the colours and the words of a wavefront's cells mean. Returns where the next thing may begin."""
    text(parent, MARGIN, y, "Rows are wavefronts. A bank gives a word", 12, SOFT)
    x, first = MARGIN + 276.0, 2
    for last, colour in ((1, SERVED), *WAITING):
        place = "at once" if last == 1 else "2nd" if last == 2 else f"{first}th to {last}th"
        place = "later" if last > BANKS else place.replace("3th", "3rd")
        rect(parent, x, y - 11, 16, 14, colour, stroke=EDGE, stroke_width="0.6", rx="2")
        text(parent, x + 21, y, place, 12, SOFT)
        x += 34 + 7.0 * len(place)
        first = last + 1
    y += 19
    text(
        parent,
        MARGIN,
        y,
        "Numbers are lanes; 0–3 are four lanes that share a word, 0+3 lane 0 and three others.",
        12,
        SOFT,
    )
    return y + 18
