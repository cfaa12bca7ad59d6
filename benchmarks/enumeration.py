"""How long a search space takes, from the text of its constraints to the table of what is feasible.

    python benchmarks/enumeration.py --spaces FOLDER [--rounds N] [--out FOLDER]

FOLDER holds T1 files. Where Kernel Tuner is installed (`pip install kernel_tuner`), it enumerates the same spaces in
the same run, in turns with ours, with its default framework. Either side is given the values as lists and the
constraints as text; the time covers parsing the text, enumerating, and making the table in which a configuration can be
looked up (Kernel Tuner's list and dict of tuples, our codes and their numbers). What is kept between runs is forgotten
before each. The least of all rounds counts, and the counts must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import RESULTS, commit, summary
from t1 import T1, read_t1

from autotile import __version__
from autotile.kernels.expressions import forget_parsed

MOST_THREADS = 1024


def cpu_name() -> str:
    """The processor's model, as the kernel or the platform names it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()


def cpu_machine() -> dict[str, Any]:
    """What a figure depends on where there is no GPU."""
    return {
        "device": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "autotile": __version__,
        "kernel_tuner": peer_version(),
        "commit": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def save_for_cpu(name: str, document: dict[str, Any], folder: Path) -> Path:
    """Writes a result as the other benchmarks do, in the folder of the processor."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def peer_version() -> str | None:
    try:
        return version("kernel_tuner")
    except PackageNotFoundError:
        return None


def ours(space: T1) -> int:
    forget_parsed()
    table = space.enumerate()
    if len(table) and table.row_of(table.configuration(0)) != 0:
        raise AssertionError(f"{space.name}: the first row is not where it is")
    return table.feasible


def theirs(space: T1) -> int:
    from kernel_tuner.searchspace import Searchspace

    domains = {name: list(values) for name, values in space.domains.items()}
    with contextlib.redirect_stdout(io.StringIO()):
        return int(Searchspace(domains, list(space.conditions), MOST_THREADS).size)


def compare(space: T1, rounds: int) -> dict[str, Any]:
    """Both in turns. Raises SystemExit where the counts differ."""
    sides: dict[str, Callable[[T1], int]] = {"autotile": ours}
    if peer_version():
        sides["kernel_tuner"] = theirs
    times: dict[str, list[float]] = {name: [] for name in sides}
    counts: dict[str, int] = {}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            begin = time.perf_counter()
            counts[name] = side(space)
            times[name].append(1e3 * (time.perf_counter() - begin))
    if len(set(counts.values())) > 1:
        raise SystemExit(f"{space.name}: the counts differ: {counts}")
    result: dict[str, Any] = {"space": space.name, "feasible": counts["autotile"]}
    result |= {name: summary(measured[1:]) for name, measured in times.items()}  # the first round imports
    if "kernel_tuner" in result:
        result["times_as_fast"] = result["kernel_tuner"]["min_ms"] / result["autotile"]["min_ms"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    spaces = [read_t1(path) for path in sorted(arguments.spaces.glob("*.T1.json"))]
    if not spaces:
        raise SystemExit(f"{arguments.spaces} holds no *.T1.json")
    results = [compare(space, arguments.rounds) for space in spaces]
    for result in results:
        line = f"{result['space']:<20} {result['feasible']:>8}  {result['autotile']['min_ms']:8.2f} ms"
        if "kernel_tuner" in result:
            line += f"  Kernel Tuner {result['kernel_tuner']['min_ms']:8.2f} ms: {result['times_as_fast']:.1f} times"
        print(line)
    folder = arguments.out or RESULTS / re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    print(save_for_cpu("enumeration", {"machine": cpu_machine(), "spaces": results}, folder))


if __name__ == "__main__":
    main()
