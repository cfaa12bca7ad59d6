"""What the runtime warns of, once each."""

from __future__ import annotations

import warnings

_said: set[str] = set()


class AutotileWarning(UserWarning):
    """Something works, but not as well or not as exactly as was asked."""


def warn_once(message: str, stacklevel: int = 3) -> None:
    """A message is shown the first time it comes up in this process."""
    if message not in _said:
        _said.add(message)
        warnings.warn(message, AutotileWarning, stacklevel=stacklevel)
