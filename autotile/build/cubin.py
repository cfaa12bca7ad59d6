"""Telling whether two cubins hold the same code."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator

_LOCAL_NAME = re.compile(rb"_[0-9a-f]{8}(?=_9_kernel_cu)")
_NAMES_AND_DATA = re.compile(
    rb"\.(shstrtab|strtab|symtab|note\..*|debug_frame|rela\.debug_frame|nv\.global.*|(rela\.)?nv\.constant4)"
)
_NO_BITS = 8
"""The type of a section that has a size but no bytes in the file, such as static shared memory."""


def code_digest(cubin: bytes, *, reads_data: bool = True) -> str:
    """SHA-256 of a cubin in which equal code gives equal bytes.

    Names of file-local symbols carry 8 hex digits that nvcc derives from the source's text; they are blanked, so that
    a changed comment does not look like another kernel. NVRTC keeps every constant of the file's scope as a variable,
    used or not: where the code reads none (`reads_data` is false) variables and names are left out, so that a changed
    constant that changes no instruction does not look like another kernel either.
    """
    if not reads_data:
        return hashlib.sha256(b"".join(_code(cubin))).hexdigest()
    return hashlib.sha256(_LOCAL_NAME.sub(b"_00000000", cubin)).hexdigest()


def _code(cubin: bytes) -> Iterator[bytes]:
    """Each section with its name, type, flags, size and info field (of code: its registers), but for names and data.

    The layout is that of ELF64, little endian (System V ABI, chapter 4).
    """
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + number * entry_bytes) for number in range(count)]
    names = headers[names_at][4]
    for name_at, kind, flags, _, offset, size, _, info, *_ in headers:
        start = names + name_at
        name = cubin[start : cubin.index(b"\0", start)]
        if not _NAMES_AND_DATA.fullmatch(name):
            yield b"%s %d %d %d %d\n" % (name, kind, flags, size, info)
            yield b"" if kind == _NO_BITS else cubin[offset : offset + size]
