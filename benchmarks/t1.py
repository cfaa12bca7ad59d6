"""Reads T1 files: JSON that defines a kernel's search space, with values and conditions as Python text.

The format is that of the auto-tuning benchmark suites BAT and benchmark_hub. Values are lists such as
`[1, 2, 4] + list(range(32, 1025, 32))`; they are worked out here, from a whitelist, and never handed to `eval`.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotile.errors import UsageError
from autotile.kernels import Rule
from autotile.kernels.expressions import Expression
from autotile.space import BoundRule, Space, enumerate_space
from autotile.types import Value


@dataclass(frozen=True)
class T1:
    """A search space: each parameter's values, in the file's order, and the conditions as text."""

    name: str
    domains: Mapping[str, tuple[Value, ...]]
    conditions: tuple[str, ...]

    def enumerate(self) -> Space:
        """From the text of the conditions to the table. Raises ExpressionError for what our expressions lack."""
        rules = [BoundRule(Rule(text, "", self.name), Expression(text, self.name)) for text in self.conditions]
        return enumerate_space(self.domains, {}, (), rules)


def read_t1(path: Path) -> T1:
    """Raises UsageError, with the file, for what is not a T1 file or has values in a form that is not known."""
    try:
        space = json.loads(path.read_text(encoding="utf-8"))["ConfigurationSpace"]
        domains = {parameter["Name"]: _values(parameter["Values"]) for parameter in space["TuningParameters"]}
        conditions = tuple(condition["Expression"] for condition in space.get("Conditions", ()))
    except (OSError, KeyError, TypeError, ValueError, SyntaxError) as error:
        raise UsageError(f"{path}: not a T1 file that can be read ({type(error).__name__}: {error})") from None
    return T1(path.name.removesuffix(".json").removesuffix(".T1"), domains, conditions)


def _values(given: str | list[Value]) -> tuple[Value, ...]:
    found = _worked_out(ast.parse(given, mode="eval").body, {}) if isinstance(given, str) else given
    if not isinstance(found, (list, tuple)) or not all(isinstance(value, (bool, int, str)) for value in found):
        raise ValueError(f"{given!r} is no list of numbers or names")
    return tuple(found)


_OPERATORS: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def _worked_out(node: ast.AST, scope: Mapping[str, Any]) -> Any:
    """Lists, numbers, names, arithmetic, `range`, `list`, and comprehensions over one of these."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_worked_out(operand, scope)
        case ast.Name(id=name):
            return scope[name]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [_worked_out(element, scope) for element in elements]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_worked_out(left, scope), _worked_out(right, scope))
        case ast.Call(func=ast.Name(id="range" | "list" as name), args=arguments, keywords=[]):
            made = (range if name == "range" else list)(*(_worked_out(argument, scope) for argument in arguments))
            return list(made)
        case ast.ListComp(elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=source, ifs=[])]):
            return [_worked_out(element, {**scope, name: value}) for value in _worked_out(source, scope)]
    raise ValueError(f"{ast.unparse(node)!r} is not known in a list of values")
