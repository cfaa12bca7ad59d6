"""The benchmarks' reader of T1 files, and what it is read for."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotile.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
VALUES = {
    "width": ("[1, 2, 4] + list(range(8, 33, 8))", [1, 2, 4, 8, 16, 24, 32]),
    "height": ("[2**i for i in range(0, 4)]", [1, 2, 4, 8]),
    "fixed": ("[6]", [6]),
    "unroll": ("list(range(4))", [0, 1, 2, 3]),
    "pad": ("[0, -1]", [0, -1]),
}
CONDITIONS = [
    "8 <= width * height <= 64",
    "unroll == 0 or fixed % unroll == 0",
    "not (pad == -1 and width == 32)",
    "pad == 0 or height in [2, 4]",
]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import enumeration

    return enumeration


def written(path: Path, values: dict[str, Any], conditions: list[str]) -> Path:
    parameters = [{"Name": name, "Type": "int", "Values": text, "Default": 1} for name, text in values.items()]
    expressions = [{"Expression": text, "Parameters": []} for text in conditions]
    space = {"General": {}, "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": expressions}}
    path.write_text(json.dumps(space), encoding="utf-8")
    return path


def test_a_t1_space_is_what_python_makes_of_it(tmp_path: Path, benchmark: ModuleType) -> None:
    read = benchmark.read_t1(
        written(tmp_path / "mine.T1.json", {n: text for n, (text, _) in VALUES.items()}, CONDITIONS)
    )
    assert {name: list(values) for name, values in read.domains.items()} == {n: v for n, (_, v) in VALUES.items()}
    whole = " and ".join(f"({condition})" for condition in CONDITIONS)
    product = [dict(zip(VALUES, row, strict=True)) for row in itertools.product(*(v for _, v in VALUES.values()))]
    expected = [values for values in product if eval(whole, {}, values)]
    space = read.enumerate()
    assert [dict(space.configuration(row)) for row in range(len(space))] == expected
    assert (read.name, space.total, space.feasible) == ("mine", 224, 100)


def test_the_benchmark_counts_and_keeps_its_times(tmp_path: Path, benchmark: ModuleType) -> None:
    read = benchmark.read_t1(
        written(tmp_path / "mine.T1.json", {n: text for n, (text, _) in VALUES.items()}, CONDITIONS)
    )
    result = benchmark.compare(read, rounds=2)
    assert (result["space"], result["feasible"], result["autotile"]["runs"]) == ("mine", 100, 2)
    path = benchmark.save_for_cpu("enumeration", {"machine": benchmark.cpu_machine(), "spaces": [result]}, tmp_path)
    assert json.loads(path.read_text(encoding="utf-8"))["machine"]["device"] == benchmark.cpu_name()


@pytest.mark.parametrize("text", ["__import__('os').getcwd()", "open('x')", "[1.5]", "range(", "5", "[x for x in y]"])
def test_other_values_are_refused_and_nothing_is_run(tmp_path: Path, benchmark: ModuleType, text: str) -> None:
    with pytest.raises(UsageError, match=r"bad\.T1\.json: not a T1 file that can be read"):
        benchmark.read_t1(written(tmp_path / "bad.T1.json", {"a": text}, []))
