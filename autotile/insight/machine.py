"""What a build for the GPU tells that the emulator cannot know: registers, spills, and the machine code's accesses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotile.build import Builder
from autotile.build.disassembler import disassemble
from autotile.build.sass import read_sass
from autotile.devices.emulator.source import code_lines
from autotile.devices.info import DeviceInfo
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

_AS_TOLD = "Accesses are as wide as in the source; the GPU's compiler may join some."


_REDUCES = re.compile(r"\b(?:sin|cos|tan|sincos)f?\s*\(")
"""Functions of CUDA's library with a table of their own in local memory, for arguments that are large (CUDA C++
Programming Guide, "Maximize Instruction Throughput": the slow path of trigonometric functions)."""


@dataclass(frozen=True)
class Machine:
    """Of the main function, but for what is said below; empty where no tool was at hand, which `notes` tell.

    `widths` are bytes of the widest access by line, op and space; `loop` counts the instructions of one pass of the
    hottest loop by their kind, and `loop_line` is where most of its arithmetic comes from. `array_lines`, and `widths`,
    are of all functions: lines whose arrays lie in local memory, the most used first.
    """

    registers: int | None = None
    spill_bytes: int = 0
    widths: Mapping[tuple[int, str, str], int] | None = None
    loop: tuple[tuple[str, float], ...] = ()
    loop_line: int | None = None
    array_lines: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=())


def read_machine(source: Source, device: DeviceInfo, suffixes: Sequence[str] = ()) -> Machine:
    """Builds for the GPU, if there is a compiler for it, and reads the machine code, if there is a disassembler: of the
    main function and of the steps with these `suffixes`."""
    try:
        with Builder(Target("cuda", device.arch), jobs=1, line_info=True) as builder:
            binary = builder.build(source)
    except ToolchainMissing as error:
        return Machine(notes=(f"Registers are not known: {error}. {_AS_TOLD}",))
    except CompileError as error:
        return Machine(notes=(f"The compiler for GPUs refuses the source, so registers are not known: {error}",))
    registers, spill_bytes = binary.registers, binary.spill_bytes or 0
    try:
        text = disassemble(binary.path)
        code, *others = (read_sass(text, source.entry + suffix) for suffix in ("", *suffixes))
    except ToolchainMissing as error:
        return Machine(registers, spill_bytes, notes=(f"The machine code was not read: {error}. {_AS_TOLD}",))
    loop = code.loop
    counts = () if loop is None else tuple((kind, float(count)) for kind, count in loop.counts if count)
    return Machine(
        registers,
        spill_bytes,
        {place: size for one in (*others, code) for place, size in one.widths().items()},
        counts,
        None if loop is None else loop.line,
        _arrays((line for one in (code, *others) for line in one.array_lines), source.text),
    )


def _arrays(lines: Iterable[int], text: str) -> tuple[int, ...]:
    """Of these lines, each once, those whose array cannot be that of a library's function."""
    code = code_lines(text)
    return tuple(line for line in dict.fromkeys(lines) if not _REDUCES.search(code.get(line, "")))
