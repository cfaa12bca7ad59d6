"""The parts of a kernel's declaration: parameters, derived values, rules, traits, sizes, switches, arguments, and who
serves in its place.

How it is launched is declared in launching.py.
"""

from __future__ import annotations

import keyword
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotile.errors import ConfigurationError, KernelError
from autotile.suggest import did_you_mean
from autotile.types import Value

OF_CUDA = frozenset(
    "blockDim blockIdx gridDim threadIdx warpSize alignas alignof and and_eq asm auto bitand bitor bool "
    "break case catch char class compl const const_cast constexpr continue decltype default delete do double "
    "dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "while xor xor_eq".split()
)
"""Names that CUDA and the keywords of C++ have taken."""

RESERVED = OF_CUDA | frozenset(
    "grid block threads shared_bytes static_shared_bytes scratch_bytes problem device entry dtype ctype accumulator "
    "itemsize dtype_header result result_itemsize result_header result_dtype ceil_div is_power_of_two min max abs none "
    "self loop super caller varargs kwargs range dict lipsum cycler joiner".split()
)
"""Names that a parameter cannot have: CUDA's, and the ones in scope already, in expressions or in a template."""

ELEMENT, RESULT = "element", "result"
"""What an array can be `of`."""

MOST_VALUE = 2**31
"""Integers of a parameter are below it: they stand in the text as plain `int`."""


@dataclass(frozen=True)
class Parameter:
    """A tuning parameter: its name, the values it can take, the default and a line that says what it does.

    `searched` are the values that a search takes whose file does not name the parameter, where they are not all.
    """

    name: str
    values: tuple[Value, ...]
    default: Value
    doc: str
    searched: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise KernelError(
                f"parameter {self.name!r}: the name is reserved: CUDA, an expression or the template has a meaning for "
                "it already"
            )
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise KernelError(f"parameter {self.name!r}: the name must be an identifier and no keyword of Python")
        if len({type(value) for value in self.values}) != 1 or not isinstance(self.values[0], (bool, int, str)):
            raise KernelError(f"parameter {self.name!r}: its values must be all integers, all booleans or all names")
        if any(isinstance(value, int) and not 0 <= value < MOST_VALUE for value in self.values):
            raise KernelError(f"parameter {self.name!r}: integers are 0 to {MOST_VALUE - 1}, not {list(self.values)}")
        if len(set(self.values)) != len(self.values):
            raise KernelError(f"parameter {self.name!r}: a value is listed twice in {list(self.values)}")
        if self.default not in self.values:
            raise KernelError(f"parameter {self.name!r}: the default {self.default!r} is not among {list(self.values)}")

        strange = [value for value in self.searched if value not in self.values]
        if strange or len(set(self.searched)) != len(self.searched):
            raise KernelError(
                f"parameter {self.name!r}: what is searched must be some of {list(self.values)}, each once, not "
                f"{list(self.searched)}"
            )

    @property
    def kind(self) -> type:
        return type(self.values[0])

    @property
    def domain(self) -> tuple[Value, ...]:
        """What a search takes whose file does not name the parameter."""
        return self.searched or self.values


@dataclass(frozen=True)
class Derived:
    """A value worked out from parameters, available to later expressions and to the template."""

    name: str
    expression: str
    doc: str = ""


@dataclass(frozen=True)
class Rule:
    """A constraint that every configuration must meet, and what to say to one that does not.

    `{…}` in the message is an expression, filled in for the configuration at hand. `where` is the rule's origin.
    """

    expression: str
    message: str
    where: str = ""


@dataclass(frozen=True)
class Trait:
    """A yes or no about a problem on which the generated text may depend (say, that rows keep vectors aligned).

    The text depends on sizes through traits alone, so one binary serves every problem that has the same traits.
    """

    name: str
    expression: str
    doc: str


@dataclass(frozen=True)
class OptionalSize:
    """A size that a problem may leave out: a batch, the distance between rows.

    `default` is an expression over `problem.<size>` of the dimensions and of optional sizes declared before; it is the
    least allowed too.
    """

    name: str
    default: str
    doc: str

    def __post_init__(self) -> None:
        _require_texts(self, "name", "default", "doc")
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise KernelError(f"optional size {self.name!r}: the name must be an identifier and no keyword of Python")


@dataclass(frozen=True)
class Switch:
    """A yes or no of a problem, off where it does not say: `problem.<name>` is 1 or 0 in expressions."""

    name: str
    doc: str

    def __post_init__(self) -> None:
        _require_texts(self, "name", "doc")
        if not self.name.isidentifier() or keyword.iskeyword(self.name) or self.name[-1].isdigit():
            # `x2` in a problem's key would read as the size x of 2
            raise KernelError(
                f"switch {self.name!r}: the name must be an identifier, no keyword of Python, and not end in a digit"
            )


@dataclass(frozen=True)
class Input:
    """An array that the kernel reads; `shape` names sizes of the problem; row-major.

    `of` says of what: "element", the problem's dtype, or "result", the type of its results (`Kernel.result_type`).
    `pitch` names the optional size that says how many elements lie between the beginnings of two rows, `step` the one
    that says how many rows lie between the beginnings of two matrices: with them, the array may be a part of a larger
    one. A leading size that is optional may be missing in the arrays of a call.

    `turned` names a switch: where it is on, the array is stored with its last two dimensions swapped. `when` names one
    too: where it is off, there is no such array, and the kernel gets a null pointer. `may_be` names an output which the
    array of a call may be itself, lying as it does: the kernel reads each element before it writes it.
    """

    name: str
    shape: tuple[str, ...]
    pitch: str = ""
    step: str = ""
    turned: str = ""
    when: str = ""
    may_be: str = ""
    of: str = ELEMENT


@dataclass(frozen=True)
class Output:
    """An array that the kernel writes, every element of it and nothing between its rows. `pitch`, `step`, `of`: see
    Input."""

    name: str
    shape: tuple[str, ...]
    pitch: str = ""
    step: str = ""
    of: str = ELEMENT


@dataclass(frozen=True)
class ShapeClass:
    """Problems that want the same kernel: where nothing is tuned exactly, the nearest of the same class serves.

    A problem is of the first class whose expression, over `problem.*`, holds.
    """

    name: str
    expression: str

    def __post_init__(self) -> None:
        _require_texts(self, "name", "expression")


@dataclass(frozen=True)
class Instead:
    """Another kernel's folder, which serves under this kernel's name those of its own dtypes for which `when` holds.

    `when` is an expression over `problem.dtype` and `device.*`.
    """

    kernel: str
    when: str
    doc: str = ""

    def __post_init__(self) -> None:
        _require_texts(self, "kernel", "when", "doc")


@dataclass(frozen=True)
class Size:
    """A size of the problem, passed by value as a 32-bit int."""

    name: str


@dataclass(frozen=True)
class Scalar:
    """A floating-point number, passed by value as a double where the dtype's sums are kept in one, else as a float.

    A call that does not say takes `default`.
    """

    name: str
    default: float

    def __post_init__(self) -> None:
        number = isinstance(self.default, (int, float)) and not isinstance(self.default, bool)
        if not number or not math.isfinite(self.default):
            raise KernelError(f"scalar {self.name!r}: its default must be a finite number, not {self.default!r}")


@dataclass(frozen=True)
class Scratch:
    """Device memory that the launch works in, of `LaunchPlan.scratch_bytes`: a pointer on 256 bytes to undefined
    contents, null where there are none."""

    name: str


Argument = Input | Output | Size | Scalar | Scratch


def _require_texts(declared: Instead | OptionalSize | ShapeClass | Switch, *fields: str) -> None:
    for field in fields:
        if not isinstance(getattr(declared, field), str):
            raise KernelError(f"{declared!r}: {field} must be a text, not {getattr(declared, field)!r}")


def check_value(parameter: Parameter, value: Any) -> Value:
    """`value` as the parameter's own type. Raises ConfigurationError when it is of another."""
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, str)) or type(value) is not parameter.kind:
        wanted = {bool: "true or false", int: "an integer", str: f"one of {', '.join(map(str, parameter.values))}"}
        raise ConfigurationError(f"parameter {parameter.name} takes {wanted[parameter.kind]}, not {value!r}")
    if isinstance(value, str) and value not in parameter.values:
        raise ConfigurationError(
            f"parameter {parameter.name} has no value {value!r}"
            f"{did_you_mean(value, [str(known) for known in parameter.values])}; "
            f"it has {', '.join(map(str, parameter.values))}"
        )
    if isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < MOST_VALUE:
        raise ConfigurationError(f"parameter {parameter.name}: {value} is not a non-negative 32-bit integer")
    return value
