"""What the benchmarks share: where results go, what they say of the machine, and fair timing beside other libraries."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from autotile import __version__
from autotile.devices.info import DeviceInfo

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FLUSH_BYTES = 1 << 30


def slug(device: DeviceInfo) -> str:
    """The device's folder under benchmarks/results/."""
    return re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")


def machine(device: DeviceInfo, compiler: str) -> dict[str, Any]:
    """What a figure depends on: device, driver, compiler, commit, date, and the libraries beside it."""
    facts: dict[str, Any] = {
        "device": device.name,
        "arch": device.arch,
        "driver": device.driver,
        "compiler": compiler,
        "autotile": __version__,
        "commit": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    for name in ("torch", "cupy", "pycuda"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        facts[name] = str(getattr(module, "VERSION_TEXT", None) or getattr(module, "__version__", "?"))
    return facts


def commit() -> str:
    """The commit that is measured; the variable COMMIT where the tree came without its history."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def save(name: str, device: DeviceInfo, document: dict[str, Any], out: Path | None = None) -> Path:
    """Writes a result as JSON, under benchmarks/results/<device>/ unless `out` names another folder."""
    folder = out if out is not None else RESULTS / slug(device)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def race(contestants: dict[str, Callable[[int], Any]], rounds: int = 20) -> dict[str, dict[str, float]]:
    """Times contestants on PyTorch's stream, in turns: each with a flushed L2, and with input set `round % 3`.

    The flush (1 GiB written, some 0.25 ms) also keeps the GPU busy while Python queues the launch, so that no
    contestant pays for its call. Gives median, minimum and interquartile range in ms.
    """
    import torch

    scratch = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    heat_up(contestants)
    for number in range(rounds):
        for name, call in contestants.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            scratch.zero_()
            begin.record()
            call(number % 3)
            end.record()
            torch.cuda.synchronize()
            samples[name].append(begin.elapsed_time(end))
    return {name: summary(times) for name, times in samples.items()}


def heat_up(contestants: dict[str, Callable[[int], Any]], seconds: float = 1.0) -> None:
    """Runs all of them until the clocks have risen."""
    import torch

    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for call in contestants.values():
            call(0)
        torch.cuda.synchronize()


def summary(times: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return {"median_ms": median, "min_ms": min(times), "spread_ms": high - low, "runs": len(times)}
