"""The main job on a GPU, small: search, beyond 48 KiB, save, load in a new process without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autotile
from autotile.store import Store

pytestmark = pytest.mark.gpu

SEARCH = """\
kernel: matmul
problems:
  - {m: 512, n: 512, k: 512, dtype: float32}
points:
  - one_element
  - tile32
  - {staging: dynamic, block_m: 128, block_n: 128, block_k: 32, thread_m: 8, thread_n: 8, stages: 3, vector: 4}
---
kernel: matmul
problems:
  - {m: 512, n: 512, k: 512, dtype: float32}
parameters: {staging: [dynamic], block_m: [64, 128], block_n: [64], block_k: [16], thread_m: [8], thread_n: [4],
             lanes_m: [4], a_layout: [k_major], pad_a: [4], pad_b: [0], vector: [4], stages: [1, 3], unroll: [8]}
---
kernel: transpose
problems:
  - {rows: 1000, cols: 1003, dtype: int8}
search: {sampler: random, trials: 12, seed: 3}
"""

LOAD = """\
import numpy as np, autotile
matmul = autotile.load("matmul", m=512, n=512, k=512, dtype="float32", device="cuda", strict=True)
a = np.ones((512, 512), np.float32)
assert np.array_equal(matmul(a, a), np.full((512, 512), 512, np.float32))
a = np.ones((33, 17), np.float32)
assert np.array_equal(matmul(a, a.T.copy()), np.full((33, 33), 17, np.float32))
print(matmul.match)
"""


def test_search_save_and_load_without_a_compiler(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SEARCH, encoding="utf-8")
    points, matmul, transpose = autotile.search(file, device="cuda")
    assert points.outcomes == {"ok": 3}
    assert set(matmul.outcomes) == {"ok"}
    assert transpose.outcomes == {"ok": 12}
    large = points.named["point 3"]
    assert large.launch is not None
    assert large.launch.shared_bytes > 49152
    assert matmul.best is not None
    assert not matmul.best.identity.estimated
    assert Store().best("matmul", matmul.problem, matmul.device.name) == matmul.best
    environment = {**os.environ, "AUTOTILE_NVCC": "/nowhere/nvcc"}
    done = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "exact", done.stderr
