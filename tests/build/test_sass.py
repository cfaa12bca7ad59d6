"""Machine code as text, read; the disassembler; and builds that know their lines."""

import os
import sys
from pathlib import Path

import pytest

from autotile.build import Builder, nvcc, nvrtc, sass
from autotile.build.disassembler import NAME, disassemble, find_nvdisasm
from autotile.build.sass import function_text, read_sass
from autotile.errors import ToolchainMissing
from autotile.kernels import load_kernel
from autotile.measure import make_variant
from autotile.types import Source, Target

SM_90 = Target("cuda", "sm_90")
DATA = Path(__file__).parents[1] / "data" / "sass"
NVDISASM = os.environ.get("AUTOTILE_NVDISASM", "")
KERNEL, HEADER = ('//## File "/x/kernel.cu", line {}', '//## File "/x/cuda_fp16.hpp", line 9 inlined at "{}", line {}')


def code(*rows: str, entry: str = "k"):
    """A function of these rows: instructions without their numbers, labels (which end in a colon), places."""
    numbered = (
        row if row.endswith(":") or row.startswith("//##") else f"        /*{16 * i:04x}*/    {row} ;"
        for i, row in enumerate(rows)
    )
    return "\n".join([f'\t.section\t.text.{entry},"ax",@progbits', f"{entry}:", *numbered])


def counts(text: str, entry: str = "k") -> dict[str, int]:
    loop = read_sass(text, entry).loop
    return {} if loop is None else {kind: count for kind, count in loop.counts if count}


@pytest.fixture(scope="module")
def tile32():
    return (DATA / "tile32.txt").read_text()


def test_a_tile_read_by_rows_is_wider_than_its_source(tile32):
    found = read_sass(tile32, "matmul")
    reads = {(one.line, one.access_bytes): one.count for one in found.memory if one.op == "load"}
    assert reads == {(65, 4): 1, (66, 4): 1, (70, 8): 1, (70, 4): 2}
    assert found.widths() == {
        (34, "store", "global"): 4, (65, "load", "global"): 4, (65, "store", "shared"): 4,
        (66, "load", "global"): 4, (66, "store", "shared"): 4, (70, "load", "shared"): 8,
    }  # fmt: skip
    assert not any(one.asynchronous for one in found.memory)
    assert (found.instructions, found.local_instructions) == (23, 0)  # without the branch to itself and the NOPs


def test_the_loop_in_the_loop_is_the_hottest(tile32):
    loop = read_sass(tile32, "matmul").loop
    assert (loop.line, loop.instructions, loop.count(sass.BARRIERS)) == (70, 6, 0)
    assert counts(tile32, "matmul") == {sass.FMA: 2, sass.SHARED_LOADS: 3, sass.OTHER: 1}


def test_one_function_is_cut_out_and_reads_alike(tile32):
    both = code("EXIT", entry="matmul_pack") + "\n" + tile32
    cut = function_text(both, "matmul")
    assert len(cut) < len(tile32)
    assert "SYMBOLS" not in cut
    assert read_sass(cut, "matmul") == read_sass(both, "matmul") == read_sass(tile32, "matmul")
    for text in (both, "", "what nvdisasm may write one day"):
        with pytest.raises(ToolchainMissing, match=r"no machine code of mat .*AUTOTILE_NVDISASM"):
            read_sass(text, "mat")


def test_asynchronous_copies_read_and_write_where_the_kernel_calls_the_header():
    text = (DATA / "ring.txt").read_text()
    found = read_sass(text, "matmul")
    copies = {(one.line, one.op, one.space, one.access_bytes): one.count for one in found.memory if one.asynchronous}
    for op, space in (("load", "global"), ("store", "shared")):
        assert {key[0]: (key[3], count) for key, count in copies.items() if key[1:3] == (op, space)} == {
            111: (4, 1), 112: (4, 3), 137: (16, 3)
        }  # fmt: skip
    assert sum(one.count for one in found.memory if one.space == "shared" and one.op == "load") == 5  # none that is !PT
    assert counts(text, "matmul") == {
        sass.FMA: 4, sass.SHARED_LOADS: 4, sass.ASYNCHRONOUS: 4, sass.BARRIERS: 1, sass.OTHER: 4,
    }  # fmt: skip
    assert found.loop.line == 262


@pytest.mark.parametrize(
    ("row", "accesses"),
    [
        ("LDS R1, [R2]", [("load", "shared", 4)]),
        ("LDS.U R1, [R2.X4+UR4+0x80]", [("load", "shared", 4)]),
        ("@P0 LDS.U8 R1, [R2]", [("load", "shared", 1)]),
        ("LDS.S16 R1, [R2]", [("load", "shared", 2)]),
        ("@!UP1 LDS.64 R2, [UR4]", [("load", "shared", 8)]),
        ("STS.128 [R2+0x10], R4", [("store", "shared", 16)]),
        ("LDG.E.CONSTANT R1, [R2.64]", [("load", "global", 4)]),
        ("LDG.E.LTC128B.64.CONSTANT R4, desc[UR8][R2.64]", [("load", "global", 8)]),
        ("LDG.E.S8 R1, desc[UR8][R2.64+0x128]", [("load", "global", 1)]),
        ("LDG.E.ENL2.256 R8, R4, desc[UR8][R2.64]", [("load", "global", 32)]),
        ("@!P3 STG.E.U16 desc[UR8][R2.64], R5", [("store", "global", 2)]),
        ("STG.E.EF.128 desc[UR8][R2.64], R4", [("store", "global", 16)]),
        ("LDGSTS.E.BYPASS.LTC128B.128 [R1], desc[UR8][R2.64], P0", [("load", "global", 16), ("store", "shared", 16)]),
        ("LDGSTS.E.LTC128B [R1], [R2.64]", [("load", "global", 4), ("store", "shared", 4)]),
        *((row, []) for row in (
            "LD.E.128 R4, desc[UR8][R2.64]", "ST.E desc[UR8][R2.64], R4", "LDSM.16.M88.4 R4, [R2]", "LDC.64 R4, c[0x0]",
            "ATOMS.ADD R1, [R2], R3", "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5", "@!PT LDS RZ, [RZ]",
            "LDGDEPBAR", "LDL.64 R2, [R1]", "ULDC.64 UR4, c[0x0][0x208]",
        )),
    ],
)  # fmt: skip
def test_accesses_and_their_widths(row, accesses):
    found = read_sass(code(KERNEL.format(7), row, "EXIT"), "k")
    assert sorted((one.op, one.space, one.access_bytes) for one in found.memory) == sorted(accesses)
    assert {one.line for one in found.memory} <= {7}
    assert found.instructions == 2


def test_local_memory_is_counted_and_arrays_are_told_by_their_lines():
    """What is spilled, saved or handed on lies behind R1; a header's function may have an array of its own."""
    found = read_sass(
        code(
            KERNEL.format(7), "STL.128 [R1+0x10], R4", "LDL R2, [R9+0x4]", KERNEL.format(8), "STL [R5], R5",
            "@P0 LDL.64 R2, [R6]", HEADER.format("/x/kernel.cu", 9), KERNEL.format(9), "LDL R2, [R8]", "EXIT",
        ),
        "k",
    )  # fmt: skip
    assert (found.local_instructions, found.array_lines) == (5, (8, 7))
    assert read_sass(code("STL [R1], R4", "EXIT"), "k").array_lines == ()


def test_the_innermost_line_of_the_kernels_own_text():
    chain = (
        HEADER.format("/x/kernel.cu", 12),
        KERNEL.format(12) + ' inlined at "/x/kernel.cu", line 30',
        KERNEL.format(30),
    )
    load = "LDG.E R1, desc[UR8][R2.64]"
    rows = (*chain, load, KERNEL.format(31), load, ".L_x_0:", load, HEADER.format("/x/other.h", 1), load)
    found = read_sass(code(*rows, "EXIT"), "k")
    assert {one.line: one.count for one in found.memory} == {None: 1, 12: 1, 31: 2}
    assert found.widths() == {(12, "load", "global"): 4, (31, "load", "global"): 4}


FMA, LOAD, BRANCH = "FFMA R1, R2, R3, R1", "LDG.E R1, desc[UR8][R2.64]", "@P0 BRA `(.L_x_{})"


def test_the_loop_with_most_multiply_adds_wins():
    rest = (".L_x_0:", FMA, LOAD, LOAD, BRANCH.format(0))
    unrolled = (".L_x_1:", *[FMA, "HFMA2.MMA R4, R5, R6, R4", "DFMA R2, R4, R6, R2"] * 2, "FADD R1, R1, R2")
    found = counts(code(*unrolled, "BRA.U UP0, `(.L_x_1)", *rest, "EXIT"))
    assert found == {sass.FMA: 6, sass.ARITHMETIC: 1, sass.OTHER: 1}


def test_a_loop_without_arithmetic_hides_none_around_it():
    """The copies of a tile, say, within a loop whose sums are unrolled."""
    inner = (".L_x_1:", LOAD, "HFMA2.MMA R2, -RZ, RZ, 0, 0", BRANCH.format(1))
    assert counts(code(".L_x_0:", FMA, *inner, FMA, BRANCH.format(0), "EXIT")) == {sass.FMA: 2, sass.OTHER: 1}
    assert counts(code(".L_x_0:", LOAD, LOAD, *inner, BRANCH.format(0), "EXIT")) == {
        sass.GLOBAL_LOADS: 1,
        sass.OTHER: 2,
    }


def test_code_that_was_moved_behind_the_end_makes_no_loop():
    moved = ("@P1 BRA `(.L_x_1)", ".L_x_0:", FMA, "EXIT", ".L_x_1:", FMA, "BRA `(.L_x_0)")
    assert counts(code(*moved)) == {}
    assert counts(code("EXIT", ".L_x_3:", "BRA `(.L_x_3)", "NOP")) == {}


# ---- nvdisasm -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No nvdisasm anywhere; returns what makes one of a shell script."""
    monkeypatch.delenv("AUTOTILE_NVDISASM", raising=False)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("AUTOTILE_NVCC", str(tmp_path / "gone"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])

    def install(folder: str, script: str = "") -> Path:
        path = tmp_path / folder / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return install


def test_nvdisasm_is_found_where_toolkits_and_wheels_put_it(nowhere, monkeypatch, tmp_path):
    assert find_nvdisasm() is None
    with pytest.raises(ToolchainMissing, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(tmp_path / "kernel.cubin")
    for folder in ("site/nvidia/cuda_nvdisasm/bin", "site/nvidia/cu12/bin", "site/nvidia/cu13/bin"):
        path = nowhere(folder)
        assert find_nvdisasm() == path
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    path = nowhere("toolkit/bin")
    assert find_nvdisasm() == path
    path = nowhere("path")
    assert find_nvdisasm() == path
    monkeypatch.setenv("AUTOTILE_NVDISASM", str(tmp_path / "gone"))
    with pytest.raises(ToolchainMissing, match=r"AUTOTILE_NVDISASM names .*gone"):
        find_nvdisasm()
    path = nowhere("mine")
    monkeypatch.setenv("AUTOTILE_NVDISASM", str(path))
    assert find_nvdisasm() == path


def test_what_nvdisasm_cannot_do_is_said(nowhere, tmp_path):
    cubin = tmp_path / "kernel.cubin"
    nowhere("path", "echo \"nvdisasm fatal   : Cannot decode architecture 'SM120'\" >&2; exit 1")
    with pytest.raises(
        ToolchainMissing, match=r"cannot read .*kernel\.cubin: .*SM120.*at least as new as the compiler"
    ):
        disassemble(cubin)
    nowhere("path", f"/bin/cat '{DATA}/tile32.txt'")
    assert read_sass(disassemble(cubin), "matmul").widths()


# ---- builds with lines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [nvcc, nvrtc], ids=["nvcc", "nvrtc"])
def test_line_information_is_one_flag_more_and_the_usual_flags_stay(module, monkeypatch):
    for name in module.ENVIRONMENT_FLAGS:
        monkeypatch.delenv(name, raising=False)
    usual = {
        nvcc: "-std=c++17 -cubin -Xptxas -v -gencode=arch=compute_90a,code=sm_90a",
        nvrtc: "-std=c++17 --ptxas-options=-v -arch=sm_90a",
    }[module]
    assert module.flags_of(SM_90) == usual
    assert module.flags_of(SM_90, True) == f"{usual} {module.LINE_INFO_FLAG}"
    monkeypatch.setenv(module.ENVIRONMENT_FLAGS[-1], "-Dx")
    assert module.flags_of(SM_90, True) == f"{usual} {module.LINE_INFO_FLAG} {module.ENVIRONMENT_FLAGS[-1]}=-Dx"


def test_a_build_with_lines_is_another_one(fake, tmp_path):
    fake("open(sys.argv[sys.argv.index('-o') + 1], 'w').write(' '.join(sys.argv))")
    source = Source("copy", "copy", "text")
    with (
        Builder(SM_90, tmp_path / "home", jobs=1, compiler="nvcc") as plain,
        Builder(SM_90, tmp_path / "home", jobs=1, compiler="nvcc", line_info=True) as lined,
    ):
        told = plain.build(source).path.read_text()
        assert lined.find(source) is None
        assert lined.build(source).path.read_text().split() == [
            word for given in told.split() for word in (["-lineinfo", given] if given == "-o" else [given])
        ]
        assert plain.find(source).path.read_text() == told
        assert plain.flags == lined.flags == ""


@pytest.mark.parametrize("compiler", ["auto", pytest.param("nvrtc", marks=pytest.mark.slow)])
def test_a_real_kernel(compiler, build_home, monkeypatch):
    if NVDISASM:
        monkeypatch.setenv("AUTOTILE_NVDISASM", NVDISASM)
    if find_nvdisasm() is None:
        pytest.skip("nvdisasm is not here")
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 1024, "n": 1024, "k": 1024}, "float32")
    source = make_variant(kernel, problem, kernel.configuration({**kernel.presets["tile32"], "unroll": 4})).source
    try:
        builders = [Builder(SM_90, build_home, jobs=1, compiler=compiler, line_info=lines) for lines in (False, True)]
    except ToolchainMissing as error:
        pytest.skip(f"{compiler} is not here: {error}")
    with builders[0] as plain, builders[1] as lined:
        futures = [builder.submit(source) for builder in (plain, lined)]
        texts = [function_text(disassemble(future.result().path), source.entry) for future in futures]
    assert "//##" not in texts[0]
    assert texts[0].splitlines() == [row for row in texts[1].splitlines() if "//##" not in row]
    found = read_sass(texts[1], source.entry)
    rows = source.text.splitlines()
    (summed,) = [number for number, row in enumerate(rows, 1) if "sum +=" in row]
    (stored,) = [number for number, row in enumerate(rows, 1) if "c[at] = " in row]
    assert found.widths()[summed, "load", "shared"] == 16  # of A; the source reads 4 bytes
    assert found.widths()[stored, "store", "global"] == 4
    assert found.loop.line == summed
    assert found.loop.count(sass.FMA) == 4
    assert {(one.access_bytes, one.count) for one in found.memory if one.line == summed} == {(16, 1), (4, 4)}
