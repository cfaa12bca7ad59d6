"""Tables in Markdown, as the README has them."""

from __future__ import annotations

from collections.abc import Sequence


def row_of(cells: Sequence[str], head: bool = False) -> list[str]:
    row = f"| {' | '.join(cells)} |"
    return [row, "|" + "---|" * len(cells)] if head else [row]
