"""The PTX instructions that the emulator runs, against numpy and by the layouts of the PTX manual."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from emulated import Build, clean, kernel, line_of, only, without, zeros

from autotile.build.nvcc import find_nvcc
from autotile.devices.emulator import EmulatedProgram, device_buffer, refuse_unsupported
from autotile.devices.emulator.ptx import bind_instructions
from autotile.errors import CompileError, ToolchainMissing, UnsupportedByEmulator

Array = npt.NDArray[Any]
Place = Callable[[int, int, int], "tuple[int, int]"]
"""Of element i of a lane, whose group is g = lane / 4 and which is t = lane % 4 in it: the row and the column."""

LANES = np.arange(32)


def launched(program: EmulatedProgram, *arguments: Any, mode: Any = "trace", **more: Any) -> Any:
    return program.launch((1, 1, 1), more.pop("block", (32, 1, 1)), more.pop("shared", 0), arguments, mode, **more)


# -------------------------------------------------------------------------------------------------------- element types


def bf16_bits(values: Array) -> Array:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def fp8_table(mantissa_bits: int, bias: int, numbers: int) -> Array:
    """The values of the codes from 0 on that are numbers."""
    codes = np.arange(numbers)
    exponent, mantissa = codes >> mantissa_bits, codes % (1 << mantissa_bits)
    whole = mantissa + np.where(exponent > 0, 1 << mantissa_bits, 0)
    return np.ldexp(whole.astype(float), np.maximum(exponent, 1) - bias - mantissa_bits)


E4M3, E5M2 = fp8_table(3, 7, 0x7F), fp8_table(2, 15, 0x7C)


@dataclass(frozen=True)
class Element:
    """How random values are stored: the bits of each, and what number they are."""

    store: Callable[[np.random.Generator, tuple[int, int]], tuple[Array, Array]]
    bytes: int


def _f16(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    values = random.standard_normal(shape).astype(np.float16)
    return values.view(np.uint16), values.astype(float)


def _bf16(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    bits = bf16_bits(random.standard_normal(shape))
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(float)


def _tf32(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    bits = random.standard_normal(shape).astype(np.float32).view(np.uint32)  # with low bits, which do not count
    return bits, (bits & 0xFFFFE000).view(np.float32).astype(float)


def _s8(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    values = random.integers(-128, 128, shape).astype(np.int8)
    return values.view(np.uint8), values.astype(float)


def _f64(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
    values = random.standard_normal(shape)
    return values.view(np.uint64), values


def _fp8(table: Array) -> Callable[[np.random.Generator, tuple[int, int]], tuple[Array, Array]]:
    def store(random: np.random.Generator, shape: tuple[int, int]) -> tuple[Array, Array]:
        codes, sign = random.integers(0, len(table), shape), random.integers(0, 2, shape)
        return (codes | sign << 7).astype(np.uint8), np.where(sign, -1, 1) * table[codes]

    return store


ELEMENTS = {
    "f16": Element(_f16, 2), "bf16": Element(_bf16, 2), "tf32": Element(_tf32, 4), "s8": Element(_s8, 1),
    "e4m3": Element(_fp8(E4M3), 1), "e5m2": Element(_fp8(E5M2), 1), "f64": Element(_f64, 8),
}  # fmt: skip

# ------------------------------------------------------------------------------------------------------------------ mma


@dataclass(frozen=True)
class Form:
    """An mma: its shape, the types of its sums, A and B, and where the manual says that the elements lie."""

    m: int
    k: int
    types: tuple[str, str, str]
    a: Place
    b: Place
    arch: int = 80

    @property
    def opcode(self) -> str:
        total, a, b = self.types
        return f"mma.sync.aligned.m{self.m}n8k{self.k}.row.col.{total}.{a}.{b}.{total}"

    def registers(self) -> tuple[int, int, int]:
        """Of A, B and C."""
        each = max(4, ELEMENTS[self.types[1]].bytes)
        size = ELEMENTS[self.types[1]].bytes
        return self.m * self.k * size // 32 // each, self.k * 8 * size // 32 // each, self.m * 8 // 32


def _pairs16(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i in (2, 3, 6, 7)), 2 * t + i % 2 + 8 * (i >= 4)


def _bytes(g: int, t: int, i: int) -> tuple[int, int]:
    return g if i < 4 or 8 <= i < 12 else g + 8, 4 * t + i % 4 + 16 * (i >= 8)


def _singles(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i % 2), t + 4 * (i // 2)


FORMS = (
    *(Form(16, 16, ("f32", x, x), _pairs16, lambda g, t, i: (2 * t + i % 2 + 8 * (i >= 2), g))
      for x in ("f16", "bf16")),
    *(Form(16, 8, ("f32", x, x), lambda g, t, i: (g + 8 * (i >= 2), 2 * t + i % 2), lambda g, t, i: (2 * t + i, g))
      for x in ("f16", "bf16")),
    Form(16, 8, ("f32", "tf32", "tf32"), _singles, lambda g, t, i: (t + 4 * i, g)),
    *(Form(16, 32, (total, x, y), _bytes, lambda g, t, i: (4 * t + i % 4 + 16 * (i >= 4), g), arch)
      for total, x, y, arch in (("s32", "s8", "s8", 80), ("f32", "e4m3", "e4m3", 90), ("f32", "e5m2", "e5m2", 90),
                                ("f32", "e4m3", "e5m2", 90), ("f32", "e5m2", "e4m3", 90))),
    Form(8, 4, ("f64", "f64", "f64"), lambda g, t, i: (g, t), lambda g, t, i: (t, g)),
    *(Form(16, k, ("f64", "f64", "f64"), _singles, lambda g, t, i: (t + 4 * i, g), 90) for k in (4, 8, 16)),
)  # fmt: skip


def _names(count: int, first: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _mma_function(number: int, form: Form) -> str:
    a, b, c = form.registers()
    total, register, constraint = {"f32": ("float", "unsigned", "f"), "s32": ("int", "unsigned", "r")}.get(
        form.types[0], ("double", "double", "d")
    )
    operand = "d" if register == "double" else "r"
    given = [f'"{operand}"({name}[{i}])' for name, count in (("a", a), ("b", b)) for i in range(count)]
    text = f"{form.opcode} {_names(c, 0)}, {_names(a, 2 * c)}, {_names(b, 2 * c + a)}, {_names(c, c)};"
    outs = ", ".join(f'"={constraint}"(d[{i}])' for i in range(c))
    ins = ", ".join([f'"{constraint}"(c[{i}])' for i in range(c)] + given)
    loads = "".join(
        f"    {kind} {name}[{count}];\n    for (int i = 0; i < {count}; i++) "
        f"{name}[i] = ((const {kind}*){name}_)[threadIdx.x * {count} + i];\n"
        for name, kind, count in (("a", register, a), ("b", register, b), ("c", total, c))
    )
    stores = f"    for (int i = 0; i < {c}; i++) (({total}*)d_)[threadIdx.x * {c} + i] = d[i];\n"
    body = f'{loads}    {total} d[{c}];\n    asm volatile("{text}\\n"\n        : {outs}\n        : {ins});\n{stores}'
    head = "const unsigned* a_, const unsigned* b_, const unsigned* c_, unsigned* d_"
    needed = f"#if defined(AUTOTILE_EMULATOR) || __CUDA_ARCH__ >= {form.arch}0\n"
    return f"static __device__ void multiply_{number}({head}) {{\n{needed}{body}#endif\n}}\n"


MULTIPLY = kernel(
    "int which, const unsigned* a, const unsigned* b, const unsigned* c, unsigned* d",
    "\n".join(f"    if (which == {n}) multiply_{n}(a, b, c, d);" for n in range(len(FORMS))),
    "\n".join(_mma_function(n, form) for n, form in enumerate(FORMS)),
)


def fragments(bits: Array, count: int, place: Place) -> Array:
    """The elements of each lane, as they lie in its registers."""
    places = [[place(lane // 4, lane % 4, i) for i in range(count)] for lane in range(32)]
    return np.array([[bits[at] for at in row] for row in places])


def _c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i >= 2), 2 * t + i % 2


def mma_data(form: Form) -> tuple[list[Array], Array, Array]:
    """The registers of A, B and C; what D must hold, by lanes; and how far from it a sum in float may be."""
    random = np.random.default_rng(form.k)
    (a, a_values), (b, b_values) = (
        ELEMENTS[form.types[1]].store(random, (form.m, form.k)), ELEMENTS[form.types[2]].store(random, (form.k, 8)),
    )  # fmt: skip
    total = {"f32": np.float32, "s32": np.int32, "f64": np.float64}[form.types[0]]
    c = (np.abs(a_values).max() * random.standard_normal((form.m, 8))).astype(total)
    wanted = fragments(a_values @ b_values + c, form.m // 4, _c_place)
    size = fragments(np.abs(a_values) @ np.abs(b_values) + np.abs(c), form.m // 4, _c_place)
    registers = [fragments(a, a.size // 32, form.a), fragments(b, b.size // 32, form.b),
                 fragments(c, form.m // 4, _c_place)]  # fmt: skip
    return registers, wanted, size


@pytest.mark.parametrize("number", range(len(FORMS)), ids=[form.opcode[17:] for form in FORMS])
def test_mma(build: Build, number: int) -> None:
    form = FORMS[number]
    registers, wanted, size = mma_data(form)
    given = [device_buffer(np.ascontiguousarray(array).view(np.uint32)) for array in registers]
    out = device_buffer(np.zeros_like(registers[2]))
    report = launched(build(MULTIPLY), number, *given, out.view(np.uint32))
    assert clean(report)
    precision = {"f32": 2.0**-20, "s32": 0, "f64": 2.0**-50}[form.types[0]]
    assert np.all(np.abs(out - wanted) <= precision * size)


def test_an_mma_of_integers_wraps(build: Build) -> None:
    number = next(n for n, form in enumerate(FORMS) if form.types[0] == "s32")
    ones = device_buffer(np.full((32, 4), 0x01010101, np.uint32))
    c, out = device_buffer(np.full((32, 4), 2**31 - 1, np.int32)), zeros(32, 4, dtype=np.int32)
    assert clean(launched(build(MULTIPLY), number, ones, ones, c.view(np.uint32), out.view(np.uint32)))
    assert set(out.ravel()) == {-(2**31) + 31}


# ------------------------------------------------------------------------------------------------------------- ldmatrix


def ldmatrix(count: int, turned: bool, address: str) -> str:
    outs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if turned else ''}.shared.b16"
    return f'asm volatile("{opcode} {_names(count, 0)}, [%{count}];" : {outs} : "r"({address}));'


LOAD = kernel(
    "const unsigned short* in, unsigned* out, int which",
    """
    __shared__ unsigned char before[40];
    extern __shared__ unsigned short tile[];  // rows of 8
    before[threadIdx.x] = 0;
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = in[i];  // store
    __syncwarp();  // order
    unsigned r[4] = {};
    unsigned address = (unsigned)__cvta_generic_to_shared(tile + 8 * threadIdx.x);
    if (address != (unsigned)__cvta_generic_to_shared(tile) + 16 * threadIdx.x) __trap();
    if (__cvta_shared_to_generic(address) != tile + 8 * threadIdx.x || address % 16) __trap();\n"""
    + "\n".join(
        f"    if (which == {n}) {ldmatrix(count, turned, 'address')}  // form {n}"
        for n, (count, turned) in enumerate((c, t) for c in (1, 2, 4) for t in (False, True))
    )
    + "\n    for (int i = 0; i < 4; i++) out[4 * threadIdx.x + i] = r[i];",
)


@pytest.mark.parametrize("which", range(6))
def test_ldmatrix(build: Build, which: int) -> None:
    count, turned = (1, 2, 4)[which // 2], which % 2
    matrices = device_buffer(np.random.default_rng(which).integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16))
    out = zeros(32, 4, dtype=np.uint32)
    report = launched(build(LOAD), matrices, out, which, shared=512)
    assert clean(report)
    for matrix in range(count):
        read = matrices[matrix].T if turned else matrices[matrix]
        assert np.array_equal(out[:, matrix], np.ascontiguousarray(read).view(np.uint32).ravel())
    assert not out[:, count:].any()
    (load,) = (a for a in report.accesses if a.op == "load" and a.space == "shared")
    assert load.line == line_of(LOAD, f"// form {which}")
    assert (load.requests, load.access_bytes, load.lanes, load.total) == (1, 16, 8 * count, count)


def test_a_row_that_was_stored_without_a_barrier_is_a_race(build: Build) -> None:
    source = without(LOAD, "// order")
    matrices, out = zeros(4, 8, 8, dtype=np.uint16), zeros(32, 4, dtype=np.uint32)
    for order in ("forward", "backward"):
        report = launched(build(source), matrices, out, 4, shared=512, mode="check", order=order)
        (race,) = report.diagnostics
        assert (race.kind, race.op) == ("shared_race", "read-after-write")
        assert (race.line, race.other_line) == (line_of(source, "// form 4"), line_of(source, "// store"))


FAULTY = kernel(
    "unsigned* out, int apart, int late, int lanes",
    """
    __shared__ alignas(128) unsigned tile[128];
    for (int i = threadIdx.x; i < 128; i += blockDim.x) tile[i] = i;
    __syncthreads();
    unsigned r[4];
    unsigned address = __cvta_generic_to_shared(tile) + apart * threadIdx.x + late;
    if (threadIdx.x < lanes)
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, "  // the four of a lane
            "[%4];\\n"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
            : "r"(address)
            : "memory");
    out[threadIdx.x] = r[0];""",
)


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("apart", "late", "lanes", "block", "kind", "detail"),
    [(16, 0, 32, 32, "", ""), (8, 0, 32, 32, "misaligned", "16 bytes at byte 8 of the static"),
     (16, 16, 32, 32, "out_of_bounds", "16 bytes 0 bytes past the end of the static"),
     (16, -1 << 20, 32, 32, "out_of_bounds", "near no argument"),
     (16, 0, 16, 32, "deadlock", "need all 32 lanes"), (16, 0, 32, 16, "deadlock", "need all 32 lanes")],
)  # fmt: skip
def test_faults_of_ldmatrix(
    build: Build, traced: bool, apart: int, late: int, lanes: int, block: int, kind: str, detail: str
) -> None:
    report = launched(
        build(FAULTY, traced=traced), zeros(32, dtype=np.uint32), apart, late, lanes, block=(block, 1, 1), mode="run"
    )
    assert [d.kind for d in report.diagnostics] == ([kind] if kind else [])
    for fault in report.diagnostics:
        assert (fault.line, detail in fault.message) == (line_of(FAULTY, "asm volatile"), True), fault.message


CONFLICTS = kernel(
    "unsigned* out, int swizzle, int row_bytes",
    """
    extern __shared__ unsigned rows[];
    for (int i = threadIdx.x; i < 1280; i += 32) rows[i] = i;
    __syncthreads();
    unsigned r[4];
    unsigned base = (unsigned)__cvta_generic_to_shared(rows), lane = threadIdx.x;
    unsigned address = base + lane * row_bytes;
    if (swizzle) address ^= (address >> 7 & 7) << 4;\n    """
    + ldmatrix(4, False, "address")
    + "\n    out[threadIdx.x] = r[lane & 3];",
)


# As Nsight Compute counts them on an H200; rows that matrices share are no fewer.
@pytest.mark.parametrize(
    ("swizzle", "row_bytes", "wavefronts", "ideal"),
    [(0, 128, 32, 4), (1, 128, 4, 4), (0, 144, 4, 4), (0, 64, 16, 4), (0, 32, 8, 4), (0, 16, 4, 4), (0, 0, 4, 1)],
)
def test_bank_conflicts_of_ldmatrix(build: Build, swizzle: int, row_bytes: int, wavefronts: int, ideal: int) -> None:
    report = launched(build(CONFLICTS), zeros(32, dtype=np.uint32), swizzle, row_bytes, shared=5120)
    assert clean(report)
    (load,) = (a for a in report.accesses if a.op == "load" and a.space == "shared")
    assert (load.requests, load.lanes, load.total, load.ideal_per_request) == (1, 32, wavefronts, ideal)


def test_lanes_at_other_instructions_are_a_deadlock(build: Build) -> None:
    source = kernel(
        "unsigned* out",
        """
    unsigned a = threadIdx.x;
    float d[4] = {};
    if (a < 16) __syncwarp();
    else
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a));
    out[a] = d[0];""",
    )
    (deadlock,) = launched(build(source), zeros(32, dtype=np.uint32), mode="run").diagnostics
    assert deadlock.kind == "deadlock"


# ------------------------------------------------------------------------------------------------------ a whole product

PRODUCT = """#include <cuda_fp16.h>
#define COPY(to, from) \\
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\\n" ::"r"( \\
                     (unsigned)__cvta_generic_to_shared(to)), \\
                 "l"(from))
#define WAIT(n) asm volatile("cp.async.wait_group %0;\\n" ::"n"(n) : "memory")
static __device__ __forceinline__ unsigned swizzled(unsigned base, int row, int column) {
    return base + row * 128 + ((column * 2) ^ ((row & 7) << 4));
}
// Of 4 warps, each of which has 64 x 64 of 128 x 128; tiles of k = 64.
extern "C" __global__ void __launch_bounds__(128) kernel(int k, const __half* A, const __half* B, float* C) {
    extern __shared__ __align__(1024) __half tiles[];
    __half *a = tiles, *b = tiles + 128 * 64;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = warp / 2 * 64, n0 = warp % 2 * 64;
    unsigned at_a = (unsigned)__cvta_generic_to_shared(a), at_b = (unsigned)__cvta_generic_to_shared(b);
    float acc[4][8][4] = {};
    for (int k0 = 0; k0 < k; k0 += 64) {
        for (int i = threadIdx.x; i < 128 * 8; i += 128) {
            int row = i / 8, column = i % 8 * 8;
            COPY((char*)a + (swizzled(at_a, row, column) - at_a), A + row * k + k0 + column);
            COPY((char*)b + (swizzled(at_b, row, column) - at_b), B + row * k + k0 + column);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        WAIT(0);
        asm volatile("bar.sync 0;" ::: "memory");
        for (int kk = 0; kk < 64; kk += 16) {
            unsigned fa[4][4], fb[8][2];
            for (int i = 0; i < 4; i++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                             : "r"(swizzled(at_a, m0 + 16 * i + lane % 16, kk + lane / 16 * 8)));
            for (int j = 0; j < 8; j++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                             : "=r"(fb[j][0]), "=r"(fb[j][1])
                             : "r"(swizzled(at_b, n0 + 8 * j + lane % 8, kk + lane / 8 % 2 * 8)));
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 8; j++)
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                        : "+f"(acc[i][j][0]), "+f"(acc[i][j][1]), "+f"(acc[i][j][2]), "+f"(acc[i][j][3])
                        : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
        }
        __syncthreads();  // before the next tile
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++)
            for (int e = 0; e < 4; e++)
                C[(m0 + 16 * i + lane / 4 + e / 2 * 8) * 128 + n0 + 8 * j + lane % 4 * 2 + e % 2] = acc[i][j][e];
}
"""


def test_a_product_of_matrices(build: Build) -> None:
    random = np.random.default_rng(5)
    a, b = (device_buffer(random.standard_normal((128, 128)).astype(np.float16)) for _ in range(2))
    c = zeros(128, 128)
    report = launched(build(PRODUCT), 128, a, b, c, block=(128, 1, 1), shared=32768)
    assert clean(report)
    assert np.allclose(c, a.astype(float) @ b.astype(float).T, rtol=1e-5, atol=1e-4)
    loads = [access for access in report.accesses if access.op == "load" and access.space == "shared"]
    assert {load.line for load in loads} == {
        line_of(PRODUCT, "m8n8.x4.shared"), line_of(PRODUCT, "m8n8.x2.shared"),
    }  # fmt: skip
    assert all(load.total == load.requests * load.lanes / 8 for load in loads)  # no conflicts
    untraced = launched(build(PRODUCT, traced=False), 64, a, b, c, block=(128, 1, 1), shared=32768, mode="run")
    assert clean(untraced)
    assert untraced.run_s < 1


@pytest.mark.parametrize("text", [PRODUCT, PRODUCT.replace("asm volatile", "__asm__ /* a */\n__volatile__ ")])
def test_lines_keep_their_numbers(text: str) -> None:
    given, called = text.split("\n"), bind_instructions(text).split("\n")
    assert len(called) == len(given)
    assert "asm" not in "".join(called)
    assert [n for n, line in enumerate(given) if line.endswith("\\")] == [
        n for n, line in enumerate(called) if line.endswith("\\")
    ]
    for marker in ("// before the next tile", "swizzled(unsigned base", "= acc[i][j][e]", "float acc[4][8][4]"):
        assert given[line_of(text, marker) - 1] == called[line_of(text, marker) - 1]


def test_a_product_without_its_second_barrier_is_a_race(build: Build) -> None:
    a, b = (device_buffer(np.ones((128, 128), np.float16)) for _ in range(2))
    source = without(PRODUCT, "// before the next tile")
    report = launched(build(source), 128, a, b, zeros(128, 128), block=(128, 1, 1), shared=32768, mode="check")
    assert {race.other_line for race in only(report, "shared_race")} | {
        race.line for race in only(report, "shared_race")
    } >= {line_of(source, "m8n8.x4.shared")}


# ------------------------------------------------------------------------------------------- conversions, bytes, copies

CONVERT = kernel(
    "const float* in, unsigned* out, unsigned n",
    """
    unsigned i = threadIdx.x;
    float x = in[2 * i], y = in[2 * i + 1];
    unsigned r[5];
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[0]) : "f"(x));
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r[1]) : "f"(y), "f"(x));
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r[2]) : "f"(y), "f"(x));
    asm("prmt.b32 %0, %1, %2, 0xf0a4;" : "=r"(r[3]) : "r"(r[1]), "r"(n));
    asm volatile("" : "+r"(r[3]) : : "memory");
    unsigned short both[2] = {};
#if defined(AUTOTILE_EMULATOR) || __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both[0]) : "f"(y), "f"(x));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(both[1]) : "f"(y), "f"(x));
#endif
    r[4] = both[0] | both[1] << 16;
    for (int k = 0; k < 5; k++) out[5 * i + k] = r[k];""",
)


def _nearest(table: Array, values: Array) -> Array:
    """The codes of the numbers nearest to `values`, of two the even one; the greatest for all beyond."""
    distance = np.abs(table[None, :] - np.minimum(np.abs(values), table[-1])[:, None])
    best = distance.min(axis=1, keepdims=True)
    codes = np.arange(len(table))
    rank = np.where(distance == best, codes % 2, 2)
    return np.argmin(rank, axis=1) | np.where(np.signbit(values), 0x80, 0)


def _awkward(count: int) -> Array:
    random = np.random.default_rng(9)
    values = (random.standard_normal(count) * np.exp2(random.integers(-18, 18, count))).astype(np.float32)
    values[:24] = [0, -0.0, 448, 464, 465, 1e9, -1e9, 2**-9, 2**-10, 1.5 * 2**-9, 2**-16, 2**-17, 61440, 57344, 65504,
                   17, 19, 1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11, 1.0625, 1.1875, np.inf, -np.inf]  # fmt: skip
    return values


def test_conversions(build: Build) -> None:
    given = device_buffer(_awkward(256))
    out, n = zeros(128, 5, dtype=np.uint32), 0x80FF1234
    assert clean(launched(build(CONVERT), given, out, np.uint32(n), block=(128, 1, 1)))
    x, y = given[::2], given[1::2]
    assert np.array_equal(out[:, 0], (x.view(np.uint32) + 0x1000) & 0xFFFFE000)
    with np.errstate(over="ignore"):
        halves = given.astype(np.float16).view(np.uint16).astype(np.uint32)
    assert np.array_equal(out[:, 1], halves[1::2] << 16 | halves[::2])
    assert np.array_equal(out[:, 2], bf16_bits(y).astype(np.uint32) << 16 | bf16_bits(x))
    low = out[:, 1]  # bytes 4 and 2's sign of {n, low}, then byte 0, and the sign of byte 7
    sign = np.where(low >> 23 & 1, 0xFF, 0).astype(np.uint32)
    assert np.array_equal(out[:, 3], np.uint32(n & 0xFF) | sign << 8 | (low & 0xFF) << 16 | np.uint32(0xFF000000))
    e4m3, e5m2 = _nearest(E4M3, given), _nearest(E5M2, given)
    assert np.array_equal(out[:, 4] & 0xFFFF, e4m3[1::2] << 8 | e4m3[::2])
    assert np.array_equal(out[:, 4] >> 16, e5m2[1::2] << 8 | e5m2[::2])


EIGHT = kernel(
    "const float* in, float* out, unsigned char* codes",
    """
    int i = threadIdx.x;
    __nv_fp8_e4m3 a = __nv_fp8_e4m3(in[i]);
    __nv_fp8_e5m2 b(in[i]);
    codes[2 * i] = a.__x, codes[2 * i + 1] = __nv_cvt_float_to_fp8(in[i], __NV_SATFINITE, __NV_E5M2);
    a.__x = (unsigned char)i, b.__x = (unsigned char)i;
    out[2 * i] = float(a), out[2 * i + 1] = static_cast<float>(b);
    __half2 h = __floats2half2_rn(in[i], 1.0f);
    __nv_bfloat162 f = __floats2bfloat162_rn(in[i], 1.0f);
    if (__high2float(h) != 1.0f || __high2float(f) != 1.0f || sizeof(a) != 1) __trap();""",
    "#include <cuda_fp8.h>",
)


def test_the_types_of_8_bits(build: Build) -> None:
    given = device_buffer(_awkward(256))
    given[255] = np.nan
    out, codes = zeros(256, 2), zeros(256, 2, dtype=np.uint8)
    assert clean(launched(build(EIGHT), given, out, codes, block=(256, 1, 1)))
    for column, (table, infinite) in enumerate(((E4M3, False), (E5M2, True))):
        assert np.array_equal(codes[:255, column], _nearest(table, given[:255]))
        assert codes[255, column] == 0x7F
        assert np.array_equal(out[: len(table), column], table)
        assert np.array_equal(out[128 : 128 + len(table), column], -table)
        assert np.isnan(out[127, column])
        assert np.isinf(out[0x7C, column]) == infinite


COPY = kernel(
    "const float* in, float* out, int whole",
    """
    __shared__ __align__(16) float tile[2][128];
    int i = threadIdx.x;
    unsigned to = __cvta_generic_to_shared(&tile[0][4 * i]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(in + 4 * i), "r"(whole ? 16 : 8));
    asm volatile("cp.async.commit_group;\\n" ::);
    asm volatile("/* one */ cp.async.ca.shared.global [%0 + 512], [%1+512], 4;  // word\\n"
                 : : "r"(to), "l"(in + 4 * i));
    for (int e = 1; e < 4; e++) tile[1][4 * i + e] = 0;
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");  // the first
    out[4 * i] = tile[0][4 * i + 3], out[4 * i + 1] = tile[0][4 * i];
    asm volatile("cp.async.wait_all;" ::: "memory");  // the second
    out[4 * i + 2] = tile[1][4 * i];""",
)


@pytest.mark.parametrize("whole", [1, 0])
def test_asynchronous_copies(build: Build, whole: int) -> None:
    given = device_buffer(np.arange(1, 257, dtype=np.float32))
    out = zeros(32, 4)
    report = launched(build(COPY), given, out, whole)
    assert clean(report)
    assert np.array_equal(out[:, 0], (4 * LANES + 4) * whole)
    assert np.array_equal(out[:, 1], 4 * LANES + 1)
    assert np.array_equal(out[:, 2], 4 * LANES + 129)
    assert (report.copies.copies, report.copies.waits) == (64, 64)


@pytest.mark.parametrize(
    ("wait", "read"), [("// the first", "out[4 * i] = tile"), ("// the second", "out[4 * i + 2] = tile")]
)
def test_a_copy_that_nobody_waits_for_is_reported(build: Build, wait: str, read: str) -> None:
    source = without(COPY, wait)
    report = launched(build(source), device_buffer(np.ones(256, np.float32)), zeros(32, 4), 1, mode="check")
    assert {(d.kind, d.line) for d in report.diagnostics} == {("uninitialised_shared", line_of(source, read))}


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("ptx", "operands", "name"),
    [("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0}, %1, %2;", ':: "l"(a)',
      "the PTX instruction wgmma.mma_async"),
     ("{\\n .reg .pred p;\\n setp.ne.b32 p, %0, 0;\\n @p bar.sync 0;\\n}", ':: "r"(a)',
      "the PTX instruction setp.ne.b32"),
     ("{\\n wgmma.fence.sync.aligned;\\n}", "", "the PTX instruction wgmma.fence.sync.aligned"),
     ("mbarrier.init.shared.b64 [%0], %1;", ':: "r"(a), "r"(b)', "the PTX instruction mbarrier.init.shared.b64"),
     ("cp.async.bulk.tensor.2d.shared::cluster.global [%0], [%1];", "", "the PTX instruction cp.async.bulk.tensor.2d"),
     ("setmaxnreg.inc.sync.aligned.u32 240;", "", "the PTX instruction setmaxnreg.inc.sync.aligned.u32"),
     ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0}, {%0}, {%0}, {%0};", "", "the PTX instruction mma.sync"),
     ("bar.sync 1, 64;", "", "the PTX instruction bar.sync with another barrier than 0"),
     ("cp.async.commit_group; cp.async.wait_group 0;", "", "other than one plain instruction"),
     ("@p cp.async.commit_group;", "", "other than one plain instruction"),
     ("prmt.b32 %0, %1, %2, %tid.x;", ': "=r"(a) : "r"(b), "r"(c)',
      "the operand %tid.x of the PTX instruction prmt.b32"),
     ("prmt.b32 %0, %1, %2, %3;", ': "=r"(a) : "r"(b), "r"(c)', "the operand %3 of the PTX instruction prmt.b32"),
     ("cp.async.wait_group %0;", ':: "q"(a)', 'the constraint "q" of the PTX instruction cp.async.wait_group'),
     ("cp.async.wait_group \" NUMBER \";", "", "whose text is not made of plain strings")],
)  # fmt: skip
def test_what_is_refused_is_named(ptx: str, operands: str, name: str) -> None:
    text = f'// asm("one")\nvoid f() {{\n    asm volatile("{ptx}"\n        {operands});\n}}\n'
    with pytest.raises(UnsupportedByEmulator) as raised:
        refuse_unsupported(text)
    assert str(raised.value).startswith("kernel.cu:3: the emulator cannot run ")
    assert name in str(raised.value)


def test_the_first_that_is_refused_is_named() -> None:
    with pytest.raises(UnsupportedByEmulator, match=r"kernel\.cu:2: .*textures"):
        refuse_unsupported('asm("bar.sync 0;");\ncudaTextureObject_t t;\nasm("trap;");')


@pytest.mark.parametrize(
    "text",
    ['asm volatile("" ::: "memory");', 'asm("// the loop");', '// asm("trap;")', 'const char* s = "asm(wgmma)";',
     '#ifndef AUTOTILE_EMULATOR\nasm("trap;");\n#endif', 'asm volatile ( "bar.sync" /* all */ " 0;\\n" );',
     "int plasma = 1;", '__asm__ __volatile__("cp.async.wait_all;" : : : "memory");'],
)  # fmt: skip
def test_what_is_not_refused(text: str) -> None:
    refuse_unsupported(text)


@pytest.mark.parametrize(
    "statement",
    ['asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[0]) : "f"(wide));',
     'asm("prmt.b32 %0, %1, %1;" : "=r"(out[0]) : "r"(1));',
     'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out[0]) : "f"(1));'],
)  # fmt: skip
def test_operands_that_do_not_fit_are_errors_of_the_line(build: Build, statement: str) -> None:
    with pytest.raises(CompileError, match=r"kernel\.cu"):
        build(kernel("unsigned* out, double wide", statement))


# ------------------------------------------------------------------------------------------------------------ the GPU's


@pytest.mark.nvcc
@pytest.mark.parametrize("arch", [80, 90])
def test_the_same_texts_are_valid_ptx(tmp_path: Path, arch: int) -> None:
    try:
        nvcc = find_nvcc()
    except ToolchainMissing:
        pytest.skip("nvcc is not here")
    texts: Sequence[str] = (MULTIPLY, LOAD, FAULTY, CONFLICTS, PRODUCT, CONVERT, COPY)
    whole = "".join(text.replace(" kernel(", f" kernel_{n}(") for n, text in enumerate(texts))
    (tmp_path / "all.cu").write_text(whole)
    command = [str(nvcc), f"-arch=sm_{arch}", "-cubin", "-o", str(tmp_path / "all.cubin"), str(tmp_path / "all.cu")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
