"""A loaded cubin: its limits checked before a launch, its shared memory opted in, its arguments packed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.devices.cuda.foreign import ForeignModule, Packed
from autotile.devices.cuda.function import Function
from autotile.devices.cuda.launching import LaunchConfig
from autotile.devices.cuda.packing import as_value, letter_of
from autotile.devices.cuda.prepared import PreparedCall, PreparedLaunch
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES, DeviceInfo
from autotile.errors import LaunchError
from autotile.types import Dim3, Launch, LaunchStep

MOST_READY = 64
"""Launches of a program that are remembered as checked."""


@dataclass(frozen=True)
class _Call:
    """One function's part of a launch."""

    function: Function
    grid: Dim3
    block: Dim3
    shared_bytes: int = 0
    early: bool = False


@dataclass(frozen=True)
class Ready:
    """A launch that was checked and opted in: what is called, in order, the main function among it."""

    launch: Launch
    calls: tuple[_Call, ...]


class CudaProgram:
    """A kernel on one device. Made by `CudaDevice.load`; use it through the device."""

    def __init__(self, driver: Any, module: Any, entry: str, image: bytes, info: DeviceInfo) -> None:
        self._driver = driver
        self._module = module
        self._image = image
        self._info = info
        self.entry = entry
        self._main = Function(driver, module, entry)
        self._functions = {entry: self._main}
        self.registers: int | None = self._main.registers
        self.static_shared_bytes: int | None = self._main.static_shared_bytes
        self.local_bytes = self._main.local_bytes
        self.opted_in_bytes = 0
        """Dynamic shared memory that was opted in so far; 0 when never."""
        self._format: tuple[type, ...] | None = None
        self._ready: dict[int, Ready] = {}
        self._lock = threading.Lock()
        self._foreign: ForeignModule | None = None

    def launch(self, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> None:
        """Queues one launch, its steps around it, on a pycuda stream (None: the default stream). The device's context
        must be current.

        Raises LaunchError before the launch when the geometry cannot run, pycuda's errors when CUDA refuses it.
        """
        self.bound(launch, arguments, stream)()

    def launch_foreign(self, launch: Launch, arguments: Sequence[Any], stream: int) -> None:
        """The same on a stream of another library, given by its handle."""
        self._bound_foreign(launch, arguments, stream)()

    def bound(self, launch: Launch, arguments: Sequence[Any], stream: Any = None) -> Callable[[], None]:
        """All of `launch` that needs no GPU, done; what comes back queues it, as often as it is called.

        Between the two, arguments of other types must not be given to this program.
        """
        if launch.maps or launch.overlap:  # neither of which pycuda knows
            return self._bound_foreign(launch, arguments, 0 if stream is None else int(stream.handle))
        ready = self.ready(launch)
        values = self._values(arguments)

        def queue() -> None:
            for call in ready.calls:
                call.function.handle.prepared_async_call(
                    call.grid, call.block, stream, *values, shared_size=call.shared_bytes
                )

        return queue

    def _bound_foreign(self, launch: Launch, arguments: Sequence[Any], stream: int) -> Callable[[], None]:
        """pycuda launches on its own streams alone and shows no function handle, so the cubin is loaded once more
        through the driver's library."""
        ready = self.ready(launch)
        packed = Packed(list(map(as_value, arguments)), launch.maps)
        module, functions = self._foreign_functions(ready)
        calls = [
            (function, LaunchConfig.of(call.grid, call.block, call.shared_bytes, call.early, stream))
            for function, call in zip(functions, ready.calls, strict=True)
        ]

        def queue() -> None:
            for function, config in calls:
                module.launch(function, config, packed)

        return queue

    def prepare(self, launch: Launch, arguments: Sequence[Any]) -> PreparedLaunch:
        """The launch, checked, for calls that differ in their addresses alone. The device's context must be current."""
        ready = self.ready(launch)
        module, functions = self._foreign_functions(ready)
        calls = [
            PreparedCall(function, call.grid, call.block, call.shared_bytes, call.early)
            for function, call in zip(functions, ready.calls, strict=True)
        ]
        return PreparedLaunch(module, calls, arguments, launch.maps)

    def _foreign_functions(self, ready: Ready) -> tuple[ForeignModule, list[ctypes.c_void_p]]:
        """What is called, loaded through the driver's library, its shared memory opted in."""
        with self._lock:
            if self._foreign is None:
                self._foreign = ForeignModule(self._image)
            functions = [self._foreign.function(call.function.name) for call in ready.calls]
            self._foreign.opt_in(self._foreign.function(self.entry), self.opted_in_bytes)
            return self._foreign, functions

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
        self._main.handle.prepare(list(layout))
        self._format = None
        self._main.handle.prepared_async_call(grid, block, stream, *values)

    def ready(self, launch: Launch) -> Ready:
        """The launch, checked, its functions looked up and its shared memory opted in: once for each `Launch` object.

        Raises LaunchError for one that cannot run.
        """
        found = self._ready.get(id(launch))
        if found is None or found.launch is not launch:
            found = self._made_ready(launch)
            if len(self._ready) >= MOST_READY:
                self._ready = {}
            self._ready[id(launch)] = found  # it holds the launch, whose id is no other's meanwhile
        return found

    def _made_ready(self, launch: Launch) -> Ready:
        self._main.check(launch.grid, launch.block, self._info)
        self._opt_in(launch)
        before, after = ([self._step(step) for step in steps] for steps in (launch.before, launch.after))
        early = launch.overlap and bool(before)
        main = _Call(self._main, launch.grid, launch.block, launch.shared_bytes, early)
        return Ready(launch, (*before, main, *after))

    def _step(self, step: LaunchStep) -> _Call:
        name = self.entry + step.entry_suffix
        with self._lock:
            if name not in self._functions:
                self._functions[name] = Function(self._driver, self._module, name)
                self._format = None  # it is yet to be told
        function = self._functions[name]
        function.check(step.grid, step.block, self._info)
        return _Call(function, step.grid, step.block)

    def _values(self, arguments: Sequence[Any]) -> list[Any]:
        """What is packed, in the format that pycuda was told; all functions take the same."""
        kinds = tuple(map(type, arguments))
        if kinds != self._format:
            letters = [letter_of(argument) for argument in arguments]
            for function in tuple(self._functions.values()):
                function.handle.prepare(letters)
            self._format = kinds
        return [as_value(argument) for argument in arguments]

    def _opt_in(self, launch: Launch) -> None:
        """Raises the function's limit of dynamic shared memory where the launch needs it.

        Never lowered: a launch that was fine before stays so. Not touched at all up to 48 KiB, since old devices have
        no such attribute.
        """
        static = self._main.static_shared_bytes
        total = static + launch.shared_bytes
        if total > self._info.shared_bytes_optin:
            raise LaunchError(
                f"needs {total} bytes of shared memory ({static} static + {launch.shared_bytes} dynamic); a block on "
                f"{self._info.name} gets {self._info.shared_bytes_optin}"
            )
        if total <= STATIC_SHARED_LIMIT_BYTES:
            return
        with self._lock:  # or the smaller of two threads' wants could come last
            if launch.shared_bytes > self.opted_in_bytes:
                attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._main.handle.set_attribute(attribute, launch.shared_bytes)
                self.opted_in_bytes = launch.shared_bytes
