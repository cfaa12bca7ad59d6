"""Launches through the driver's own library, on streams that are not pycuda's."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from autotile.devices.cuda.driver import current_context, error_words, libcuda
from autotile.devices.cuda.launching import LaunchConfig, launcher
from autotile.devices.cuda.packing import Address
from autotile.devices.cuda.tensor_maps import MAP_BYTES, aligned_room, encoded
from autotile.errors import LaunchError
from autotile.types import TensorMap

_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class ForeignModule:
    """A cubin, loaded once more through the driver's library. Lives in the context that was current when it was made.

    One thread at a time may ask it for a function.
    """

    def __init__(self, image: bytes) -> None:
        self._library = libcuda()
        self._run = launcher()
        self._module = ctypes.c_void_p()
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._opted_in_bytes = 0
        self._call("cuModuleLoadData", ctypes.byref(self._module), image)
        context = ctypes.c_void_p(current_context())
        weakref.finalize(self, _unload, context, self._module).atexit = False

    def function(self, name: str) -> ctypes.c_void_p:
        """Looked up once."""
        if name not in self._functions:
            function = ctypes.c_void_p()
            self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
            self._functions[name] = function
        return self._functions[name]

    def opt_in(self, function: ctypes.c_void_p, shared_bytes: int) -> None:
        """Raises the limit of dynamic shared memory of the main function; never lowers it."""
        if shared_bytes > self._opted_in_bytes:
            attribute = _CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, attribute, shared_bytes)
            self._opted_in_bytes = shared_bytes

    def launch(self, function: ctypes.c_void_p, config: LaunchConfig, packed: Packed) -> None:
        status = self._run(ctypes.byref(config), function, packed.pointers, None)
        if status != 0:
            raise LaunchError(f"the launch failed: {error_words(status)}")

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise LaunchError(f"{name} failed: {error_words(status)}")


class Packed:
    """A launch's values where cuLaunchKernel reads them, tensor maps first."""

    def __init__(self, values: Sequence[Any], maps: Sequence[TensorMap] = ()) -> None:
        self._rooms = [aligned_room() for _ in maps]
        for one, (_, place) in zip(maps, self._rooms, strict=True):
            ctypes.memmove(place, encoded(one, int(values[one.argument] or 0)), MAP_BYTES)
        self._boxes = [_box(value) for value in values]
        places = [*(place for _, place in self._rooms), *(ctypes.addressof(box) for box in self._boxes)]
        self.pointers = (ctypes.c_void_p * len(places))(*places)


def _box(value: Any) -> Any:
    if type(value) is Address:
        return ctypes.c_void_p(value)
    if type(value) is int:
        return ctypes.c_int32(value)
    return ctypes.c_float(float(value)) if type(value) is np.float32 else ctypes.c_double(float(value))


def _unload(context: ctypes.c_void_p, module: ctypes.c_void_p) -> None:
    library = libcuda()
    if library.cuCtxPushCurrent_v2(context) == 0:
        library.cuModuleUnload(module)
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
