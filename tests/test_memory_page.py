"""docs/memory.md says what its examples do: its tables are what runs give, its commands and its code are theirs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotile.devices.gpus import find_gpu
from autotile.kernels import kernel_folders, load_kernel
from autotile.kernels.points import point_of
from autotile.measure import make_variant, make_workload
from autotile.space import build_space, violations
from autotile.spec.load import parse_problem, parse_set

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^`autotile explain (.*)`$", PAGE, re.MULTILINE)
NAMES = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
MANY_BUILDS = ("strides", "banks", "traffic", "operands", "limits")
TABLES = [
    pytest.param(name, marks=[pytest.mark.slow] if name in MANY_BUILDS else [])
    for name in re.findall(r"^<!-- (\w+) -->$", PAGE, re.MULTILINE)
]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """The module that makes the tables."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    import memory_page

    yield memory_page
    sys.path.remove(folder)
    for name in ("memory_page", "memory_examples", "markdown_rows"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def runs(page: Any, build_home: Path) -> Iterator[Any]:
    with page.Runs(build_home) as runs:
        yield runs


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_what_the_runs_give(page: Any, runs: Any, name: str) -> None:
    assert page.block(runs, name) in PAGE, "run python benchmarks/memory_page.py"


def test_every_table_stands_in_the_page_once(page: Any) -> None:
    assert sorted(str(param.values[0]) for param in TABLES) == sorted(page.TABLES)
    assert [match.group(2) for match in page.MARKED.finditer(PAGE)] == list(page.TABLES)


def test_every_example_has_its_command_and_its_readme() -> None:
    named = {shlex.split(command)[0] for command in COMMANDS}
    assert named == set(NAMES) == kernel_folders(EXAMPLES).keys() - kernel_folders().keys()
    assert all((EXAMPLES / name / "README.md").read_text(encoding="utf-8").startswith(f"# {name}\n") for name in NAMES)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_what_there_is(command: str) -> None:
    """And one that the page calls refused is; no other."""
    name, *words = shlex.split(command)
    given = list(zip(words[::2], words[1::2], strict=True))
    options = dict(given)
    kernel = load_kernel(name, ROOT / options.pop("--templates"))
    values = {key: value for _, key, value in (parse_set(text) for option, text in given if option == "--set")}
    sizes = dict.fromkeys(kernel.dimensions, 4096) | parse_problem(options.pop("--problem", "dtype=float32"))
    problem = kernel.problem({key: size for key, size in sizes.items() if key != "dtype"})
    configuration = point_of(kernel, options.pop("--preset", None), values)
    refused = PAGE.split(f"`autotile explain {command}`")[0].rstrip().endswith("anything runs:")
    assert bool(violations(kernel, problem, find_gpu("h200"), configuration)) is refused
    assert options.keys() <= {"--set"}


def test_the_code_of_the_page_is_the_examples(page: Any) -> None:
    examples = {example for _, some in page.TABLES.values() for example in some}
    there = {line.strip() for example in examples for line in example.text}
    shown = [line.strip() for code in re.findall(r"```cuda\n(.*?)```", PAGE, re.DOTALL) for line in code.splitlines()]
    assert len(shown) > 10
    assert [line for line in shown if line not in there] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_right(runs: Any, name: str) -> None:
    """The default of each on odd sizes."""
    kernel = load_kernel(name, EXAMPLES)
    problem = kernel.problem(dict(zip(kernel.dimensions, (333, 77), strict=False)) if name != "product" else {"n": 45})
    variant = make_variant(kernel, problem, kernel.configuration())
    with runs.device.stage(make_workload(kernel, problem)) as stage:
        check = stage.check(runs.device.load(runs.builder.build(variant.source)), variant.launch)
    assert check.ok, check.detail


def test_what_is_wrong_on_purpose_says_so_and_is_never_offered(page: Any, runs: Any) -> None:
    for example in (page.FIRST, page.SECOND):
        assert any("WRONG ON PURPOSE" in line for line in example.text)
        variant = example.variant
        with runs.device.stage(make_workload(variant.kernel, example.problem)) as stage:
            check = stage.check(runs.device.load(runs.builder.build(variant.source)), variant.launch)
        assert not check.ok
        assert "race" in check.detail
    space = build_space(page.FIRST.variant.kernel, page.FIRST.problem, find_gpu("h200"))
    assert len(space) == 4
    assert {space.configuration(row)["barriers"] for row in range(len(space))} == {"both"}
    assert all("barriers" not in preset for preset in page.FIRST.variant.kernel.presets.values())
