"""NVIDIA's compute-sanitizer, run over a variant in a measuring process of its own."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autotile.build import Builder
from autotile.devices.cuda import CudaDevice
from autotile.errors import ToolchainMissing, VariantError
from autotile.kernels import Kernel
from autotile.measure.limits import Limits
from autotile.measure.placed import held_bytes
from autotile.measure.remote import RemoteBench
from autotile.measure.variant import PROOF_INPUTS, Variant, proofs_of
from autotile.types import Problem

TOOLS = ("memcheck", "racecheck")

SLOWDOWN = 100.0
"""How much longer a launch may take under a tool that watches each access."""

CLOSE_S = 120.0
"""How long the tool may take to write what it found."""

MOST_BYTES = 8 << 20
"""Problems that move or hold more are left out: what they could show beside the others has to do with places, and is
checked without the tool."""

_CLEAN = re.compile(r"ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)")
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: .*")
_NOISE = re.compile(r"^=+ (COMPUTE-SANITIZER|Target application|Saved host backtrace|Host Frame|\s*in )")


@dataclass(frozen=True)
class Sanitized:
    """What a tool found on a variant; `words` are its own, empty when it found nothing."""

    tool: str
    problems: int
    words: str

    @property
    def clean(self) -> bool:
        return not self.words


def candidates() -> Iterator[Path]:
    """Where compute-sanitizer is looked for, in order."""
    chosen = os.environ.get("AUTOTILE_SANITIZER")
    if chosen:
        yield Path(chosen)
        return
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "compute-sanitizer"
    on_path = shutil.which("compute-sanitizer")
    if on_path:
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/compute-sanitizer")


def find_sanitizer() -> Path:
    """Raises ToolchainMissing when there is none."""
    looked = []
    for path in candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return path
        looked.append(str(path))
    raise ToolchainMissing(
        f"compute-sanitizer was not found; looked at {', '.join(looked)}. It comes with the CUDA toolkit; name it with "
        "AUTOTILE_SANITIZER"
    )


def sanitize(tool: str, sanitizer: Path, device: CudaDevice, builder: Builder, variant: Variant) -> Sanitized:
    """Runs the variant's small proofs under one of TOOLS.

    Arrays lie without guards, so that an access beyond one is beyond its allocation, which is what memcheck knows.
    Raises VariantError when the variant is wrong there, ToolchainMissing when the tool leaves no report.
    """
    proofs = [proof for proof in proofs_of(variant, device.info) if _small(variant.kernel, proof.variant.problem)]
    futures = [builder.submit(proof.variant.source) for proof in proofs]
    comparer = builder.build(device.comparer)
    with tempfile.TemporaryDirectory(prefix="autotile-sanitize-") as folder:
        command = [str(sanitizer), "--tool", tool, "--log-file", f"{folder}/%p.log", "--print-limit", "3"]
        limits = Limits(SLOWDOWN * device.launch_limit_s, SLOWDOWN * device.launch_limit_s)
        failure: VariantError | None = None
        with RemoteBench(device.reopen_unguarded, limits, command, close_s=CLOSE_S) as bench:
            try:
                for proof, future in zip(proofs, futures, strict=True):
                    bench.prove(replace(proof, inputs=PROOF_INPUTS[:1]), future.result(), comparer, 1)
            except VariantError as error:  # memcheck ends a kernel that goes out of bounds
                failure = error
        logs = sorted(Path(folder).glob("*.log"))
        report = "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)
        if failure is not None and not _SUMMARY.search(report):
            raise failure
        words = findings(tool, report)
        if failure is not None and not words:
            raise failure
        return Sanitized(tool, len(proofs), words)


def _small(kernel: Kernel, problem: Problem) -> bool:
    return max(kernel.bytes_of(problem), held_bytes(kernel, problem)) <= MOST_BYTES


def findings(tool: str, report: str) -> str:
    """A report's findings in the tool's own words; empty when it found nothing.

    Raises ToolchainMissing for a report without a summary: nothing was checked then.
    """
    summaries = [match[0] for match in _SUMMARY.finditer(report)]
    telling = [summary for summary in summaries if not _CLEAN.search(summary)]
    if not summaries:
        said = report.strip() or "nothing"
        raise ToolchainMissing(f"compute-sanitizer --tool {tool} did not report on the variant; it said: {said[:500]}")
    if not telling:
        return ""
    lines = [line.lstrip("= ") for line in report.splitlines() if not _NOISE.match(line)]
    return "; ".join(line for line in [telling[0], *lines[:6]] if line)
