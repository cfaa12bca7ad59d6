"""Reads machine code in nvdisasm's text: which line accesses which memory, how wide, and what the hottest loop does.

The text is that of `nvdisasm -c -gi` (see disassembler.py); 12.4 (for sm_90a) and 13.5 (sm_80 to sm_120) agree on it:

        .section        .text.copy,"ax",@progbits
    .L_x_1:
            //## File "/tmp/x/helpers.h", line 292 inlined at "/tmp/x/kernel.cu", line 14
            //## File "/tmp/x/kernel.cu", line 14
            /*0a80*/              @!P1 LDG.E.128.CONSTANT R4, desc[UR8][R2.64] ;
            /*0a90*/               @P0 BRA `(.L_x_1) ;

One chain of `//##` lines, the innermost first, holds for all instructions up to the next one. 13 gives labels to more
places than are jumped to, 12 knows no GPU after it, and before sm_90 an address has no `desc[…]`; none of that matters.
Two things look like accesses and are none: `@!PT LDS RZ, [RZ]`, with which ptxas keeps others apart, never runs; and
`HFMA2.MMA R2, -RZ, RZ, 0, 0` is how it clears a register.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotile.build.nvcc import SOURCE_NAME
from autotile.devices.emulator.report import Op, Space
from autotile.errors import ToolchainMissing

FMA, ARITHMETIC = "fused multiply-adds", "other arithmetic"
SHARED_LOADS, SHARED_STORES = "shared loads", "shared stores"
GLOBAL_LOADS, GLOBAL_STORES, ASYNCHRONOUS = "global loads", "global stores", "asynchronous copies"
LOCAL, BARRIERS, OTHER = "local memory", "barriers", "other"
KINDS = (
    FMA, ARITHMETIC, SHARED_LOADS, SHARED_STORES, GLOBAL_LOADS, GLOBAL_STORES, ASYNCHRONOUS, LOCAL, BARRIERS, OTHER,
)  # fmt: skip
"""Kinds of instructions. Arithmetic is that of floating-point numbers; integers and branches are among the others."""

_MEMORY_KINDS = (SHARED_LOADS, SHARED_STORES, GLOBAL_LOADS, GLOBAL_STORES, ASYNCHRONOUS)
_KIND_OF = {
    "LDS": SHARED_LOADS, "LDSM": SHARED_LOADS, "STS": SHARED_STORES, "STSM": SHARED_STORES,
    "LDG": GLOBAL_LOADS, "STG": GLOBAL_STORES, "LDGSTS": ASYNCHRONOUS, "LDL": LOCAL, "STL": LOCAL,
    "BAR": BARRIERS, "UCGABAR_ARV": BARRIERS, "UCGABAR_WAIT": BARRIERS,
}  # fmt: skip
_FUSED = re.compile(r"[FDH]FMA\w*")
_ARITHMETIC = re.compile(r"[FDH](?:ADD|MUL|MNMX)\w*|MUFU|[DHQ]G?MMA")

_ACCESSES: Mapping[str, tuple[tuple[Op, Space], ...]] = {
    "LDS": (("load", "shared"),), "STS": (("store", "shared"),),
    "LDG": (("load", "global"),), "STG": (("store", "global"),),
    "LDGSTS": (("load", "global"), ("store", "shared")),
}  # fmt: skip
"""What is an access of a width. Left out: LD and ST, which may go anywhere; LDSM and STSM, in which a lane gives the
address for others; atomic operations; local memory."""

_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_WORD_BYTES = 4

_PLACE = re.compile(r'\s*//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
_LABEL = re.compile(r"([.$\w]+):")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z]\w*)((?:\.\w+)*)\s*([^;]*);")
_ADDRESS = re.compile(r"\[(\w+)")
_TARGET = re.compile(r"(.*)`\(([^)]+)\)")
_ENDS = frozenset({"EXIT", "RET", "BRX", "BRXU", "JMP", "JMX", "JMXU", "KILL"})


@dataclass(frozen=True)
class MemoryInstruction:
    """The instructions of one line (None where unknown) that access memory in one way; `count` is how many the code
    holds, not how often they run. An asynchronous copy is two: a load from global memory and a store to shared."""

    line: int | None
    op: Op
    space: Space
    access_bytes: int
    asynchronous: bool
    count: int


@dataclass(frozen=True)
class Loop:
    """A loop of the machine code, without the loops in it: how many instructions of each of KINDS a pass holds, and the
    line that most of its arithmetic (or, without any, of its accesses) comes from. ptxas may have unrolled it."""

    line: int | None
    counts: tuple[tuple[str, int], ...]

    def count(self, kind: str) -> int:
        return dict(self.counts)[kind]

    @property
    def instructions(self) -> int:
        return sum(count for _, count in self.counts)


@dataclass(frozen=True)
class MachineCode:
    """One function. `instructions` counts all but padding; `local_instructions` those that access local memory: spilled
    registers, what a call is handed, or arrays whose indices are not known when it is compiled. `array_lines` are those
    of the kernel's own text whose arrays these are, the most used first. `loop` is the hottest, None without any."""

    entry: str
    memory: tuple[MemoryInstruction, ...]
    instructions: int
    local_instructions: int
    array_lines: tuple[int, ...]
    loop: Loop | None

    def widths(self) -> Mapping[tuple[int, str, str], int]:
        """By line, op and space: bytes of the widest access. A line may hold narrower ones too."""
        widest: dict[tuple[int, str, str], int] = {}
        for one in self.memory:
            if one.line is not None:
                key = (one.line, one.op, one.space)
                widest[key] = max(widest.get(key, 0), one.access_bytes)
        return widest


@dataclass(frozen=True)
class _Instruction:
    """`guard` is the predicate (`!P0`), `modifiers` what follows the name (`.E.128`). `target` is the number of the
    instruction that it may branch to, among those of the function; `passes` is false where the next never follows.
    `own` says whether it comes from the kernel's text itself, not from a header's function that was inlined there."""

    line: int | None
    guard: str
    name: str
    modifiers: tuple[str, ...]
    operands: str
    target: int | None = None
    passes: bool = True
    own: bool = True

    @property
    def indexes_local(self) -> bool:
        """Whether it accesses local memory at an address that was worked out: what is spilled, and what a call is
        handed, lies at fixed places behind the stack pointer, R1."""
        address = _ADDRESS.search(self.operands)
        return self.kind == LOCAL and self.own and address is not None and address[1] != "R1"

    @property
    def kind(self) -> str:
        if self.guard in ("!PT", "!UPT") or (self.name == "HFMA2" and ", -RZ, RZ," in self.operands):
            return OTHER
        if _FUSED.fullmatch(self.name):
            return FMA
        return ARITHMETIC if _ARITHMETIC.fullmatch(self.name) else _KIND_OF.get(self.name, OTHER)

    @property
    def access_bytes(self) -> int:
        return next((_BYTES[word] for word in self.modifiers if word in _BYTES), _WORD_BYTES)


def function_text(text: str, entry: str) -> str:
    """The part of a disassembly that is one function and what it calls; "" where there is none."""
    begin = re.search(rf"^\s*\.section\s+\.text\.{re.escape(entry)},", text, re.MULTILINE)
    if begin is None:
        return ""
    end = re.compile(r"^//-{8}|^\s*\.section\s", re.MULTILINE).search(text, begin.end())
    return text[begin.start() : end.start() if end else None]


def read_sass(text: str, entry: str) -> MachineCode:
    """What the function `entry` (of its own name: `extern "C"`) does.

    Raises ToolchainMissing for a text that does not hold it, or not in a form that is known here.
    """
    instructions = _without_padding(_read(function_text(text, entry)))
    if not instructions:
        raise ToolchainMissing(
            f"no machine code of {entry} can be read in what nvdisasm wrote; install another version, such as "
            "`pip install 'nvidia-cuda-nvdisasm<14'`, and name it with AUTOTILE_NVDISASM"
        )
    found = Counter[tuple[int | None, Op, Space, int, bool]]()
    for one in instructions:
        if one.kind in _MEMORY_KINDS:
            for op, space in _ACCESSES.get(one.name, ()):
                found[one.line, op, space, one.access_bytes, one.kind == ASYNCHRONOUS] += 1
    arrays = Counter(one.line for one in instructions if one.line is not None and one.indexes_local)
    in_order = sorted(found.items(), key=lambda item: (item[0][0] or 0, item[0][1:]))
    return MachineCode(
        entry,
        tuple(MemoryInstruction(*key, count) for key, count in in_order),
        len(instructions),
        sum(one.kind == LOCAL for one in instructions),
        tuple(line for line, _ in arrays.most_common()),
        _hottest(instructions),
    )


# ---- the text -------------------------------------------------------------------------------------------------------


def _read(text: str) -> list[_Instruction]:
    labels: dict[str, int] = {}
    found: list[_Instruction] = []
    branches: list[str] = []
    line: int | None = None
    own = True
    caller: tuple[str | None, str | None] = None, None
    for row in text.splitlines():
        if place := _PLACE.match(row):
            file, number, caller_file, caller_number = place.groups()
            if (file, number) != caller:  # a chain begins
                line, own = None, _is_own(file)
            if line is None and _is_own(file):
                line = int(number)  # the innermost in the kernel's own text, as the emulator tells it
            caller = (caller_file, caller_number)
        elif label := _LABEL.match(row):
            labels[label[1]] = len(found)
        elif parts := _INSTRUCTION.match(row):
            _, guard, name, modifiers, operands = parts.groups(default="")
            passes = not (name in _ENDS and not guard)
            branch = _TARGET.match(operands) if name in ("BRA", "JMP") else None
            if branch is not None:
                passes = bool(guard or branch[1].strip())  # `UP0, ` or `!P2, ` before the label are conditions too
            branches.append(branch[2] if branch else "")
            found.append(
                _Instruction(line, guard, name, tuple(modifiers.split(".")), operands.strip(), None, passes, own)
            )
    return [replace(one, target=labels.get(to)) for one, to in zip(found, branches, strict=True)]


def _is_own(file: str) -> bool:
    return re.split(r"[/\\]", file)[-1] == SOURCE_NAME


def _without_padding(instructions: list[_Instruction]) -> list[_Instruction]:
    """Without what ptxas puts behind the end: a branch to itself, and NOPs up to a multiple of 128 bytes."""
    end = len(instructions)
    while end and instructions[end - 1].name == "NOP":
        end -= 1
    if end and instructions[end - 1].target == end - 1:
        end -= 1
    return instructions[:end]


# ---- loops ----------------------------------------------------------------------------------------------------------


def _hottest(instructions: Sequence[_Instruction]) -> Loop | None:
    """Of the innermost loops with arithmetic the one with most fused multiply-adds, then most arithmetic; without any,
    of the innermost with accesses the one that has most."""
    loops = list(_loops(instructions))
    for kinds in ((FMA, ARITHMETIC), _MEMORY_KINDS):
        weights = {loop: [sum(instructions[i].kind == kind for i in loop) for kind in kinds] for loop in loops}
        busy = [loop for loop in loops if any(weights[loop])]
        innermost = [loop for loop in busy if not any(other < loop for other in busy)]
        if innermost:
            chosen = max(innermost, key=lambda loop: (weights[loop][0] if FMA in kinds else 0, sum(weights[loop])))
            own = chosen.difference(*(loop for loop in loops if loop < chosen))
            counts = Counter(instructions[i].kind for i in own)
            lines = Counter(instructions[i].line for i in sorted(own) if instructions[i].kind in kinds)
            return Loop(lines.most_common(1)[0][0], tuple((kind, counts[kind]) for kind in KINDS))
    return None


def _loops(instructions: Sequence[_Instruction]) -> Iterator[frozenset[int]]:
    """The numbers of each loop's instructions: from the target of a branch back to the branch, as far as they can be
    reached from there without leaving. Where the branch itself cannot be, code was only moved behind the end."""
    for last, one in enumerate(instructions):
        if one.target is None or one.target > last:
            continue
        reached: set[int] = set()
        ahead = [one.target]
        while ahead:
            at = ahead.pop()
            if at in reached or not one.target <= at <= last:
                continue
            reached.add(at)
            target = instructions[at].target
            ahead += [at + 1] * instructions[at].passes + ([] if target is None else [target])
        if last in reached:
            yield frozenset(reached)
