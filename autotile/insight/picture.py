"""Draws an explanation's costliest accesses as one SVG: what a warp's lanes ask for, and what memory does for that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from autotile.insight import picture_banks, picture_sectors
from autotile.insight.explanation import Explanation, Pattern
from autotile.insight.patterns import TERMS
from autotile.insight.picture_parts import (
    CARD,
    FAINT,
    LANES,
    MARGIN,
    PAGE,
    PALETTE_WORDS,
    SANS,
    SOFT,
    WIDTH,
    clean,
    code,
    cut,
    group,
    number,
    paragraph,
    rect,
    text,
)
from autotile.insight.words import plural

MOST_OF_A_SPACE = 3

_GLOBAL_WORDS = (
    "A warp is 32 threads, its lanes, which execute each instruction together. Memory moves in sectors of 32 bytes: a "
    "request takes every sector that holds a byte a lane asks for. Lanes whose bytes lie side by side share sectors."
)
_SHARED_WORDS = (
    "Shared memory has 32 banks; word w (4 bytes) lies in bank w mod 32. In one pass, a wavefront, each bank gives one "
    "word, to all lanes that want it. Lanes that want different words of one bank wait for each other: a bank conflict."
)


def picture(explanation: Explanation) -> str:
    """A whole SVG, `WIDTH` pixels wide, with a background of its own and neither scripts nor fonts from elsewhere."""
    root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": SANS})
    title = f"{explanation.kernel} {explanation.problem} on {explanation.device}"
    for tag, words in (("title", title), ("desc", "What a warp's lanes ask of memory in the costliest accesses.")):
        element = Element(tag)
        element.text = clean(words)
        root.append(element)
    page = rect(root, 0, 0, WIDTH, 0, PAGE, "page")
    y = _draw_head(root, explanation)
    sections = (
        ("global", "Global memory", _GLOBAL_WORDS, picture_sectors.draw_legend),
        ("shared", "Shared memory", _SHARED_WORDS, picture_banks.draw_legend),
    )
    for space, heading, words, draw_legend in sections:
        drawn = costliest(explanation.patterns, space)
        if drawn:
            y = draw_legend(root, _draw_intro(root, y, heading, words) + 2)
        for pattern in drawn:
            y = _draw_panel(root, y, pattern, explanation.patterns) + 14
    if not root.findall("g"):
        y = paragraph(root, MARGIN, y + 8, "No access to global or shared memory was traced.")
    text(root, MARGIN, y + 10, PALETTE_WORDS, 11, SOFT)
    height = number(y + 26)
    page.set("height", height)
    root.attrib.update(width=number(WIDTH), height=height, viewBox=f"0 0 {number(WIDTH)} {height}")
    return tostring(root, encoding="unicode")


def costliest(patterns: Iterable[Pattern], space: str) -> tuple[Pattern, ...]:
    """The accesses of a space that are drawn: those that cost most, of which a request's addresses are known."""
    known = [pattern for pattern in patterns if pattern.space == space and pattern.addresses]
    return tuple(sorted(known, key=lambda pattern: -pattern.percent_of_cost)[:MOST_OF_A_SPACE])


def _draw_head(root: Element, explanation: Explanation) -> float:
    text(root, MARGIN, 40, f"{explanation.kernel}: what a warp asks of memory", 21, font_weight="bold")
    settings = " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in explanation.configuration
    )
    y = paragraph(root, MARGIN, 62, f"{explanation.problem} on {explanation.device}", 13, SOFT)
    return paragraph(root, MARGIN, y, cut(settings, 480), 12, SOFT) if settings else y


def _draw_intro(root: Element, y: float, heading: str, words: str) -> float:
    text(root, MARGIN, y + 20, heading, 17, font_weight="bold")
    return paragraph(root, MARGIN, y + 42, words, 13, SOFT)


def _draw_panel(root: Element, top: float, pattern: Pattern, patterns: Sequence[Pattern]) -> float:
    """A card with the access's place, code and words, the drawing, and what to change. Returns where it ends."""
    panel = group(root, f"panel {pattern.space}")
    card = rect(panel, 14, top, WIDTH - 28, 0, CARD, "card", stroke=FAINT, rx="8")
    y = top + 26
    unit = "sectors" if pattern.space == "global" else "wavefronts"
    percent = "under 1" if 0 < pattern.percent_of_cost < 0.5 else f"{pattern.percent_of_cost:.0f}"
    share = f"{percent} % of all {unit} of the launch"
    text(panel, WIDTH - MARGIN, y, share, 13, anchor="end")
    several = len({other.entry for other in patterns}) > 1
    text(panel, MARGIN, y, cut(_place(pattern, several=several), 70), 15, font_weight="bold")
    notes = _notes(pattern)
    if notes:
        y += 19
        text(panel, MARGIN, y, cut(notes, 130), 12, SOFT)
    if pattern.code:
        y += 21
        code(panel, MARGIN, y, pattern.code)
    y = paragraph(panel, MARGIN, y + 22, _sentence(_without_terms(pattern.words))) + 2
    if pattern.space == "global":
        store = pattern.op == "store"
        y = picture_sectors.draw_request(panel, y, pattern.addresses, pattern.access_bytes, store=store)
    else:
        unit_bytes = _row_unit_bytes(pattern, patterns)
        y = picture_banks.draw_request(panel, y, pattern.addresses, pattern.access_bytes, unit_bytes)
    if pattern.fix:
        y = paragraph(panel, MARGIN, y + 12, f"To change: {_sentence(pattern.fix, capital=False)}") - 10
    card.set("height", number(y + 8 - top))
    return y + 8


def _row_unit_bytes(pattern: Pattern, patterns: Sequence[Pattern]) -> int:
    """What the rows of a tile must stay multiples of: the widest access to shared memory, as for the words."""
    return max(other.access_bytes for other in patterns if (other.space, other.entry) == ("shared", pattern.entry))


def _without_terms(words: str) -> str:
    """Sectors, banks and wavefronts are explained above the panels already."""
    for term in TERMS:
        words = words.replace(term, "")
    return words


def _sentence(words: str, *, capital: bool = True) -> str:
    words = clean(words)
    begin = words[:1].upper() if capital else words[:1]
    return begin + words[1:] + ("" if not words or words.endswith((".", "!", "?")) else ".")


def _place(pattern: Pattern, *, several: bool) -> str:
    """Where an access stands and what it is, such as: Line 12 · load from a · 4 bytes a lane."""
    where = "An unknown line" if pattern.line is None else f"Line {pattern.line}"
    where += f" of {pattern.entry.strip('_')}" if several else ""
    towards = ("to" if pattern.op == "store" else "from") + " " + (pattern.array or f"{pattern.space} memory")
    return f"{where} · {pattern.op} {towards} · {plural(pattern.access_bytes, 'byte')} a lane"


def _notes(pattern: Pattern) -> str:
    notes = [f"called from line {caller}" for caller in pattern.called_from]
    if pattern.from_machine_code:
        notes.append("so wide in the GPU's machine code: the compiler put several accesses together")
    if len(pattern.addresses) < LANES:
        notes.append(f"{len(pattern.addresses)} of {LANES} lanes take part, numbered here in their order")
    return " · ".join(notes)
