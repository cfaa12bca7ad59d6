"""Tensor maps on their way to a kernel, and kernels that begin early, on a driver that notes what it is asked."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotile.devices.cuda import foreign, launching, prepared, tensor_maps
from autotile.devices.cuda import program as programs
from autotile.devices.cuda.foreign import Packed
from autotile.devices.cuda.packing import Address, Pointer
from autotile.devices.cuda.prepared import Moving, PreparedCall, PreparedLaunch
from autotile.devices.cuda.program import CudaProgram
from autotile.devices.cuda.tensor_maps import ALIGNMENT, MAP_BYTES, encoded
from autotile.devices.gpus import find_gpu
from autotile.errors import LaunchError
from autotile.types import SCRATCH, Launch, LaunchStep, TensorMap

OF_A = TensorMap(0, "bfloat16", 0, (640, 512, 3), (1280, 512 * 1280), (64, 128, 1))
OF_SCRATCH = TensorMap(2, "tf32", 4096, (50, 36), (208,), (32, 64))


class Driver:
    """A map is the address that it is of, as often as it fits. What a launch reads is kept: maps, then `kinds`."""

    def __init__(self, kinds: list[Any]) -> None:
        self.kinds, self.maps = kinds, 0
        self.status, self.known = 0, True
        self.encoded: list[tuple[Any, ...]] = []
        self.launched: list[list[Any]] = []
        self.early: list[bool] = []

    def __getitem__(self, name: str) -> Any:
        if name == "cuTensorMapEncodeTiled" and self.known:
            return self.encode
        if name == "cuLaunchKernelEx":
            return self.launch_as_told
        raise AttributeError(name)

    def __getattr__(self, name: str) -> Any:
        return lambda *given: 0

    def encode(self, place: Any, kind: Any, rank: Any, address: Any, sizes: Any, strides: Any, box: Any, steps: Any,
               *choices: Any) -> int:  # fmt: skip
        assert place.value % ALIGNMENT == 0
        self.encoded.append(
            (kind.value, rank.value, address.value, tuple(sizes), tuple(strides), tuple(box), tuple(steps),
             tuple(choice.value for choice in choices))
        )  # fmt: skip
        if not self.status:
            ctypes.memmove(place.value, address.value.to_bytes(8, "little") * (MAP_BYTES // 8), MAP_BYTES)
        return self.status

    def launch_as_told(self, config: Any, function: Any, parameters: Any, extra: None) -> int:
        given = ctypes.cast(config, ctypes.POINTER(launching.LaunchConfig)).contents
        self.early.append(given.attribute_count == 1)
        if given.attribute_count:  # of CUlaunchAttribute, 72 bytes: the identity, padding, and a value that is not 0
            identity, _, value = struct.unpack("ii64s", ctypes.string_at(given.attributes, 72))
            assert (identity, value) == (6, (1).to_bytes(64, "little"))
        return self.launch(parameters)

    def launch(self, parameters: Any) -> int:
        assert len(parameters) == self.maps + len(self.kinds)
        for place in parameters[: self.maps]:
            assert place % ALIGNMENT == 0
        maps = [set(np.frombuffer(ctypes.string_at(place, MAP_BYTES), np.uint64)) for place in parameters[: self.maps]]
        assert all(len(found) == 1 for found in maps)
        values = [kind.from_address(at).value for kind, at in zip(self.kinds, parameters[self.maps :], strict=True)]
        self.launched.append([*(int(address) for found in maps for address in found), *values])
        return 0


KINDS = [ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint64, ctypes.c_float]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver(KINDS)
    for module in (tensor_maps, foreign, launching, prepared):
        monkeypatch.setattr(module, "libcuda", lambda: made)
    monkeypatch.setattr(tensor_maps, "error_words", lambda status: f"words of {status}")
    monkeypatch.setattr(foreign, "current_context", lambda: 1)
    encoded.cache_clear()
    return made


# ---- one map --------------------------------------------------------------------------------------------------------


def test_what_the_driver_is_asked_for(driver: Driver) -> None:
    """Swizzled lines of 128 bytes, fetched 128 bytes at once, zero outside: of cuda.h, 3, 2 and 0."""
    assert encoded(OF_A, 0x7000) == (0x7000).to_bytes(8, "little") * 16
    assert encoded(OF_SCRATCH, 0x8000) == (0x9000).to_bytes(8, "little") * 16
    assert driver.encoded == [
        (9, 3, 0x7000, (640, 512, 3), (1280, 512 * 1280), (64, 128, 1), (1, 1, 1), (0, 3, 2, 0)),
        (11, 2, 0x9000, (50, 36), (208,), (32, 64), (1, 1), (0, 3, 2, 0)),
    ]


def test_a_map_is_encoded_once_for_each_address(driver: Driver) -> None:
    for address in (0x7000, 0x7000, 0x8000, 0x7000, 0x8000):
        encoded(OF_A, address)
    assert [asked[2] for asked in driver.encoded] == [0x7000, 0x8000]


def test_a_refusal_says_what_of_and_why_and_is_not_remembered(driver: Driver) -> None:
    driver.status = 1
    with pytest.raises(
        LaunchError, match=r"the driver makes no tensor map of TensorMap\(.*\) at address 0x9000: words"
    ):
        encoded(OF_SCRATCH, 0x8000)
    driver.status = 0
    assert encoded(OF_SCRATCH, 0x8000)


def test_a_driver_before_cuda_12(driver: Driver) -> None:
    driver.known = False
    with pytest.raises(LaunchError, match="this driver knows no tensor maps: they came with CUDA 12"):
        encoded(OF_A, 0x7000)


# ---- the long way ---------------------------------------------------------------------------------------------------


def test_maps_come_first_among_the_parameters(driver: Driver) -> None:
    driver.maps = 2
    packed = Packed([Address(0x7000), 5, Address(0x8000), np.float32(0.5)], (OF_A, OF_SCRATCH))
    driver.launch(packed.pointers)
    assert driver.launched == [[0x7000, 0x9000, 0x7000, 5, 0x8000, 0.5]]


LAUNCH = Launch((2, 1, 1), (64, 1, 1), before=(LaunchStep("_pack", (1, 1, 1), (32, 1, 1)),), maps=(OF_A, OF_SCRATCH))
NAMES = ("NUM_REGS", "SHARED_SIZE_BYTES", "LOCAL_SIZE_BYTES", "MAX_THREADS_PER_BLOCK", "MAX_DYNAMIC_SHARED_SIZE_BYTES")


def program() -> CudaProgram:
    """Its functions are not launched by pycuda."""
    function = SimpleNamespace(get_attribute=lambda name: 1024 if name == "MAX_THREADS_PER_BLOCK" else 0)
    attributes = SimpleNamespace(**{name: name for name in NAMES})
    cuda = SimpleNamespace(function_attribute=attributes, Error=KeyError)
    return CudaProgram(cuda, SimpleNamespace(get_function=lambda name: function), "k", b"", find_gpu("h200"))


def arguments(a: int, alpha: float = 0.5) -> list[Any]:
    return [Pointer(a), 5, Pointer(0x8000), np.float32(alpha)]


@pytest.mark.parametrize("stream", [None, SimpleNamespace(handle=77)])
def test_a_launch_with_maps_goes_through_the_drivers_library(driver: Driver, stream: Any) -> None:
    driver.maps = 2
    made = program()
    for a in (0x7000, 0x7000, 0x7100):
        made.launch(LAUNCH, arguments(a), stream)
    assert driver.launched == [[a, 0x9000, a, 5, 0x8000, 0.5] for a in (0x7000, 0x7000, 0x7100) for _ in range(2)], (
        "the step takes the maps too, and they follow the addresses"
    )


def test_a_bound_launch_is_packed_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.maps, counted = 2, []
    monkeypatch.setattr(programs, "Packed", lambda *given: counted.append(given) or Packed(*given))
    queue = program().bound(LAUNCH, arguments(0x7000))
    assert not driver.launched
    for _ in range(3):
        queue()
    assert len(counted) == 1
    assert driver.launched == [[0x7000, 0x9000, 0x7000, 5, 0x8000, 0.5]] * 6


def test_scalars_that_compare_equal_are_told_apart(driver: Driver) -> None:
    driver.maps = 2
    made = program()
    for alpha in (0.0, -0.0):
        made.launch_foreign(LAUNCH, arguments(0x7000, alpha), 7)
    assert [str(values[-1]) for values in driver.launched] == ["0.0", "0.0", "-0.0", "-0.0"]


# ---- the short way --------------------------------------------------------------------------------------------------


def ready(maps: tuple[TensorMap, ...] = (OF_A, OF_SCRATCH)) -> PreparedLaunch:
    calls = [PreparedCall(ctypes.c_void_p(number), (1, 1, 1), (32, 1, 1)) for number in (1, 2)]
    return PreparedLaunch(None, calls, [Moving(0), 5, SCRATCH, np.float32(0.5)], maps)


def test_a_prepared_launch_encodes_maps_where_addresses_are_new(driver: Driver) -> None:
    driver.maps = 2
    launch = ready()
    for a, scratch in ((0x7000, 0x8000), (0x7000, 0x8000), (0x7100, 0x8000), (0x7100, 0xA000), (0x7000, 0x8000)):
        assert launch.launch([a], 7, (np.float32(0.5),), scratch) == 0
    assert [values[:2] for values in driver.launched[::2]] == [
        [0x7000, 0x9000], [0x7000, 0x9000], [0x7100, 0x9000], [0x7100, 0xB000], [0x7000, 0x9000],
    ]  # fmt: skip
    assert driver.launched[::2] == driver.launched[1::2]
    assert [asked[2] for asked in driver.encoded] == [0x7000, 0x9000, 0x7100, 0xB000]


def test_a_prepared_launch_asks_for_no_map_of_the_address_that_it_had(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.maps, asked = 2, []
    monkeypatch.setattr(prepared, "encoded", lambda *given: asked.append(given[1]) or encoded(*given))
    launch = ready()
    for a in (0x7000, 0x7000, 0x7100, 0x7100, 0x7000):
        launch.launch([a], 7, (np.float32(0.5),), 0x8000)
    assert asked == [0x7000, 0x8000, 0x7100, 0x7000]


def test_a_prepared_launch_whose_map_is_refused_launches_nothing(driver: Driver) -> None:
    driver.maps, driver.status = 2, 1
    launch = ready()
    with pytest.raises(LaunchError, match="makes no tensor map"):
        launch.launch([0x7000], 7, (np.float32(0.5),), 0x8000)
    assert driver.launched == []
    driver.status = 0
    assert launch.launch([0x7000], 7, (np.float32(0.5),), 0x8000) == 0
    assert driver.launched[0][:2] == [0x7000, 0x9000]


def test_a_launch_without_maps_asks_for_none(driver: Driver) -> None:
    assert ready(()).launch([0x7000], 7, (np.float32(0.5),), 0x8000) == 0
    assert driver.launched[0] == [0x7000, 5, 0x8000, 0.5]
    assert driver.encoded == []


# ---- a main function that begins before its packing has ended -------------------------------------------------------

AHEAD = replace(LAUNCH, maps=(), overlap=True)
"""The step, and the main function that may begin before it has ended."""


@pytest.mark.parametrize("launch", [AHEAD, replace(AHEAD, maps=LAUNCH.maps)], ids=["alone", "with maps"])
def test_the_main_function_alone_may_begin_early(driver: Driver, launch: Launch) -> None:
    driver.maps, made = len(launch.maps), program()
    made.launch(launch, arguments(0x7000))
    made.prepare(launch, [Moving(0), 5, Moving(1), np.float32(0.5)]).launch([0x7000, 0x8000], 7, (np.float32(0.5),))
    assert driver.early == [False, True] * 2


@pytest.mark.parametrize("launch", [LAUNCH, replace(AHEAD, before=()), replace(AHEAD, before=(), after=AHEAD.before)])
def test_it_waits_for_all_that_is_ahead_where_it_has_no_step_there(driver: Driver, launch: Launch) -> None:
    """What lies ahead is somebody else's then, and does not say when its memory is there."""
    driver.maps, made = len(launch.maps), program()
    made.launch(launch, arguments(0x7000))
    made.prepare(launch, [Moving(0), 5, Moving(1), np.float32(0.5)]).launch([0x7000, 0x8000], 7, (np.float32(0.5),))
    assert set(driver.early) == {False}
