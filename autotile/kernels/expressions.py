"""Expressions of kernels and search files: Python syntax, a whitelist of it, over whole numpy columns.

`block_m % thread_m == 0 and shared_bytes <= device.shared_bytes_optin` is parsed with `ast`, checked against the
whitelist once, and walked; no text is ever handed to `eval`. A scope maps names, also dotted ones such as `problem.m`,
to a number, a boolean, a name, or a column of them; the result has the shape of the columns that went in.

What the operators mean stands in arithmetic.py: Python's results on columns too, or an error.
"""

from __future__ import annotations

import ast
import functools
import operator
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autotile.errors import ExpressionError
from autotile.kernels import arithmetic

Scope = Mapping[str, Any]

MAX_TEXT = 2000
"""Longest expression, in characters: a rule is a line, and the parser's recursion is bounded."""


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def apply(first: Any, *rest: Any) -> Any:
        for value in rest:
            first = function(first, value)
        return first

    return apply


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil_div": arithmetic.ceil_div,
    "is_power_of_two": arithmetic.is_power_of_two,
    "min": _fold(arithmetic.smaller),
    "max": _fold(arithmetic.larger),
    "abs": arithmetic.absolute,
}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: arithmetic.add,
    ast.Sub: arithmetic.subtract,
    ast.Mult: arithmetic.multiply,
    ast.FloorDiv: arithmetic.floor_divide,
    ast.Div: arithmetic.divide,
    ast.Mod: arithmetic.remainder,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


_PARSING = threading.Lock()
"""Before 3.12, CPython's parser keeps its depth in one place for all threads (python/cpython#106905)."""


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> ast.expr:
    with _PARSING:
        return ast.parse(text, mode="eval").body


class Expression:
    """A checked expression. `names` are the free names it needs, dotted ones as `problem.m`.

    Raises ExpressionError when the text does not parse or uses what the whitelist leaves out.
    """

    def __init__(self, text: str | int | bool, where: str = "") -> None:
        self.text = str(text).strip()
        self._where = f"{where}: " if where else ""
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(f"{self._where}an expression of {len(self.text)} characters; {MAX_TEXT} is the most")
        try:
            self._tree = _parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ExpressionError(f"{self._where}{self.text!r} is not an expression: {reason}") from None
        names: set[str] = set()
        try:
            self._check(self._tree, names)
        except RecursionError:
            raise ExpressionError(f"{self._where}an expression nested too deeply") from None
        self.names = frozenset(names)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _refuse(self, node: ast.AST) -> ExpressionError:
        return ExpressionError(
            f"{self._where}{ast.unparse(node)!r} is not allowed in {self.text!r}: use names, numbers, + - * / // %, "
            f"comparisons, in (…), and/or/not, a if c else b, and {', '.join(sorted(FUNCTIONS))}"
        )

    def _check(self, node: ast.AST, names: set[str]) -> None:
        children: list[ast.expr]
        match node:
            case ast.Constant(value=bool() | float() | str()):
                return
            case ast.Constant(value=int(number)) if abs(number) < 2**53:
                return
            case ast.Name(id=name):
                names.add(name)
                return
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if owner in ("problem", "device"):
                names.add(f"{owner}.{attribute}")
                return
            case ast.Call(func=ast.Name(id=name), args=children, keywords=[]) if name in FUNCTIONS:
                pass
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                children = [left, right]
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                children = [operand]
            case ast.BoolOp(values=children):
                pass
            case ast.IfExp(test=test, body=body, orelse=orelse):
                children = [test, body, orelse]
            case ast.Compare(
                left=left,
                ops=[ast.In() | ast.NotIn()],
                comparators=[ast.Tuple(elts=children) | ast.List(elts=children)],
            ):
                children = [left, *children]
            case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
                children = [left, *comparators]
            case _:
                raise self._refuse(node)
        for child in children:
            self._check(child, names)

    def evaluate(self, scope: Scope) -> Any:
        """The value under `scope`: a number, boolean or name, or a column where any name is one.

        Raises ExpressionError when a name is missing or two values cannot be combined.
        """
        try:
            return self._walk(self._tree, scope)
        except KeyError as error:
            known = ", ".join(sorted(scope))
            raise ExpressionError(
                f"{self._where}unknown name {error.args[0]!r} in {self.text!r}; known: {known}"
            ) from None
        except OverflowError:
            raise ExpressionError(f"{self._where}{self.text!r} comes to a number beyond 64 bits") from None
        except TypeError as error:
            raise ExpressionError(f"{self._where}cannot work out {self.text!r}: {error}") from None

    def whole(self, scope: Scope) -> int:
        """The value of an expression that counts something, under a scope without columns. Raises ExpressionError."""
        value = self.amount(scope)
        if value != int(value):
            raise ExpressionError(f"{self._where}{self.text!r} is {value}, and a whole number is needed: use // or %")
        return int(value)

    def amount(self, scope: Scope) -> int | float:
        """The value as a finite number, under a scope without columns. Raises ExpressionError."""
        value = self.evaluate(scope)
        if arithmetic.is_text(value) or not np.isfinite(value):
            raise ExpressionError(f"{self._where}{self.text!r} is {value!r}, and a number is needed")
        found: int | float = arithmetic.number(value)
        return found

    def holds(self, scope: Scope) -> Any:
        """Yes or no, or a column of that: what a rule or a trait says. Raises ExpressionError for text."""
        value = self.evaluate(scope)
        if arithmetic.is_text(value):
            raise ExpressionError(f"{self._where}{self.text!r} is text, and a yes or no is needed: compare it with ==")
        return np.asarray(value, bool) if np.ndim(value) else bool(value)

    def _walk(self, node: ast.AST, scope: Scope) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return scope[name]
            case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
                return scope[f"{owner}.{attribute}"]
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return FUNCTIONS[name](*(self._walk(argument, scope) for argument in arguments))
            case ast.BinOp(left=left, op=op, right=right):
                return _BINARY[type(op)](self._walk(left, scope), self._walk(right, scope))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return np.logical_not(self._walk(operand, scope))
            case ast.UnaryOp(operand=operand):
                return arithmetic.negative(self._walk(operand, scope))
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return _fold(join)(*(self._walk(value, scope) for value in values))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self._walk(test, scope)
                if np.ndim(chosen) == 0:  # a scalar choice keeps Python's laziness and types
                    return self._walk(body if chosen else orelse, scope)
                branches = self._walk(body, scope), self._walk(orelse, scope)
                if len({arithmetic.is_text(branch) for branch in branches}) > 1:
                    raise TypeError("one branch is text and the other a number")
                return np.where(chosen, *branches)
            case ast.Compare(
                left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[ast.Tuple(elts=elts) | ast.List(elts=elts)]
            ):
                value = self._walk(left, scope)
                found = _fold(np.logical_or)(False, *(operator.eq(value, self._walk(elt, scope)) for elt in elts))
                return np.logical_not(found) if isinstance(op, ast.NotIn) else found
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(left, ops, comparators, scope)
        raise AssertionError(f"{ast.dump(node)} passed the whitelist but has no meaning")

    def _compare(self, left: ast.AST, ops: list[ast.cmpop], comparators: list[ast.expr], scope: Scope) -> Any:
        result: Any = True
        value = self._walk(left, scope)
        for op, comparator in zip(ops, comparators, strict=True):
            other = self._walk(comparator, scope)
            result = np.logical_and(result, _COMPARE[type(op)](value, other))
            value = other
        return result
