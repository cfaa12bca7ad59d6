"""`autotile.load(...)`: from a name and sizes to a callable, in a line and without a compiler."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from autotile.build import compiler_at_hand, flags_at_hand
from autotile.codegen import template_digest
from autotile.devices.base import Device
from autotile.devices.select import open_device
from autotile.errors import NotTuned, UsageError
from autotile.kernels import Kernel, Roots, load_kernel
from autotile.kernels.instead import resolve
from autotile.runtime.choose import DEFAULT, EXACT, SAME_ARCH, Choice, choose
from autotile.runtime.notes import warn_once
from autotile.runtime.requests import dtype_name, require, require_device, require_store, require_templates
from autotile.runtime.tuned import TunedKernel
from autotile.store import RecordStore, ShippedStore, Store
from autotile.types import Identity, Problem


def load(
    kernel: str,
    *,
    dtype: Any = None,
    device: str = "auto",
    strict: bool = False,
    store: RecordStore | None = None,
    templates: Roots = (),
    **sizes: int,
) -> TunedKernel:
    """The best kernel saved for this device, as a callable.

        matmul = autotile.load("matmul", m=4096, n=4096, k=4096, dtype="float32")
        c = matmul(a, b)

    `sizes` are the kernel's dimensions, and what else its problems may say (a batch, a pitch, `offset`, `in_place`);
    `dtype` a name such as "float32" or a numpy dtype (the kernel's first where left out). Where several folders serve
    under the name (`Kernel.instead`), dtype and device say which. Results under AUTOTILE_HOME
    serve, and those that ship with autotile; a `store` that is given serves alone. What was not tuned exactly falls
    back (see `TunedKernel.match`) and says so once; with `strict` it raises NotTuned naming the fields that differ.
    Nothing is compiled when the binary is in the cache.
    Raises UsageError for an unknown kernel, size or dtype (ArgumentTypeError, which is one, for a value of a wrong
    type) and DeviceNotFound for a device that is not there, or for a GPU in a process forked after CUDA was started.
    """
    require(isinstance(kernel, str), "kernel", kernel, 'a kernel\'s name, such as "matmul"')
    require(isinstance(strict, bool), "strict", strict, "True or False")
    require_device(device)
    if device.startswith("replay:"):
        raise UsageError(f"{device} runs nothing, so no kernel can be loaded for it; use auto, cuda:N or emulator")
    require_templates(templates)
    require_store(store)
    public = load_kernel(kernel, templates)
    found, named = resolve(public, dtype_name(dtype), lambda: opened_device(device).info, templates)
    problem = found.problem(sizes, named)
    opened = opened_device(device)
    template = template_digest(found)
    saved, shipped = (Store(), ShippedStore()) if store is None else (store, None)

    def chosen(asked: Problem) -> Choice:
        return choose(found, asked, opened.info, template, saved, shipped)

    choice = chosen(problem)
    if choice.match != EXACT:
        message = f"{found.name} {problem.label} on {opened.info.name}: {_explain(choice)}"
        message += _left_behind(public, problem, choice, opened, saved, shipped)
        if strict:
            raise NotTuned(f"{message}. Tune it with `autotile search`, or load without strict=True")
        warn_once(message, stacklevel=3)
    if choice.record is not None and not choice.shipped:  # what ships was tuned elsewhere, as everybody expects
        _say_what_changed(f"{found.name} {problem.label}", choice.record.identity, opened)
    return TunedKernel(found, problem, choice, opened, strict, chosen)


def _say_what_changed(what: str, tuned: Identity, device: Device) -> None:
    """A driver or compiler of another version, or other flags, run the kernel as well, but may favour another."""
    for part, then, now in (
        ("driver", tuned.driver, device.info.driver),
        ("compiler", tuned.compiler, compiler_at_hand(device.target)),
        ("compiler flags", tuned.flags or "none", flags_at_hand(device.target) or "none"),
    ):
        if now is not None and then != now and tuned.device == device.info.name:
            warn_once(
                f"{what} was tuned with the {part} {then}; here it is {now}. It still runs; tune again to be sure that "
                "it is the fastest",
                stacklevel=4,
            )


@lru_cache(maxsize=16)
def opened_device(name: str) -> Device:
    """Devices are opened once a process."""
    return open_device(name, warn_once)


def _left_behind(
    public: Kernel, problem: Problem, choice: Choice, device: Device, saved: RecordStore, shipped: ShippedStore | None
) -> str:
    """What was tuned exactly for the public kernel before another folder served in its place, and nothing for that."""
    if problem.kernel == public.name or choice.match not in (SAME_ARCH, DEFAULT):
        return ""
    before = replace(problem, kernel=public.name)
    stores = [store for store in (saved, shipped) if store is not None]
    if not any(store.best(public.name, before, device.info.name) for store in stores):
        return ""
    return f"; what was tuned for the kernel {public.name} does not serve here any more: {problem.kernel} does"


def _explain(choice: Choice) -> str:
    if choice.match == DEFAULT:
        return f"{choice.differs[0]}, so the kernel's default configuration serves (match: default)"
    return f"not tuned exactly (match: {choice.match}); differs in {', '.join(choice.differs)}"
