"""A tuned kernel as a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np

from autotile.build import Builder, compiler_at_hand, find_built
from autotile.codegen import render
from autotile.devices.base import Device
from autotile.devices.cuda import Moving, Pointer
from autotile.devices.cuda.driver import check_not_forked
from autotile.errors import ArgumentTypeError, ArgumentValueError, CompileError, ConfigurationError, NotTuned
from autotile.kernels import Kernel, Size
from autotile.kernels.definition import FRESH_ALIGNMENT
from autotile.measure.variant import make_variant
from autotile.runtime.arguments import ArgumentChecker
from autotile.runtime.arrays import HOST, View
from autotile.runtime.choose import DEFAULT, Choice
from autotile.runtime.empty import fill_empty
from autotile.runtime.notes import warn_once
from autotile.runtime.quick import QuickCalls, handle_of
from autotile.runtime.scalars import ScalarChecker, Scalars
from autotile.runtime.scratch import ScratchMemory
from autotile.runtime.strides import same_place
from autotile.space import violations
from autotile.types import IN_PLACE, SCRATCH, Binary, Configuration, Launch, Problem, Record, Source

_DEFAULT_STREAMS = {0, 1}
"""The two handles of the default stream."""

_CALLER = 6
"""Frames from a warning in `_binary` up to whoever called the kernel."""


@dataclass(eq=False)
class Plan:
    """A loaded program, how to launch it, and every size that its arguments may ask for. `prepared` is the launch made
    ready for calls on a GPU like those before, once there was one."""

    program: Any
    launch: Launch
    sizes: Mapping[str, int]
    prepared: Any = None


class TunedKernel:
    """Calls one configuration of a kernel.

        c = matmul(a, b)                 # numpy, PyTorch, CuPy or pycuda in: the same kind out
        matmul(a, b, out=c)              # into c, on the stream that is current in the array's library
        matmul(a, b, out=c, stream=s)    # on s, a handle or a library's own stream
        matmul(a, b, alpha=2.0)          # numbers that a kernel takes by value, by their names

    Arrays come in the kernel's order, those alone that the loaded problem has (a bias, say, where it was loaded with
    one), stored as it says (turned, say).

    Arrays must be of the kernel's dtype, or of the type of its results where the kernel says so of one, and fit
    together; sizes may differ from the tuned ones. They must be C-contiguous, or, where the kernel has a pitch for the
    argument, a row-major view of a larger array, `out` too: rows are dense (last stride 1) and do not overlap, matrices
    lie a whole number of rows apart. Such a view is not copied, and what lies between its rows stays as it is. A host
    array that lies otherwise is copied (the result into such an `out`, where the output has a pitch), one on a GPU is
    refused. A leading size that is optional, such as a batch, may be missing in all arrays of a call. A kernel loaded
    with in_place=True works in its input:

        transpose(a)                     # or transpose(a, out=a): returns a

    Where the loaded configuration does not fit the sizes of a call, what `load` would choose for them serves it, with a
    warning; of a kernel loaded with strict=True, and where nothing fits, a call raises ConfigurationError.
    Subclasses of numpy's array are read as plain arrays, and no gradients are kept. On GPU arrays a call returns before
    the kernel has ended, as their libraries' own calls do; the current CUDA context stays as it was.
    Raises ArgumentTypeError or ArgumentValueError (also TypeError and ValueError) for other arguments, LaunchError for
    a grid beyond CUDA's limits or a launch that fails, and DeviceNotFound in a process forked after CUDA was started.
    A tuned kernel belongs to its process: a copy is the same object, pickling raises TypeError.
    """

    def __init__(
        self,
        kernel: Kernel,
        problem: Problem,
        choice: Choice,
        device: Device,
        strict: bool = False,
        choose: Callable[[Problem], Choice] | None = None,
    ) -> None:
        """`choose` says what serves a call's problem that the loaded configuration does not fit."""
        self._strict, self._choose = strict, choose
        self._kernel, self._problem, self._choice, self._device = kernel, problem, choice, device
        self._checker = ArgumentChecker(kernel, problem.dtype, device, problem.in_place, problem.switches)
        self._scalars = ScalarChecker(kernel, problem.dtype)
        self._inputs = kernel.inputs_of(problem)
        self._arrays = tuple(argument.name for argument in kernel.arrays_of(problem))
        self._source, self._target = kernel.in_place if problem.in_place else ("", "")
        self._scratch = ScratchMemory(device)
        self._quick = self._quick_calls()
        self._of_gaps = {name for argument in kernel.arrays for name in (argument.pitch, argument.step)}
        self._plans: dict[tuple[tuple[tuple[str, int], ...], int], Plan] = {}

    def __repr__(self) -> str:
        where = f"{self._problem.label} on {self._device.info.name}"
        return f"<autotile {self._kernel.name} {where}, {self.match}: {self.config.label}>"

    def __copy__(self) -> TunedKernel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TunedKernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} cannot be pickled: it holds what is loaded on the device of this process. Call "
            "autotile.load(…) in the other process"
        )

    @property
    def config(self) -> Configuration:
        """The parameters' values."""
        return self._choice.configuration

    @property
    def match(self) -> str:
        """How the configuration was chosen: exact, near_problem, same_arch or default."""
        return self._choice.match

    @property
    def differs(self) -> tuple[str, ...]:
        """In what the request differs from what was tuned; empty for an exact match."""
        return self._choice.differs

    @property
    def record(self) -> Record | None:
        """The saved record that it stands on; None for the kernel's default."""
        return self._choice.record

    @property
    def problem(self) -> Problem:
        return self._problem

    @cached_property
    def source(self) -> str:
        """The CUDA text."""
        return render(self._kernel, self._problem, self.config).text

    # ---- the call ------------------------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **scalars: Any) -> Any:
        values = self._scalars.values(scalars) if scalars else self._scalars.defaults
        if self._quick is not None:
            result = self._quick.call(arrays, out, stream, values)
            if result is not None:
                return result
        views, outputs, sizes = self._checker.check(arrays, out)
        if stream is not None and out is None and len(outputs) > bool(self._target):
            _require_current(stream, views[0])
        if 0 in sizes.values():
            fill_empty(self._kernel, self._problem, self._device, views, outputs, sizes, values)
        elif views[0].place == HOST and self._device.info.kind == "cuda":
            self._run_from_host(views, outputs, sizes, values)
        else:
            plan = self._run(views, outputs, sizes, values, stream)
            if self._quick is not None:
                self._quick.learn(arrays, out, views, outputs[0], plan.launch, partial(self._prepared, plan, values))
        for view in outputs:
            view.send_home()
        owners = tuple((view.home or view).owner for view in outputs)
        return owners[0] if len(owners) == 1 else owners

    # ---- running -------------------------------------------------------------------------------------------------

    def _run(
        self, views: Sequence[View], outputs: Sequence[View], sizes: Mapping[str, int], values: Scalars, stream: Any
    ) -> Plan:
        """Launches what serves these sizes, and gives it."""
        on_gpu = self._device.info.kind == "cuda"
        if on_gpu:
            check_not_forked()  # before PyTorch is asked for its stream, which would say it in its own way
            addresses = [view.address for view in (*views, *outputs)]
            arrays: list[Any] = [Pointer(address) for address in addresses]
        else:
            arrays = self._on_emulator(views, outputs)
            addresses = [array.ctypes.data for array in arrays]
        alignment = min(FRESH_ALIGNMENT, *(_alignment(address) for address in addresses))
        plan = self._plan(sizes, alignment)
        where = views[0].stream() if stream is None else stream
        if on_gpu:
            self._call(plan, arrays, values, where)
        else:
            self._device.call(plan.program, plan.launch, self._arguments(arrays, plan.sizes, values, SCRATCH), where)
        return plan

    def _call(self, plan: Plan, arrays: Sequence[Any], values: Scalars, stream: Any) -> None:
        """One launch on a GPU, with its scratch memory; the steps of two never come in turns on one stream."""
        with self._scratch.lock if plan.launch.steps or plan.launch.scratch_bytes else nullcontext():
            address = self._scratch.address(0 if stream is None else handle_of(stream), plan.launch.scratch_bytes)
            scratch = Pointer(address) if address else None
            arguments = self._arguments(arrays, plan.sizes, values, scratch)
            self._device.call(plan.program, plan.launch, arguments, stream)

    def _prepared(self, plan: Plan, values: Scalars, moving: Sequence[Moving]) -> Any:
        """The plan's launch, ready for calls that differ in their addresses; made once."""
        if plan.prepared is None:
            device: Any = self._device
            arguments = self._arguments(moving, plan.sizes, values, SCRATCH)
            plan.prepared = device.prepare(plan.program, plan.launch, arguments)
        return plan.prepared

    def _quick_calls(self) -> QuickCalls | None:
        """For a kernel of one output on a GPU."""
        if self._device.info.kind != "cuda" or len(self._kernel.outputs) != 1:
            return None
        names = [argument.name for argument in self._inputs]
        source = names.index(self._source) if self._source else None
        target = self._kernel.outputs[0].name
        return QuickCalls(self._device, self._scratch, self._problem.dtype, self._inputs, source, target)

    def _on_emulator(self, views: Sequence[View], outputs: Sequence[View]) -> list[Any]:
        """The arrays' memory as the emulator takes it: inputs read-only, but the one in place as its output.

        An input between whose rows an output lies is copied: no element is in both, but their memory would be.
        """
        names = [argument.name for argument in self._kernel.outputs]
        written = dict(zip(names, (view.flat() for view in outputs), strict=True))
        places = dict(zip(names, outputs, strict=True))
        read = []
        for argument, view in zip(self._inputs, views, strict=True):
            target = self._target if argument.name == self._source else argument.may_be
            if target and (argument.name == self._source or same_place(view, places[target])):
                read.append(written[target])
                continue
            memory = view.flat()
            interleaved = any(np.may_share_memory(memory, array) for array in written.values())
            read.append(_read_only(memory.copy() if interleaved else memory))
        return [*read, *written.values()]

    def _run_from_host(
        self, views: Sequence[View], outputs: Sequence[View], sizes: Mapping[str, int], values: Scalars
    ) -> None:
        """Through dense copies on the GPU, whatever lies between the rows on the host."""
        device: Any = self._device
        plan = self._plan({name: size for name, size in sizes.items() if name not in self._of_gaps}, FRESH_ALIGNMENT)
        # Freed while the context is current: in a thread that did not make the context, pycuda would not free it later.
        with device.active(), ExitStack() as freeing:

            def kept(allocation: Any) -> Any:
                freeing.callback(allocation.free)
                return allocation

            inputs = [kept(device.upload(view.numpy())) for view in views]
            uploaded = dict(zip(self._arrays, inputs, strict=False))
            results = [
                uploaded[self._source]
                if name == self._target
                else kept(device.empty_gpuarray((max(1, view.nbytes),), np.uint8).gpudata)
                for name, view in zip(self._arrays[len(views) :], outputs, strict=True)
            ]
            self._call(plan, [*inputs, *results], values, None)
            for result, view in zip(results, outputs, strict=True):
                array = view.numpy()
                dense = array if view.contiguous else np.empty(view.shape, array.dtype)
                device.download(result, dense)
                if dense is not array:
                    array[...] = dense

    def _arguments(self, arrays: Sequence[Any], sizes: Mapping[str, int], values: Scalars, scratch: Any) -> list[Any]:
        """In the order of the kernel's arguments; `arrays` are those that there are, inputs first."""
        given: dict[Any, Any] = dict(zip(self._arrays, arrays, strict=True))
        given |= zip((scalar.name for scalar in self._kernel.scalars), values, strict=True)
        if self._kernel.scratch is not None:
            given[self._kernel.scratch.name] = scratch
        return [sizes[a.name] if isinstance(a, Size) else given.get(a.name) for a in self._kernel.arguments]

    def _plan(self, sizes: Mapping[str, int], alignment: int) -> Plan:
        """What to launch for these sizes; built at most once."""
        key = (tuple(sizes.items()), alignment)
        if key not in self._plans:
            kept = ({IN_PLACE: True} if self._target else {}) | dict.fromkeys(self._problem.switches, True)
            problem = self._kernel.problem({**sizes, **kept}, self._problem.dtype)
            variant = make_variant(self._kernel, problem, self._fitting(problem, alignment), alignment)
            try:
                binary = self._binary(variant.source)
            except CompileError as error:
                self._fall_back(error)
                return self._plan(sizes, alignment)
            self._plans[key] = Plan(self._device.load(binary), variant.launch, self._kernel.sizes_of(problem))
        return self._plans[key]

    def _fitting(self, problem: Problem, alignment: int) -> Configuration:
        """The loaded configuration, or what would have been loaded for this problem where that one does not fit it.

        Raises ConfigurationError where nothing fits, or the caller wants the exact kernel or none.
        """
        broken = violations(self._kernel, problem, self._device.info, self.config, alignment=alignment)
        if not broken:
            return self.config
        why = f"the loaded configuration does not serve {problem.label}: {'; '.join(broken)}"
        if self._strict or self._choose is None:
            raise ConfigurationError(why)
        try:
            other = self._choose(problem)
        except NotTuned as error:
            raise ConfigurationError(f"{why}; {error}") from error
        if violations(self._kernel, problem, self._device.info, other.configuration, alignment=alignment):
            raise ConfigurationError(why)
        warn_once(f"{self._kernel.name}: {why}; {other.configuration.label} serves this call", stacklevel=_CALLER)
        return other.configuration

    def _fall_back(self, error: CompileError) -> None:
        """To the default, from a saved configuration that this machine's compiler does not take (any more).

        Raises the error where there is nothing to fall back to, or the caller wants the exact kernel or none.
        """
        default = self._kernel.configuration()
        if self._strict or self.record is None or self.config == default:
            raise error
        warn_once(
            f"{self._kernel.name} {self._problem.label}: the saved configuration does not compile here, so the "
            f"kernel's default serves: {error}",
            stacklevel=_CALLER,
        )
        self._choice = Choice(default, DEFAULT, None, ("the saved configuration does not compile here",))
        self._plans = {}
        if self._quick is not None:
            self._quick.forget()
        self.__dict__.pop("source", None)

    def _binary(self, source: Source) -> Binary:
        """From the cache if it was ever built, so that no compiler is started; else built now."""
        if self.record is not None:
            built = find_built(source, self._device.target, self.record.identity.compiler)
            if built is not None:
                return built
        with Builder(self._device.target, jobs=1) as builder:
            tuned_with = self.record.identity.compiler if self.record is not None else builder.compiler
            unsaid = not self._choice.shipped and compiler_at_hand(self._device.target) is None  # else `load` said it
            if tuned_with != builder.compiler and unsaid:
                warn_once(
                    f"{self._kernel.name} {self._problem.label} was tuned with the compiler {tuned_with}, whose binary "
                    f"is not in the cache; it is built with {builder.compiler}",
                    stacklevel=_CALLER,
                )
            return builder.build(source)


def _require_current(stream: Any, view: View) -> None:
    """Raises ArgumentValueError when the result was allocated for one stream and would be written on another.

    PyTorch and CuPy give out again what was freed on a stream as soon as it is freed, to work on the same stream: on
    another one, work on what lay there before may still be queued.
    """
    current = view.stream()
    if current is None:
        return
    asked = handle_of(stream)
    if asked != current and {asked, current} != _DEFAULT_STREAMS:
        raise ArgumentValueError(
            f"{view.kind} would allocate the result on its current stream, and the kernel write it on another: pass "
            "out=, or make the stream current around the call and leave stream= out"
        )


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same memory, on which the emulator faults a store."""
    view: np.ndarray[Any, Any] = array.view()
    view.flags.writeable = False
    return view


def _alignment(address: int) -> int:
    """The largest power of two that divides an address (256 for address 0)."""
    return min(FRESH_ALIGNMENT, address & -address) if address else FRESH_ALIGNMENT
