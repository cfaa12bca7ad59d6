"""What the pictures are drawn with: the palette, and short ways to make SVG elements. Lengths are pixels."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

from autotile.devices.memory import WARP_LANES

WIDTH, MARGIN, GUTTER = 1000.0, 28.0, 48.0
LEFT = MARGIN + GUTTER
LANES = WARP_LANES
CELL = (WIDTH - MARGIN - LEFT) / LANES
"""A lane, a bank: 32 of them stand beside the gutter."""

# Blue, orange, green and vermilion are Okabe and Ito's, some darker so that letters are read, some lighter behind them;
# the steps of a conflict are ColorBrewer's YlOrBr. The colour-blind tell both sets apart, and no meaning hangs on
# colour alone.
PALETTE_WORDS = "Colours after Okabe & Ito and ColorBrewer's YlOrBr, which the colour-blind tell apart."
PAGE, CARD, EDGE, FAINT = "#f3f4f6", "#ffffff", "#8a929c", "#d5d9de"
INK, SOFT = "#1c2530", "#56616d"
USED, MOVED, GOOD, BAD = "#0072b2", "#f7d9a0", "#007a59", "#b04a00"
SERVED = "#a9d6f0"
WAITING = ((2, "#fee391"), (4, "#fec44f"), (8, "#fe9929"), (16, "#ec7014"), (1 << 30, "#b84203"))
"""The last place in the queue at a bank that each colour stands for."""

SANS = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
MONO = "monospace"

# A letter's mean width over the font's size, of the widest fonts in use.
_SANS_RATIO, _MONO_RATIO = 0.56, 0.61
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def number(value: float) -> str:
    """A coordinate, to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def clean(words: str) -> str:
    """One line of text without the characters that XML has no place for."""
    return " ".join(_NOT_XML.sub("\ufffd", words).split())


def rect(
    parent: Element, x: float, y: float, width: float, height: float, fill: str, kind: str = "", **attributes: str
) -> Element:
    """A rectangle; `kind` becomes its class. `stroke_width` and the like are spelt with a hyphen in the picture."""
    box = {"x": number(x), "y": number(y), "width": number(width), "height": number(height), "fill": fill}
    return SubElement(parent, "rect", {**box, **_spelt(attributes), **({"class": kind} if kind else {})})


def line(parent: Element, x0: float, y0: float, x1: float, y1: float, stroke: str, **attributes: str) -> Element:
    ends = {"x1": number(x0), "y1": number(y0), "x2": number(x1), "y2": number(y1), "stroke": stroke}
    return SubElement(parent, "line", {**ends, **_spelt(attributes)})


def path(parent: Element, steps: Sequence[str | float], fill: str, kind: str = "", **attributes: str) -> Element:
    d = " ".join(step if isinstance(step, str) else number(step) for step in steps)
    return SubElement(parent, "path", {"d": d, "fill": fill, **_spelt(attributes), **({"class": kind} if kind else {})})


def text(
    parent: Element, x: float, y: float, words: str, size: float = 13, fill: str = INK, **attributes: str
) -> Element:
    """Words whose baseline begins at (x, y); with anchor="middle" or "end" it is their middle or end."""
    if "anchor" in attributes:
        attributes["text_anchor"] = attributes.pop("anchor")
    place = {"x": number(x), "y": number(y), "font-size": number(size), "fill": fill}
    element = SubElement(parent, "text", {**place, **_spelt(attributes)})
    element.text = clean(words)
    return element


def paragraph(
    parent: Element, x: float, y: float, words: str, size: float = 13, fill: str = INK, **attributes: str
) -> float:
    """Words broken into lines up to the right margin, the first with its baseline at y. Returns the next baseline."""
    letters = int((WIDTH - MARGIN - x) / (size * _SANS_RATIO))
    for part in textwrap.wrap(clean(words), letters):
        text(parent, x, y, part, size, fill, **attributes)
        y += round(1.45 * size)
    return y


def code(parent: Element, x: float, y: float, words: str, size: float = 13) -> Element:
    """A line of source, cut where it would run over the right margin."""
    letters = int((WIDTH - MARGIN - x) / (size * _MONO_RATIO))
    return text(parent, x, y, cut(clean(words), letters), size, font_family=MONO)


def cut(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 1] + "…"


def tooltip(element: Element, words: str) -> None:
    """What a browser shows while the pointer rests there."""
    SubElement(element, "title").text = clean(words)


def caption(parent: Element, y: float, words: str, verdict: str, *, good: bool) -> None:
    """What a drawing shows, with its baseline at y, and at the right margin how near that is to the least."""
    colour = GOOD if good else BAD
    rect(parent, LEFT, y - 12, 5, 15, colour, "verdict", rx="2")
    text(parent, LEFT + 14, y, words, 14, font_weight="bold").set("class", "caption")
    text(parent, WIDTH - MARGIN, y, verdict, 13, colour, anchor="end", font_weight="bold")


def group(parent: Element, kind: str, **attributes: str) -> Element:
    return SubElement(parent, "g", {"class": kind, **_spelt(attributes)})


def lanes_text(lanes: Sequence[int]) -> str:
    """Lanes in the room of a cell: 7, 0–31, or 0+3 where three more share the cell of lane 0."""
    if len(lanes) == 1:
        return str(lanes[0])
    if lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"{lanes[0]}–{lanes[-1]}"
    return f"{lanes[0]}+{len(lanes) - 1}"


def queue_colour(place: int) -> str:
    """Of a word that its bank gives as the `place`-th of a wait, from 1 on."""
    return SERVED if place == 1 else next(colour for last, colour in WAITING if place <= last)


def _spelt(attributes: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in attributes.items()}
