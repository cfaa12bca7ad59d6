"""What `autotile.load` and `autotile.search` are asked: values of a wrong type are told apart here, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotile.devices.cuda.driver import check_not_forked
from autotile.dtypes import name_of
from autotile.errors import ArgumentTypeError, ArgumentValueError

_STORE_METHODS = ("best", "bests", "records")


def require(fits: bool, parameter: str, value: Any, wanted: str) -> None:
    """Raises ArgumentTypeError, with what was wanted and what came, unless the value `fits`."""
    if not fits:
        raise ArgumentTypeError(f"{parameter} must be {wanted}, not {value!r}")


def require_device(device: Any) -> None:
    """Raises ArgumentTypeError for what is no text, DeviceNotFound for a GPU in a process forked after CUDA's start.

    Asked before the devices that are open already: these would be the parent's.
    """
    require(isinstance(device, str), "device", device, "auto, cuda:N, emulator, emulator:GPU or replay:FILE")
    if not device.startswith(("emulator", "replay:")):
        check_not_forked()


def require_texts(texts: Any, parameter: str, wanted: str) -> None:
    """A list, not one text: that would be taken for a list of letters."""
    fits = isinstance(texts, Sequence) and not isinstance(texts, (str, bytes))
    require(fits and all(isinstance(text, str) for text in texts), parameter, texts, wanted)


def require_problems(problems: Any) -> None:
    fits = isinstance(problems, Sequence) and not isinstance(problems, (str, bytes))
    fits = fits and all(isinstance(one, Mapping) and all(isinstance(name, str) for name in one) for one in problems)
    require(fits, "problems", problems, 'a list of problems such as [{"m": 64, "n": 64, "k": 64, "dtype": "float32"}]')


def require_templates(templates: Any) -> None:
    roots = [templates] if isinstance(templates, (str, Path)) else templates
    fits = isinstance(roots, Sequence) and all(isinstance(root, (str, Path)) for root in roots)
    require(fits, "templates", templates, "a folder of kernel folders, or a list of such folders")


def require_store(store: Any) -> None:
    fits = store is None or all(callable(getattr(store, name, None)) for name in _STORE_METHODS)
    require(fits, "store", store, "a store of records, such as autotile.store.Store(Path(…)) or None")


def require_count(count: Any, parameter: str) -> None:
    """Raises ArgumentTypeError for what is neither None nor an int, ArgumentValueError for one below 1."""
    if count is None:
        return
    require(isinstance(count, (int, np.integer)) and not isinstance(count, bool), parameter, count, "an integer from 1")
    if count < 1:
        raise ArgumentValueError(f"{parameter} must be at least 1, not {count}")


def dtype_name(dtype: Any) -> str | None:
    """The table's name of a dtype; a text stands for itself, None for the kernel's own first.

    Raises ArgumentTypeError for what numpy takes for no dtype, UsageError for one that autotile does not know.
    """
    if dtype is None or isinstance(dtype, str):
        return dtype
    try:
        return name_of(dtype)
    except TypeError:
        raise ArgumentTypeError(f'dtype must be a name such as "float32" or a numpy dtype, not {dtype!r}') from None
