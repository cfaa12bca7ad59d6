"""The matmul's trial of the Tensor Memory Accelerator: variants keep the hardware's rules; one that falls is alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autotile.devices.gpus import find_gpu


def test_variants_keep_the_rules_of_tensor_maps_and_fit_the_gpu() -> None:
    from matmul_tma_variants import CHECKED, maps, variants

    found = variants()
    limits = find_gpu("h200")
    assert 20 <= len(found) <= 40
    assert len({variant.name for variant in found}) == len(found)
    for variant in found:
        assert all(variant.divides(*shape) for shape in [*CHECKED, (4096, 4096, 4096)])
        assert variant.threads <= limits.max_threads_per_block
        assert variant.shared_bytes <= limits.shared_bytes_optin
        held = variant.min_blocks * (variant.shared_bytes + 1024)  # what the system keeps of a block's
        assert held <= limits.shared_bytes_per_sm
        for of in maps(variant, 4096, 8192, 2048):
            assert max(of.box) <= 256
            assert of.stride_bytes % 16 == 0
            assert of.box[0] * 4 % 16 == 0
            if of.swizzle:
                assert of.box[0] * 4 == {1: 32, 2: 64, 3: 128}[of.swizzle], "as long as the swizzle's pattern"


def test_maps_are_innermost_first_and_only_rows_along_k_are_swizzled() -> None:
    from matmul_tma_variants import Map, Variant, maps

    b = Map(sizes=(512, 1024), box=(256, 16))
    assert maps(Variant(), 256, 512, 1024) == (Map(sizes=(1024, 256), box=(16, 128), swizzle=2), b)
    assert maps(Variant(turned=True), 256, 512, 1024) == (Map(sizes=(256, 1024), box=(128, 16)), b)


def test_threads_and_shared_memory() -> None:
    from matmul_tma_variants import Variant

    variant = Variant(tile_n=128, thread_m=8, stages=3, producers=32)
    assert variant.threads == 16 * 16 + 32
    assert variant.shared_bytes == 3 * (2 * 128 * 16 * 4 + 16)
    assert {"-DTILE_N=128", "-DPRODUCERS=32", "-DTURNED=0", "-DORDER=ROWS"} <= set(variant.defines)


def fallen_at(*numbers: int) -> Any:
    """A `subprocess.run` for checks: all are right, up to the first of `numbers`, which ends the process."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        import matmul_tma_trial

        given = matmul_tma_trial.parsed(command[2:])
        for number in given.check:
            if number in numbers:
                return subprocess.CompletedProcess(command, 1, "", "warned\nan illegal access")
            matmul_tma_trial.outcome_path(given.cubins, number).write_text(json.dumps("right"), encoding="utf-8")
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_what_ends_its_process_is_told_and_the_others_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matmul_tma_trial

    monkeypatch.setattr(subprocess, "run", fallen_at(3, 7))
    found = matmul_tma_trial.first_checks([1, 3, 5, 7], tmp_path)
    assert found == {1: "right", 3: "faulted: an illegal access", 5: "right", 7: "faulted: an illegal access"}


def test_after_several_falls_the_rest_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_tma_trial

    monkeypatch.setattr(subprocess, "run", fallen_at(*range(6)))
    found = matmul_tma_trial.first_checks(range(6), tmp_path)
    assert [outcome.partition(":")[0] for outcome in found.values()] == ["faulted"] * 4 + ["not checked"] * 2


def test_the_facts_of_what_is_compiled_get_an_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_tma_trial

    monkeypatch.setattr(subprocess, "run", fallen_at(2))
    facts: dict[int, dict[str, Any]] = {0: {"registers": 9}, 1: {"outcome": "does not compile"}, 2: {}}
    matmul_tma_trial.tell_first_checks(facts, tmp_path)
    assert facts[0] == {"registers": 9, "outcome": "right"}
    assert [facts[number]["outcome"] for number in (1, 2)] == ["does not compile", "faulted: an illegal access"]


def case() -> dict[str, Any]:
    return {
        "shape": [4096, 4096, 4096],
        "layout": "tn",
        "tflops": {"cublas: mm": 40.0, "autotile: large": 44.0, "autotile: large_wide": 50.0, "A turned": 55.0},
        "variants": [{"name": "A turned", "outcome": "right"}, {"name": "other", "outcome": "wrong: error 1"}],
        "notes": ["a note"],
    }


def test_the_report_ranks_and_tells_what_is_amiss() -> None:
    from matmul_tma_variants import report

    lines = report(case())
    assert lines[0] == "4096x4096x4096:tn"
    assert lines[1].endswith("55.00 TFLOP/s, 1.375 of cuBLAS, 1.100 of autotile: A turned")
    assert lines[4].endswith("cublas: mm")
    assert lines[5:] == ["  other: wrong: error 1", "  a note"]


def test_the_table_with_and_without_what_ran() -> None:
    from matmul_tma_variants import table

    none = case() | {"layout": "nn", "tflops": {"cublas: mm": 40.0}}
    lines = table({"cases": [case(), none], "faults": ["other: trap"]})
    assert lines[2] == "| 4096×4096×4096, A turned | 40.0 | 50.0 | A turned | 55.0 | 1.100 | 1.375 |"
    assert lines[3] == "| 4096×4096×4096 | 40.0 | – | – | – | – | – |"
    assert lines[-2].startswith("2 of 4 were wrong or failed")
    assert lines[-1] == "Faulted, and left out: other: trap."


@pytest.mark.nvcc
def test_ways_of_asking_compile_without_a_warning(tmp_path: Path) -> None:
    import matmul_tma_trial
    from matmul_tma_variants import Variant

    small = Variant(tile_n=128, tile_k=8, thread_m=8)
    chosen = [small, Variant(tile_n=128, thread_m=8, producers=32, turned=True), Variant(tile_n=128, tile_k=12)]
    facts = matmul_tma_trial.compiled(dict(enumerate(chosen)), tmp_path)
    for number in (0, 1):
        assert facts[number]["spill_bytes"] == 0
        assert matmul_tma_trial.cubin_path(tmp_path, number).read_bytes().startswith(b"\x7fELF")
    assert "as long as a swizzle" in facts[2]["outcome"]
