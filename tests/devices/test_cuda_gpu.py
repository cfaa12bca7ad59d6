"""The CUDA device on a real GPU: `pytest -m gpu`."""

import ctypes
import subprocess
import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from autotile.build import Builder
from autotile.devices.base import Workload
from autotile.devices.cuda import Pointer, cuda_device_count, open_cuda
from autotile.devices.cuda.driver import current_context, libcuda
from autotile.errors import DeviceNotFound, LaunchError
from autotile.types import Launch, Source

pytestmark = pytest.mark.gpu
N = 5000
LAUNCH = Launch(((N + 255) // 256, 1, 1), (256, 1, 1))

SCALE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void scale(const TYPE *a, TYPE *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
    WRONG
}
"""
SHARED = """
extern "C" __global__ void fill(int *out, int words) {
    extern __shared__ int row[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) row[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) { int s = 0; for (int i = 0; i < words; ++i) s += row[i] == i; out[0] = s; }
}
"""
TYPES = {
    "float16": ("__half", np.dtype(np.float16)),
    "bfloat16": ("__nv_bfloat16", np.dtype(ml_dtypes.bfloat16)),
    "float32": ("float", np.dtype(np.float32)),
    "float64": ("double", np.dtype(np.float64)),
    "float8_e4m3fn": ("__nv_fp8_e4m3", np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8_e5m2": ("__nv_fp8_e5m2", np.dtype(ml_dtypes.float8_e5m2)),
}
WORDS = {
    "int8": ("signed char", np.dtype(np.int8)),
    "int16": ("short", np.dtype(np.int16)),
    "int32": ("int", np.dtype(np.int32)),
    "int64": ("long long", np.dtype(np.int64)),
    "complex128": ("double2", np.dtype(np.complex128)),
}


@pytest.fixture(scope="module")
def device():
    return open_cuda(0)


@pytest.fixture(scope="module")
def builder(device, tmp_path_factory):
    with Builder(device.target, tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def comparer(device, builder):
    return builder.build(device.comparer)


def scale(device, builder, c_type: str, wrong: str = ""):
    header = "#include <cuda_fp8.h>\n" if c_type.startswith("__nv_fp8") else ""
    text = header + SCALE.replace("TYPE", c_type).replace("WRONG", wrong)
    return device.load(builder.build(Source("scale", "scale", text)))


def workload(dtype: np.dtype, *, exact: bool, values=None) -> Workload:
    a = np.random.default_rng(0).integers(1, 100, N) if values is None else values
    if values is None and not exact and dtype.itemsize == 1:
        a = np.arange(N) % 120 / 8 + 1  # all that 8 bits can hold there
    a = np.asarray(a).astype(dtype)
    return Workload(
        ("a", "b", N),
        {"a": a},
        {"b": ((N // 50, 50), dtype)},
        {"b": (a if exact else a.astype(np.float64)).reshape(N // 50, 50)},
        {"b": 0.0 if exact else np.full((N // 50, 50), 1e-3)},
    )


def test_info_is_the_devices_own(device):
    info = device.info
    assert info.kind == "cuda"
    assert not info.estimated
    assert info.shared_bytes_static == 49152 <= info.shared_bytes_optin <= info.shared_bytes_per_sm
    assert 0.3 < info.clock_ghz < 5
    assert 50 < info.bandwidth_gbs < 20000
    assert info.max_registers_per_thread == 255
    if info.name == "NVIDIA H200":
        assert (info.shared_bytes_optin, info.shared_bytes_per_sm, info.sm_count) == (232448, 233472, 132)


def test_no_such_index_says_how_many_there_are():
    with pytest.raises(DeviceNotFound, match=rf"{cuda_device_count()} GPU"):
        open_cuda(99)


@pytest.mark.parametrize("name", [*TYPES, *WORDS])
@pytest.mark.parametrize("exact", [True, False])
def test_the_comparer_finds_one_wrong_element(device, builder, comparer, name, exact):
    if name in WORDS and not exact:
        pytest.skip("compared bytewise")
    c_type, dtype = {**TYPES, **WORDS}[name]
    with device.stage(workload(dtype, exact=exact), comparer) as stage:
        right = stage.check(scale(device, builder, c_type), LAUNCH)
        assert (right.ok, right.wrong, right.detail) == (True, 0, "")
        a = stage._workload.inputs["a"]
        other = int(np.flatnonzero(a != a[2077])[0])  # eight bits hold few numbers
        wrong = stage.check(scale(device, builder, c_type, f"if (i == 2077) b[i] = a[{other}];"), LAUNCH)
        assert wrong.wrong == 1
        assert "the first at [41, 27]" in wrong.detail
        assert stage.check(scale(device, builder, c_type), LAUNCH).ok


@pytest.mark.parametrize("name", TYPES)
def test_nan_and_infinity_by_position(device, builder, comparer, name):
    c_type, dtype = TYPES[name]
    values = np.arange(N) % 50 + 1.0
    values[[10, 20]] = np.nan, np.nan if name == "float8_e4m3fn" else np.inf  # which has no infinity
    with device.stage(workload(dtype, exact=False, values=values), comparer) as stage:
        assert stage.check(scale(device, builder, c_type), LAUNCH).ok
        moved = stage.check(scale(device, builder, c_type, "if (i == 11) b[i] = a[10];"), LAUNCH)
        assert moved.wrong == 1
        assert moved.max_error == float("inf")
        lost = stage.check(scale(device, builder, c_type, "if (i == 20) b[i] = a[0];"), LAUNCH)
        assert lost.wrong == 1


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_every_float_of_8_bits_is_read_as_it_is(device, builder, comparer, name):
    c_type, dtype = TYPES[name]
    every = np.resize(np.arange(256, dtype=np.uint8), N).view(dtype)
    with device.stage(workload(dtype, exact=False, values=every), comparer) as stage:
        found = stage.check(scale(device, builder, c_type), LAUNCH)
        assert (found.ok, found.max_error) == (True, 0.0)


@pytest.mark.parametrize("poison", [0xFF, 0xA5])
def test_unwritten_elements_never_pass(device, builder, comparer, poison):
    a = np.full(N, poison, np.uint8).view(np.int8)
    half = Launch((2, 1, 1), (256, 1, 1))
    with device.stage(workload(np.dtype(np.int8), exact=True, values=a), comparer) as stage:
        found = stage.check(scale(device, builder, "signed char"), half)
        assert found.wrong == N - 512
        assert "never written" in found.detail


def test_writes_outside_are_seen(device, builder, comparer):
    with device.stage(workload(np.dtype(np.float32), exact=True), comparer) as stage:
        after = stage.check(scale(device, builder, "float", "if (i == 0) b[n] = 1;"), LAUNCH)
        before = stage.check(scale(device, builder, "float", "if (i == 0) b[-1] = 1;"), LAUNCH)
        inputs = stage.check(scale(device, builder, "float", "if (i == 3) ((float *)a)[4000] = 1;"), LAUNCH)
        assert "after the end" in after.detail
        assert "before the start" in before.detail
        assert not inputs.ok
        assert stage.check(scale(device, builder, "float"), LAUNCH).ok


def test_without_a_comparer_the_host_compares(device, builder):
    with device.stage(workload(np.dtype(np.float32), exact=False)) as stage:
        assert stage.check(scale(device, builder, "float"), LAUNCH).ok
        assert stage.check(scale(device, builder, "float", "if (i == 9) b[i] = 0;"), LAUNCH).wrong == 1


def test_times_are_of_the_kernel(device, builder, comparer):
    with device.stage(workload(np.dtype(np.float32), exact=True), comparer) as stage:
        times = stage.times_ms(scale(device, builder, "float"), LAUNCH, 20)
        assert stage.input_sets == 3
    assert len(times) == 20
    assert all(0 < time_ms < 1 for time_ms in times)


def test_shared_memory_is_opted_in_and_right(device, builder):
    program = device.load(builder.build(Source("fill", "fill", SHARED)))
    out = device.upload(np.zeros(1, np.int32))
    result = np.empty(1, np.int32)
    most = device.info.shared_bytes_optin
    for nbytes in (16 << 10, 48 << 10, 49 << 10, most, 64 << 10):
        device.call(program, Launch((1, 1, 1), (256, 1, 1), nbytes), [Pointer(int(out)), nbytes // 4])
        device.download(out, result)
        assert result[0] == nbytes // 4
    assert program.opted_in_bytes == most
    with pytest.raises(LaunchError, match=rf"{most + 1024} bytes.*{most}"):
        device.call(program, Launch((1, 1, 1), (256, 1, 1), most + 1024), [Pointer(int(out)), 4])


def test_the_callers_context_stays_current(device, builder):
    library, other = libcuda(), ctypes.c_void_p()
    before = current_context()
    import pycuda.driver as drv

    own = drv.Device(0).make_context()
    try:
        library.cuCtxGetCurrent(ctypes.byref(other))
        program = scale(device, builder, "float")
        assert current_context() == other.value
        a = device.upload(np.ones(N, np.float32))
        device.call(program, LAUNCH, [a, a, N])
        device.synchronize()
        assert current_context() == other.value
        with pytest.raises(LaunchError):
            device.call(program, Launch((1, 1, 1), (2048, 1, 1)), [a, a, N])
        assert current_context() == other.value
    finally:
        own.pop()
        own.detach()
    assert current_context() == before


@pytest.mark.parametrize("kind", ["legacy handle", "per-thread handle", "pycuda", "foreign"])
def test_streams(device, builder, kind):
    program = device.load(builder.build(Source("fill", "fill", SHARED)))
    out = device.upload(np.zeros(1, np.int32))
    with device.active():
        import pycuda.driver as drv

        own = drv.Stream()
    foreign = ctypes.c_void_p()
    if kind == "foreign":
        with device.active():
            assert libcuda().cuStreamCreate(ctypes.byref(foreign), 1) == 0
    stream = {"legacy handle": 0, "per-thread handle": 2, "pycuda": own, "foreign": foreign.value}[kind]
    device.call(program, Launch((1, 1, 1), (256, 1, 1), 100 << 10), [Pointer(int(out)), 25600], stream)
    device.synchronize()
    result = np.empty(1, np.int32)
    device.download(out, result)
    assert result[0] == 25600


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    head = """
        import sys
        from pathlib import Path
        import numpy as np
        from autotile.build import Builder
        from autotile.devices.cuda import open_cuda
        from autotile.errors import LaunchError
        from autotile.types import Launch, Source
        device = open_cuda(0)
        FAULT = 'extern "C" __global__ void k(int *o, int far) { if (far) o = (int *)16; o[0] = 1; }'
        with Builder(device.target, Path(sys.argv[1])) as builder:
            program = device.load(builder.build(Source("k", "k", FAULT)))
        out = device.upload(np.zeros(4, np.int32))
        launch = Launch((1, 1, 1), (1, 1, 1))
    """
    script = textwrap.dedent(head) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )


def test_an_illegal_address_poisons_and_says_so(tmp_path):
    done = run(
        """
        device.call(program, launch, [out, 1])
        try:
            device.synchronize()
        except LaunchError as error:
            print("first:", error)
        print("poisoned:", device.poisoned)
        try:
            device.call(program, launch, [out, 0])
        except LaunchError as error:
            print("later:", error)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "first:" in done.stdout
    assert "illegal" in done.stdout
    assert "later:" in done.stdout
    assert "new process" in done.stdout


def test_a_script_that_raises_ends_with_its_own_traceback(tmp_path):
    done = run("device.call(program, launch, [out, 0])\nraise ValueError('mine')\n", tmp_path)
    assert done.returncode == 1, done.stderr
    assert "ValueError: mine" in done.stderr
    assert "context stack" not in done.stderr


def test_a_forked_child_is_told_to_spawn(tmp_path):
    done = run(
        """
        import os
        from autotile.errors import DeviceNotFound
        child = os.fork()
        if not child:
            try:
                open_cuda(0)
            except DeviceNotFound as error:
                os._exit(0 if "spawn" in str(error) else 3)
            os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_a_binary_for_another_arch_is_refused(device, builder):
    from dataclasses import replace

    from autotile.types import Target

    binary = builder.build(Source("scale", "scale", SCALE.replace("TYPE", "float").replace("WRONG", "")))
    with pytest.raises(LaunchError, match="sm_10"):
        device.load(replace(binary, target=Target("cuda", "sm_10")))
