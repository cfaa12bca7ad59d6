"""The matmul on tensor cores with a fault: nobody tells a barrier of tier wgmma which bytes it has to wait for."""

from __future__ import annotations

import shutil
from pathlib import Path

from autotile.assets import templates_dir

NEVER_ENDING = """\
kernel: waiting
problems: [{m: 512, n: 512, k: 512, dtype: bfloat16}]
parameters: {tier: [wgmma, mma], block_m: [64], block_n: [64], block_k: [64], warp_m: [32], warp_n: [32],
             fragments: [1], stages: [3, 4], groups: [1], cluster: [1], wave: [0], min_blocks: [1], group: [8],
             pingpong: [false], multicast: [none]}
search: {sampler: grid, trials: 4, launch_limit: 2s}
"""
TOLD = "barrier_expect(shared.full + slot.number * 8, BROUGHT_BYTES);"


def write_waiting(root: Path) -> None:
    """The kernel `waiting` in a folder of kernels."""
    for name in ("_lib", "matmul_tensor"):
        shutil.copytree(templates_dir() / name, root / name)
    folder = (root / "matmul_tensor").rename(root / "waiting")
    for file, old, new in (
        ("kernel.py", 'name="matmul_tensor"', 'name="waiting"'),
        ("parts/wgmma.cu.j2", TOLD, ""),
    ):
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
