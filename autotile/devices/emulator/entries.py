"""Finds the `__global__` functions of a CUDA text: the kernel, and the steps before and after it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotile.devices.emulator.source import emulated_text, inside, statement

_GLOBAL = re.compile(r"\b__global__\b")
_OPENING = re.compile(r"\s*\{")
_CALL = re.compile(r"(\w+)\s*\(")
_CLUSTER = re.compile(r"\b__cluster_dims__\b\s*(\()?")
# What may stand with arguments between `__global__` and the name of the function.
_ATTRIBUTES = frozenset(
    {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__align__", "__attribute__", "alignas", "__block_size__"}
)


@dataclass(frozen=True)
class GlobalFunction:
    """A `__global__` function. `head` and `body` are (begin, end) in the text; a declaration's body is empty.

    `cluster` holds the arguments of its `__cluster_dims__`, as the text has them; "1, 1, 1" without.
    """

    name: str
    external: bool
    cluster: str
    head: tuple[int, int]
    body: tuple[int, int]


def global_functions(text: str) -> tuple[GlobalFunction, ...]:
    """Those that the emulator's compiler will see, in order. Templates are left out: nothing calls them by name."""
    seen = emulated_text(text)
    found = (_function(seen, match.start()) for match in _GLOBAL.finditer(seen))
    return tuple(function for function in found if function is not None)


def entry_points(text: str, entry: str) -> tuple[GlobalFunction, ...]:
    """The function `entry`, then its steps, `entry_…`, with C linkage: a definition's attributes or a declaration's."""
    functions = global_functions(text)
    named: dict[str, GlobalFunction] = {}
    for function in functions:
        if function.name == entry or (function.external and function.name.startswith(f"{entry}_")):
            known = named.get(function.name)
            if known is None or known.body[0] == known.body[1]:
                named[function.name] = function
    main = named.pop(entry, GlobalFunction(entry, True, "1, 1, 1", (0, 0), (0, 0)))
    return (main, *named.values())


def stray_cluster(text: str) -> int | None:
    """The position of a `__cluster_dims__` whose size or function the text does not name; None if there is none."""
    if "__cluster_dims__" not in text:
        return None
    seen = emulated_text(text)
    heads = [function.head for function in global_functions(text)]
    for match in _CLUSTER.finditer(seen):
        named = match.group(1) and inside(seen, match.end() - 1)[0].strip()
        if not named or not any(begin <= match.start() < end for begin, end in heads):
            return match.start()
    return None


def _function(seen: str, position: int) -> GlobalFunction | None:
    begin, _ = statement(seen, position)
    at = begin
    while (call := _CALL.search(seen, at)) is not None:
        _, at = inside(seen, call.end() - 1)
        if call.group(1) not in _ATTRIBUTES:
            break
    else:
        return None
    head = seen[begin : call.start()]
    if re.search(r"\btemplate\b", head) or call.start() < position:
        return None
    sizes = _CLUSTER.search(head)
    cluster = "1, 1, 1" if sizes is None or sizes.group(1) is None else inside(head, sizes.end() - 1)[0]
    opening = _OPENING.match(seen, at)
    body = (at, at) if opening is None else (opening.end() - 1, inside(seen, opening.end() - 1)[1])
    return GlobalFunction(call.group(1), re.search(r"\bextern\b", head) is not None, cluster, (begin, at), body)
