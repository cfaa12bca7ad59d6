"""A stand-in for Nsight Compute's ncu: lists metrics, runs the program, and prints the CSV that it was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from autotile.insight.ncu import WANTED

# Options come as --csv alone, and pairs; then the program. What ncu says of itself comes before the program's words.
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo x >> calls
case "$*" in *--query-metrics*) cat listing; exit 0;; esac
for word in "$@"; do echo "$word"; done > asked
while [ $# -gt 0 ]; do
    case "$1" in --csv) shift;; --*) shift 2;; *) break;; esac
done
"$@" || { echo "==ERROR== The application returned an error code."; exit 1; }
cat csv
"""

EVERYTHING = tuple(metric for metrics in WANTED.values() for metric in metrics)


class FakeNcu:
    """`path` is the program. `words` are those that it was last called with to profile, `calls` counts all calls."""

    def __init__(self, folder: Path, csv: str, metrics: Iterable[str] = EVERYTHING) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self._folder = folder / "ncu", folder
        (folder / "listing").write_text(listing(metrics))
        (folder / "csv").write_text(csv)
        self.path.write_text(SCRIPT)
        self.path.chmod(0o755)

    @property
    def words(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()

    @property
    def metrics(self) -> list[str]:
        return self.words[self.words.index("--metrics") + 1].split(",")

    @property
    def calls(self) -> int:
        return len((self._folder / "calls").read_text().splitlines())


def listing(metrics: Iterable[str], device: str = "Some GPU (XX100)") -> str:
    """As `ncu --query-metrics` prints it: base names, a description that may go on in the next line."""
    lines = [
        f"Device {device}",
        "-" * 60,
        f"{'Metric Name':50} Metric Type",
        "-" * 60,
        "FBSP.Triage.some__name Counter",
    ]
    for name in sorted({metric.partition(".")[0] for metric in metrics if not metric.startswith("launch__")}):
        lines += [f"{name:90} Counter  sector  # of what is told", f"{'':90} l1tex__in_words of the line above"]
    return "\n".join([*lines, "==PROF== Note that a suffix is wanted", ""])


def csv_of(names: Sequence[str], columns: dict[str, Sequence[str | float]]) -> str:
    """Launches of these functions as `ncu --csv --page raw` prints them; a value a launch in each column."""
    lines = ["==PROF== Connected to process 7", ",".join(f'"{cell}"' for cell in ("ID", "Kernel Name", *columns))]
    lines.append(",".join(['""'] * (2 + len(columns))))
    for at, name in enumerate(names):
        lines.append(",".join(f'"{cell}"' for cell in (at, name, *(values[at] for values in columns.values()))))
    return "\n".join([*lines, "==PROF== Disconnected from process 7", ""])
