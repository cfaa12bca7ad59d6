"""What a build for the GPU tells that the emulator cannot know: registers, spills, and the machine code's accesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotile.build import Builder
from autotile.build.disassembler import disassemble
from autotile.build.sass import read_sass
from autotile.devices.info import DeviceInfo
from autotile.errors import CompileError, ToolchainMissing
from autotile.types import Source, Target

_AS_TOLD = "Accesses are as wide as in the source; the GPU's compiler may join some."


@dataclass(frozen=True)
class Machine:
    """Of the main function; empty where no tool was at hand, which `notes` tell.

    `widths` are bytes of the widest access by line, op and space; `loop` counts the instructions of one pass of the
    hottest loop by their kind, and `loop_line` is where most of its arithmetic comes from. `local_instructions` access
    local memory, most of them for `local_line`.
    """

    registers: int | None = None
    spill_bytes: int = 0
    widths: Mapping[tuple[int, str, str], int] | None = None
    loop: tuple[tuple[str, float], ...] = ()
    loop_line: int | None = None
    local_instructions: int = 0
    local_line: int | None = None
    notes: tuple[str, ...] = field(default=())


def read_machine(source: Source, device: DeviceInfo) -> Machine:
    """Builds for the GPU, if there is a compiler for it, and reads the machine code, if there is a disassembler."""
    try:
        with Builder(Target("cuda", device.arch), jobs=1, line_info=True) as builder:
            binary = builder.build(source)
    except ToolchainMissing as error:
        return Machine(notes=(f"Registers are not known: {error}. {_AS_TOLD}",))
    except CompileError as error:
        return Machine(notes=(f"The compiler for GPUs refuses the source, so registers are not known: {error}",))
    registers, spill_bytes = binary.registers, binary.spill_bytes or 0
    try:
        code = read_sass(disassemble(binary.path, source.entry), source.entry)
    except ToolchainMissing as error:
        return Machine(registers, spill_bytes, notes=(f"The machine code was not read: {error}. {_AS_TOLD}",))
    loop = code.loop
    counts = () if loop is None else tuple((kind, float(count)) for kind, count in loop.counts if count)
    return Machine(
        registers,
        spill_bytes,
        code.widths(),
        counts,
        None if loop is None else loop.line,
        code.local_instructions,
        code.local_line,
    )
