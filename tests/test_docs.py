"""The example of docs/kernels.md, as it stands there: searched, loaded and called on the emulator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import autotile

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "kernels.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


def test_the_example_kernel_works(tmp_path: Path) -> None:
    folder = tmp_path / "row_scale"
    folder.mkdir()
    (folder / "kernel.cu.j2").write_text(block("cuda"), encoding="utf-8")
    (folder / "kernel.py").write_text(block("python"), encoding="utf-8")
    search_file = tmp_path / "row_scale.yaml"
    search_file.write_text(block("yaml"), encoding="utf-8")
    (result,) = autotile.search(search_file, device="emulator", templates=str(tmp_path))
    assert result.outcomes == {"ok": 15}
    assert result.stopped_by == "exhausted"
    row_scale = autotile.load(
        "row_scale", rows=1024, cols=4000, device="emulator", templates=str(tmp_path), strict=True
    )
    assert row_scale.match == "exact"
    matrix = np.random.default_rng(0).standard_normal((5, 333), dtype=np.float32)
    factors = np.arange(5, dtype=np.float32)
    assert np.array_equal(row_scale(matrix, factors), factors[:, None] * matrix)
