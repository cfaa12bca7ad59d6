"""The README's tables of results that come with a machine of their own: each only where its file is."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

MACHINE = {
    "device": "Some CPU",
    "cores": 2,
    "python": "3.12.1",
    "kernel_tuner": "1.5.0",
    "commit": "abc",
    "date": "2026-01-02T03",
}
README = "before\n<!-- results -->\nold\n<!-- end of results -->\nafter\n"


def on(score: float, needed: dict[str, float | None], timed: bool = True) -> dict[str, Any]:
    times = {"cpu_ms_an_ask": 2.5, "cpu_share_of_budget": 0.0125} if timed else {}
    return {"score": score, "repeats": 25, "evaluations_needed": needed, **times}


RATE = {"right": 38, "tried": 40, "launches_need_s": 2.0}
GPU = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "commit": "def", "date": "2026-01-03T04"}


def ended(wall_s: float, trials: int, reason: str, slower: float) -> dict[str, Any]:
    return {"wall_s": wall_s, "trials": trials, "stopped_by": reason, "slower": slower}


DOCUMENTS: dict[str, dict[str, Any]] = {
    "gpu/seeds": {
        **GPU,
        "problem": "8×8 float32",
        "space": 99,
        "limit": "60s",
        "reference": {"trials": 2000, "wall_s": 153.4},
        "searches": [
            ended(20.2, 150, "gain", 0.001),
            ended(41.7, 400, "trials", 0.061),
            ended(30.0, 170, "gain", 0.0),
        ],
        "within_5_percent": 2,
    },
    "gpu/features": {
        **GPU,
        "kernels": {
            "matmul": {
                "trials": 150,
                "seeds": 2,
                "with": {"trials_to_10%": 22.0, "trials_to_5%": 75.5, "trials_to_2%": 105.0},
                "without": {"trials_to_10%": 28.0, "trials_to_5%": 104.0, "trials_to_2%": 151.0},
            }
        },
    },
    "gpu/compiler_bests": {
        **GPU,
        "searches": [{"problem": "matmul 8", "seed": 1, "compiler": "nvcc 13", "trials": 9, "best_ms": 2.80086}],
        "same_configuration": {"count": 3, "ratio_of": "b over a", "least": 0.9211, "median": 1.0, "most": 1.0616},
    },
    "cpu/enumeration": {
        "machine": MACHINE,
        "spaces": [
            {
                "space": "gemm_milo",
                "feasible": 116928,
                "autotile": {"min_ms": 23.24},
                "kernel_tuner": {"min_ms": 582.3},
                "times_as_fast": 25.06,
            },
            {"space": "other", "feasible": 7, "autotile": {"min_ms": 1.0}},
        ],
    },
    "gpu/tuning_rate": {
        **GPU,
        "problem": "64x64x64 float32",
        "runs": 7,
        "reports": [
            {"tuner": "autotile", "wall_s": 10.0, "per_s": 4.0, **RATE},
            {"tuner": "kernel_tuner", "version": "1.5.0", "wall_s": 40.0, "per_s": 1.0, **RATE},
            {"tuner": "autotile", "wall_s": 20.0, "per_s": 2.0, **RATE},
            {"version": "1.5.0", "space": 40},
        ],
        "compared": {"times_as_fast": {"autotile": 3.04}},
    },
    "recorded-spaces/search_strategies": {
        "machine": MACHINE,
        "spaces": [{"name": "gemm_X", "own": False}, {"name": "matmul 8, X", "own": True}],
        "strategies": [
            {
                "label": "model",
                "mean": 0.5,
                "median": 0.25,
                "by_space": {"gemm_X": on(0.75, {"5%": 4.0}), "matmul 8, X": on(0.25, {"5%": 6.5})},
            },
            {
                "label": "model, without features",
                "mean": 0.1,
                "median": 0.1,
                "by_space": {"matmul 8, X": on(0.1, {"5%": None}, timed=False)},
            },
        ],
    },
    "recorded-spaces/ask_cost": {
        "machine": MACHINE,
        "asks": [
            {
                "sampler": "model",
                "space": "gemm_X",
                "rows": 9,
                "trials": 5,
                "cpu_ms_an_ask": 1.0,
                "cpu_ms_last": 2.0,
                "cpu_ms_most": 30.0,
            }
        ],
    },
}

EXPECTED = {
    "gpu/seeds": [
        "| limit 60s | 3 seeds | 20 to 42 | 150 to 400 | 2 by gain, 1 by trials | 6.10% | 2 of 3 |",
    ],
    "gpu/features": [
        "| matmul, 2 seeds | with | 22 | 75.5 | 105 |",
        "| matmul, 2 seeds | without | 28 | 104 | not in 150 |",
    ],
    "gpu/compiler_bests": [
        "| matmul 8 | 1 | nvcc 13 | 9 | 2.8009 ms |",
        "Of 3 configurations that both timed, b over a: 0.921 to 1.062, 1.000 in the median.",
    ],
    "cpu/enumeration": [
        "**Enumerating a space, Some CPU, Python 3.12.1, commit abc, 2026-01-02**",
        "| from the text of its constraints to a table | feasible | autotile | Kernel Tuner 1.5.0 | times as fast |",
        "| gemm milo | 116928 | 23.2 ms | 582.3 ms | 25.1 |",
        "| other | 7 | 1.0 ms | not run |  |",
    ],
    "gpu/tuning_rate": [
        "**Tuning rate, Some GPU, driver 580, nvcc 13, commit def, 2026-01-03**",
        "| autotile | 40, 38 | 15.0 | 3.00 | 2.0 s |",
        "| Kernel Tuner 1.5.0 | 40, 38 | 40.0 | 1.00 | 2.0 s |",
        "As many times as fast as Kernel Tuner: autotile 3.0 times.",
    ],
    "recorded-spaces/search_strategies": [
        "| 25 repeats | mean | median | gemm X | matmul 8, X | ms an ask | of the budget |",
        "| model | 0.500 | 0.250 | 0.750 | 0.250 | 2.5 | 1.25% |",
        "| model, without features | 0.100 | 0.100 |  | 0.100 |  |  |",
        "| matmul 8, X | model | 6.5 |",
        "| matmul 8, X | model, without features | not reached |",
    ],
    "recorded-spaces/ask_cost": ["| model | gemm X | 9 | 5 | 1.0 | 2.0 | 30.0 |"],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_file_has_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    import tables

    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    bare = tables.with_tables(README)
    assert bare == "before\n<!-- results -->\n<!-- end of results -->\nafter\n"
    path = tmp_path / f"{name}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(DOCUMENTS[name]), encoding="utf-8")
    lines = tables.with_tables(README).splitlines()
    assert [line for line in EXPECTED[name] if line not in lines] == []
    for above, below in itertools.pairwise(lines):
        if above.startswith("|") and below.startswith("|"):
            assert above.count("|") == below.count("|")
    assert lines[-2:] == ["<!-- end of results -->", "after"]
