"""Progress of a search: a live bar on a terminal, a line for each new best elsewhere. Always on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from autotile.cli.text import time_of
from autotile.devices.info import DeviceInfo
from autotile.kernels import Kernel
from autotile.report.rates import rate
from autotile.space import Space
from autotile.types import Problem, Record


class Progress:
    """A Listener. Use as a context manager, so that the terminal is left in order."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bars: Bars | None = None
        if self._console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[best]}"),
                console=self._console,
                transient=True,
            )
        self._task: TaskID | None = None
        self._kernel: Kernel | None = None
        self._best_ms = float("inf")

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def started(
        self, kernel: Kernel, problem: Problem, device: DeviceInfo, space: Space, known: int, goal: int
    ) -> None:
        self._kernel, self._best_ms = kernel, float("inf")
        title = f"{kernel.name} {problem.label}"
        counted = f"{space.feasible} feasible configurations of {space.total}"
        left = f"up to {goal - known} to try" if known < goal else "none left to try"
        self.note(f"{title} on {device.name}: {counted}; {known} on record, {left}")
        if self._bars is not None:
            self._task = self._bars.add_task(title, total=goal, completed=min(known, goal), best="")

    def tried(self, record: Record, best: Record | None, count: int) -> None:
        assert self._kernel is not None
        text = ""
        if best is not None:
            text = f"best {time_of(best)}, {rate(self._kernel, best.problem, best.time_ms)}"
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=count, best=text)
        elif best is record and record.time_ms < self._best_ms:
            self.note(f"  trial {count}: {text}  {record.configuration.label}")
        if best is not None:
            self._best_ms = best.time_ms

    def finals(self, contestants: int) -> None:
        if contestants and self._bars is not None and self._task is not None:
            self._bars.update(self._task, best=f"timing and proving the best {contestants}")

    def note(self, message: str) -> None:
        self._console.print(message, markup=False)
