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


FAULTY = """\
import numpy as np
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size

KERNEL = Kernel(
    name="faulty", doc="y = x, or a fault", dimensions=("n",), dtypes=("float32",),
    arguments=(Input("x", ("n",)), Output("y", ("n",)), Size("n")),
    parameters=(Parameter("width", (32, 64, 128), 64, "threads"), Parameter("fault", (False, True), False, "whether")),
    launch=LaunchPlan(("ceil_div(problem.n, width)",), ("width",)),
    reference=lambda inputs, problem: {"y": inputs["x"]}, error_bound=lambda inputs, problem: {"y": 0.0},
    flops="0", bytes="8 * problem.n",
)
"""
FAULTY_TEMPLATE = """\
extern "C" __global__ void {{ entry }}(const float* x, float* y, int n) {
    const int i = blockIdx.x * {{ width }} + threadIdx.x;
{% if fault %}
    if (i == 0) *reinterpret_cast<float*>(64) = 1.0f;
{% endif %}
    if (i < n) y[i] = x[i];
}
"""
FAULTY_SEARCH = """\
kernel: faulty
problems: [{n: 100000}]
search: {sampler: grid, trials: 6}
"""


def test_an_illegal_address_costs_one_record_and_the_next_run_goes_on(tmp_path: Path) -> None:
    """Until measuring has a process of its own, the run ends with the context; what was measured stays."""
    (tmp_path / "faulty").mkdir()
    (tmp_path / "faulty" / "kernel.py").write_text(FAULTY, encoding="utf-8")
    (tmp_path / "faulty" / "kernel.cu.j2").write_text(FAULTY_TEMPLATE, encoding="utf-8")
    file = tmp_path / "faulty.yaml"
    file.write_text(FAULTY_SEARCH, encoding="utf-8")
    command = [sys.executable, "-m", "autotile", "search", str(file), "--device", "cuda", "--templates", str(tmp_path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=False, timeout=120) for _ in range(4)]
    assert "a faulting kernel took the GPU's context" in runs[0].stdout, runs[0].stderr
    assert "Traceback" not in runs[0].stderr
    assert runs[0].returncode == 1
    assert runs[3].returncode == 0, runs[3].stderr
    records = Store().records("faulty")
    assert len(records) == 6
    assert [record.outcome for record in records if record.configuration["fault"]] == ["launch_error"] * 3
    assert [record.outcome for record in records if not record.configuration["fault"]] == ["ok"] * 3
    (best,) = Store().bests("faulty")
    assert best.proven
