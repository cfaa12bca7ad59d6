"""What the machine code of all functions of a launch tells, read from one disassembly."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.devices.gpus import find_gpu
from autotile.errors import ToolchainMissing
from autotile.insight import machine
from autotile.types import Binary, Source, Target

H200 = find_gpu("h200")
TEXT = "\n".join(["", "s += sinf(y);", "big[at] += x;", "small[at] = x;", "using_sin(x);"])
PLACE = '//## File "/x/kernel.cu", line {}'


def function(entry: str, *rows: str) -> str:
    body = "\n".join(row if row.startswith("//") else f"/*{16 * i:04x}*/ {row} ;" for i, row in enumerate(rows))
    return f'    .section  .text.{entry},"ax",@progbits\n{body}\n'


class FakeBuilder:
    def __init__(self, target: Target, **given: object) -> None:
        assert (target, given) == (Target("cuda", H200.arch), {"jobs": 1, "line_info": True})

    def __enter__(self) -> FakeBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def build(self, source: Source) -> Binary:
        return Binary(Path("/none"), source.entry, "", Target("cuda", H200.arch), "", 40, 8, 0, 0.0)


@pytest.fixture
def disassembled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    asked: list[Path] = []
    main = function(
        "k", PLACE.format(3), "LDG.E.128 R4, [R2.64]", "LDL R2, [R9]", PLACE.format(2), "LDL R2, [R8]", "EXIT"
    )
    step = function("k_pack", PLACE.format(4), "LDG.E.64 R4, [R2.64]", "STL [R7], R4", PLACE.format(5), "STL [R7], R4")

    def disassemble(cubin: Path) -> str:
        asked.append(cubin)
        return main + step

    monkeypatch.setattr(machine, "Builder", FakeBuilder)
    monkeypatch.setattr(machine, "disassemble", disassemble)
    return asked


def test_steps_are_read_beside_the_main_function(disassembled: list[Path]) -> None:
    found = machine.read_machine(Source("k", "k", TEXT), H200, ["_pack"])
    assert (found.registers, found.spill_bytes) == (40, 8)
    assert found.widths == {(3, "load", "global"): 16, (4, "load", "global"): 8}
    assert found.array_lines == (3, 4, 5)  # the sine has a table of its own, and nobody knows of which line 2 tells
    assert len(disassembled) == 1
    alone = machine.read_machine(Source("k", "k", TEXT), H200)
    assert (alone.widths, alone.array_lines) == ({(3, "load", "global"): 16}, (3,))


def test_what_cannot_be_read_is_noted(disassembled: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    missing = machine.read_machine(Source("k", "k", TEXT), H200, ["_unpack"])
    assert (missing.registers, missing.widths) == (40, None)
    assert "no machine code of k_unpack" in missing.notes[0]

    def refuse(*given: object, **named: object) -> None:
        raise ToolchainMissing("no nvcc")

    monkeypatch.setattr(machine, "Builder", refuse)
    assert machine.read_machine(Source("k", "k", TEXT), H200).notes[0].startswith("Registers are not known: no nvcc.")
