"""What is known of a configuration before it is built, as columns that the search's model compares rows by."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotile.devices.info import DeviceInfo
from autotile.devices.occupancy import reserved_shared_bytes
from autotile.kernels import Kernel
from autotile.kernels.expressions import Expression
from autotile.space import Space
from autotile.types import Problem

Column = np.ndarray[Any, Any]

SAMPLE = 2000
"""Rows, spread over the table, by which columns are compared with each other."""

REGISTERS = "registers"
"""The derived value by which a kernel may tell about how many registers a thread takes."""


def derived_columns(kernel: Kernel, problem: Problem, space: Space, device: DeviceInfo) -> Column:
    """Rows × columns, float32, from 0 to 1: the kernel's derived numbers, its launch's (threads, shared bytes, blocks),
    and how the blocks fit the device (blocks a multiprocessor, waves).

    On a logarithmic scale: that threads are the product of a block's sides over a thread's becomes a sum, which a few
    trials can teach. Columns of fewer than three values, and ones that say the same as another, are left out.
    """
    scope: dict[str, Any] = dict(kernel.problem_scope(problem))
    for p, (name, domain) in enumerate(zip(space.names, space.domains, strict=True)):
        scope[name] = np.asarray(domain)[space.codes[:, p]]
    numbers: list[Column] = []
    for name, expression in kernel.steps:
        scope[name] = np.broadcast_to(np.asarray(expression.evaluate(scope)), (len(space),))
        if scope[name].dtype.kind in "iuf":
            numbers.append(scope[name])
    blocks = np.ones(len(space))
    for side in kernel.launch.grid:
        blocks = blocks * np.asarray(Expression(side, f"kernel {kernel.name}, launch grid").evaluate(scope), float)
    resident = blocks_a_multiprocessor(scope, device)
    some = np.unique(np.linspace(0, len(space) - 1, SAMPLE).astype(np.int64))
    columns: list[Column] = []
    for values in [*numbers, blocks, resident, blocks / (resident * device.sm_count)]:
        if len(np.unique(values[some])) < 3:
            continue
        column = np.log2(np.maximum(values, 0) + (values.min() <= 0))
        column = ((column - column.min()) / np.ptp(column)).astype(np.float32)
        if not any(abs(np.corrcoef(column[some], other[some])[0, 1]) > 0.999 for other in columns):
            columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((len(space), 0), np.float32)


def blocks_a_multiprocessor(scope: dict[str, Any], device: DeviceInfo) -> Column:
    """How many blocks are resident at once, by threads, shared memory and, where the kernel guesses them, registers.

    (CUDA C++ Programming Guide, "Maximize Utilization"; at least 1, since what cannot be resident is no row.)
    """
    threads = np.maximum(np.asarray(scope["threads"], float), 1)
    shared = np.asarray(scope["shared_bytes"], float) + np.asarray(scope["static_shared_bytes"], float)
    fit = np.minimum(device.max_blocks_per_sm, device.max_threads_per_sm // threads)
    fit = np.minimum(fit, device.shared_bytes_per_sm // np.maximum(shared + reserved_shared_bytes(device), 1))
    if REGISTERS in scope:
        fit = np.minimum(fit, device.registers_per_sm // (threads * np.maximum(np.asarray(scope[REGISTERS], float), 1)))
    return np.asarray(np.maximum(fit, 1))
