"""PyYAML's safe loader made strict. The only module that imports yaml.

What it adds: the place of every value, an error for a key given twice, numbers such as `1e-3` as numbers, and the
booleans of YAML 1.2 (`true` and `false` alone: `on`, `off`, `yes` and `no` stay text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from autotile.errors import SpecError

FLOAT = re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")

TAG = "tag:yaml.org,2002:"
MOST_NODES = 100_000
PLAIN_TAGS = frozenset({"map", "seq", "str", "int", "float", "bool", "null"})


@dataclass(frozen=True)
class Node:
    """A YAML value and where it stands (lines and columns from 1). Mappings hold (key node, value node) pairs."""

    value: Any
    line: int
    column: int

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, (_, node) in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class _Loader(yaml.SafeLoader):
    """SafeLoader with the resolvers of YAML 1.2 for booleans and floats."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


def read_documents(text: str, file: str) -> list[Node]:
    """The documents of a YAML text. Raises SpecError with file:line:column for anything that is not strict YAML."""
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise SpecError(f"not YAML: {str(error).splitlines()[0]}", file) from None
    try:
        nodes = []
        while loader.check_node():
            nodes.append(loader.get_node())
        budget = iter(range(MOST_NODES))
        return [_convert(loader, node, file, budget) for node in nodes if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = (error.problem or str(error)).replace("\\t", "tab")
        if "'\\t'" in str(error) or _tab_at(text, mark):
            problem = "a tab; YAML wants spaces for indentation"
        raise SpecError(problem, file, *_place(mark)) from None
    except RecursionError:
        raise SpecError("nested too deeply", file) from None
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"not YAML: {str(error).splitlines()[0]}", file) from None
    finally:
        loader.dispose()


def read_value(text: str, what: str) -> Any:
    """A value as a search file would read it (for overrides on the command line)."""
    try:
        documents = read_documents(text, what)
    except SpecError as error:
        raise SpecError(f"{what}: {text!r} is not a value: {error}") from None
    return documents[0].plain() if documents else None


def _place(mark: yaml.Mark | None) -> tuple[int | None, int | None]:
    return (None, None) if mark is None else (mark.line + 1, mark.column + 1)


def _tab_at(text: str, mark: yaml.Mark | None) -> bool:
    lines = text.splitlines()
    return (
        mark is not None and mark.line < len(lines) and lines[mark.line][: mark.column + 1].lstrip(" ").startswith("\t")
    )


def _convert(loader: yaml.SafeLoader, node: yaml.Node, file: str, budget: Iterator[int]) -> Node:
    """`budget` runs out when aliases unfold to more than a search file can mean."""
    if next(budget, None) is None:
        raise SpecError(f"more than {MOST_NODES} values, aliases unfolded", file)
    line, column = node.start_mark.line + 1, node.start_mark.column + 1
    if node.tag.removeprefix(TAG) not in PLAIN_TAGS:
        raise SpecError(f"the tag {node.tag!r} is not allowed; write plain values", file, line, column)
    if isinstance(node, yaml.MappingNode):
        pairs: dict[Any, tuple[Node, Node]] = {}
        for key_node, value_node in node.value:
            key = _convert(loader, key_node, file, budget)
            if not isinstance(key.value, str):
                raise SpecError(f"the key {key.plain()!r} is not a name; put it in quotes", file, key.line, key.column)
            if key.value in pairs:
                first = pairs[key.value][0].line
                raise SpecError(f"{key.value!r} stands twice, first in line {first}", file, key.line, key.column)
            pairs[key.value] = (key, _convert(loader, value_node, file, budget))
        return Node(pairs, line, column)
    if isinstance(node, yaml.SequenceNode):
        return Node([_convert(loader, item, file, budget) for item in node.value], line, column)
    if node.tag.endswith((":float", ":int")):
        return Node(_number(node.value, file, line, column), line, column)
    try:
        value = loader.construct_object(node)
    except (yaml.YAMLError, KeyError) as error:
        raise SpecError(f"{node.value!r} does not fit its tag: {error}", file, line, column) from None
    return Node(value, line, column)


def _number(text: str, file: str, line: int, column: int) -> int | float:
    try:
        if re.fullmatch(r"[-+]?\d[\d_]*", text):
            return int(text.replace("_", ""))  # `010` is ten, not YAML 1.1's eight
        if re.fullmatch(r"0[xob][0-9a-fA-F_]+", text):
            return int(text, 0)
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        raise SpecError(f"{text!r} is not a number", file, line, column) from None
