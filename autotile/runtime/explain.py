"""`autotile.explain(...)`: the command `autotile explain`, from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from autotile.devices.base import Device
from autotile.devices.gpus import gpu_table
from autotile.errors import ConfigurationError, UsageError
from autotile.insight.beside import with_profile
from autotile.insight.explain import explain_variant
from autotile.insight.explanation import Explanation
from autotile.kernels import Kernel, Roots, load_kernel
from autotile.kernels.instead import resolve
from autotile.kernels.points import point_of
from autotile.measure.variant import make_variant
from autotile.runtime.load import opened_device
from autotile.runtime.requests import dtype_name, require, require_device, require_templates
from autotile.runtime.tuned import TunedKernel
from autotile.space import violations
from autotile.types import Configuration, Problem, Record


def explain(
    kernel: str | TunedKernel,
    *,
    config: Mapping[str, Any] | None = None,
    preset: str | None = None,
    dtype: Any = None,
    device: str = "auto",
    profile: bool = False,
    changes: bool = True,
    templates: Roots = (),
    **sizes: int,
) -> Explanation:
    """Why one configuration of a kernel is as fast as it is, and what to change. `print` it to read it.

        print(autotile.explain("transpose", rows=4096, cols=4096, preset="tile32", device="h200"))

    `config` and `preset` name the configuration (the kernel's default where neither is given), `sizes` and `dtype` the
    problem, as `load` takes them. A kernel that was loaded is explained as it is: `autotile.explain(matmul)`. `device`
    says which GPU's limits and data sheet count: the one that is there, else an H200, or any of the table (`h200`,
    `emulator:a100`). Nothing is run on it, but with `profile`, which has Nsight Compute count there, too. `changes`
    tries configurations that differ in one parameter, for some seconds. Times are estimates, where none is on record.
    Raises UsageError for an unknown kernel, size or configuration and for one that is not feasible, DeviceNotFound for
    an unknown GPU, ToolchainMissing without a C++ compiler, and VariantError for what the emulator cannot run.
    """
    require_templates(templates)
    require(isinstance(profile, bool) and isinstance(changes, bool), "profile and changes", profile, "True or False")
    if isinstance(kernel, TunedKernel):
        given = [config, preset, dtype, *sizes.values()]
        require(all(value is None for value in given) and device == "auto", "kernel", kernel, "given alone")
        return explain_loaded(kernel, profile=profile, changes=changes)
    require(isinstance(kernel, str), "kernel", kernel, 'a kernel\'s name, such as "matmul", or what `load` gave')
    require(preset is None or isinstance(preset, str), "preset", preset, "a preset's name")
    require(config is None or isinstance(config, Mapping), "config", config, "a dict of parameters' values")
    require_device(device)
    opening = cache(lambda: device_named(device))
    public = load_kernel(kernel, templates)
    found, named = resolve(public, dtype_name(dtype), lambda: opening().info, templates)
    point = point_of(found, preset, config or {})
    return explain_point(found, found.problem(sizes, named), point, opening(), profile=profile, changes=changes)


def explain_loaded(kernel: TunedKernel, *, profile: bool = False, changes: bool = True) -> Explanation:
    """What `load` gave, for the problem and the device that it was loaded for."""
    return explain_point(
        kernel._kernel, kernel.problem, kernel.config, kernel._device, kernel.record, profile=profile, changes=changes
    )


def explain_point(
    kernel: Kernel,
    problem: Problem,
    configuration: Configuration,
    device: Device,
    record: Record | None = None,
    *,
    profile: bool = False,
    changes: bool = True,
) -> Explanation:
    """A measurement that `record` holds of this very problem on this device stands in place of the estimate.

    Raises ConfigurationError for what is not feasible.
    """
    broken = violations(kernel, problem, device.info, configuration)
    if broken:
        raise ConfigurationError(
            f"{kernel.name} {problem.label} on {device.info.name}: not a feasible configuration: {'; '.join(broken)}"
        )
    variant = make_variant(kernel, problem, configuration)
    measured = _measured(record, problem, device)
    notes = () if measured is None else ("The time is measured, and on record; all other figures are estimates.",)
    explanation = explain_variant(variant, device.info, changes=changes, measured_ms=measured, notes=notes)
    return with_profile(explanation, variant, device) if profile else explanation


def _measured(record: Record | None, problem: Problem, device: Device) -> float | None:
    """Milliseconds."""
    if record is None or record.measurement is None or record.measurement.estimated:
        return None
    same = record.problem == problem and record.identity.device == device.info.name
    return record.measurement.time_ms if same else None


def device_named(name: str, opening: Callable[[str], Device] = opened_device) -> Device:
    """A device as `open_device` names it, or a GPU of the table by its id, which is emulated.

    Raises UsageError for a recording, which tells nothing of a GPU's limits but its own.
    """
    if name.startswith("replay:"):
        raise UsageError(f"{name} runs nothing, so nothing can be explained on it; use auto, cuda:N or emulator:GPU")
    try:
        return opening(f"emulator:{name}" if name.lower() in gpu_table() else name)
    except UsageError as error:
        raise UsageError(f"{error}; or a GPU of the table: {', '.join(gpu_table())}") from error
