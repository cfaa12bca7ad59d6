"""What a GPU cannot hold is left out before a compiler runs; what only shows later costs a record, not the search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TEMPLATE, write_kernel

from autotile.cli import main
from autotile.devices.gpus import find_gpu
from autotile.kernels import load_kernel
from autotile.space import build_space
from autotile.store import Store

STATIC_LIMIT = 48 * 1024
SMALL = {
    "block_m": (64, 128),
    "block_n": (128,),
    "thread_m": (8,),
    "thread_n": (8,),
    "a_layout": ("k_major",),
    "group": (1,),
    "unroll": (8,),
    "stages": (1, 2, 4),
    "order": ("rows",),
    "lane_map": ("rows",),
    "spread": (False,),
    "early_barrier": (False,),
    "slices": (1,),
    "cluster": (1,),
    "parts": (1,),
    "pack_b": (False,),
}


@pytest.mark.parametrize(
    ("gpu", "kib"), [("no opt-in", 48), ("rtx2080ti", 64), ("rtx4090", 99), ("a100", 163), ("h200", 227)]
)
def test_shared_memory_goes_as_far_as_the_gpu_lets_it_and_no_further(gpu: str, kib: int) -> None:
    """apache/tvm#11478 and GridTools/gridtools#1390. An old GPU without an opt-in has 48 KiB."""
    info = replace(find_gpu("v100"), arch="sm_61", shared_bytes_optin=STATIC_LIMIT) if kib == 48 else find_gpu(gpu)
    assert info.shared_bytes_optin == kib * 1024
    kernel = load_kernel("matmul")
    problem = kernel.problem({"m": 512, "n": 512, "k": 512})
    space = build_space(kernel, problem, info, SMALL)
    scopes = [kernel.scope(problem, space.configuration(row)) for row in range(len(space))]
    assert scopes
    assert max(scope["shared_bytes"] + scope["static_shared_bytes"] for scope in scopes) <= info.shared_bytes_optin
    assert max(scope["static_shared_bytes"] for scope in scopes) <= STATIC_LIMIT
    assert any(scope["shared_bytes"] > STATIC_LIMIT for scope in scopes) == (kib > 48)
    if kib < 100:
        (rejected,) = (r for r in space.rejections if "shared_bytes_optin" in r.rule)
        assert rejected.count > 0
        assert rejected.example.endswith(f"bytes of shared memory, {info.name} allows {kib * 1024}")


def test_a_variant_that_does_not_compile_costs_its_record_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """triton-lang/triton#2596: others succeed, so the search has."""
    refusing = TEMPLATE + '{% if width == 64 %}\n#error "uses too much shared data"\n{% endif %}\n'
    folder = write_kernel(tmp_path / "kernels", template=refusing)
    file = tmp_path / "walk.yaml"
    file.write_text(
        "kernel: walk\nproblems: [{n: 5000}]\nparameters: {width: [64, 32], steps: 1, mode: plain, hint: false}\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["search", str(file), "--device", "emulator", "--templates", str(folder)])
    assert left.value.code == 0
    assert "1 compile_error" in capsys.readouterr().out
    failed, right = sorted(Store().records("walk"), key=lambda record: record.ok)
    assert (failed.outcome, failed.configuration["width"]) == ("compile_error", 64)
    assert "uses too much shared data" in failed.message
    assert right.ok
    assert [record.configuration["width"] for record in Store().bests()] == [32]
