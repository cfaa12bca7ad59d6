"""Calls on arrays like those of an earlier call, without what the earlier one has settled.

The first call with certain arrays goes the long way, through every check, and leaves here what it came to, under all
that the checks looked at: types, shapes, strides, dtypes, alignment. A call with the same facts is checked for what
differs from call to call (the addresses, and whose memory they are; whether the output lies apart from the inputs) and
launched. Whatever is new, or not plainly right, goes the long way again, which also says what is wrong.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from autotile.devices.cuda import Moving
from autotile.devices.cuda.device import foreign_stream
from autotile.dtypes import element_type
from autotile.errors import LaunchError
from autotile.kernels import Input
from autotile.runtime.arrays import CUDA, View
from autotile.runtime.quick_arrays import READERS, Addresses, Reader
from autotile.runtime.scalars import Scalars
from autotile.runtime.scratch import ScratchMemory
from autotile.types import Launch

MOST_PLANS = 256
"""Kinds of calls that are remembered; beyond it all are forgotten."""

MOST_RECENT = 4
"""Of these, the ones that are tried first."""

_FRESH = 255
"""Bits of an address that tell how it is aligned, as far as a kernel may want to know; none is set in a fresh one."""

_all: weakref.WeakSet[QuickCalls] = weakref.WeakSet()


class _Apart(NamedTuple):
    """Bytes by which the output may not lie behind an input: more than `under` and less than `over`; 0 is allowed all
    the same where it `may_be` that input."""

    under: int
    over: int
    may_be: bool


@dataclass(frozen=True, slots=True)
class QuickPlan:
    """What a call with known facts does. `alignment` is the largest power of two that divides the addresses, 0 where
    that is as much as of a fresh allocation. `make` gives a result; `several` says that the launch has steps or works
    in scratch memory."""

    reader: Reader
    alignment: int
    launch: Callable[[list[int], int, Scalars, int], int]
    apart: tuple[_Apart, ...]
    make: Callable[[], Any]
    scratch_bytes: int
    several: bool


class QuickCalls:
    """The calls of one kernel on one GPU. `inputs` are those that there are; `source` is the place among them of the
    one in which the kernel works, None for a kernel that does not work in place; `target` is the output's name."""

    def __init__(
        self,
        device: Any,
        scratch: ScratchMemory,
        dtype: str,
        inputs: Sequence[Input],
        source: int | None,
        target: str,
    ) -> None:
        self._device, self._scratch = device, scratch
        self._inputs, self._source, self._target = tuple(inputs), source, target
        self._count, self._place = len(self._inputs), -1 if source is None else source
        self._complex = element_type(dtype).is_complex
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        self._readers: dict[type, Reader] = {}
        self._plans: dict[tuple[Any, ...], QuickPlan] = {}
        self._recent: tuple[tuple[int, Callable[..., bool], QuickPlan], ...] = ()

    def call(self, arrays: tuple[Any, ...], out: Any, stream: Any, values: Scalars) -> Any:
        """The result, once the launch is queued; None for a call that is not known, of which nothing has been done.

        Raises what reading an array or a stream raises.
        """
        if len(arrays) != self._count:
            return None
        seen = arrays if out is None or self._source is not None else (*arrays, out)
        plan = read = None
        for count, like, recent in self._recent:
            if count == len(seen) and like(*seen):
                plan = recent
                read = plan.reader.addresses(seen)
                break
        if plan is None or read is None or read[1] & -read[1] & _FRESH != plan.alignment:
            found = self._looked_up(seen)
            if found is None:
                return None
            plan, read = found
        addresses = read[0]
        result = out
        if self._source is not None:
            result = arrays[self._source]
            if out is not None and out is not result:
                return None
        elif out is None:
            # In another context the library would allocate there; of a stream that is given, see the long way.
            if stream is not None or not self._device.is_current():
                return None
            result = plan.make()
            addresses.append(plan.reader.address(result))
            if addresses[-1] & _FRESH:
                return None
        place = addresses[self._place]
        for address, (under, over, may_be) in zip(addresses, plan.apart):  # noqa: B905 (the output is left over)
            if under < place - address < over and not (may_be and place == address):
                return None
        handle = plan.reader.stream() if stream is None else handle_of(stream)
        if not plan.several:
            return None if plan.launch(addresses, handle, values, 0) else result
        with self._scratch.lock:
            refused = plan.launch(addresses, handle, values, self._scratch.address(handle, plan.scratch_bytes))
        return None if refused else result

    def learn(
        self,
        arrays: tuple[Any, ...],
        out: Any,
        views: Sequence[View],
        output: View,
        launch: Launch,
        prepare: Callable[[Sequence[Moving]], Any],
    ) -> None:
        """Keeps what a call on these arrays came to: the launch that was made for it. `prepare` makes it ready, with
        these in place of the arrays' addresses, inputs first."""
        apart = out is not None and self._source is None
        reader, seen = self._reader(views[0]), (*arrays, out) if apart else arrays
        facts = None if reader is None else reader.facts(seen)
        read = None if reader is None or facts is None else reader.addresses(seen)
        if reader is None or facts is None or read is None:
            return
        moving = [Moving(index) for index in range(self._count)]
        moving.append(Moving(self._count) if self._source is None else moving[self._source])
        try:
            ready = prepare(moving)
        except LaunchError:  # out of memory, say; the long way serves on
            return
        if len(self._plans) >= MOST_PLANS:
            self._plans, self._recent = {}, ()
        plan = QuickPlan(
            reader,
            read[1] & -read[1] & _FRESH,
            ready.launch,
            tuple(self._apart(index, view, output) for index, view in enumerate(views)),
            reader.maker(output.owner, output.shape),
            launch.scratch_bytes,
            bool(launch.scratch_bytes or launch.steps),
        )
        key = (reader, *facts, plan.alignment)
        self._plans[key] = plan
        self._remember(seen, plan)

    def _looked_up(self, seen: tuple[Any, ...]) -> tuple[QuickPlan, Addresses] | None:
        """What was kept for arrays like these, and their addresses."""
        reader = self._readers.get(type(seen[0]))
        facts = None if reader is None else reader.facts(seen)
        read = None if reader is None or facts is None else reader.addresses(seen)
        if facts is None or read is None:
            return None
        plan = self._plans.get((reader, *facts, read[1] & -read[1] & _FRESH))
        if plan is None:
            return None
        self._remember(seen, plan)
        return plan, read

    def _remember(self, seen: tuple[Any, ...], plan: QuickPlan) -> None:
        """As what is tried first, where the arrays' library tells likeness by itself."""
        like = plan.reader.like(seen)
        if like is not None:
            self._recent = ((len(seen), like, plan), *self._recent[: MOST_RECENT - 1])

    def _reader(self, view: View) -> Reader | None:
        kind = type(view.owner)
        of_library = kind.__module__.partition(".")[0] == view.kind
        if view.place == CUDA and of_library and kind not in self._readers:
            reader = READERS[view.kind](self._device, self._complex)
            if kind in reader.types:
                self._readers.update(dict.fromkeys(reader.types, reader))
        return self._readers.get(kind)

    def _apart(self, index: int, view: View, output: View) -> _Apart:
        if index == self._source:
            return _Apart(0, 0, True)
        over, under = (v.layout.extent * v.element.itemsize for v in (view, output))
        may_be = self._inputs[index].may_be == self._target and view.layout == output.layout
        return _Apart(-under, over, may_be)


def handle_of(stream: Any) -> int:
    """Of a stream of any library."""
    handle = foreign_stream(stream)
    return int(stream.handle) if handle is None else handle


def _forget_all() -> None:
    """A forked child must not use CUDA: its calls go the long way, which says so."""
    for calls in list(_all):
        calls.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
