"""The second example of docs/kernels.md, with a step, scratch memory, a scalar and switches: searched and called."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import autotile

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "kernels.md").read_text(encoding="utf-8")


@pytest.fixture
def templates(tmp_path: Path) -> str:
    folder = tmp_path / "row_sums"
    folder.mkdir()
    (template,) = re.findall(r"```jinja\n(.*?)```", TEXT, re.DOTALL)
    (definition,) = re.findall(r"```py\n(import .*?)```", TEXT, re.DOTALL)
    (folder / "kernel.cu.j2").write_text(template, encoding="utf-8")
    (folder / "kernel.py").write_text(definition, encoding="utf-8")
    return str(tmp_path)


def test_the_example_with_a_step_works(tmp_path: Path, templates: str) -> None:
    file = tmp_path / "row_sums.yaml"
    file.write_text("kernel: row_sums\nproblems: [{rows: 40, cols: 1000, in_turned: true, bias: true}]\n")
    (result,) = autotile.search(file, device="emulator", templates=templates)
    assert (result.outcomes, result.stopped_by) == ({"ok": 9}, "exhausted")
    loaded = {"device": "emulator", "templates": templates, "strict": True}
    row_sums = autotile.load("row_sums", rows=40, cols=1000, in_turned=True, bias=True, **loaded)
    matrix = np.arange(3 * 70, dtype=np.float32).reshape(3, 70)
    bias = np.array([1, 2, 3], dtype=np.float32)
    found = row_sums(np.ascontiguousarray(matrix.T), bias, alpha=2.0)
    assert np.array_equal(found, 2 * matrix.sum(axis=1) + bias)
