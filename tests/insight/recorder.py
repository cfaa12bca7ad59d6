"""A GPU that writes down what it is told to launch, also where another process opens it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from autotile.devices.cuda.packing import Pointer
from autotile.devices.gpus import find_gpu
from autotile.types import Launch, Target

SCRATCH_AT = 7 << 20


class Memory:
    """An allocation: its address, and the bytes that were put there."""

    def __init__(self, at: int, content: np.ndarray[Any, Any], held: list[Memory]) -> None:
        self.at, self.content, self._held = at, content, held
        held.append(self)

    def __int__(self) -> int:
        return self.at

    def free(self) -> None:
        self._held.remove(self)


class Recorder:
    """`launched` has a launch's arguments, an address as ["at", number]; `held` the memory not yet given back."""

    def __init__(self, file: Path) -> None:
        self.info = replace(find_gpu("h200"), kind="cuda", estimated=False)
        self.target = Target("cuda", "sm_90")
        self.reopen = partial(Recorder, file)
        self.held: list[Memory] = []
        self.found: dict[int, np.ndarray[Any, Any]] = {}
        self._file = file

    def load(self, binary: Any) -> Any:
        return binary

    def upload(self, array: np.ndarray[Any, Any]) -> Memory:
        return Memory((1 + len(self.held)) << 24, array, self.held)

    def memory(self, nbytes: int) -> Any:
        return SimpleNamespace(address=SCRATCH_AT, nbytes=nbytes)

    def call(self, program: Any, launch: Launch, arguments: list[Any]) -> None:
        self.found = {memory.at: memory.content for memory in self.held}
        plain = [["at", a.address] if isinstance(a, Pointer) else None if a is None else float(a) for a in arguments]
        with self._file.open("a") as file:
            print(json.dumps({"entry": program.entry, "blocks": launch.blocks, "arguments": plain}), file=file)

    def synchronize(self) -> None:
        return None

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    @property
    def launched(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()]
