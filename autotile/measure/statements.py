"""Which lines of a text are one statement: compilers do not agree on the line of an access in one that has several."""

from __future__ import annotations

import re
from collections.abc import Mapping

_UNREAD = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_HEADER = re.compile(r"\s*(?:\}\s*)?(?:else\b|if\b|for\b|while\b|switch\b|#)")
_ENDS = (";", "{", "}", ":")


def code_lines(text: str) -> list[str]:
    """The text's lines without comments, and with nothing in its literals."""

    def blank(found: re.Match[str]) -> str:
        quote = found[0][0]
        return quote * 2 if quote in "\"'" else " " + "\n" * found[0].count("\n")

    return _UNREAD.sub(blank, text).split("\n")


def first_lines(text: str) -> Mapping[int, int]:
    """Of each line that goes on with a statement the one, counted from 1, that it began on; other lines are left out.

    A statement ends with a line that ends in `;`, `{`, `}` or `:`, or that is the head of a branch or a loop. That is
    so in texts as they are usually laid out; elsewhere lines are taken together that need not be.
    """
    found: dict[int, int] = {}
    begin: int | None = None
    for number, line in enumerate(code_lines(text), start=1):
        code = line.strip()
        if not code:
            continue
        if begin is None:
            begin = number
        else:
            found[number] = begin
        head = _HEADER.match(line) is not None and (code.startswith("#") or code.endswith((")", "else")))
        if code.endswith(_ENDS) or head:
            begin = None
    return found
