"""What a mutant is: a rendered text with one fault, the problem that shows it, and what a check must say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotile.kernels import Kernel
from autotile.measure.workload import Kind
from autotile.types import Problem, Value

KINDS = ("barriers", "bounds", "indices", "accumulators", "tails", "padding")
"""What a fault is in: barriers; tests that keep accesses inside arrays, and words on their size; which element goes
where; sums and their type; the last, partial tile or step; the pitch of tiles, by pad or swizzle."""

BARRIER = "__syncthreads();"
RACE = "shared-memory race"
WRONG = "elements are wrong"
LOAD, STORE = "out-of-bounds load", "out-of-bounds store"
BEYOND_TILE = "past the end of the static shared arrays"
MISALIGNED = "misaligned store"
GLOBAL_RACE = "global-memory race"
WITH_GAPS = "elements and gaps are wrong"
UNWRITTEN = "read of shared memory that the block has not written"

Sizes = tuple[int, ...] | Mapping[str, int]
"""In the order of the dimensions, or by name with optional ones, `offset` and `in_place` among them."""


@dataclass(frozen=True)
class Mutant:
    """One fault, of one of KINDS. `old` becomes `new` where it stands for the `nth` time (from 0); or the text is left
    as it is, but was `rendered_for` sizes that have other traits than `sizes`, on which it runs.

    `says` must be in the check's detail; each of `lines` is a choice of texts of the mutated source, of which one must
    stand in a line that the detail names. `inputs` other than random are those that alone reveal it.
    With `over`, the output lies over the input that it may lie over.
    """

    name: str
    kind: str
    kernel: str
    old: str
    new: str
    says: str
    lines: tuple[tuple[str, ...], ...] = ()
    point: Mapping[str, Value] | str = "default"
    sizes: Sizes = ()
    dtype: str = "float32"
    nth: int = 0
    rendered_for: Sizes = ()
    inputs: Kind = "random"
    over: bool = False

    def __str__(self) -> str:
        return f"{self.kernel}: {self.name}"

    def mutated(self, text: str) -> str:
        """The text with the fault in it. Fails where the template no longer has what was to be replaced."""
        if not self.old:
            return text
        pieces = text.split(self.old)
        assert len(pieces) > self.nth + 1, f"{self.old!r} stands {len(pieces) - 1} times in the text: it has changed"
        at = self.nth + 1
        return self.old.join(pieces[:at]) + self.new + self.old.join(pieces[at:])


def problem_of(kernel: Kernel, sizes: Sizes, dtype: str) -> Problem:
    return kernel.problem(
        sizes if isinstance(sizes, Mapping) else dict(zip(kernel.dimensions, sizes, strict=True)), dtype
    )


def of(base: Mutant, kind: str, *faults: tuple[Any, ...]) -> list[Mutant]:
    """Mutants of one kind: name, old, new, what is said, then for each line that is named a choice of its texts (one
    alone may be plain); `nth` and other fields of a mutant in a mapping at the end."""
    found = []
    for name, old, new, says, *rest in faults:
        fields = rest.pop() if rest and isinstance(rest[-1], dict) else {}
        lines = tuple((choice,) if isinstance(choice, str) else choice for choice in rest)
        found.append(replace(base, name=name, kind=kind, old=old, new=new, says=says, lines=lines, **fields))
    return found


def base(point: Mapping[str, Value] | str, sizes: Sizes, dtype: str = "float32") -> Mutant:
    return Mutant("", "", "transpose", "", "", "", point=point, sizes=sizes, dtype=dtype)
