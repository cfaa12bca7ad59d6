"""Launches made ready once, for calls that differ in their addresses alone: a few machine words change, and one call of
the driver follows. All through the driver's own library, on streams of any library."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.devices.cuda.driver import current_context, error_words, libcuda
from autotile.devices.cuda.launching import LaunchConfig, launcher
from autotile.devices.cuda.tensor_maps import MAP_BYTES, aligned_room, encoded
from autotile.errors import LaunchError
from autotile.types import SCRATCH, Dim3, TensorMap

_CU_POINTER_ATTRIBUTE_CONTEXT = 1

_BOXES: dict[type, Any] = {np.float32: ctypes.c_float, np.float64: ctypes.c_double}


@dataclass(frozen=True)
class Moving:
    """An argument that is another address in each call: number `index` of those that `PreparedLaunch.launch` gets."""

    index: int


@dataclass(frozen=True)
class PreparedCall:
    """One function's part of a launch; `function` is the driver's handle."""

    function: ctypes.c_void_p
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    early: bool = False


class PreparedLaunch:
    """The calls of a launch, in order, with all that stays the same from one time to the next.

    `arguments` are in the kernel's order: `Moving` for an array, an int for a size, None for a null pointer, a numpy
    float for a scalar, SCRATCH for the scratch memory. `module` is what the functions live in. Any thread may launch;
    each launch has a buffer to itself.
    """

    def __init__(
        self, module: Any, calls: Sequence[PreparedCall], arguments: Sequence[Any], maps: Sequence[TensorMap] = ()
    ) -> None:
        self._module, self._calls, self._arguments, self._maps = module, tuple(calls), tuple(arguments), tuple(maps)
        self._run = launcher()
        self._free = [_Buffer(self._calls, self._arguments, self._maps)]

    def launch(self, addresses: list[int], stream: int, values: tuple[Any, ...] = (), scratch: int = 0) -> int:
        """Queues the launch, and gives the driver's status: 0, or that of the first call that was refused.

        `values` are those of the scalars. The functions' context must be current, or the driver refuses: its default
        stream is that of the current context.
        """
        free = self._free
        try:
            buffer = free.pop()
        except IndexError:  # as many threads are launching as there are buffers
            buffer = _Buffer(self._calls, self._arguments, self._maps)
        buffer.addresses[:] = addresses  # type: ignore[assignment]
        if buffer.stream != stream:
            buffer.set_stream(stream)
        if buffer.values is not values:
            buffer.set_values(values)
        if scratch:
            buffer.scratch.value = scratch
        if buffer.maps:
            buffer.set_maps()
        run, parameters = self._run, buffer.parameters
        for function, config in buffer.stages:
            status = run(config, function, parameters, None)
            if status:
                break
        free.append(buffer)
        return status


class _Buffer:
    """Room for the arguments of one launch at a time."""

    __slots__ = (
        "_configs", "_held", "_scalars", "addresses", "maps", "parameters", "scratch", "stages", "stream", "values",
    )  # fmt: skip

    def __init__(self, calls: Sequence[PreparedCall], arguments: Sequence[Any], maps: Sequence[TensorMap] = ()) -> None:
        self.addresses = (ctypes.c_uint64 * len({a.index for a in arguments if type(a) is Moving}))()
        self.scratch = ctypes.c_uint64()
        self.values = tuple(argument for argument in arguments if type(argument) in _BOXES)
        self._scalars = [_BOXES[type(value)](value) for value in self.values]
        self._held: list[Any] = []  # what the parameters point to
        scalars = iter(self._scalars)
        places = [self._place(argument, scalars) for argument in arguments]
        rooms = [aligned_room() for _ in maps]
        self._held += [room for room, _ in rooms]
        # A map, its room's address, where its array's address stands, and the address that it was last made for.
        self.maps: list[list[Any]] = [
            [one, place, ctypes.c_uint64.from_address(places[one.argument]), None]
            for one, (_, place) in zip(maps, rooms, strict=True)
        ]
        places = [*(place for _, place in rooms), *places]
        self.parameters = (ctypes.c_void_p * max(1, len(places)))(*places)
        self._configs = [LaunchConfig.of(call.grid, call.block, call.shared_bytes, call.early) for call in calls]
        # Without argument types ctypes takes its own objects as they are, which costs a tenth of converting them.
        self.stages = [(call.function, ctypes.byref(config)) for call, config in zip(calls, self._configs, strict=True)]
        self.stream = 0

    def _place(self, argument: Any, scalars: Any) -> int:
        if type(argument) is Moving:
            return ctypes.addressof(self.addresses) + ctypes.sizeof(ctypes.c_uint64) * argument.index
        if argument is SCRATCH:
            box: Any = self.scratch
        elif argument is None:
            box = ctypes.c_void_p()
        else:
            box = next(scalars) if type(argument) in _BOXES else ctypes.c_int32(argument)
        self._held.append(box)
        return ctypes.addressof(box)

    def set_stream(self, stream: int) -> None:
        for config in self._configs:
            config.stream = stream
        self.stream = stream

    def set_maps(self) -> None:
        for entry in self.maps:
            address = entry[2].value
            if address != entry[3]:
                ctypes.memmove(entry[1], encoded(entry[0], address), MAP_BYTES)
                entry[3] = address

    def set_values(self, values: tuple[Any, ...]) -> None:
        for box, value in zip(self._scalars, values, strict=True):
            box.value = value
        self.values = values


class DeviceMemory:
    """Memory in the context that is current when it is made, given back to it once nobody holds this.

    Raises LaunchError where there is not enough.
    """

    def __init__(self, nbytes: int) -> None:
        found = ctypes.c_uint64()
        status = libcuda()["cuMemAlloc_v2"](ctypes.byref(found), ctypes.c_size_t(nbytes))
        if status != 0:
            raise LaunchError(f"{nbytes} bytes of scratch memory cannot be had: {error_words(status)}")
        self.address, self.nbytes = found.value, nbytes
        weakref.finalize(self, _free, current_context(), found).atexit = False


def _free(context: int | None, memory: ctypes.c_uint64) -> None:
    """Waits for the work that is queued on the memory, and frees it; nothing where the context has gone."""
    library = libcuda()
    if library.cuCtxPushCurrent_v2(context) == 0:
        library.cuCtxSynchronize()
        library["cuMemFree_v2"](memory)
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def owner_check(context: int) -> Callable[[int], bool]:
    """`owns(address)`: whether memory was allocated in the context, or CUDA does not say (memory of a pool, say)."""
    ask, attribute = libcuda()["cuPointerGetAttribute"], ctypes.c_int(_CU_POINTER_ATTRIBUTE_CONTEXT)

    def owns(address: int) -> bool:
        found = ctypes.c_void_p()
        status = ask(ctypes.byref(found), attribute, ctypes.c_uint64(address))
        return bool(status) or found.value in (None, context)

    return owns


def context_check(context: int) -> Callable[[], bool]:
    """`is_current()`: whether the context is the calling thread's current one."""
    ask = libcuda()["cuCtxGetCurrent"]

    def is_current() -> bool:
        found = ctypes.c_void_p()
        ask(ctypes.byref(found))
        return found.value == context

    return is_current
