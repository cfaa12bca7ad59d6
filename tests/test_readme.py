"""The README says what is true: its tables, its example files, its commands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from autotile.cli import autotile as command_line
from autotile.spec import load_specs

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_every_table_is_made_from_the_result_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import tables

    assert tables.with_tables(README) == README, "run python benchmarks/tables.py"
    sys.modules.pop("tables")


def test_every_command_is_in_the_table() -> None:
    for name in command_line.commands:
        assert f"`autotile {name}" in README


def test_every_command_and_option_has_help() -> None:
    for command in command_line.commands.values():
        assert command.help, command.name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{command.name} {parameter.opts}"


def test_the_example_search_file_loads(tmp_path: Path) -> None:
    (example,) = code_blocks("yaml")
    file = tmp_path / "example.yaml"
    file.write_text(example, encoding="utf-8")
    (spec,) = load_specs(file)
    assert spec.kernel.name == "matmul"


def test_the_example_of_python_is_python() -> None:
    for block in code_blocks("python"):
        compile(block, "README.md", "exec")


def test_files_that_the_readme_names_are_there() -> None:
    for name in re.findall(r"`((?:configs|templates|benchmarks|autotile|docs)/[\w./-]+)`", README):
        assert (ROOT / name).exists(), name
