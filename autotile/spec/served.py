"""Which kernel a search is of, where the name in its file stands for several folders (see kernels/instead.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotile.errors import UsageError
from autotile.kernels import Kernel, Roots
from autotile.kernels.instead import DeviceOf, resolve
from autotile.types import Problem


@dataclass(frozen=True)
class Served:
    """What decides it: the folders of kernels, and the device. Without one, a name means the folder itself."""

    templates: Roots
    device: DeviceOf | None

    def kernel(self, public: Kernel, dtype: Any) -> tuple[Kernel, str | None]:
        """The kernel for a dtype as a file states it, or leaves it out (None), and the dtype."""
        return (public, dtype) if self.device is None else resolve(public, dtype, self.device, self.templates)

    def asked(self, public: Kernel, stated: Mapping[str, Any]) -> tuple[Kernel, Problem]:
        """A problem that is given from outside, as sizes, options and `dtype` by name, and the kernel that serves it.

        Raises UsageError for one that the kernel cannot have, naming kernel and problem.
        """
        try:
            kernel, dtype = self.kernel(public, stated.get("dtype"))
            sizes = {name: value for name, value in stated.items() if name != "dtype"}
            return kernel, kernel.problem(sizes, dtype)
        except UsageError as error:
            text = ", ".join(f"{name}={value}" for name, value in stated.items())
            raise UsageError(f"the problem {text!r}: {error}") from None

    def odd_one(self, public: Kernel, found: Sequence[tuple[Kernel, Problem]]) -> tuple[int, str] | None:
        """The first problem that another kernel serves than the one before all, by its number, and what to say."""
        first, problem = found[0]
        for number, (kernel, other) in enumerate(found):
            if kernel.name != first.name:
                return number, (
                    f"a search is of one kernel, and on {self._device} {public.name} {problem.dtype} is the kernel "
                    f"{first.name}, {public.name} {other.dtype} the kernel {kernel.name}: give each a search of its "
                    "own (in one file, `---` parts them; on the command line, a run for each)"
                )
        return None

    def why(self, public: Kernel, kernel: Kernel, dtype: str) -> str:
        """What a message about the kernel's parameters needs beside, where the file does not name that kernel."""
        if kernel.name == public.name:
            return ""
        return f" (on {self._device}, {public.name} {dtype} is the kernel {kernel.name}, whose parameters count)"

    @property
    def _device(self) -> str:
        return "any device" if self.device is None else self.device().name
