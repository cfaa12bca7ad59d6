"""Compiles with NVRTC in a process of its own: `python -I -S nvrtc_worker.py LIBRARY`. Needs no other package.

Requests come on the standard input, answers go to the standard output (see workers.py for their form). The first answer
is given unasked: what the library is, once it has compiled an empty kernel. The process ends with its standard input,
even in the midst of a compile.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

MARK = b"\0autotile "
EMPTY = b'extern "C" __global__ void empty() {}\n'
SOURCE_NAME = b"kernel.cu"

_VARIABLE = re.compile(rb"^(?:\.\w+ )*?\.(?:global|const) [^=\[;]*?([\w$]+)\s*[\[=;]", re.MULTILINE)
_WORD = re.compile(rb"[\w$]+")


class Failed(Exception):
    """A call of NVRTC that did not succeed; the message names its status."""


class Nvrtc:
    """The library's C interface. Raises OSError when it, or its part with the built-in functions, cannot be loaded."""

    def __init__(self, path: str) -> None:
        # NVRTC looks for this part by its bare name, and where the loader would not find it has it loaded already.
        parts = sorted(Path(path).resolve().parent.glob("libnvrtc-builtins.so.*"), key=lambda part: len(part.name))
        self._parts = [ctypes.CDLL(str(part)) for part in parts]
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise Failed(self.name_of(status))

    def name_of(self, status: int) -> str:
        name: bytes = self._library.nvrtcGetErrorString(status)
        return name.decode()

    def text(self, program: ctypes.c_void_p, what: str) -> bytes:
        """`ProgramLog`, `CUBIN` or `PTX` of a program."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def compile(self, source: bytes, options: list[str]) -> tuple[str, bytes, bytes, bytes]:
        """The status's name, the log, and, where it is NVRTC_SUCCESS, the cubin and the PTX."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source, SOURCE_NAME, 0, None, None)
        try:
            array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            status = self._library.nvrtcCompileProgram(program, len(options), array)
            log = self.text(program, "ProgramLog").rstrip(b"\0\n")
            if status != 0:
                return self.name_of(status), log, b"", b""
            return self.name_of(status), log, self.text(program, "CUBIN"), self.text(program, "PTX")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def facts(self) -> dict[str, Any]:
        """Its version, as exactly as it tells, and the archs that it compiles for."""
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        archs = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", archs)
        status, log, _, ptx = self.compile(EMPTY, [f"-arch=sm_{max(archs)}"])
        if not ptx:
            raise Failed(f"{status} on an empty kernel: {log.decode(errors='replace')}")
        exact = re.search(rb"^// Cuda compilation tools, .*\bV(\d+\.\d+\.\d+)", ptx, re.MULTILINE)
        version = exact[1].decode() if exact else f"{major.value}.{minor.value}"
        return {"version": version, "archs": [f"sm_{arch}" for arch in archs]}


def reads_data(ptx: bytes) -> bool:
    """Whether any code names a variable of the file's scope. NVRTC keeps those that no code names, nvcc does not."""
    counts = Counter(_WORD.findall(ptx))
    return any(counts[name] > 1 for name in _VARIABLE.findall(ptx))


def answer(fields: dict[str, Any], *parts: bytes) -> None:
    data = MARK + json.dumps({**fields, "lengths": [len(part) for part in parts]}).encode() + b"\n" + b"".join(parts)
    while data:
        data = data[os.write(1, data) :]


def listen(requests: queue.SimpleQueue[tuple[dict[str, Any], bytes]]) -> None:
    """Passes requests on; at the input's end, whoever asked is gone, and so is what it asked for."""
    with open(0, "rb", closefd=False) as source:
        while header := source.readline():
            fields = json.loads(header)
            requests.put((fields, source.read(fields["lengths"][0])))
    os._exit(0)


def main(path: str) -> None:
    requests: queue.SimpleQueue[tuple[dict[str, Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(requests,), daemon=True).start()
    try:
        nvrtc = Nvrtc(path)
        answer(nvrtc.facts())
    except (OSError, AttributeError, Failed) as error:  # AttributeError: a library without these functions
        answer({"error": str(error)})
    while True:
        fields, source = requests.get()
        status, log, cubin, ptx = nvrtc.compile(source, fields["options"])
        answer({"status": status, "reads_data": not ptx or reads_data(ptx)}, log, cubin)


if __name__ == "__main__":
    main(sys.argv[1])
