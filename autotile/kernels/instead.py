"""One name for several kernel folders: which of them serves a dtype on a device (`Kernel.instead`).

The name that a user says is a public kernel's; records, binaries and configurations are of the folder that serves.
"""

from __future__ import annotations

from collections.abc import Callable

from autotile.devices.gpus import gpu_table
from autotile.devices.info import DeviceInfo
from autotile.errors import KernelError, UsageError
from autotile.kernels.declarations import Instead
from autotile.kernels.definition import Kernel
from autotile.kernels.expressions import Expression
from autotile.kernels.loader import Roots, load_kernel
from autotile.suggest import did_you_mean

DeviceOf = Callable[[], DeviceInfo]
"""Asked for the device only where it decides: most kernels serve alone, and need none to be opened."""


def kernel_for(name: str, dtype: str | None, device: DeviceOf, extra: Roots = ()) -> Kernel:
    """The kernel that serves `name` for a dtype (None: the public kernel's first) on a device.

    Raises KernelError for a folder that is not there or at fault, UsageError for a dtype that none serves there.
    """
    return resolve(load_kernel(name, extra), dtype, device, extra)[0]


def resolve(public: Kernel, dtype: str | None, device: DeviceOf, extra: Roots = ()) -> tuple[Kernel, str]:
    """The kernel that serves for a public one (see `kernel_for`), and the dtype's name: another kernel may have another
    first one. A kernel that serves alone is not asked whether it has the dtype: its `problem` says."""
    wanted = public.dtypes[0] if dtype is None else str(dtype)
    if not public.instead:
        return public, wanted
    info = device()
    for one in public.instead:
        if _holds(public, one, wanted, info):
            other = stand_in(public, one, extra)
            if wanted in other.dtypes:
                return other, wanted
    if wanted not in public.dtypes:
        raise UsageError(_why_none(public, wanted, info, extra))
    return public, wanted


def stand_in(public: Kernel, one: Instead, extra: Roots = ()) -> Kernel:
    """The kernel that an entry of `instead` names. Raises KernelError for none, or one that has `instead` itself."""
    try:
        other = load_kernel(one.kernel, extra)
    except KernelError as error:
        raise KernelError(f"kernel {public.name}, instead {one.kernel}: {error}") from error
    if other.instead:
        raise KernelError(
            f"kernel {public.name}, instead {one.kernel}: that kernel has `instead` itself; a kernel that serves for "
            "another serves alone"
        )
    return other


def served_dtypes(public: Kernel, one: Instead, other: Kernel) -> tuple[str, ...]:
    """The dtypes that an entry of `instead`, of that kernel, takes on some GPU of the table."""
    return tuple(dtype for dtype in other.dtypes if _gpus_for(public, one, dtype))


def folders_of(name: str, extra: Roots = ()) -> tuple[str, ...]:
    """The folders whose records are shown under a name: its own first. One that cannot be read stands alone: records
    outlive their kernels."""
    try:
        public = load_kernel(name, extra)
    except UsageError:
        return (name,)
    return tuple(dict.fromkeys((name, *(one.kernel for one in public.instead))))


def _holds(public: Kernel, one: Instead, dtype: str, info: DeviceInfo) -> bool:
    scope = info.scope() | {"problem.dtype": dtype}
    return bool(Expression(one.when, f"kernel {public.name}, instead {one.kernel}").holds(scope))


def _gpus_for(public: Kernel, one: Instead, dtype: str) -> list[str]:
    return [key for key, info in gpu_table().items() if _holds(public, one, dtype, info)]


def _why_none(public: Kernel, dtype: str, info: DeviceInfo, extra: Roots) -> str:
    """What is lacking: a GPU, or the dtype."""
    known = {public.name: public.dtypes}
    for one in public.instead:
        served = served_dtypes(public, one, stand_in(public, one, extra))
        if dtype in served:
            return (
                f"{public.name} {dtype} is served by the kernel {one.kernel}, where {one.when}, and {info.name} "
                f"(compute capability {info.compute_capability}) is no such GPU; these are: "
                f"{', '.join(_gpus_for(public, one, dtype))}"
            )
        known[one.kernel] = tuple(dict.fromkeys((*known.get(one.kernel, ()), *served)))
    every = [name for dtypes in known.values() for name in dtypes]
    lists = "; ".join(f"{', '.join(dtypes)} (kernel {name})" for name, dtypes in known.items() if dtypes)
    return f"{public.name} has no dtype {dtype!r}{did_you_mean(dtype, every)}; it has {lists}"
