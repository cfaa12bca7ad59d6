"""What every device promises to the stages above it: one suite, run on the emulator here and on a GPU (`-m gpu`).

The kernels are written by hand, plainly: they run on both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Check, Device, Workload
from autotile.devices.select import open_device
from autotile.errors import LaunchError, UnsupportedByEmulator
from autotile.types import Binary, Launch, Source, Target

TRANSPOSE = """
extern "C" __global__ void transpose(const element* in, element* out, int rows, int cols) {
    __shared__ element tile[16][17];
    int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
    if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = in[r * cols + c];
    __syncthreads();
    r = blockIdx.y * 16 + threadIdx.x, c = blockIdx.x * 16 + threadIdx.y;
    if (r < rows && c < cols) out[c * rows + r] = tile[threadIdx.x][threadIdx.y];
}
"""
MATMUL = """
extern "C" __global__ void matmul(const element* a, const element* b, element* c, int m, int n, int k) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= m || col >= n) return;
    sum_type sum = 0;
    for (int i = 0; i < k; i++) sum += sum_type(a[row * k + i]) * sum_type(b[i * n + col]);
    c[row * n + col] = element(sum);
}
"""
COPY = """
extern "C" __global__ void copy(const element* in, element* out, int rows, int cols) {
    int r = blockIdx.y, c = blockIdx.x * 32 + threadIdx.x;
    if (c < cols) { BODY }
}
"""
RIGHT = "out[r * cols + c] = in[r * cols + c];"
FILL = """
extern "C" __global__ void fill(int* out, int words) {
    extern __shared__ int row[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) row[i] = i ^ 0x5a5a;
    __syncthreads();
    for (int i = threadIdx.x; i < words; i += blockDim.x) out[i] = row[words - 1 - i];
}
"""
ROWS, COLS = 9, 70
COPY_LAUNCH = Launch((3, ROWS, 1), (32, 1, 1))
ELEMENTS = {
    "int8": ("signed char", np.dtype(np.int8)),
    "int16": ("short", np.dtype(np.int16)),
    "float16": ("__half", np.dtype(np.float16)),
    "bfloat16": ("__nv_bfloat16", np.dtype(ml_dtypes.bfloat16)),
    "float32": ("float", np.dtype(np.float32)),
    "float64": ("double", np.dtype(np.float64)),
    "complex64": ("float2", np.dtype(np.complex64)),
    "complex128": ("double2", np.dtype(np.complex128)),
}
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@pytest.fixture(scope="module", params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    return open_device(request.param)


@pytest.fixture(scope="module")
def builder(device: Device, build_home: Path) -> Iterator[Builder]:
    with Builder(device.target, build_home, jobs=1) as made:
        yield made


class Bench:
    """A device with its builder: builds, loads, stages and checks in one go."""

    def __init__(self, device: Device, builder: Builder) -> None:
        self.device, self.builder = device, builder
        self.comparer = None if device.comparer is None else builder.build(device.comparer)

    def binary(self, entry: str, text: str, dtype: str = "float32") -> Binary:
        header = {"float16": "#include <cuda_fp16.h>", "bfloat16": "#include <cuda_bf16.h>"}.get(dtype, "")
        sums = "double" if dtype == "float64" else "float"
        using = f"using element = {ELEMENTS[dtype][0]};\nusing sum_type = {sums};\n"
        return self.builder.build(Source("contract", entry, f"{header}\n{using}{text}"))

    def program(self, entry: str, text: str, dtype: str = "float32") -> Any:
        return self.device.load(self.binary(entry, text, dtype))

    def copy(self, body: str = RIGHT, dtype: str = "float32") -> Any:
        return self.program("copy", COPY.replace("BODY", body), dtype)

    def check(self, workload: Workload, program: Any, launch: Launch) -> Check:
        with self.device.stage(workload, self.comparer) as stage:
            return stage.check(program, launch)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """The array as an argument of `call`."""
        if self.device.info.kind == "emulator":
            return array.copy()
        placed: Any = self.device.empty_gpuarray(array.shape, array.dtype)  # type: ignore[attr-defined]
        with self.device.active():  # type: ignore[attr-defined]
            placed.set(array)
        return placed

    def get(self, placed: Any) -> np.ndarray[Any, Any]:
        if isinstance(placed, np.ndarray):
            return placed
        out = np.empty(placed.shape, placed.dtype)
        self.device.download(placed.gpudata, out)  # type: ignore[attr-defined]
        return out


@pytest.fixture
def bench(device: Device, builder: Builder) -> Bench:
    return Bench(device, builder)


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(seed).integers(-60, 60, shape) / 8
    return numbers.astype(ELEMENTS[dtype][1])


def copy_workload(dtype: str = "float32", bound: float = 0.0, source: np.ndarray[Any, Any] | None = None) -> Workload:
    """`out` must be `in`: to the last bit, or within `bound`."""
    a = values((ROWS, COLS), dtype) if source is None else source
    reference = a if bound == 0 else a.astype(np.float64)
    return Workload(
        ("in", "out", ROWS, COLS), {"in": a}, {"out": (a.shape, a.dtype)}, {"out": reference}, {"out": bound}
    )


def fill_workload(words: int) -> Workload:
    reference = (np.arange(words, dtype=np.int32) ^ 0x5A5A)[::-1]
    return Workload(("out", words), {}, {"out": ((words,), np.dtype(np.int32))}, {"out": reference}, {"out": 0.0})


# ---- right kernels pass ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_a_right_transpose_passes(bench: Bench, dtype: str) -> None:
    program = bench.program("transpose", TRANSPOSE, dtype)
    for rows, cols in ((1, 1), (33, 65), (16, 48), (130, 7)):
        a = values((rows, cols), dtype)
        workload = Workload(
            ("in", "out", rows, cols), {"in": a}, {"out": ((cols, rows), a.dtype)}, {"out": a.T.copy()}, {"out": 0.0}
        )
        launch = Launch((-(-cols // 16), -(-rows // 16), 1), (16, 16, 1))
        assert bench.check(workload, program, launch) == Check(0.0, 0)


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_a_right_matmul_passes_within_its_bound(bench: Bench, dtype: str) -> None:
    program = bench.program("matmul", MATMUL, dtype)
    for m, n, k in ((1, 1, 1), (31, 1, 64), (33, 65, 17)):
        a, b = values((m, k), dtype) / 3, values((k, n), dtype, 1) / 3
        a, b = a.astype(ELEMENTS[dtype][1]), b.astype(ELEMENTS[dtype][1])
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        exact, size = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)
        bound = 2 * k * min(ROUNDOFF[dtype], 2.0**-24) * size + ROUNDOFF[dtype] * np.abs(exact) * 1.01 + 1e-30
        workload = Workload(
            ("a", "b", "c", m, n, k), {"a": a, "b": b}, {"c": ((m, n), a.dtype)}, {"c": exact}, {"c": bound}
        )
        check = bench.check(workload, program, Launch((-(-n // 16), -(-m // 16), 1), (16, 16, 1)))
        assert check.ok, check.detail
        assert 0.0 <= check.max_error <= 1.0
        if k > 1 and dtype != "float64":
            assert check.max_error > 0.0  # it is an error that was measured, not the lack of one


# ---- wrong kernels do not -------------------------------------------------------------------------------------------

HELD = "const unsigned held = __float_as_int(out[r * cols + c]); "
WRONG = {
    "writes nothing": ("if (rows < 0) out[0] = in[0];", r"\[0, 0\]"),
    "last column unwritten": ("if (c < cols - 1) out[r * cols + c] = in[r * cols + c];", r"\[0, 69\]"),
    "a row of another's": ("out[r * cols + c] = in[(r + 1) % rows * cols + c];", r"\[0, \d+\]"),
    "one element": ("out[r * cols + c] = in[r * cols + c] + (r == 4 && c == 2 ? 0.125f : 0.f);", r"\[4, 2\]"),
    "NaN": ("out[r * cols + c] = r == 3 && c == 5 ? __int_as_float(0x7fc00000) : in[r * cols + c];", r"\[3, 5\]"),
    "infinity": ("out[r * cols + c] = r == 3 && c == 6 ? 1.f / (c - 6) : in[r * cols + c];", r"\[3, 6\]"),
    "zeros": ("out[r * cols + c] = 0;", r"\[0, \d+\]"),
    "half of each element": (
        "((short*)out)[2 * (r * cols + c)] = ((const short*)in)[2 * (r * cols + c)];",
        r"\[0, 0\]",
    ),
    "half of the blocks": ("if (blockIdx.y % 2 == 0) out[r * cols + c] = in[r * cols + c];", r"\[1, 0\]"),
    # These see which filling the output has, and so which of the two runs it is.
    "all, in the second run": (HELD + "out[r * cols + c] = in[r * cols + c] + (held != ~0u);", r"\[0, 0\]"),
    "all, in the first run": (HELD + "out[r * cols + c] = in[r * cols + c] + (held == ~0u);", r"\[0, 0\]"),
    "an element that moves": (HELD + "out[r * cols + c] = in[r * cols + c] + (c == held % 70);", r"\[0, \d+\]"),
    "a sign": ("out[r * cols + c] = in[r * cols + c] * (c == 0 && r == 0 ? -1.f : 1.f);", r"\[0, 0\]"),
}


@pytest.mark.parametrize("bound", [0.0, 0.1])
@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_kernel_names_the_element(bench: Bench, fault: str, bound: float) -> None:
    body, where = WRONG[fault]
    check = bench.check(copy_workload(bound=bound), bench.copy(body), COPY_LAUNCH)
    assert not check.ok
    assert check.wrong > 0
    assert check.max_error > 1.0
    assert re.search(where, check.detail), check.detail


@pytest.mark.parametrize("byte", [0x00, 0xA5, 0xFF])
def test_an_unwritten_element_never_passes_by_chance(bench: Bench, byte: int) -> None:
    """Whatever lay in the memory before, even what the reference holds."""
    source = np.full((ROWS, COLS), byte, np.uint8).view(np.int8)
    assert bench.check(copy_workload(source=source), bench.copy(dtype="int8"), COPY_LAUNCH).ok
    unwritten = bench.copy(f"if (c < cols - 1) {RIGHT}", "int8")
    check = bench.check(copy_workload(source=source), unwritten, COPY_LAUNCH)
    assert not check.ok
    assert "[0, 69]" in check.detail


@pytest.mark.parametrize("bound", [0.0, 0.1])
def test_an_unwritten_element_does_not_pass_where_nan_is_due(bench: Bench, bound: float) -> None:
    source = values((ROWS, COLS), "float32")
    source[:, 69] = np.array([0xFFFFFFFF], np.uint32).view(np.float32)
    assert bench.check(copy_workload(bound=bound, source=source), bench.copy(), COPY_LAUNCH).ok
    check = bench.check(copy_workload(bound=bound, source=source), bench.copy(f"if (c < 69) {RIGHT}"), COPY_LAUNCH)
    assert check.wrong == ROWS
    assert "[0, 69]" in check.detail


def test_a_kernel_that_is_right_once_is_wrong(bench: Bench) -> None:
    """It remembers that it ran, in a global variable; the emulator takes no such kernel at all."""
    text = f"__device__ unsigned char ran[{ROWS * COLS}];\n" + COPY.replace(
        "BODY", f"{RIGHT} if (ran[r * cols + c]++) out[r * cols + c] = 0;"
    )
    if bench.device.info.kind == "emulator":
        with pytest.raises(UnsupportedByEmulator, match="__device__"):
            bench.program("copy", text)
        return
    check = bench.check(copy_workload(), bench.program("copy", text), COPY_LAUNCH)
    assert check.wrong > 0.9 * ROWS * COLS


def test_one_row_off_is_seen_outside_its_array(bench: Bench) -> None:
    check = bench.check(copy_workload(), bench.copy(RIGHT.replace("out[r", "out[(r + 1)")), COPY_LAUNCH)
    assert not check.ok
    assert "[0, 0]" in check.detail or "line" in check.detail


def test_errors_are_counted_in_units_of_the_bound(bench: Bench) -> None:
    program = bench.copy("out[r * cols + c] = in[r * cols + c] + 0.125f;")
    assert bench.check(copy_workload(bound=0.25), program, COPY_LAUNCH) == Check(0.5, 0)
    found = bench.check(copy_workload(bound=0.0625), program, COPY_LAUNCH)
    assert (found.max_error, found.wrong) == (2.0, ROWS * COLS)


@pytest.mark.parametrize("dtype", ROUNDOFF)
def test_nan_and_infinity_are_accepted_by_position_alone(bench: Bench, dtype: str) -> None:
    source = values((ROWS, COLS), dtype)
    source[1, 2], source[3, 4], source[5, 6] = np.nan, np.inf, -np.inf
    workload = copy_workload(dtype, 0.01, source)
    assert bench.check(workload, bench.copy(dtype=dtype), COPY_LAUNCH) == Check(0.0, 0)
    for place, other in (
        ("r == 1 && c == 2", "in[0]"),
        ("r == 3 && c == 4", "in[5 * cols + 6]"),
        ("r == 8 && c == 8", "in[cols + 2]"),
    ):
        check = bench.check(
            workload, bench.copy(f"{RIGHT} if ({place}) out[r * cols + c] = {other};", dtype), COPY_LAUNCH
        )
        assert (check.wrong, check.max_error) == (1, np.inf), place


def test_what_is_moved_keeps_each_bit(bench: Bench) -> None:
    """Zero's sign, a NaN's sign and payload, a subnormal."""
    source = values((ROWS, COLS), "float32")
    bits = source.view(np.uint32)
    bits[1, 2], bits[3, 4], bits[5, 6] = 0x80000000, 0xFFC00005, 1
    assert bench.check(copy_workload(source=source), bench.copy(), COPY_LAUNCH) == Check(0.0, 0)
    for row, col, other in ((1, 2, "0"), (3, 4, "0x7fc00005"), (3, 4, "0xffc00004"), (5, 6, "0"), (5, 6, "0x80000001")):
        body = f"{RIGHT} if (r == {row} && c == {col}) out[r * cols + c] = __int_as_float({other});"
        check = bench.check(copy_workload(source=source), bench.copy(body), COPY_LAUNCH)
        assert (check.wrong, check.max_error) == (1, np.inf), other


def test_each_part_of_a_complex_number_is_compared(bench: Bench) -> None:
    source = values((ROWS, COLS), "complex64") + 1j * values((ROWS, COLS), "complex64", 1)
    source = source.astype(np.complex64)
    source[1, 2], source[3, 4] = complex(np.nan, 3), complex(-np.inf, 2)
    reference = source.astype(np.complex128)
    workload = replace(copy_workload(source=source), reference={"out": reference}, bound={"out": 0.25})
    assert bench.check(workload, bench.copy(dtype="complex64"), COPY_LAUNCH) == Check(0.0, 0)
    for row, col, part in ((1, 2, "y = 4"), (1, 2, "x = 3"), (3, 4, "y = 3"), (3, 4, "x = 1"), (7, 7, "x += 0.375f")):
        body = f"{RIGHT} if (r == {row} && c == {col}) out[r * cols + c].{part};"
        assert bench.check(workload, bench.copy(body, "complex64"), COPY_LAUNCH).wrong == 1, (row, col, part)


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float32", 0.5), ("float16", 0.5), ("float64", 0.0), ("int32", 0.0), ("complex128", 0.5)]
)
def test_a_reference_of_another_dtype_is_an_error(dtype: str, bound: float) -> None:
    """Nothing is rounded to meet an output."""
    workload = copy_workload(bound=bound)
    with pytest.raises(ValueError, match=rf"'out' is {dtype}; it must be float{64 if bound else 32}"):
        replace(workload, reference={"out": np.ones((ROWS, COLS), dtype)})


@pytest.mark.parametrize("bound", [0.0, 0.5])
@pytest.mark.parametrize("shape", [(COLS,), (1, COLS), (ROWS, 1), (COLS, ROWS), (ROWS * COLS,)], ids=str)
def test_a_reference_of_another_shape_is_an_error(shape: tuple[int, ...], bound: float) -> None:
    workload = copy_workload(bound=bound, source=np.ones((ROWS, COLS), np.float32))
    dtype = np.float64 if bound else np.float32
    with pytest.raises(ValueError, match="shape"):
        replace(workload, reference={"out": np.ones(shape, dtype)})


# ---- what a check leaves behind -------------------------------------------------------------------------------------


def test_inputs_stay_as_they_were(bench: Bench) -> None:
    workload = copy_workload()
    before = workload.inputs["in"].copy()
    with bench.device.stage(workload, bench.comparer) as stage:
        for body in (RIGHT, "out[r * cols + c] = 0;", RIGHT):
            right = stage.check(bench.copy(body), COPY_LAUNCH).ok
            assert right == (body == RIGHT)
    assert np.array_equal(workload.inputs["in"], before)


def test_a_kernel_that_writes_its_input_is_wrong_and_spoils_no_later_check(bench: Bench) -> None:
    with bench.device.stage(copy_workload(), bench.comparer) as stage:
        spoiler = bench.copy(f"{RIGHT} if (r == 2 && c == 3) ((element*)in)[r * cols + c] = 77;")
        assert not stage.check(spoiler, COPY_LAUNCH).ok
        assert stage.check(bench.copy(), COPY_LAUNCH) == Check(0.0, 0)


def test_two_programs_do_not_disturb_each_other(bench: Bench) -> None:
    """The same entry's name, static shared arrays of the same name, loaded at once."""
    right = bench.program("transpose", TRANSPOSE)
    wrong = bench.program("transpose", TRANSPOSE.replace("tile[threadIdx.x][threadIdx.y];", "tile[0][0];"))
    a = values((20, 20), "float32")
    workload = Workload(
        ("in", "out", 20, 20), {"in": a}, {"out": ((20, 20), a.dtype)}, {"out": a.T.copy()}, {"out": 0.0}
    )
    with bench.device.stage(workload, bench.comparer) as stage:
        outcomes = [stage.check(p, Launch((2, 2, 1), (16, 16, 1))).ok for p in (right, wrong, right, wrong, right)]
    assert outcomes == [True, False, True, False, True]


def test_two_stages_do_not_disturb_each_other(bench: Bench) -> None:
    program = bench.copy()
    with bench.device.stage(copy_workload(), bench.comparer) as one:
        other_values = values((ROWS, COLS), "float32", 9)
        with bench.device.stage(copy_workload(source=other_values), bench.comparer) as other:
            assert one.check(program, COPY_LAUNCH).ok
            assert other.check(program, COPY_LAUNCH).ok
        assert one.check(program, COPY_LAUNCH).ok


@pytest.mark.parametrize("runs", [1, 5])
def test_times_are_as_many_as_asked_and_positive(bench: Bench, runs: int) -> None:
    with bench.device.stage(copy_workload(), bench.comparer) as stage:
        times = stage.times_ms(bench.copy(), COPY_LAUNCH, runs)
    assert len(times) == runs
    assert all(0 < time_ms < 1000 for time_ms in times)


# ---- shared memory --------------------------------------------------------------------------------------------------


def test_dynamic_shared_memory_up_to_the_opt_in_limit(bench: Bench) -> None:
    """Each size is right; and a smaller launch is right after a larger one."""
    program = bench.program("fill", FILL)
    most = bench.device.info.shared_bytes_optin
    assert most > 64 << 10
    for nbytes in (16 << 10, 48 << 10, (48 << 10) + 16, 64 << 10, most, 64 << 10, 1 << 10):
        check = bench.check(fill_workload(nbytes // 4), program, Launch((1, 1, 1), (256, 1, 1), nbytes))
        assert check == Check(0.0, 0), (nbytes, check)


def test_shared_memory_beyond_the_limit_is_refused_with_both_numbers(bench: Bench) -> None:
    program = bench.program("fill", FILL)
    most = bench.device.info.shared_bytes_optin
    with pytest.raises(LaunchError, match=rf"{most + 16}\b.*\b{most}\b"):
        bench.check(fill_workload(64), program, Launch((1, 1, 1), (32, 1, 1), most + 16))
    assert bench.check(fill_workload(64), program, Launch((1, 1, 1), (32, 1, 1), 256)).ok


def test_static_shared_memory_counts_towards_the_limit(bench: Bench) -> None:
    counted = "__shared__ int more[64]; more[threadIdx.x] = 0; __syncthreads();"
    text = FILL.replace("__syncthreads();", counted).replace("out[i] =", "out[i] = more[threadIdx.x] +")
    program = bench.program("fill", text)
    assert program.static_shared_bytes == 256
    most = bench.device.info.shared_bytes_optin
    assert bench.check(fill_workload(64), program, Launch((1, 1, 1), (64, 1, 1), most - 256)).ok
    with pytest.raises(LaunchError, match=rf"\b{most}\b"):
        bench.check(fill_workload(64), program, Launch((1, 1, 1), (64, 1, 1), most - 240))


@pytest.mark.parametrize("gpu", ["t4", "rtx4090", "a100-80gb"])
def test_the_emulator_has_the_limit_of_the_gpu_that_it_models(gpu: str, build_home: Path) -> None:
    device = open_device(f"emulator:{gpu}")
    bench = Bench(device, Builder(device.target, build_home, jobs=1))
    most = bench.device.info.shared_bytes_optin
    program = bench.program("fill", FILL)
    assert bench.check(fill_workload(64), program, Launch((1, 1, 1), (32, 1, 1), most)).ok
    with pytest.raises(LaunchError, match=rf"\b{most}\b"):
        bench.check(fill_workload(64), program, Launch((1, 1, 1), (32, 1, 1), most + 16))


# ---- launches that cannot be ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "launch",
    [
        Launch((1, 65536, 1), (32, 1, 1)),
        Launch((1, 1, 65536), (32, 1, 1)),
        Launch((2**31, 1, 1), (32, 1, 1)),
        Launch((0, 1, 1), (32, 1, 1)),
        Launch((1, 1, 1), (0, 1, 1)),
        Launch((1, 1, 1), (1025, 1, 1)),
        Launch((1, 1, 1), (32, 33, 1)),
        Launch((1, 1, 1), (1, 1, 65)),
    ],
    ids=lambda launch: f"{launch.grid} {launch.block}",
)
def test_a_launch_beyond_the_limits_is_refused(bench: Bench, launch: Launch) -> None:
    numbers = {str(n) for side in (launch.grid, launch.block) for n in side} | {str(launch.threads)}
    with bench.device.stage(copy_workload(), bench.comparer) as stage:
        with pytest.raises(LaunchError) as refused:
            stage.check(bench.copy(), launch)
        assert any(number in str(refused.value) for number in numbers - {"1"})
        assert stage.check(bench.copy(), COPY_LAUNCH).ok


def test_a_binary_of_another_target_is_refused(bench: Bench) -> None:
    binary = bench.binary("copy", COPY.replace("BODY", RIGHT))
    for target in (Target("cuda", "sm_10"), Target("host", "pdp11")):
        with pytest.raises(LaunchError, match=target.arch):
            bench.device.load(replace(binary, target=target))


# ---- call -----------------------------------------------------------------------------------------------------------


def test_call_works_in_place_on_the_devices_own_arrays(bench: Bench) -> None:
    a = values((33, 65), "float32")
    placed, out = bench.put(a), bench.put(np.zeros((65, 33), np.float32))
    bench.device.call(bench.program("transpose", TRANSPOSE), Launch((5, 3, 1), (16, 16, 1)), [placed, out, 33, 65])
    assert np.array_equal(bench.get(out), a.T)
    assert np.array_equal(bench.get(placed), a)


def test_call_refuses_what_a_launch_refuses(bench: Bench) -> None:
    a = bench.put(values((ROWS, COLS), "float32"))
    for launch in (Launch((1, 65536, 1), (32, 1, 1)), Launch((1, 1, 1), (32, 1, 1), 1 << 20)):
        with pytest.raises(LaunchError):
            bench.device.call(bench.copy(), launch, [a, a, ROWS, COLS])
