"""What follows from a configuration's values, as columns that the search's model compares rows by."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.kernels import Kernel
from autotile.space import Space
from autotile.types import Problem

SAMPLE = 2000
"""Rows, spread over the table, by which columns are compared with each other."""


def derived_columns(kernel: Kernel, problem: Problem, space: Space) -> np.ndarray[Any, Any]:
    """The kernel's derived numbers and its launch's (threads, shared bytes), rows × columns, float32, from 0 to 1.

    On a logarithmic scale: that threads are the product of a block's sides over a thread's becomes a sum, which a few
    trials can teach. Columns of fewer than three values, and ones that say the same as another, are left out.
    """
    scope: dict[str, Any] = dict(kernel.problem_scope(problem))
    for p, (name, domain) in enumerate(zip(space.names, space.domains, strict=True)):
        scope[name] = np.asarray(domain)[space.codes[:, p]]
    some = np.unique(np.linspace(0, len(space) - 1, SAMPLE).astype(np.int64))
    columns: list[np.ndarray[Any, Any]] = []
    for name, expression in kernel.steps:
        scope[name] = values = np.broadcast_to(np.asarray(expression.evaluate(scope)), (len(space),))
        if values.dtype.kind not in "iuf" or len(np.unique(values[some])) < 3:
            continue
        column = np.log2(np.maximum(values, 0) + (values.min() <= 0))
        column = ((column - column.min()) / np.ptp(column)).astype(np.float32)
        if not any(abs(np.corrcoef(column[some], other[some])[0, 1]) > 0.999 for other in columns):
            columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((len(space), 0), np.float32)
