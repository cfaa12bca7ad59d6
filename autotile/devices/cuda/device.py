"""One GPU, opened: its primary context, its loaded programs, and what happens when CUDA says no."""

from __future__ import annotations

import ctypes
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np

from autotile.assets import DATA_DIR
from autotile.devices.base import Array, Workload
from autotile.devices.cuda import driver as cuda
from autotile.devices.cuda.clocks import ClockMeter
from autotile.devices.cuda.info import read_info
from autotile.devices.cuda.prepared import DeviceMemory, PreparedLaunch, context_check, owner_check
from autotile.devices.cuda.program import CudaProgram
from autotile.devices.cuda.stage import GUARD_BYTES, CudaStage
from autotile.devices.info import Clocks, DeviceInfo
from autotile.errors import ArgumentTypeError, DeviceNotFound, LaunchError
from autotile.types import Binary, Launch, Source, Target

LOADED_PROGRAMS = 64
"""Most programs that the device itself keeps loaded. Beyond it the one that was asked for longest ago goes, unless
somebody still holds it."""

LAUNCH_LIMIT_S = 10.0
"""Longest that a launch may take by default. A kernel that needs longer is rare, and slow."""

_open: dict[tuple[int, int], CudaDevice] = {}
"""By index and bytes of a guard."""
_open_lock = threading.Lock()


def open_cuda(index: int = 0) -> CudaDevice:
    """The GPU of that index. Opened once: the same object for the same index.

    Raises DeviceNotFound with the reason: no pycuda, no driver, no such index, or a fork after CUDA's start.
    """
    return _opened(index, GUARD_BYTES)


def open_unguarded(index: int) -> CudaDevice:
    """`open_cuda`, for a process that runs under a checker of memory accesses: another object, without guards."""
    return _opened(index, 0)


def _opened(index: int, guard_bytes: int) -> CudaDevice:
    driver = cuda.load_driver()
    with _open_lock:
        if (index, guard_bytes) not in _open:
            count = int(driver.Device.count())
            if not 0 <= index < count:
                there = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0" if count else "no GPU is visible"
                raise DeviceNotFound(f"there is no cuda:{index}: {count} GPU(s) found ({there})")
            _open[index, guard_bytes] = CudaDevice(driver, index, guard_bytes)
        return _open[index, guard_bytes]


class CudaDevice:
    """A GPU through pycuda, in its primary context, which PyTorch and CuPy use too.

    Every operation makes the context current and gives the caller's back, on errors too. `poisoned` says what ended the
    context (an illegal address, a trap); CUDA refuses all work in this process from then on.
    """

    def __init__(self, driver: Any, index: int, guard_bytes: int = GUARD_BYTES) -> None:
        self.index = index
        self.guard_bytes = guard_bytes
        self.poisoned: str | None = None
        self._driver = driver
        device = driver.Device(index)
        self._info = read_info(driver, device)
        self._meter = ClockMeter(device.pci_bus_id())
        self._programs: OrderedDict[tuple[str, str], CudaProgram] = OrderedDict()
        self._loading = threading.Lock()

    @cached_property
    def _context(self) -> Any:
        """Made when first needed: a process that leaves the measuring to another takes no memory on the GPU.

        It stays with the process. Releasing it at exit would be pycuda's way to abort: by then PyTorch may still use
        it, and objects that hold memory in it may not have been freed.
        """
        with _open_lock:  # a thread that waited for another here finds the same primary context
            try:
                context = self._driver.Device(self.index).retain_primary_context()
            except self._driver.Error as error:
                raise DeviceNotFound(
                    f"cuda:{self.index} ({self._info.name}) cannot be used: {error}. `nvidia-smi` lists its users"
                ) from error
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
        return context

    @cached_property
    def _handle(self) -> int:
        return int(self._context.handle)

    @property
    def info(self) -> DeviceInfo:
        return self._info

    @property
    def reopen(self) -> Callable[[], CudaDevice]:
        return partial(open_cuda, self.index)

    @property
    def reopen_unguarded(self) -> Callable[[], CudaDevice]:
        """The same, with arrays that end where their allocations do: for a checker that knows allocations."""
        return partial(open_unguarded, self.index)

    @property
    def launch_limit_s(self) -> float:
        return LAUNCH_LIMIT_S

    def clocks(self) -> Clocks | None:
        return self._meter.read()

    @property
    def target(self) -> Target:
        return Target("cuda", self._info.arch)

    @property
    def comparer(self) -> Source:
        return Source("compare", "compare", (DATA_DIR / "compare.cu").read_text(encoding="utf-8"))

    def load(self, binary: Binary) -> CudaProgram:
        """Loads a cubin, or finds it loaded. Raises LaunchError when it is not for this device."""
        if binary.target != self.target:
            raise LaunchError(
                f"a binary for {binary.target.kind} {binary.target.arch} cannot run on {self._info.name} "
                f"({self._info.arch}); build it for this device"
            )
        key = (binary.digest, binary.entry)
        with self._loading:
            if key in self._programs:
                self._programs.move_to_end(key)
                return self._programs[key]
        image = binary.path.read_bytes()
        with self._loading, self.active():
            module = self._driver.module_from_buffer(image)
            program = CudaProgram(self._driver, module, binary.entry, image, self._info)
            self._programs[key] = program
            while len(self._programs) > LOADED_PROGRAMS:
                self._programs.popitem(last=False)  # freed here, where the context is current
        return program

    def stage(self, workload: Workload, comparer: Binary | None = None) -> CudaStage:
        """The workload's data on the device. Raises EnvironmentalError when the memory does not suffice."""
        return CudaStage(self, self._driver, workload, None if comparer is None else self.load(comparer))

    def call(self, program: CudaProgram, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        """Queues one launch.

        Arguments are ints (sizes), `Pointer`s, or arrays on the device (pycuda, PyTorch, CuPy). `stream` is a pycuda
        stream, a handle (int), or another library's stream; None is the default stream. Returns before the kernel ends.
        Raises LaunchError, and ArgumentTypeError for what is no stream.
        """
        cuda.check_not_forked()  # a child inherits its parent's idea of the current context, so ask first
        if self.poisoned is not None:
            self._refuse()
        handle = foreign_stream(stream)
        entered = cuda.current_context() != self._handle
        if entered:
            status = cuda.libcuda().cuCtxPushCurrent_v2(self._handle)
            if status != 0:  # nothing was pushed, so nothing may be popped: it would be the caller's
                raise LaunchError(f"{self._info.name}: its context cannot be used: {cuda.error_words(status)}")
        try:
            if handle:
                program.launch_foreign(launch, arguments, handle)
            else:
                program.launch(launch, arguments, None if handle == 0 else stream)
        except self._driver.Error as error:
            raise self._launch_error(error) from error
        finally:
            if entered:
                cuda.libcuda().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def prepare(self, program: CudaProgram, launch: Launch, arguments: Sequence[Any]) -> PreparedLaunch:
        """A launch that `call` has made before, for calls that differ in their addresses alone (see PreparedLaunch).

        Its own `launch` asks nothing: not whether the context is current, nor whether it still stands. The driver does.
        """
        with self.active():
            return program.prepare(launch, arguments)

    def memory(self, nbytes: int) -> DeviceMemory:
        """Memory for launches to work in, for as long as it is held. Raises LaunchError where there is not enough."""
        with self.active():
            return DeviceMemory(nbytes)

    @cached_property
    def quick_owns(self) -> Callable[[int], bool]:
        """`owns`, as cheap as it can be asked."""
        return owner_check(self._handle)

    @cached_property
    def is_current(self) -> Callable[[], bool]:
        """Whether the device's context is the calling thread's current one."""
        return context_check(self._handle)

    def owns(self, address: int) -> bool:
        """False for memory that was allocated in another context than this device's, where kernels cannot reach it."""
        return cuda.context_of(address) in (None, self._handle)

    def upload(self, array: Array) -> Any:
        """A pycuda allocation that holds the array's bytes in C order (one byte at least, to have an address)."""
        contiguous = np.ascontiguousarray(array)
        with self.active():
            allocation = self._driver.mem_alloc(max(contiguous.nbytes, 1))
            if contiguous.nbytes:
                self._driver.memcpy_htod(allocation, as_bytes(contiguous))
        return allocation

    def write(self, address: int, array: Array) -> None:
        """Copies the array's bytes, in C order, to an address on the device; waits for queued work first."""
        contiguous = np.ascontiguousarray(array)
        with self.active():
            if contiguous.nbytes:
                self._driver.memcpy_htod(address, as_bytes(contiguous))

    def download(self, source: Any, out: Array) -> None:
        """Copies from the device (allocation or address) into a C-contiguous array; waits for queued work first."""
        if not out.flags.c_contiguous:
            raise ValueError("download needs a C-contiguous array")
        with self.active():
            if out.nbytes:
                self._driver.memcpy_dtoh(as_bytes(out), int(source))

    def empty_gpuarray(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A pycuda GPUArray in this device's context, not initialised."""
        with self.active():
            return cuda.import_gpuarray().empty(shape, np.dtype(dtype))

    def synchronize(self) -> None:
        """Waits for all queued work. Raises LaunchError when a kernel faulted."""
        with self.active():
            self._driver.Context.synchronize()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes the primary context current, for pycuda too; turns pycuda's errors into LaunchError."""
        cuda.check_not_forked()
        if self.poisoned is not None:
            self._refuse()
        before = cuda.current_context()
        self._context.push()
        try:
            yield
        except self._driver.Error as error:
            raise self._launch_error(error) from error
        finally:
            try:
                self._context.pop()
            except self._driver.Error as error:
                self.poisoned = self.poisoned or str(error)
            # pycuda restores what its own stack holds; PyTorch sets the current context without it.
            if cuda.current_context() != before:
                cuda.libcuda().cuCtxSetCurrent(before)

    def _launch_error(self, error: Exception) -> LaunchError:
        """CUDA's own words; a fault that every later call repeats marks the device as poisoned."""
        try:
            self._driver.Context.synchronize()
        except self._driver.Error as sticky:
            self.poisoned = str(sticky)
        return LaunchError(f"{self._info.name}: {error}")

    def _refuse(self) -> None:
        raise LaunchError(
            f"{self._info.name} cannot be used in this process any more, since a kernel failed: {self.poisoned}. "
            "Start a new process"
        )


def foreign_stream(stream: Any) -> int | None:
    """Handle of a stream of another library: an int, or PyTorch's, CuPy's or CUDA Python's. None for pycuda's.

    Raises ArgumentTypeError for anything else: a handle that is none ends the process.
    """
    if stream is None or type(stream).__module__.startswith("pycuda"):
        return None
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    try:
        if isinstance(stream, bool):
            raise TypeError
        return operator.index(stream)
    except TypeError:
        raise ArgumentTypeError(
            f"stream is a {type(stream).__module__}.{type(stream).__qualname__}; give a stream of PyTorch, CuPy or "
            "pycuda, or a stream's handle (int)"
        ) from None


def as_bytes(array: Array) -> Array:
    """The same memory as bytes: dtypes such as bfloat16 have no buffer format that pycuda accepts."""
    return array.reshape(-1).view(np.uint8)
