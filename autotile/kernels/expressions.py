"""Expressions of kernels and search files: Python syntax, a whitelist of it, over whole numpy columns.

`block_m % thread_m == 0 and shared_bytes <= device.shared_bytes_optin` is parsed with `ast`, checked against the
whitelist and made into functions, once; no text is ever handed to `eval`. A scope maps names, also dotted ones such as
`problem.m`, to a number, a boolean, a name, or a column of them; the result has the shape that the columns have
together.

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
_any = _fold(np.logical_or)
_JOIN: dict[type[ast.boolop], Callable[..., Any]] = {ast.And: _fold(np.logical_and), ast.Or: _any}


_PARSING = threading.Lock()
"""Before 3.12, CPython's parser keeps its depth in one place for all threads (python/cpython#106905)."""

Run = Callable[[Scope], Any]
"""What an expression becomes: a function of the scope, made of one for each of its parts."""


class _Refused(Exception):
    """A part that the whitelist leaves out."""

    def __init__(self, node: ast.AST) -> None:
        self.part = ast.unparse(node)


@functools.lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[Run, frozenset[str]]:
    """The expression as a function, and its free names."""
    with _PARSING:
        tree = ast.parse(text, mode="eval").body
    names: set[str] = set()
    return _compiled(tree, names), frozenset(names)


def forget_parsed() -> None:
    """Has every text parsed anew: for benchmarks, which would time the cache."""
    _parse.cache_clear()


def _compiled(node: ast.AST, names: set[str]) -> Run:
    """A function that works out `node`; the free names go into `names`. Raises _Refused."""
    children: list[ast.expr]
    match node:
        case ast.Constant(value=bool() | float() | str() as constant):
            return lambda scope: constant
        case ast.Constant(value=int(number)) if abs(number) < 2**53:
            return lambda scope: number
        case ast.Name(id=name):
            names.add(name)
            return operator.itemgetter(name)
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if owner in ("problem", "device"):
            names.add(dotted := f"{owner}.{attribute}")
            return operator.itemgetter(dotted)
        case ast.Call(func=ast.Name(id=name), args=children, keywords=[]) if name in FUNCTIONS:
            function, arguments = FUNCTIONS[name], [_compiled(child, names) for child in children]
            return lambda scope: function(*[argument(scope) for argument in arguments])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            combine, first, second = _BINARY[type(op)], _compiled(left, names), _compiled(right, names)
            return lambda scope: combine(first(scope), second(scope))
        case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=operand):
            inner = _compiled(operand, names)
            unary: Callable[[Any], Any] = np.logical_not if isinstance(op, ast.Not) else arithmetic.negative
            return lambda scope: unary(inner(scope))
        case ast.BoolOp(op=op, values=children):
            join, parts = _JOIN[type(op)], [_compiled(child, names) for child in children]
            return lambda scope: join(*[part(scope) for part in parts])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(*(_compiled(child, names) for child in (test, body, orelse)))
        case ast.Compare(
            left=left,
            ops=[ast.In() | ast.NotIn() as op],
            comparators=[ast.Tuple(elts=children) | ast.List(elts=children)],
        ):
            member = _membership(_compiled(left, names), [_compiled(child, names) for child in children])
            return member if isinstance(op, ast.In) else lambda scope: np.logical_not(member(scope))
        case ast.Compare(left=left, ops=ops, comparators=children) if all(type(op) in _COMPARE for op in ops):
            sides = [_compiled(child, names) for child in (left, *children)]
            return _comparison([_COMPARE[type(op)] for op in ops], sides)
    raise _Refused(node)


def _choice(test: Run, body: Run, orelse: Run) -> Run:
    def run(scope: Scope) -> Any:
        chosen = test(scope)
        if np.ndim(chosen) == 0:  # a scalar choice keeps Python's laziness and types
            return body(scope) if chosen else orelse(scope)
        branches = body(scope), orelse(scope)
        if len({arithmetic.is_text(branch) for branch in branches}) > 1:
            raise TypeError("one branch is text and the other a number")
        return np.where(chosen, *branches)

    return run


def _membership(left: Run, elements: list[Run]) -> Run:
    def run(scope: Scope) -> Any:
        value = left(scope)
        return _any(False, *[operator.eq(value, element(scope)) for element in elements])

    return run


def _comparison(compare: list[Callable[[Any, Any], Any]], sides: list[Run]) -> Run:
    def run(scope: Scope) -> Any:
        result: Any = True
        value = sides[0](scope)
        for operation, side in zip(compare, sides[1:], strict=True):
            other = side(scope)
            result = np.logical_and(result, operation(value, other))
            value = other
        return result

    return run


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
            self._run, self.names = _parse(self.text)
        except _Refused as refused:
            raise ExpressionError(
                f"{self._where}{refused.part!r} is not allowed in {self.text!r}: use names, numbers, + - * / // %, "
                f"comparisons, in (…), and/or/not, a if c else b, and {', '.join(sorted(FUNCTIONS))}"
            ) from None
        except RecursionError:
            raise ExpressionError(f"{self._where}an expression nested too deeply") from None
        except (SyntaxError, ValueError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ExpressionError(f"{self._where}{self.text!r} is not an expression: {reason}") from None

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def evaluate(self, scope: Scope) -> Any:
        """The value under `scope`: a number, boolean or name, or a column where any name is one.

        Raises ExpressionError when a name is missing or two values cannot be combined.
        """
        try:
            return self._run(scope)
        except KeyError as error:
            known = ", ".join(sorted(scope))
            raise ExpressionError(
                f"{self._where}unknown name {error.args[0]!r} in {self.text!r}; known: {known}"
            ) from None
        except RecursionError:
            raise ExpressionError(f"{self._where}an expression nested too deeply") from None
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
