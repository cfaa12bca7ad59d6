"""Whose CUDA context is current: a fake of CUDA's stack of contexts, and of pycuda's beside it, stands for a GPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from autotile.devices.cuda import device as devices
from autotile.devices.cuda import driver as cuda
from autotile.devices.cuda.device import CudaDevice, open_cuda, open_unguarded
from autotile.devices.cuda.stage import GUARD_BYTES
from autotile.errors import ArgumentTypeError, DeviceNotFound, LaunchError
from autotile.types import Launch

LAUNCH = Launch((1, 1, 1), (32, 1, 1))
OURS, THEIRS = 0x1000, 0x2000


class Refused(Exception):
    """Stands for pycuda's Error."""


class FakeCuda:
    """CUDA's stack of contexts in one thread, and pycuda's own beside it, as far as a call uses them."""

    def __init__(self, *stack):
        self.stack, self.pycudas = list(stack), []
        self.refuse_push = False
        self.memory = {}

    # libcuda

    def cuCtxGetCurrent(self, out):  # noqa: N802
        out._obj.value = self.stack[-1] if self.stack else None
        return 0

    def cuCtxSetCurrent(self, handle):  # noqa: N802
        self.stack[-1:] = [handle] if handle else []
        return 0

    def cuCtxPushCurrent_v2(self, handle):  # noqa: N802
        if self.refuse_push:
            return 201
        self.stack.append(handle)
        return 0

    def cuCtxPopCurrent_v2(self, out):  # noqa: N802
        out._obj.value = self.stack.pop()
        return 0

    def cuPointerGetAttribute(self, out, attribute, address):  # noqa: N802
        if address not in self.memory:
            return 1
        out._obj.value = self.memory[address]
        return 0

    def cuGetErrorString(self, status, out):  # noqa: N802
        out._obj.value = b"invalid device context"
        return 0

    # pycuda, which takes what lies uppermost for its own: it pops that before it pushes

    def push(self):
        if self.pycudas:
            self.stack.pop()
        self.stack.append(OURS)
        self.pycudas.append(OURS)

    def pop(self):
        self.stack.pop()
        self.pycudas.pop()
        if self.pycudas:
            self.stack.append(self.pycudas[-1])


@pytest.fixture
def opened(monkeypatch):
    """A function that opens a CudaDevice over a stack of contexts; gives both."""

    def make(*stack):
        library = FakeCuda(*stack)
        context = SimpleNamespace(handle=OURS, push=library.push, pop=library.pop)
        gpu = SimpleNamespace(
            name=lambda: "a GPU",
            compute_capability=lambda: (9, 0),
            pci_bus_id=lambda: "0000:00:00.0",
            get_attribute=lambda number: 0,
            retain_primary_context=lambda: context,
        )

        def device(index):
            return gpu

        device.count = lambda: 1
        driver = SimpleNamespace(
            Error=Refused,
            Device=device,
            device_attribute=SimpleNamespace(),
            get_driver_version=lambda: 13000,
            Context=SimpleNamespace(synchronize=lambda: None),
        )
        monkeypatch.setattr(cuda, "libcuda", lambda: library)
        monkeypatch.setattr(cuda, "load_driver", lambda: driver)
        monkeypatch.setattr(devices, "_open", {})
        return CudaDevice(driver, 0), library

    return make


class Watching:
    """A program that notes which context is current when it is launched, or raises."""

    def __init__(self, library, error=None):
        self.libcuda, self.error, self.seen = library, error, []

    def launch(self, launch, arguments, stream):
        self.seen.append(self.libcuda.stack[-1])
        if self.error is not None:
            raise self.error

    launch_foreign = launch


def test_a_device_is_opened_once_and_one_without_guards_is_another(opened):
    """What runs under a checker of memory accesses takes no guards from what does not."""
    opened()
    guarded, bare = open_cuda(0), open_unguarded(0)
    assert (guarded.guard_bytes, bare.guard_bytes) == (GUARD_BYTES, 0)
    assert guarded.reopen() is guarded is open_cuda(0)
    assert guarded.reopen_unguarded() is bare is open_unguarded(0)
    with pytest.raises(DeviceNotFound, match="there is no cuda:1"):
        open_unguarded(1)


STACKS = [(), (THEIRS,), (OURS,), (OURS, THEIRS), (THEIRS, OURS)]


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("stream", [None, 77])
def test_a_call_runs_in_its_context_and_leaves_the_callers(opened, stack, stream):
    device, library = opened(*stack)
    watching = Watching(library)
    for _ in range(3):
        device.call(watching, LAUNCH, [], stream)
    assert watching.seen == [OURS] * 3
    assert library.stack == list(stack)


@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize(
    ("error", "comes_out"),
    [
        (Refused("no"), LaunchError),
        (ArgumentTypeError("no"), ArgumentTypeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=repr,
)
def test_so_does_one_that_raises(opened, stack, error, comes_out):
    device, library = opened(*stack)
    with pytest.raises(comes_out):
        device.call(Watching(library, error), LAUNCH, [])
    assert library.stack == list(stack)
    fine = Watching(library)
    device.call(fine, LAUNCH, [])
    assert fine.seen == [OURS]


def test_a_context_that_cannot_be_pushed_is_not_popped(opened):
    device, library = opened(THEIRS)
    library.refuse_push = True
    with pytest.raises(LaunchError, match="its context cannot be used: invalid device context"):
        device.call(Watching(library), LAUNCH, [])
    assert library.stack == [THEIRS]


@pytest.mark.parametrize("pycudas", [(), (THEIRS,)], ids=str)
@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_other_work_leaves_the_callers_context_too(opened, stack, pycudas):
    """Whether pycuda made the current context current, or another library did so past it."""
    device, library = opened(*stack)
    library.pycudas += pycudas[: len(stack)]
    with device.active(), device.active():  # a call within a call
        assert library.stack[-1] == OURS

    @device.active()
    def fails():
        library.cuCtxSetCurrent(THEIRS)  # as PyTorch does, past pycuda
        raise Refused("no")

    with pytest.raises(LaunchError):
        fails()
    assert library.stack == list(stack)


def test_a_context_that_cannot_be_made(opened):
    device, _ = opened()

    def refuse():
        raise Refused("out of memory")

    device._driver.Device(0).retain_primary_context = refuse
    with pytest.raises(DeviceNotFound, match=r"cuda:0 \(a GPU\) cannot be used: out of memory. `nvidia-smi` lists"):
        device.call(Watching(None), LAUNCH, [])


def test_memory_of_another_context(opened):
    device, library = opened()
    library.memory = {256: OURS, 512: THEIRS, 768: None}
    assert [device.owns(address) for address in (256, 512, 768, 1024)] == [True, False, True, True]


def test_a_forked_child_asks_cuda_nothing(opened, monkeypatch):
    """Its parent's context looks current to it, and CUDA's own words for that are `initialization error`."""
    device, library = opened(OURS)
    monkeypatch.setattr(cuda, "_initialised_in", 1)
    watching = Watching(library)
    for attempt in (
        lambda: device.call(watching, LAUNCH, []),
        device.synchronize,
        lambda: device.upload(np.zeros(1)),
        lambda: device.empty_gpuarray((1,), np.float32),
    ):
        with pytest.raises(DeviceNotFound, match="spawn"):
            attempt()
    assert watching.seen == []
