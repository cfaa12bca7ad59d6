"""Tables in Markdown, as the README has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def row_of(cells: Sequence[str], head: bool = False) -> list[str]:
    row = f"| {' | '.join(cells)} |"
    return [row, "|" + "---|" * len(cells)] if head else [row]


def place(report: Mapping[str, Any]) -> str:
    """Where and when a report was measured."""
    return f"{report['device']}, driver {report['driver']}, {report['compiler']}, {made(report)}"


def made(facts: Mapping[str, Any]) -> str:
    return f"commit {facts['commit']}, {facts['date'][:10]}"
