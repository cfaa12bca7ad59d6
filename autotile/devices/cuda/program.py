"""A loaded cubin: its limits checked before a launch, its shared memory opted in, its arguments packed."""

from __future__ import annotations

import ctypes
import operator
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotile.devices.cuda.driver import current_context, error_words, libcuda
from autotile.devices.info import MAX_GRID, STATIC_SHARED_LIMIT_BYTES, DeviceInfo
from autotile.errors import ArgumentTypeError, ArgumentValueError, LaunchError
from autotile.types import Launch

_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


@dataclass(frozen=True)
class Pointer:
    """An address in the device's memory, as an argument of `CudaDevice.call`: a plain int would be a size."""

    address: int


class CudaProgram:
    """A kernel on one device. Made by `CudaDevice.load`; use it through the device."""

    def __init__(self, driver: Any, module: Any, entry: str, image: bytes, info: DeviceInfo) -> None:
        self._driver = driver
        self._module = module
        self._image = image
        self._info = info
        self.entry = entry
        self._function = module.get_function(entry)
        names = driver.function_attribute
        self.registers: int | None = int(self._function.get_attribute(names.NUM_REGS))
        self.static_shared_bytes: int | None = int(self._function.get_attribute(names.SHARED_SIZE_BYTES))
        self.local_bytes = int(self._function.get_attribute(names.LOCAL_SIZE_BYTES))
        self.max_threads = int(self._function.get_attribute(names.MAX_THREADS_PER_BLOCK))
        self.opted_in_bytes = 0
        """Dynamic shared memory that was opted in so far; 0 when never."""
        self._format: tuple[type, ...] | None = None
        self._checked: Launch | None = None
        self._lock = threading.Lock()
        self._foreign: _ForeignFunction | None = None

    def launch(self, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        """Queues one launch on a pycuda stream (None: the default stream). The device's context must be current.

        Raises LaunchError before the launch when the geometry cannot run, pycuda's errors when CUDA refuses it.
        """
        values = self._prepare(launch, arguments)
        self._function.prepared_async_call(launch.grid, launch.block, stream, *values, shared_size=launch.shared_bytes)

    def launch_foreign(self, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
        """The same on a stream of another library, given by its handle.

        pycuda launches on its own streams alone and shows no function handle, so the cubin is loaded once more through
        the driver's library.
        """
        values = self._prepare(launch, arguments)
        with self._lock:
            if self._foreign is None:
                self._foreign = _ForeignFunction(self._image, self.entry)
            self._foreign.opt_in(self.opted_in_bytes)
        self._foreign.launch(launch, values, stream)

    def launch_raw(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        layout: str,
        values: Sequence[int | float],
        stream: Any,
    ) -> None:
        """Queues a launch of one of autotile's own kernels, whose arguments are more than sizes and pointers.

        `layout` has a letter of `struct` an argument.
        """
        self._function.prepare(list(layout))
        self._format = None
        self._function.prepared_async_call(grid, block, stream, *values)

    def _prepare(self, launch: Launch, arguments: Sequence[Any]) -> list[Any]:
        if launch is not self._checked:
            self._check(launch)
            self._opt_in(launch)
            self._checked = launch
        kinds = tuple(map(type, arguments))
        if kinds != self._format:
            self._function.prepare(["i" if is_size(argument) else "P" for argument in arguments])
            self._format = kinds
        return [as_value(argument) for argument in arguments]

    def _check(self, launch: Launch) -> None:
        """Numbers first: CUDA's own words for all of these are `invalid argument` or `too many resources`."""
        info, threads = self._info, launch.threads
        if not 0 < threads <= info.max_threads_per_block:
            raise LaunchError(f"a block of {threads} threads; {info.name} allows 1 to {info.max_threads_per_block}")
        if min(launch.block) < 1 or launch.block[2] > 64:
            raise LaunchError(f"a block of {launch.block} threads; each side is at least 1 and z at most 64")
        if any(not 1 <= count <= most for count, most in zip(launch.grid, MAX_GRID, strict=True)):
            raise LaunchError(f"a grid of {launch.grid} blocks; the least is (1, 1, 1) and the most {MAX_GRID}")
        registers = self.registers or 0
        # Registers are given to warps in units of 256, which is what the limit counts.
        warps = -(-threads // info.warp_size)
        needed = -(-registers * info.warp_size // 256) * 256 * warps
        if needed > info.registers_per_block:
            raise LaunchError(
                f"{registers} registers × {threads} threads > {info.registers_per_block}, the registers of a block on "
                f"{info.name}"
            )
        if threads > self.max_threads:
            raise LaunchError(
                f"a block of {threads} threads; {self.entry} was compiled for at most {self.max_threads} "
                "(its __launch_bounds__, or its registers)"
            )

    def _opt_in(self, launch: Launch) -> None:
        """Raises the function's limit of dynamic shared memory where the launch needs it.

        Never lowered: a launch that was fine before stays so. Not touched at all up to 48 KiB, since old devices have
        no such attribute.
        """
        total = (self.static_shared_bytes or 0) + launch.shared_bytes
        if (self.static_shared_bytes or 0) > self._info.shared_bytes_static:
            raise LaunchError(
                f"{self.static_shared_bytes} bytes of static shared memory; a block on {self._info.name} gets "
                f"{self._info.shared_bytes_static}, and more only as dynamic shared memory"
            )
        if total > self._info.shared_bytes_optin:
            raise LaunchError(
                f"needs {total} bytes of shared memory ({self.static_shared_bytes or 0} static + {launch.shared_bytes} "
                f"dynamic); a block on {self._info.name} gets {self._info.shared_bytes_optin}"
            )
        if total <= STATIC_SHARED_LIMIT_BYTES:
            return
        with self._lock:  # or the smaller of two threads' wants could come last
            if launch.shared_bytes > self.opted_in_bytes:
                attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._function.set_attribute(attribute, launch.shared_bytes)
                self.opted_in_bytes = launch.shared_bytes


class _ForeignFunction:
    """The same kernel, loaded through the driver's library. Lives in the context that was current when it was made."""

    def __init__(self, image: bytes, entry: str) -> None:
        self._library = libcuda()
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._opted_in_bytes = 0
        self._call("cuModuleLoadData", ctypes.byref(self._module), image)
        context = ctypes.c_void_p(current_context())
        weakref.finalize(self, _unload, context, self._module).atexit = False
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self._module, entry.encode())

    def opt_in(self, shared_bytes: int) -> None:
        if shared_bytes > self._opted_in_bytes:
            attribute = _CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", self._function, attribute, shared_bytes)
            self._opted_in_bytes = shared_bytes

    def launch(self, launch: Launch, values: Sequence[Any], stream: int) -> None:
        boxes = [
            ctypes.c_void_p(value.address) if isinstance(value, _Address) else ctypes.c_int32(value) for value in values
        ]
        pointers = (ctypes.c_void_p * len(boxes))(*[ctypes.addressof(box) for box in boxes])
        shared, extra = launch.shared_bytes, None
        self._call("cuLaunchKernel", self._function, *launch.grid, *launch.block, shared, stream, pointers, extra)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise LaunchError(f"{name} failed: {error_words(status)}")


def _unload(context: ctypes.c_void_p, module: ctypes.c_void_p) -> None:
    library = libcuda()
    if library.cuCtxPushCurrent_v2(context) == 0:
        library.cuModuleUnload(module)
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class _Address(int):
    """A device address among the packed values: tells pointers from sizes where ctypes packs them."""

    @property
    def address(self) -> int:
        return int(self)


def is_size(argument: Any) -> bool:
    """Whether an argument is passed as a 32-bit int, and not as an address. Numpy's integers are sizes."""
    return type(argument) is int or _address_of(argument) is None


def as_value(argument: Any) -> int:
    """The number that is packed.

    Raises ArgumentTypeError for what is neither a size nor on a device, ArgumentValueError for a size beyond 32 bits.
    """
    if type(argument) is not int:
        address = _address_of(argument)
        if address is not None:
            return _Address(address)
    try:
        if isinstance(argument, bool):
            raise TypeError
        size = operator.index(argument)
    except TypeError:
        raise ArgumentTypeError(
            f"an argument of type {type(argument).__name__} is neither a size (int) nor an array on the device"
        ) from None
    if not -(2**31) <= size < 2**31:
        raise ArgumentValueError(f"the size {size} does not fit the kernel's 32-bit int")
    return size


def _address_of(argument: Any) -> int | None:
    kind = type(argument)
    if kind is int:
        return None
    if kind is Pointer:
        return int(argument.address)
    if kind.__module__.startswith("pycuda") and hasattr(argument, "__int__"):  # an allocation of pycuda's
        return int(argument)
    if hasattr(argument, "gpudata"):  # pycuda.gpuarray
        return int(argument.gpudata) if argument.gpudata is not None else 0
    if hasattr(argument, "data_ptr"):  # torch
        return int(argument.data_ptr())
    interface = getattr(argument, "__cuda_array_interface__", None)
    return None if interface is None else int(interface["data"][0])
