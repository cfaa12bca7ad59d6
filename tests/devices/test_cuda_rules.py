"""The CUDA device's rules, without a GPU: what is refused before CUDA is asked, and what is asked at all."""

import ctypes
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from autotile.devices.cuda import driver as cuda
from autotile.devices.cuda import foreign, launching
from autotile.devices.cuda.device import foreign_stream
from autotile.devices.cuda.packing import Pointer, as_value, is_size
from autotile.devices.cuda.program import MOST_READY, CudaProgram
from autotile.devices.gpus import find_gpu
from autotile.errors import ArgumentTypeError, ArgumentValueError, DeviceNotFound, LaunchError
from autotile.types import SCRATCH, Launch, LaunchStep

H200 = find_gpu("h200")
NAMES = SimpleNamespace(
    NUM_REGS="regs",
    SHARED_SIZE_BYTES="shared",
    LOCAL_SIZE_BYTES="local",
    MAX_THREADS_PER_BLOCK="threads",
    MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic",
)


class Function:
    """Stands for a function of the driver: answers with its attributes, keeps what is set and launched."""

    def __init__(self, registers, shared, name="k"):
        self.name = name
        self.attributes = {"regs": registers, "shared": shared, "local": 0, "threads": 1024}
        self.set_to: list[tuple[str, int]] = []
        self.launched: list[tuple] = []
        self.geometry: list[tuple] = []

    def get_attribute(self, name):
        return self.attributes[name]

    def set_attribute(self, name, value):
        self.set_to.append((name, value))

    def prepare(self, formats):
        self.formats = formats

    def prepared_async_call(self, grid, block, stream, *values, shared_size=0):
        self.launched.append((self.formats, values, shared_size))
        self.geometry.append((self.name, grid, block, stream))


def program(registers=32, shared=0, info=H200):
    function = Function(registers, shared)
    module = SimpleNamespace(get_function=lambda name: function)
    driver = SimpleNamespace(function_attribute=NAMES, Error=KeyError)
    return CudaProgram(driver, module, "k", b"", info), function


def launch(threads=256, shared_bytes=0, grid=(1, 1, 1)):
    return Launch(grid, (threads, 1, 1), shared_bytes)


def test_opt_in_is_raised_when_needed_and_never_lowered():
    made, function = program(shared=1024)
    for kib in (16, 47, 100, 64, 100, 200):
        made.launch(launch(shared_bytes=kib * 1024), [])
    assert function.set_to == [("dynamic", 100 * 1024), ("dynamic", 200 * 1024)]
    assert [shared for *_, shared in function.launched] == [kib * 1024 for kib in (16, 47, 100, 64, 100, 200)]


def test_static_memory_counts_towards_48_kib():
    made, function = program(shared=10 * 1024)
    made.launch(launch(shared_bytes=40 * 1024), [])
    assert function.set_to == [("dynamic", 40 * 1024)]


def test_beyond_the_opt_in_is_refused_with_both_numbers():
    made, function = program(shared=1024)
    with pytest.raises(LaunchError, match=r"233472 bytes.*1024 static \+ 232448 dynamic.*232448"):
        made.launch(launch(shared_bytes=232448), [])
    assert function.set_to == function.launched == []


def test_a_device_without_opt_in_is_never_asked():
    old = replace(H200, shared_bytes_optin=48 * 1024)
    made, function = program(info=old)
    made.launch(launch(shared_bytes=48 * 1024), [])
    with pytest.raises(LaunchError, match="gets 49152"):
        made.launch(launch(shared_bytes=48 * 1024 + 4), [])
    assert function.set_to == []


def test_registers_times_threads():
    made, _ = program(registers=128)
    with pytest.raises(LaunchError, match="128 registers × 1024 threads > 65536"):
        made.launch(launch(1024), [])
    made.launch(launch(512), [])


@pytest.mark.parametrize(
    ("geometry", "says"),
    [
        (Launch((1, 1, 1), (64, 32, 1)), "2048 threads; .* 1 to 1024"),
        (Launch((1, 1, 1), (0, 1, 1)), "0 threads"),
        (Launch((1, 1, 1), (1, 1, 128)), "z at most 64"),
        (Launch((1, 65536, 1), (32, 1, 1)), "65535"),
        (Launch((0, 1, 1), (32, 1, 1)), "at least|the least"),
    ],
)
def test_geometry_that_cannot_run(geometry, says):
    made, function = program()
    with pytest.raises(LaunchError, match=says):
        made.launch(geometry, [])
    assert function.launched == []


def test_arguments_are_sizes_or_addresses():
    made, function = program()
    torch_like = SimpleNamespace(data_ptr=lambda: 512)
    cupy_like = SimpleNamespace(__cuda_array_interface__={"data": (1024, False)})
    array_like = SimpleNamespace(gpudata=np.uintp(2048))
    made.launch(launch(), [Pointer(2**40), 7, np.int64(9), torch_like, cupy_like, array_like])
    formats, values, _ = function.launched[0]
    assert formats == list("PiiPPP")
    assert values == (2**40, 7, 9, 512, 1024, 2048)


def test_scalars_travel_in_their_own_width_and_what_is_not_there_is_null():
    made, function = program()
    for scalar, letter in ((np.float32(0.1), "f"), (np.float64(0.1), "d")):
        made.launch(launch(), [None, scalar, 3])
        formats, values, _ = function.launched[-1]
        assert formats == ["P", letter, "i"]
        assert values == (0, scalar, 3)
        assert type(values[1]) is type(scalar)


STEPPED = Launch(
    (5, 1, 1),
    (64, 1, 1),
    shared_bytes=100 * 1024,
    before=(LaunchStep("_pack", (2, 1, 1), (32, 1, 1)),),
    after=(LaunchStep("_sum", (3, 1, 1), (16, 1, 1)), LaunchStep("_pack", (1, 1, 1), (1, 1, 1))),
)


def stepped(**attributes):
    """A program of three functions, which share a list of launches; `asked` are the look-ups."""
    made, asked, order = {}, [], []

    def get_function(name):
        asked.append(name)
        if name not in ("k", "k_pack", "k_sum"):
            raise KeyError(name)
        function = Function(32, 0, name)
        function.attributes |= attributes.get(name, {})
        function.geometry = order
        return made.setdefault(name, function)

    driver = SimpleNamespace(function_attribute=NAMES, Error=KeyError)
    return CudaProgram(driver, SimpleNamespace(get_function=get_function), "k", b"", H200), made, asked, order


def test_steps_are_launched_around_in_order_with_the_same_arguments_and_looked_up_once():
    made, functions, asked, order = stepped()
    for number, arguments in enumerate(([Pointer(64), 7], [Pointer(64), 8], [7, np.float32(2)])):
        made.launch(STEPPED, arguments, "stream")
        assert order[-4:] == [
            ("k_pack", (2, 1, 1), (32, 1, 1), "stream"),
            ("k", (5, 1, 1), (64, 1, 1), "stream"),
            ("k_sum", (3, 1, 1), (16, 1, 1), "stream"),
            ("k_pack", (1, 1, 1), (1, 1, 1), "stream"),
        ]
        assert len(order) == 4 * (number + 1)
    assert asked == ["k", "k_pack", "k_sum"]
    assert functions["k"].set_to == [("dynamic", 100 * 1024)]
    for name, function in functions.items():
        assert {formats[1] for formats, *_ in function.launched} == {"i", "f"}
        assert {shared for *_, shared in function.launched} == {100 * 1024 if name == "k" else 0}


def test_a_step_that_comes_later_gets_the_format_too():
    made, functions, _, _ = stepped()
    made.launch(launch(), [Pointer(64), 7])
    made.launch(STEPPED, [Pointer(64), 7])
    assert functions["k_sum"].launched == [(["P", "i"], (64, 7), 0)]


@pytest.mark.parametrize(
    ("step", "attributes", "says"),
    [
        (LaunchStep("_pack", (1, 1, 1), (2048, 1, 1)), {}, "k_pack: a block of 2048 threads"),
        (LaunchStep("_pack", (1, 70000, 1), (32, 1, 1)), {}, "k_pack: a grid of .*70000"),
        (LaunchStep("_pack", (1, 1, 1), (64, 1, 1)), {"threads": 32}, "k_pack was compiled for at most 32"),
        (LaunchStep("_pack", (1, 1, 1), (1024, 1, 1)), {"regs": 128}, "k_pack: 128 registers × 1024"),
        (LaunchStep("_other", (1, 1, 1), (32, 1, 1)), {}, "no function k_other"),
    ],
)
def test_a_step_that_cannot_run_is_refused_before_anything_is_launched(step, attributes, says):
    made, _, _, order = stepped(k_pack=attributes)
    with pytest.raises(LaunchError, match=says):
        made.launch(replace(STEPPED, before=(step,)), [])
    assert order == []


def test_launches_that_take_turns_are_checked_once_each():
    made, _, _, _ = stepped()
    other = replace(STEPPED)
    first = made.ready(STEPPED)
    assert made.ready(other) is not first
    assert made.ready(STEPPED) is first
    for _ in range(200):
        made.ready(replace(STEPPED))
    assert len(made._ready) <= MOST_READY


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        (2**31, ArgumentValueError),
        (np.int64(-(2**31) - 1), ArgumentValueError),
        (1.5, ArgumentTypeError),
        (SCRATCH, ArgumentTypeError),
        (np.float16(1.5), ArgumentTypeError),
        (True, ArgumentTypeError),
        (np.zeros(4), ArgumentTypeError),
        ("a", ArgumentTypeError),
    ],
)
def test_other_arguments_are_refused(argument, error):
    assert is_size(argument)
    with pytest.raises(error):
        as_value(argument)


def test_streams_of_other_libraries():
    assert foreign_stream(None) is None
    assert foreign_stream(77) == 77
    assert foreign_stream(SimpleNamespace(cuda_stream=5)) == 5
    assert foreign_stream(SimpleNamespace(ptr=6)) == 6
    assert foreign_stream(SimpleNamespace(__cuda_stream__=lambda: (0, 8))) == 8
    assert foreign_stream(np.int64(9)) == 9


@pytest.mark.parametrize("stream", ["default", 3.0, True, object(), np.zeros(2)])
def test_what_is_no_stream(stream):
    with pytest.raises(ArgumentTypeError, match=r"stream is a .*; give a stream of PyTorch, CuPy or pycuda"):
        foreign_stream(stream)


def test_the_larger_of_two_threads_wants_is_opted_in():
    """Setting the attribute takes its time, during which the other thread comes by."""
    made, function = program()
    begun, set_attribute = threading.Event(), function.set_attribute

    def slowly(name, value):
        begun.set()
        time.sleep(0.05)
        set_attribute(name, value)

    function.set_attribute = slowly
    first = threading.Thread(target=lambda: made.launch(launch(shared_bytes=200 * 1024), []))
    first.start()
    begun.wait()
    made.launch(launch(shared_bytes=100 * 1024), [])
    first.join()
    assert function.set_to == [("dynamic", 200 * 1024)]
    assert made.opted_in_bytes == 200 * 1024


def test_a_forked_child_is_told_to_spawn(monkeypatch):
    monkeypatch.setattr(cuda, "_initialised_in", 1)
    with pytest.raises(DeviceNotFound, match=r'before this process .*start processes with "spawn"'):
        cuda.check_not_forked()


def test_importing_starts_nothing():
    code = "import sys, autotile.devices.cuda; print([m for m in sys.modules if m.split('.')[0] == 'pycuda'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_four_threads_load_a_program_for_foreign_streams_once(monkeypatch):
    """A second one would be unloaded while its launch is under way."""
    asked = []

    class Library:
        def __getitem__(self, name):  # as a driver before CUDA 11.8
            raise AttributeError(name)

        def __getattr__(self, name):
            def function(*arguments):
                asked.append(name)
                time.sleep(0.02)
                return 0

            return function

    for module in (foreign, launching):
        monkeypatch.setattr(module, "libcuda", Library)
    monkeypatch.setattr(foreign, "current_context", lambda: 0x1000)
    made, _ = program()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda kib: made.launch_foreign(launch(shared_bytes=kib * 1024), [], 77), (200, 64, 100, 80)))
    made.launch_foreign(replace(STEPPED, before=(), after=()), [None, 3, np.float32(1), np.float64(2)], 77)
    counts = Counter(asked)
    assert counts["cuModuleLoadData"] == counts["cuModuleGetFunction"] == 1
    assert counts["cuModuleUnload"] == 0
    assert counts["cuLaunchKernel"] == 5


def test_on_a_foreign_stream_steps_are_launched_around_with_values_of_their_width(monkeypatch):
    launched, names = [], {}

    class Library:
        def __getitem__(self, name):  # as a driver before CUDA 11.8
            raise AttributeError(name)

        def __getattr__(self, name):
            def function(*arguments):
                if name == "cuModuleGetFunction":
                    arguments[0]._obj.value = len(names) + 1
                    names[len(names) + 1] = arguments[2].decode()
                if name == "cuLaunchKernel":
                    at = arguments[9]
                    values = [ctypes.cast(at[i], ctypes.POINTER(c))[0] for i, c in enumerate(WIDTHS)]
                    launched.append((names[arguments[0].value], arguments[1:7], arguments[7:9], values))
                return 0

            return function

    for module in (foreign, launching):
        monkeypatch.setattr(module, "libcuda", Library)
    monkeypatch.setattr(foreign, "current_context", lambda: 0x1000)
    made, _, _, _ = stepped()
    values = [2**40, 0, -7, 0.5, 1e300]
    for _ in range(2):
        made.launch_foreign(STEPPED, [Pointer(2**40), None, -7, np.float32(0.5), np.float64(1e300)], 77)
    assert (
        launched[:4]
        == launched[4:]
        == [
            ("k_pack", (2, 1, 1, 32, 1, 1), (0, 77), values),
            ("k", (5, 1, 1, 64, 1, 1), (100 * 1024, 77), values),
            ("k_sum", (3, 1, 1, 16, 1, 1), (0, 77), values),
            ("k_pack", (1, 1, 1, 1, 1, 1), (0, 77), values),
        ]
    )


WIDTHS = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_float, ctypes.c_double)
