"""From a search file to Specs: every key known, every value of its type, every fault with its place."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from autotile.assets import config_path, configs_dir
from autotile.errors import ConfigurationError, SpecError, UsageError
from autotile.kernels import Kernel, Roots, Rule, load_kernel
from autotile.kernels.declarations import check_value
from autotile.kernels.expressions import Expression
from autotile.kernels.instead import DeviceOf
from autotile.spec.model import EFFORTS, SAMPLERS, SearchOptions, Spec
from autotile.spec.served import Served
from autotile.spec.yaml_reader import Node, read_documents, read_value
from autotile.suggest import did_you_mean
from autotile.types import Configuration, Problem, Value

TOP_KEYS = ("kernel", "problems", "parameters", "rules", "points", "search")
DURATION_KEYS = ("time", "compile_limit", "launch_limit", "trial_limit")
SEARCH_KEYS = ("sampler", "trials", "seed", "effort", "runs", "storage", *DURATION_KEYS)
DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?$")
NAMED_KEYS: Mapping[str, Sequence[str]] = {"sampler": SAMPLERS, "effort": tuple(EFFORTS)}
UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}


def load_specs(
    name: str | Path,
    overrides: Iterable[str] = (),
    templates: Roots = (),
    problems: Sequence[Mapping[str, Any]] = (),
    device: DeviceOf | None = None,
) -> tuple[Spec, ...]:
    """The searches of a file, or of a shipped config by its bare name, with `KEY=VALUE` overrides applied, and
    `problems` (sizes, options and `dtype` by name) in place of its own where there are any, each once.

    `device` decides which kernel serves a file's `kernel` where other folders may (see kernels/instead.py); without
    one, it is that folder itself.

    Raises SpecError (exit code 2) for whatever is wrong in the file, with file:line:column; UsageError for a problem.
    """
    path = config_path(str(name))
    if path is None:
        shipped = sorted(file.stem for file in configs_dir().glob("*.yaml"))
        raise UsageError(
            f"no search file {str(name)!r}{did_you_mean(Path(name).stem, shipped)}; shipped: {', '.join(shipped)}"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}", path) from None
    documents = read_documents(text, str(path))
    if not any(document.value is not None for document in documents):
        raise SpecError("the file is empty; a search names at least a kernel and a problem", path, 1)
    changes = [parse_set(text, ("parameters", "search")) for text in overrides]
    reader = _Reader(path, Served(templates, device), problems)
    return tuple(_with_options(reader.spec(_override(document, changes)), changes) for document in documents)


def parse_problem(text: str) -> dict[str, Any]:
    """`rows=4096, cols=4096, dtype=float16` → its values by name, each read as YAML.

    Raises UsageError for text of another form, and for a name that stands twice.
    """
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            raise UsageError(f"--problem wants NAME=VALUE, NAME=VALUE, … such as 'rows=4096, cols=4096', not {text!r}")
        if "=" in value:
            raise UsageError(f"--problem {text!r}: commas part one NAME=VALUE from the next")
        if name in found:
            raise UsageError(f"--problem {text!r}: {name} stands twice")
        found[name] = read_value(value, f"--problem {name}")
    return found


def parse_duration(value: Any) -> float:
    """Seconds of `90`, `90s`, `10m`, `1.5h`. Raises ValueError for anything else, and for 0 and below."""
    text = str(value).strip() if isinstance(value, (int, float, str)) and not isinstance(value, bool) else ""
    match = DURATION.match(text)
    seconds = float(match.group(1)) * UNIT_S[match.group(2)] if match else math.nan
    if not 0 < seconds < math.inf:
        raise ValueError(f"{value!r} is not a duration such as 90s, 10m or 1.5h")
    return seconds


def parse_set(text: str, sections: Sequence[str] = ()) -> tuple[str, str, Any]:
    """`SECTION.NAME=VALUE` → its three parts, the value read as YAML; without `sections`, `NAME=VALUE`.

    Raises UsageError for text of another form.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    section, _, name = key.rpartition(".")
    wanted = " or ".join(f"{known}.NAME=VALUE" for known in sections) or "NAME=VALUE"
    if not equals or not name or (section not in sections if sections else section):
        raise UsageError(f"--set wants {wanted}, not {text!r}")
    return section, name, read_value(value, f"--set {key}")


def _override(document: Node, changes: Iterable[tuple[str, str, Any]]) -> Node:
    """The document with its `parameters` replaced one by one."""
    for section, name, value in changes:
        if section != "parameters" or not isinstance(document.value, dict):
            continue
        place = Node(section, document.line, document.column)
        key, old = document.value.get(section, (place, Node({}, document.line, document.column)))
        if isinstance(old.value, dict):
            merged = Node({**old.value, name: (Node(name, 0, 0), _wrap(value))}, old.line, old.column)
            document = dataclasses.replace(document, value={**document.value, section: (key, merged)})
    return document


def _with_options(spec: Spec, changes: Iterable[tuple[str, str, Any]]) -> Spec:
    """The spec with AUTOTILE_* variables applied over the file, and `search.*` of the command line over both."""
    options = environment_options(spec.search)
    asked = bool(os.environ.get("AUTOTILE_TRIALS")) or any(change[:2] == ("search", "trials") for change in changes)
    for section, name, value in changes:
        if section == "search":
            if name not in SEARCH_KEYS:
                guess = did_you_mean(name, SEARCH_KEYS)
                raise UsageError(f"--set search.{name}: unknown key{guess}; known: {', '.join(SEARCH_KEYS)}")
            options = set_option(options, name, value)
    if not asked:  # a number that was asked for is meant as it is
        options = dataclasses.replace(options, trials=math.ceil(options.trials * EFFORTS[options.effort]))
    return dataclasses.replace(spec, search=options)


def _wrap(value: Any) -> Node:
    """A plain value as nodes without a place (line 0: it came from the command line)."""
    if isinstance(value, list):
        return Node([_wrap(item) for item in value], 0, 0)
    if isinstance(value, dict):
        return Node({key: (Node(key, 0, 0), _wrap(item)) for key, item in value.items()}, 0, 0)
    return Node(value, 0, 0)


class _Reader:
    """Reads one document; knows the file for its messages."""

    def __init__(self, path: Path, served: Served, asked: Sequence[Mapping[str, Any]] = ()) -> None:
        self.path, self.served, self.asked = path, served, asked
        self.beside = ""  # what is to be known beside a message about parameters

    def fail(self, node: Node, message: str) -> NoReturn:
        message += self.beside
        if node.line == 0:
            raise SpecError(f"--set: {message}")
        raise SpecError(message, self.path, node.line, node.column)

    @contextmanager
    def at(self, node: Node) -> Iterator[None]:
        """A usage error raised inside gets the node's place."""
        try:
            yield
        except SpecError:
            raise
        except UsageError as error:
            self.fail(node, str(error))

    def mapping(self, node: Node, known: Sequence[str] | None, what: str) -> dict[str, tuple[Node, Node]]:
        if not isinstance(node.value, dict):
            self.fail(node, f"{what} must be a mapping of keys and values, not {_describe(node)}")
        for key, (key_node, _) in node.value.items():
            if known is not None and key not in known:
                self.fail(
                    key_node, f"unknown key {key!r} in {what}{did_you_mean(key, known)}; known: {', '.join(known)}"
                )
        return node.value

    def sequence(self, node: Node, what: str) -> list[Node]:
        if not isinstance(node.value, list) or not node.value:
            self.fail(node, f"{what} must be a list with at least one entry, not {_describe(node)}")
        return node.value

    # ---- the document, in the order of its keys ------------------------------------------------------------------

    def spec(self, document: Node) -> Spec:
        top = self.mapping(document, TOP_KEYS, "the search file")
        for needed in ("kernel", "problems"):
            if needed not in top:
                self.fail(document, f"{needed!r} is missing")
        kernel_node = top["kernel"][1]
        if not isinstance(kernel_node.value, str):
            self.fail(kernel_node, f"kernel must be a name, not {_describe(kernel_node)}")
        with self.at(kernel_node):
            public = load_kernel(kernel_node.value, self.served.templates)
        kernel, problems = self.problems(public, top["problems"][1])
        self.beside = self.served.why(public, kernel, problems[0].dtype)
        parameters = self.parameters(kernel, top["parameters"][1]) if "parameters" in top else {}
        points = self.points(kernel, top["points"][1]) if "points" in top else {}
        self.beside = ""
        return Spec(
            kernel=kernel,
            problems=problems,
            parameters=parameters,
            rules=self.rules(top["rules"][1]) if "rules" in top else (),
            points=points,
            search=self.search(top["search"][1]) if "search" in top else SearchOptions(),
            file=self.path,
            asked_as=public.name,
        )

    def problems(self, public: Kernel, node: Node) -> tuple[Kernel, tuple[Problem, ...]]:
        """The document's own, or those that were asked for in their place, and the one kernel that serves them."""
        nodes = self.sequence(node, "problems")
        own = [self.problem(public, item) for item in nodes]
        found = [self.served.asked(public, one) for one in self.asked] or own
        if (odd := self.served.odd_one(public, found)) is not None:
            number, message = odd
            if self.asked:
                raise UsageError(message)
            self.fail(nodes[number], message)
        problems = (problem for _, problem in found)
        return found[0][0], tuple(dict.fromkeys(problems) if self.asked else problems)

    def problem(self, public: Kernel, node: Node) -> tuple[Kernel, Problem]:
        """A problem of a document, and the kernel that serves it."""
        stated = node.value.get("dtype") if isinstance(node.value, dict) else None
        with self.at(node if stated is None else stated[1]):
            kernel, dtype = self.served.kernel(public, None if stated is None else stated[1].plain())
        entries = self.mapping(node, (*kernel.problem_keys, "dtype"), "a problem")
        sizes = {key: value.plain() for key, (_, value) in entries.items() if key != "dtype"}
        known: dict[str, Any] = dict.fromkeys(kernel.dimensions, 1)
        for name in kernel.problem_keys:  # one at a time, so that a fault is placed at its own value
            if name in sizes:
                known[name] = sizes[name]
                with self.at(entries[name][1]):
                    kernel.problem(known)
        with self.at(node):
            return kernel, kernel.problem(sizes, dtype)

    def parameters(self, kernel: Kernel, node: Node) -> dict[str, tuple[Value, ...]]:
        domains: dict[str, tuple[Value, ...]] = {}
        for name, (key_node, value_node) in self.mapping(node, None, "parameters").items():
            with self.at(key_node):
                parameter = kernel.parameter(name)
            values: list[Value] = []
            for item in self.sequence(value_node, name) if isinstance(value_node.value, list) else [value_node]:
                with self.at(item):
                    value = check_value(parameter, item.plain())
                if value in values:
                    self.fail(item, f"{name} lists {value!r} twice")
                values.append(value)
            domains[name] = tuple(values)
        return domains

    def rules(self, node: Node) -> tuple[Rule, ...]:
        rules = []
        for item in self.sequence(node, "rules"):
            if not isinstance(item.value, (str, bool)):
                self.fail(item, f"a rule must be an expression such as `block_m >= 64`, not {_describe(item)}")
            text = str(item.value)
            with self.at(item):
                Expression(text)
            where = f"{self.path}:{item.line}:{item.column}"
            rules.append(Rule(text, text.replace("{", "(").replace("}", ")"), where))
        return tuple(rules)

    def points(self, kernel: Kernel, node: Node) -> dict[str, Configuration]:
        points: dict[str, Configuration] = {}
        for number, item in enumerate(self.sequence(node, "points"), 1):
            if isinstance(item.value, str):
                name = item.value
                if name not in kernel.presets:
                    self.fail(
                        item,
                        f"{kernel.name} has no preset {name!r}{did_you_mean(name, kernel.presets)}; "
                        f"it has {', '.join(kernel.presets)}",
                    )
                values: Mapping[str, Any] = kernel.presets[name]
            else:
                name = f"point {number}"
                values = {key: value.plain() for key, (_, value) in self.mapping(item, None, "a point").items()}
            with self.at(item):
                points[name] = kernel.configuration(values)
        return points

    def search(self, node: Node) -> SearchOptions:
        options = SearchOptions()
        for key, (_, value) in self.mapping(node, SEARCH_KEYS, "search").items():
            with self.at(value):
                options = set_option(options, key, value.plain())
        return options


def set_option(options: SearchOptions, key: str, value: Any) -> SearchOptions:
    """One search option changed, checked. Raises ConfigurationError for a value that will not do."""
    if key in NAMED_KEYS:
        known = NAMED_KEYS[key]
        if value not in known:
            raise ConfigurationError(
                f"unknown {key} {value!r}{did_you_mean(str(value), known)}; known: {', '.join(known)}"
            )
        named: dict[str, Any] = {key: value}
        return dataclasses.replace(options, **named)
    if key == "storage":
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"search.storage must be an address such as sqlite:///tuning.db, not {value!r}")
        return dataclasses.replace(options, storage=value or None)
    if key == "runs" and value is None:
        return dataclasses.replace(options, runs=None)
    if key in DURATION_KEYS:
        try:
            seconds = None if value is None else parse_duration(value)
        except ValueError as error:
            raise ConfigurationError(f"search.{key}: {error}") from None
        changed: dict[str, Any] = {f"{key}_s": seconds}
        return dataclasses.replace(options, **changed)
    least = 0 if key == "seed" else 1
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
        raise ConfigurationError(f"search.{key} must be an integer of at least {least} and below 2^32, not {value!r}")
    counted: dict[str, Any] = {key: value}
    return dataclasses.replace(options, **counted)


def environment_options(options: SearchOptions) -> SearchOptions:
    """Options with AUTOTILE_SAMPLER, AUTOTILE_TRIALS, AUTOTILE_TIME and so on applied where they are set."""
    for key in SEARCH_KEYS:
        text = os.environ.get(f"AUTOTILE_{key.upper()}")
        if text:
            try:
                options = set_option(options, key, read_value(text, f"AUTOTILE_{key.upper()}"))
            except ConfigurationError as error:
                raise UsageError(f"AUTOTILE_{key.upper()}: {error}") from None
    return options


def _describe(node: Node) -> str:
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return (
            f"an empty {'mapping' if isinstance(value, dict) else 'list'}"
            if not value
            else f"a {'mapping' if isinstance(value, dict) else 'list'}"
        )
    return repr(value)
