"""Reads the asm statements of a CUDA text. Each holds one PTX instruction, which becomes a call of a function of
host/ptx.h; what the emulator does not know is refused by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from autotile.devices.emulator.source import emulated_text, inside, keep_literals

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b((?:\s|\\\n|\b(?:volatile|__volatile__|__volatile)\b)*)(\()?")
_LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)")
_LINE_END = re.compile(r"\\?\n")
_CONSTRAINT = re.compile(r'\s*"([^"]*)"\s*\((.*)\)\s*', re.DOTALL)
_OPCODE = re.compile(r"(?:@!?\S+\s+)?([a-z][\w.:]*)")
_OPERAND = re.compile(
    r"\s*(?:\{(?P<vector>[^{}]*)\}|\[\s*(?P<address>%\d+)\s*(?:\+\s*(?P<offset>\w+|%\d+)\s*)?\]|(?P<alone>[^][{},]+))"
    r"\s*(?:,|$)"
)
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)$")
_CONSTRAINTS = "hrlfd"

# Of the two types of an mma, how the host calls them, and the bytes of an element.
_FLOATS = {
    "f16.f16": ("kF16", 2), "bf16.bf16": ("kBf16", 2), "tf32.tf32": ("kTf32", 4), "e4m3.e4m3": ("kE4m3", 1),
    "e5m2.e5m2": ("kE5m2", 1), "e4m3.e5m2": ("kE4m3E5m2", 1), "e5m2.e4m3": ("kE5m2E4m3", 1),
}  # fmt: skip
_DOUBLE_SHAPES = ((8, 4), (16, 4), (16, 8), (16, 16))  # m and k


def _known_instructions() -> dict[str, tuple[str, int]]:
    """By opcode: the host's function, and how many of the first operands it writes."""
    known = {
        "cvt.rna.tf32.f32": ("autotile_cvt_tf32", 1), "cvt.rn.f16x2.f32": ("autotile_cvt_f16x2", 1),
        "cvt.rn.bf16x2.f32": ("autotile_cvt_bf16x2", 1), "cvt.rn.satfinite.e4m3x2.f32": ("autotile_cvt_e4m3x2", 1),
        "cvt.rn.satfinite.e5m2x2.f32": ("autotile_cvt_e5m2x2", 1), "prmt.b32": ("autotile_prmt", 1),
        "cp.async.commit_group": ("autotile_cp_async_commit", 0), "cp.async.wait_group": ("autotile_cp_async_wait", 0),
        "cp.async.wait_all": ("autotile_cp_async_wait_all", 0), "bar.sync": ("__syncthreads", 0),
        "barrier.sync": ("__syncthreads", 0), "prefetch.global.L1": ("autotile_prefetch", 0),
        "prefetch.global.L2": ("autotile_prefetch", 0),
    }  # fmt: skip
    spaces = (".shared", ".shared::cta")
    for cache, space, ahead in product(("ca", "cg"), spaces, ("", ".L2::64B", ".L2::128B", ".L2::256B")):
        function = f"autotile_cp_async<{4 if cache == 'ca' else 16}>"
        known[f"cp.async.{cache}{space}.global{ahead}"] = (function, 0)
    for number, turned, space in product((1, 2, 4), ("", ".trans"), spaces):
        function = f"autotile_ldmatrix<{'true' if turned else 'false'}>"
        known[f"ldmatrix.sync.aligned.m8n8.x{number}{turned}{space}.b16"] = (function, number)
    for types, (elements, size) in _FLOATS.items():
        for row_bytes in (16, 32) if size == 2 else (32,):
            opcode = f"mma.sync.aligned.m16n8k{row_bytes // size}.row.col.f32.{types}.f32"
            known[opcode] = (_multiplication(elements, 16, row_bytes), 4)
    known["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"] = (_multiplication("kS8", 16, 32), 4)
    for m, k in _DOUBLE_SHAPES:
        opcode = f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64"
        known[opcode] = (_multiplication("kF64", m, 8 * k), m // 4)
    return known


def _multiplication(elements: str, rows: int, row_bytes: int) -> str:
    return f"autotile_mma<AUTOTILE_MATRICES({elements}, {rows}, {row_bytes})>"


_KNOWN = _known_instructions()


@dataclass(frozen=True)
class _Statement:
    """An asm statement, without its semicolon, from `begin` to `end` in the text; `call` is what takes its place.

    `unknown` names what the emulator cannot run of it, "" where it can.
    """

    begin: int
    end: int
    call: str
    unknown: str = ""


class _UnknownPtxError(Exception):
    """Its text names what the emulator cannot run."""


def unknown_instructions(text: str) -> dict[int, str]:
    """By line, counted from 1: what the emulator cannot run of the asm statements that begin there."""
    found: dict[int, str] = {}
    for asm in _statements(text):
        if asm.unknown:
            found.setdefault(1 + text.count("\n", 0, asm.begin), asm.unknown)
    return found


def bind_instructions(text: str) -> str:
    """`text` with calls in the place of its asm statements; lines keep their numbers."""
    for asm in reversed(list(_statements(text))):
        # A statement of a macro goes on behind a backslash, and so do the lines that it leaves.
        line_ends = "".join(_LINE_END.findall(text, asm.begin, asm.end))
        text = f"{text[: asm.begin]}{asm.call}{line_ends}{text[asm.end :]}"
    return text


def _statements(text: str) -> Iterator[_Statement]:
    if "asm" not in text:
        return
    seen, kept = emulated_text(text), keep_literals(text)
    for match in _ASM.finditer(seen):
        if match.group(2) is None:
            yield _Statement(*match.span(), "", "inline PTX (asm) of this form")
            continue
        _, end = inside(seen, match.end() - 1)
        try:
            yield _Statement(match.start(), end, _call(seen, kept, match.end(), end - 1))
        except _UnknownPtxError as error:
            yield _Statement(match.start(), end, "", str(error))


def _call(seen: str, kept: str, begin: int, end: int) -> str:
    """The call for what stands between the brackets of an asm statement. Raises _UnknownPtxError."""
    sections = _split(seen, begin, end, ":")
    between, code = (_LINE_END.sub(" ", text[slice(*sections[0])]) for text in (seen, kept))
    if between.strip():
        raise _UnknownPtxError("inline PTX (asm) whose text is not made of plain strings")
    ptx = "".join(_ESCAPE.sub(_unescape, literal) for literal in _LITERAL.findall(code))
    ptx = _COMMENT.sub(" ", ptx).strip("; \t\r\n")
    if not ptx:
        return "__threadfence_block()"  # keeps the compiler from moving accesses, and does nothing else
    opcode, rest = _instruction(ptx)
    operands = [
        _operand(_LINE_END.sub(" ", kept[slice(*part)]), opcode)
        for section in sections[1:3]
        for part in _split(seen, *section, ",")
        if kept[slice(*part)].strip()
    ]
    function, written = _KNOWN[opcode]
    given = _arguments(rest, operands, written, opcode)
    if function == "__syncthreads":
        if given != ["0"]:
            raise _UnknownPtxError(f"the PTX instruction {opcode} with another barrier than 0, or for some threads")
        given = []
    return f"{function}({', '.join(given)})"


def _split(seen: str, begin: int, end: int, mark: str) -> list[tuple[int, int]]:
    """The pieces between the marks that stand in no brackets."""
    pieces, depth, start = [], 0, begin
    for position in range(begin, end):
        depth += (seen[position] in "([{") - (seen[position] in ")]}")
        if seen[position] == mark and depth == 0:
            pieces.append((start, position))
            start = position + 1
    return [*pieces, (start, end)]


def _unescape(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": "\r"}.get(match.group(1), match.group(1))


def _instruction(ptx: str) -> tuple[str, str]:
    """The opcode of the one instruction, and its operands."""
    parts = [part for part in (piece.strip("{} \t\r\n") for piece in ptx.split(";")) if part]
    found = [match for match in map(_OPCODE.match, parts) if match is not None]
    for match in found:
        if match.group(1) not in _KNOWN:
            raise _UnknownPtxError(f"the PTX instruction {match.group(1)}")
    if len(parts) != 1 or len(found) != 1 or ptx[0] in "{@":
        raise _UnknownPtxError("inline PTX (asm) of other than one plain instruction a statement")
    return found[0].group(1), ptx[found[0].end() :]


def _operand(text: str, opcode: str) -> tuple[str, str]:
    """The letter of an operand's constraint, and its expression."""
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise _UnknownPtxError(f"the operand {text.strip()} of the PTX instruction {opcode}")
    letter = match.group(1).lstrip("=+&")
    if letter not in (*_CONSTRAINTS, "n"):
        raise _UnknownPtxError(f'the constraint "{match.group(1)}" of the PTX instruction {opcode}')
    return letter, match.group(2).strip()


def _arguments(rest: str, operands: list[tuple[str, str]], written: int, opcode: str) -> list[str]:
    """What is given to the host's function: the operands as the instruction names them."""

    def value(name: str) -> str:
        name = name.strip()
        if _NUMBER.match(name):
            return name
        if not re.fullmatch(r"%\d+", name) or int(name[1:]) >= len(operands):
            raise _UnknownPtxError(f"the operand {name} of the PTX instruction {opcode}")
        letter, expression = operands[int(name[1:])]
        if letter == "n":
            return f"({expression})"
        return f"autotile_{'out' if len(given) < written else 'in'}_{letter}({expression})"

    given: list[str] = []
    position = 0
    while position < len(rest) and rest[position:].strip():
        match = _OPERAND.match(rest, position)
        if match is None:
            raise _UnknownPtxError(f"the operand {rest[position:].strip()} of the PTX instruction {opcode}")
        if match["address"]:
            given.append(value(match["address"]) + (f" + {value(match['offset'])}" if match["offset"] else ""))
        else:
            for name in (match["vector"] or match["alone"]).split(","):
                given.append(value(name))
        position = match.end()
    return given
