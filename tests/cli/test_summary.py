"""The line that says why a search ended: there is one for every reason that a search can have."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import SIZE, TWELVE, FakeBuilder, FakeDevice, write_kernel

from autotile.cli.search import _summary
from autotile.cli.text import STOPPED
from autotile.kernels.loader import read_folder
from autotile.spec.model import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, replayed, run, search

REASON = {"str", "str | None", "tuple[str, Record | None]"}
"""What the steps of a search return that say why it ended."""


def reasons(module: Any) -> set[str]:
    """The texts that those methods of a module return, written out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) in REASON:
            for value in (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return) and inner.value):
                found |= {leaf.value for leaf in leaves(value) if isinstance(leaf.value, str)}
    return found


def leaves(value: ast.expr) -> list[ast.Constant]:
    """The constants that an expression may come to: those of a condition are none of them."""
    if isinstance(value, ast.Constant):
        return [value]
    if isinstance(value, ast.IfExp):
        return leaves(value.body) + leaves(value.orelse)
    return leaves(value.elts[0]) if isinstance(value, ast.Tuple) else []


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    walk = read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk")
    spec = Spec(walk, (walk.problem({"n": SIZE}),), TWELVE, search=SearchOptions(trials=3))
    (found,) = search(spec, FakeDevice(), FakeBuilder(), MemoryStore())
    return found


def test_every_reason_has_its_words() -> None:
    assert {"gain", "trials", "time", "exhausted", "points", "edited", "device_lost"} <= reasons(run)
    assert reasons(run) | {reason for reason in reasons(replayed) if reason in STOPPED} == set(STOPPED)


@pytest.mark.parametrize("reason", STOPPED)
def test_the_summary_says_which(result: SearchResult, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    _summary(replace(result, stopped_by=reason), "auto", (), to_stderr=False)
    out = capsys.readouterr().out
    assert f"  3 trials on record (3 ok); 3 new. {STOPPED[reason]}.\n" in out
    assert sum(words in out for words in STOPPED.values()) == 1


def test_the_document_of_the_result_names_them_all() -> None:
    """In the docstring of what a search returns."""
    text = " ".join((inspect.getdoc(SearchResult) or "").split())
    assert [reason for reason in STOPPED if reason not in text] == []
