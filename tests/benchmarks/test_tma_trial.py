"""The trial of the Tensor Memory Accelerator: its variants keep the hardware's rules, and its table tells what won."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotile.devices.gpus import find_gpu
from autotile.errors import CompileError

PLACE = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "commit": "def", "date": "2026-01-03T04"}


@pytest.mark.parametrize("itemsize", [1, 2, 4])
def test_variants_keep_the_rules_of_tensor_maps_and_fit_the_gpu(itemsize: int) -> None:
    from tma_variants import KINDS, maps, variants

    found = variants(itemsize)
    limits = find_gpu("h200")
    assert {variant.kind for variant in found} == set(KINDS)
    assert len({variant.name for variant in found}) == len(found)
    for variant in found:
        assert variant.divides(4096, 4096)
        assert variant.shared_bytes <= limits.shared_bytes_optin
        assert variant.threads <= limits.max_threads_per_block
        patches = variant.tile_bytes // 16 // variant.turn_rows
        assert patches % variant.threads == 0
        for of in maps(variant, 4096, 8192):
            assert of.box[0] * itemsize == 128, "all that the swizzle takes"
            assert of.box[1] <= 256
            assert of.stride_bytes % 16 == 0


def test_maps_are_of_both_matrices_innermost_first() -> None:
    from tma_variants import Map, Variant, maps

    variant = Variant("B", 2, tile_rows=128, tile_cols=64, threads=128, turn_rows=8)
    assert maps(variant, 256, 512) == (
        Map(2, sizes=(512, 256), stride_bytes=1024, box=(64, 128)),
        Map(2, sizes=(256, 512), stride_bytes=512, box=(64, 64)),
    )


def test_shared_memory_by_kind() -> None:
    from tma_variants import Variant

    tile = 64 * 64 * 4
    of = {kind: Variant(kind, 4, 64, 64, 256, 4).shared_bytes for kind in ("A", "B", "C", "C2", "D")}
    assert of == {"A": tile + 8, "B": 2 * tile + 8, "C": tile + 8, "C2": tile + 64 // 4 * 16 + 8, "D": 4 * tile + 16}


def test_what_is_wrong_is_not_ranked() -> None:
    from tma_variants import best_of_kinds

    entries = [
        {"kind": "A", "name": "slow", "time_ms": 2.0},
        {"kind": "A", "name": "fast", "time_ms": 1.0},
        {"kind": "B", "name": "wrong", "outcome": "wrong on sets [0]"},
    ]
    assert {kind: entry["name"] for kind, entry in best_of_kinds(entries).items()} == {"A": "fast"}


def report() -> dict[str, Any]:
    case = {
        "shape": [8192, 8192],
        "dtype": "float32",
        "bytes": 2**29,
        "times_ms": {"copy": 0.128, "own_copy": 0.16, "autotile": 0.2},
        "of_copy": {"copy": 1.0, "own_copy": 0.8, "autotile": 0.64},
        "best": {"B": {"name": "B 64x64", "time_ms": 0.25, "of_copy": 0.512}},
        "variants": [{"outcome": "right"}, {"outcome": "failed: no"}],
    }
    return {"kinds": {"A": "this", "B": "that"}, "faults": [], "cases": [case]}


def test_the_table_tells_shares_the_fastest_and_what_failed() -> None:
    import tables

    lines = tables.tma_trial(PLACE | report())
    assert "| 8192×8192 float32 | 4194 | 0.800 | 0.640 | – | 0.512 | B 64x64 | 0.800 |" in lines
    assert "A: this; B: that. 1 of 2 were wrong or failed" in lines[-1]


def test_the_table_without_autotile_without_times_and_with_a_fault() -> None:
    import transpose_tables

    given = report()
    (case,) = given["cases"]
    del case["times_ms"]["autotile"], case["of_copy"]["autotile"]
    lines = transpose_tables.tma_trial(given)
    assert "| 8192×8192 float32 | 4194 | 0.800 | – | – | 0.512 | B 64x64 | – |" in lines
    case["best"] = {}
    lines = transpose_tables.tma_trial(given | {"faults": ["D: trap"]})
    assert "| 8192×8192 float32 | 4194 | 0.800 | – | – | – | – | – |" in lines
    assert lines[-1] == "Faulted, and left out with its kind: D: trap."


def test_kinds_are_skipped_and_faults_kept() -> None:
    from tma_trial import parsed

    given = parsed(["--skip", "B", "--skip", "B,D", "--fault", "one", "--fault", "two"])
    assert (given.skip, given.fault) == (["B", "D"], ["one", "two"])


@pytest.mark.nvcc
def test_each_kind_compiles_without_a_warning(tmp_path: Path) -> None:
    import tma_trial
    from tma_variants import KINDS, Variant

    chosen = [Variant(kind, 2, 128, 128, 256, 4) for kind in KINDS]
    cubins = tma_trial.compiled(chosen, tmp_path)
    assert all(cubins[variant].startswith(b"\x7fELF") for variant in chosen)
    with pytest.raises(CompileError, match="as many patches for each thread"):
        tma_trial.compiled([Variant("A", 4, 64, 64, 96, 4)], tmp_path)
