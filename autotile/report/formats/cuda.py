"""The winners as CUDA files, a folder a device, ready for nvcc; launch.json says how to launch each."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotile.codegen import render
from autotile.devices.info import STATIC_SHARED_LIMIT_BYTES
from autotile.dtypes import element_type
from autotile.errors import AutotileError, KernelError, NotTuned
from autotile.kernels import Argument, Kernel, Output, Scalar, Scratch, Size
from autotile.report.formats.common import (
    ExportWarning,
    Kernels,
    by_device,
    launch_lines,
    one_line,
    provenance,
    winners,
)
from autotile.store import estimated
from autotile.store.names import device_folder, path_name
from autotile.store.serial import pretty
from autotile.types import SCHEMA_VERSION, Launch, LaunchStep, Problem, Record, Source

_REAL_ARCH = re.compile(r"sm_[0-9]+[af]?")


def write_folder(records: Sequence[Record], folder: Path, kernels: Kernels) -> list[Path]:
    """Writes `<folder>/<device>/<kernel>-<problem>.cu` and `launch.json`; returns the paths.

    A winner that the templates here no longer render to the source that was measured is left out, with an
    ExportWarning: its time would be another kernel's. Raises NotTuned when nothing is left.
    """
    written: list[Path] = []
    for (device, arch, guessed), group in by_device(records).items():
        place = folder / (device_folder(device, arch) + ("-estimated" if guessed else ""))
        entries = []
        for record in winners(group):
            try:
                source, launch, static_shared_bytes = _variant(record, kernels)
            except AutotileError as error:
                what = f"{record.problem.kernel} {record.problem.label} on {record.identity.device}"
                warnings.warn(f"{what} left out: {error}", ExportWarning, stacklevel=4)
                continue
            file = place / (path_name(f"{record.problem.kernel}-{record.problem.key}") + ".cu")
            place.mkdir(parents=True, exist_ok=True)
            header = _header(record, source, launch, static_shared_bytes, file.name)
            file.write_text(header + source.text, encoding="utf-8", newline="")
            written.append(file)
            entries.append(_entry(record, source, launch, kernels(record.problem.kernel), file.name))
        if entries:
            written.append(_write_launches(place, device, arch, entries))
    if not written:
        raise NotTuned("nothing to export as CUDA: no saved winner renders from these templates; run autotile search")
    return written


def compile_line(arch: str, file: str) -> str:
    """The command that makes a cubin of an exported file."""
    target = arch if _REAL_ARCH.fullmatch(arch) else "native"
    return f"nvcc -std=c++17 -arch={target} -cubin -o {Path(file).stem}.cubin {file}"


def _variant(record: Record, kernels: Kernels) -> tuple[Source, Launch, int]:
    """The source, the launch and the static shared memory (bytes). Raises AutotileError where they have changed."""
    kernel = kernels(record.problem.kernel)
    source = render(kernel, record.problem, record.configuration)
    launch = kernel.launch_of(record.problem, record.configuration)
    if record.source_digest not in ("", source.digest) or record.launch not in (None, launch):
        raise KernelError("its template has changed since it was measured; search again")
    return source, launch, int(kernel.scope(record.problem, record.configuration)["static_shared_bytes"])


def _header(record: Record, source: Source, launch: Launch, static_shared_bytes: int, file: str) -> str:
    time = f"{record.time_ms:.6g} ms"
    lines = [
        f"{record.problem.kernel}, {record.problem.label}: {record.configuration.label}",
        f"device:  {record.identity.device} ({record.identity.arch}), {provenance(record.identity)}",
        f"time:    {'estimated by a model, not measured: ' if estimated(record) else ''}{time}",
        f"launch:  grid {launch.grid}, block {launch.block}, shared_bytes {launch.shared_bytes}",
        *launch_lines(launch, source.entry),
        f"compile: {compile_line(record.identity.arch, file)}",
    ]
    if launch.steps or launch.scratch_bytes:
        lines.append("what is before and after takes the same arguments, on the same stream; launch.json has the order")
        lines.append(
            "of the arguments, among which the scratch memory is a pointer on 256 bytes, to undefined contents"
        )
    if launch.shared_bytes and launch.shared_bytes + static_shared_bytes > STATIC_SHARED_LIMIT_BYTES:
        lines.append("before the first launch, for more than 48 KiB of shared memory:")
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines.append(f"  cudaFuncSetAttribute({source.entry}, {attribute}, {launch.shared_bytes});")
    # A backslash at the end of a line would carry the comment on into the code.
    return "".join(f"// {_comment(line)}\n" for line in lines) + "\n"


def _comment(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return " " * indent + one_line(line).replace("\\", "/")


def _entry(record: Record, source: Source, launch: Launch, kernel: Kernel, file: str) -> dict[str, Any]:
    steps = (("before", launch.before), ("after", launch.after))
    return {
        "file": file,
        "kernel": record.problem.kernel,
        "entry": source.entry,
        "sizes": record.problem.asked,
        "dtype": record.problem.dtype,
        "traits": dict(source.traits),
        "configuration": dict(record.configuration),
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes,
        **({"scratch_bytes": launch.scratch_bytes} if launch.scratch_bytes else {}),
        **{key: [_step(step, source.entry) for step in of] for key, of in steps if of},
        "arguments": [_argument(argument, kernel, record.problem) for argument in kernel.arguments],
        "time_ms": record.time_ms,
        "estimated": estimated(record),
        "compile": compile_line(record.identity.arch, file),
    }


def _step(step: LaunchStep, entry: str) -> dict[str, Any]:
    return {"entry": entry + step.entry_suffix, "grid": list(step.grid), "block": list(step.block)}


def _argument(argument: Argument, kernel: Kernel, problem: Problem) -> dict[str, Any]:
    """What is passed, in C's order: `is` says as what, an array's shape is as it is stored, and its dtype is the
    problem's where it does not say."""
    if isinstance(argument, Size):
        return {"name": argument.name, "is": "int", "value": kernel.sizes_of(problem)[argument.name]}
    if isinstance(argument, Scalar):
        passed = "double" if element_type(problem.dtype).scalar is np.float64 else "float"
        return {"name": argument.name, "is": passed, "default": argument.default}
    if isinstance(argument, Scratch):
        return {"name": argument.name, "is": "scratch"}
    if argument not in kernel.arrays_of(problem):
        return {"name": argument.name, "is": "null"}
    layout = kernel.layout_of(argument, problem)
    kind = "output" if isinstance(argument, Output) else "input"
    element = kernel.element_of(argument, problem)
    return {
        "name": argument.name,
        "is": kind,
        **({"dtype": element.name} if element.name != problem.dtype else {}),
        "shape": list(layout.shape),
        "strides": list(layout.strides),
    }


def _write_launches(place: Path, device: str, arch: str, entries: Iterable[dict[str, Any]]) -> Path:
    path = place / "launch.json"
    found = {"schema_version": SCHEMA_VERSION, "device": device, "arch": arch, "kernels": list(entries)}
    path.write_text(pretty(found), encoding="utf-8", newline="")
    return path
