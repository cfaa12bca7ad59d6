"""Reads CUDA text just far enough for the emulator: comments, conditionals of AUTOTILE_EMULATOR, shared arrays,
statements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
# The quotes of 1'000'000 are no character literals.
_DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
_BRACKET = re.compile(r"[()\[\]{}]")
_CONDITIONAL = re.compile(r"^\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b(.*)$")
_CODE = re.compile(r"(\S)")
_LINE = re.compile(r"^[^\S\n]*(\S)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*\n", re.MULTILINE)
_DEFINED = re.compile(r"^\s*(!?)\s*defined\s*\(?\s*AUTOTILE_EMULATOR\s*\)?\s*$")
_SHARED = re.compile(r"\b__shared__\b")
_ARRAY_NAME = re.compile(r"(\w+)\s*\[\s*\d*\s*\]")

# The symbol of the runtime's arena, which every `extern __shared__` array is bound to.
ARENA_SYMBOL = "autotile_dynamic_shared"
_ARENA_LABEL = f' __asm__("{ARENA_SYMBOL}")'


@dataclass(frozen=True)
class BoundSource:
    """A source ready for the host's compiler, and the names of its `extern __shared__` arrays.

    `step_arrays`: some of its arrays are of the functions before and after the kernel.
    """

    text: str
    dynamic_arrays: tuple[str, ...]
    step_arrays: bool = False


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def blank_comments(text: str) -> str:
    """The text with comments and the contents of literals turned to spaces: every position and line stays."""
    return _TOKEN.sub(_blank, _DIGIT_SEPARATOR.sub(" ", text))


def keep_literals(text: str) -> str:
    """The text with comments alone turned to spaces: every position and line stays."""
    kept = text
    for token in _TOKEN.finditer(_DIGIT_SEPARATOR.sub(" ", text)):
        if token.group().startswith("/"):
            kept = kept[: token.start()] + _blank(token) + kept[token.end() :]
    return kept


def code_lines(text: str) -> dict[int, str]:
    """The code of each line, counted from 1, without its indent and comments. Left out are lines without a word."""
    lines = enumerate(keep_literals(text).split("\n"), 1)
    return {number: line.strip() for number, line in lines if re.search(r"\w", line)}


def _condition(kind: str, rest: str) -> bool | None:
    """Whether the branch is taken by the emulator; None where it does not depend on AUTOTILE_EMULATOR alone."""
    if kind in ("ifdef", "ifndef"):
        return (kind == "ifdef") if rest.split()[:1] == ["AUTOTILE_EMULATOR"] else None
    match = _DEFINED.match(rest)
    return None if match is None else match.group(1) == ""


def emulated_lines(text: str) -> list[str]:
    """The lines of `text` without comments; those that the preprocessor drops for the emulator are blank."""
    lines: list[str] = []
    taken: list[bool | None] = []
    for line in blank_comments(text).split("\n"):
        match = _CONDITIONAL.match(line)
        if match is None:
            lines.append(" " * len(line) if False in taken else line)
            continue
        kind, rest = match.groups()
        if kind in ("if", "ifdef", "ifndef"):
            taken.append(_condition(kind, rest))
        elif kind == "endif" and taken:
            taken.pop()
        elif kind == "else" and taken:
            taken[-1] = None if taken[-1] is None else not taken[-1]
        elif kind == "elif" and taken:
            taken[-1] = False if taken[-1] else _condition("if", rest)
        lines.append(" " * len(line))
    return lines


def emulated_text(text: str) -> str:
    """`emulated_lines` as one text, in which every position is that of `text`."""
    return "\n".join(emulated_lines(text))


def statement(blanked: str, position: int) -> tuple[int, int]:
    """Where the declaration around `position` begins and ends (at its semicolon)."""
    begin = max(blanked.rfind(mark, 0, position) for mark in ";{}") + 1
    # A directive ends at its line, and leaves no semicolon behind.
    begin += max((d.end() for d in _DIRECTIVE.finditer(blanked[begin:position])), default=0)
    end = blanked.find(";", position)
    return begin, len(blanked) if end < 0 else end


def inside(seen: str, opening: int) -> tuple[str, int]:
    """What stands in the brackets that open there, and the position behind the closing one."""
    depth = 0
    for bracket in _BRACKET.finditer(seen, opening):
        depth += 1 if bracket.group() in "([{" else -1
        if depth == 0:
            return seen[opening + 1 : bracket.start()], bracket.end()
    return seen[opening + 1 :], len(seen)


def first_lines(text: str) -> dict[int, int]:
    """Of each line that goes on with a statement the one, counted from 1, that it began on; other lines are left out.

    The head of a branch or a loop begins the statement that follows it.
    """
    blanked = blank_comments(text)
    found: dict[int, int] = {}
    for line in _LINE.finditer(blanked):
        begin = _CODE.search(blanked, statement(blanked, line.start(1))[0])
        number, first = (1 + blanked.count("\n", 0, code.start(1)) for code in (line, begin or line))
        if first < number:
            found[number] = first
    return found


def _declarator_ends(blanked: str, begin: int, end: int) -> list[int]:
    """The positions after each declarator of a declaration: at its top-level commas and its end."""
    depth, ends = 0, []
    for position in range(begin, end):
        depth += (blanked[position] in "([{<") - (blanked[position] in ")]}>")
        if blanked[position] == "," and depth == 0:
            ends.append(position)
    return [*ends, end]


def bind_shared_arrays(text: str, steps: Sequence[tuple[int, int]] = ()) -> BoundSource:
    """Makes the shared arrays of `text` what the runtime expects; lines keep their numbers.

    `__shared__` alone is a macro of the host's header that makes the array static. It gets an empty initialiser,
    without which compilers guard arrays of classes by a flag (that would lie in shared memory, too). A declaration
    with a storage class of its own gets another macro, and `extern` arrays are bound to the runtime's arena. Arrays
    inside `steps`, (begin, end) of the bodies of other functions than the kernel, lie where none of the kernel's do.
    """
    blanked = blank_comments(text)
    edits: list[tuple[int, int, str]] = []
    names: set[str] = set()
    in_steps = False
    for match in _SHARED.finditer(blanked):
        begin, end = statement(blanked, match.start())
        declaration = blanked[begin:end]
        if re.search(r"\bextern\b", declaration):
            edits.append((*match.span(), "autotile_shared_extern"))
            array = _ARRAY_NAME.search(blanked, begin, end)
            if array is not None:
                edits.append((array.end(), array.end(), _ARENA_LABEL))
                names.add(array.group(1))
            continue
        if re.search(r"\bstatic\b", declaration):
            edits.append((*match.span(), "autotile_shared_static"))
        elif any(first <= match.start() < last for first, last in steps):
            edits.append((*match.span(), "autotile_shared_step"))
            in_steps = True
        if "=" not in declaration:
            edits += [(stop, stop, " = {}") for stop in _declarator_ends(blanked, match.end(), end)]
    for start, stop, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[stop:]
    return BoundSource(text, tuple(sorted(names)), in_steps)
