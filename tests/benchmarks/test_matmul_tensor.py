"""The benchmark of the matmul on tensor cores, without a GPU: cases, results put together, runs with fakes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotile.assets import config_path
from autotile.devices.gpus import find_gpu
from autotile.errors import NotTuned, UsageError
from autotile.kernels import load_kernel
from autotile.kernels.instead import resolve
from autotile.measure import make_workload
from autotile.space import build_space
from autotile.spec.load import load_specs

H200 = find_gpu("h200")

MACHINE = {"device": "Some GPU", "driver": "580", "compiler": "nvcc 13", "torch": "2.9", "commit": "abc"}

# ---- cases ----------------------------------------------------------------------------------------------------------


def test_what_is_asked() -> None:
    from matmul_tensor_cases import all_cases

    cases = {case.name: case for case in all_cases()}
    assert len(cases) == 37
    asked = {name: case.asked for name, case in cases.items() if case.asked is not None}
    assert len(asked) == 29
    assert asked["float16/4095x4097x4093"] == asked["bfloat16/4095x4097x4093"] == 3.8
    assert (asked["tf32/4095x4097x4093"], asked["bfloat16/4096x4096x4096@mma"]) == (2.5, 0.52)
    assert asked["bfloat16/64x512x512x512"] == 1.0
    assert {case.config for case in cases.values()} == {"matmul-tensor", "matmul-portable"}
    assert all(config_path(case.config) for case in cases.values())
    assert all(case.rounds >= 21 for case in cases.values())
    assert cases["int8/4096x4096x4096:nt"].moved_bytes == (1 + 1 + 4) * 4096**2
    assert cases["bfloat16/4096x4096x4096+wide"].moved_bytes == (2 + 2 + 4) * 4096**2
    assert cases["tf32/4096x4096x4096"].moved_bytes == 3 * 4 * 4096**2


def test_cases_are_chosen_by_patterns() -> None:
    from matmul_tensor_cases import chosen

    assert [case.name for case in chosen("*@mma, tf32/*")] == [
        "tf32/4096x4096x4096", "tf32/4095x4097x4093", "bfloat16/4096x4096x4096@mma",
    ]  # fmt: skip
    assert [case.name for case in chosen("*+bias+gelu")] == ["bfloat16/4096x4096x4096+bias+gelu"]
    with pytest.raises(UsageError, match="no case is called 'bfloat17"):
        chosen("bfloat17/*")


@pytest.mark.parametrize("config", ["matmul-tensor", "matmul-portable"])
def test_the_search_files_hold_a_tier(config: str) -> None:
    asked = {"m": 64, "n": 64, "k": 64, "dtype": "bfloat16"}
    (spec,) = load_specs(config, problems=[asked], device=lambda: H200)
    assert spec.kernel.name == "matmul_tensor"
    if config == "matmul-portable":
        assert spec.parameters["tier"] == ("mma",)
        assert not any("compute_capability" in rule.expression for rule in spec.rules)


RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/nvidia-h200/matmul_tensor.json"
WINNERS = [
    entry
    for entry in json.loads(RESULTS.read_text(encoding="utf-8"))["cases"]
    if entry["dtype"] != "float16"  # for whose elements the rules are bfloat16's
]


@pytest.mark.parametrize("entry", WINNERS, ids=lambda entry: entry["case"])
def test_what_won_on_an_h200_is_in_the_search_file(entry: dict[str, Any]) -> None:
    """Each rule of a file gives something up; none of it was the best."""
    from matmul_tensor_cases import chosen

    (case,) = chosen(entry["case"])
    (spec,) = load_specs(case.config, problems=[{**case.sizes, "dtype": case.dtype}], device=lambda: H200)
    values = entry["configuration"]
    for name, domain in spec.parameters.items():
        assert values[name] in domain, name
    alone = {name: (value,) for name, value in values.items()}
    problem = spec.kernel.problem(case.sizes, case.dtype)
    assert build_space(spec.kernel, problem, H200, alone, spec.rules).feasible == 1


def kinds() -> list[Any]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from matmul_tensor_cases import TensorCase, all_cases

    sys.path.pop(0)
    return list(dict.fromkeys(TensorCase((9, 16, 8), case.dtype, case.layout, case.more) for case in all_cases()))


@pytest.mark.parametrize("case", kinds(), ids=lambda case: case.name)
def test_the_kernel_has_data_for_each_kind(case: Any) -> None:
    kernel, dtype = resolve(load_kernel("matmul"), case.dtype, lambda: H200)
    assert kernel.name == "matmul_tensor"
    problem = kernel.problem(case.sizes, dtype)
    assert kernel.result_type(problem).name == case.result
    assert [kernel.shape_of(argument, problem)[1:] for argument in kernel.inputs_of(problem)[:2]] == [
        shape[-2:] for shape in case.stored_shapes[:2]
    ]
    assert make_workload(kernel, problem).arguments


def test_errors_are_judged_beside_cublas() -> None:
    from matmul_tensor_cases import TensorCase, judged

    case = TensorCase((4096, 4096, 4096), "bfloat16")
    assert judged(case, {"autotile": 1.7e-3, "cublas": 1.7e-3})["error_met"] is True
    worse = judged(case, {"autotile": 2.0e-3, "cublas": 1.7e-3})
    assert (worse["right"], worse["error_met"]) == (True, False)
    assert judged(case, {"autotile": 1.5e-2, "cublas": 1.7e-3})["right"] is False  # a product of 4096 that is missing
    assert judged(case, {"autotile": None, "cublas": 1.7e-3}) | {"errors": 0, "error_limit": 0} == {
        "errors": 0, "error_limit": 0, "right": False, "error_met": False,
    }  # fmt: skip
    assert judged(case, {"autotile": 1.7e-3})["error_met"] is None
    itself = judged(TensorCase((64, 64, 64), "float64"), {"autotile": 1e-16, "cublas": 0.0})
    assert (itself["right"], itself["error_met"]) == (True, None)
    whole = TensorCase((64, 64, 64), "int8", "nt")
    assert judged(whole, {"autotile": 0.0, "cublas": 0.0})["right"] is True
    assert judged(whole, {"autotile": 1e-9, "cublas": 0.0})["right"] is False


# ---- results put together -------------------------------------------------------------------------------------------


def entry(case: str, commit: str = "abc", **more: Any) -> dict[str, Any]:
    return {"case": case, "commit": commit, "date": f"2026-01-0{1 + (commit != 'abc')}", **more}


def test_results_of_two_runs() -> None:
    from matmul_tensor_cases import joined

    old = {**MACHINE, "date": "2026-01-01", "cases": [
        entry("tf32/4096x4096x4096", ratio=1.0),
        entry("bfloat16/4096x4096x4096", search={"seed": 0}, ratio=1.0),
        entry("float16/4096x4096x4096", search={"seed": 0}, ratio=1.0),
    ]}  # fmt: skip
    new = {**MACHINE, "commit": "def", "date": "2026-01-02", "cases": [
        entry("float16/4096x4096x4096", "def", search={"seed": 1}),
        entry("bfloat16/4096x4096x4096", "def", ratio=2.0),
    ]}  # fmt: skip
    found = joined(old, new)
    assert found["cases"] == [
        entry("bfloat16/4096x4096x4096", "def", search={"seed": 0}, ratio=2.0),  # timed anew
        entry("float16/4096x4096x4096", "def", search={"seed": 1}),  # searched anew: the old times are another's
        entry("tf32/4096x4096x4096", ratio=1.0),
    ]
    assert (found["commit"], found["date"]) == ("abc, def", "2026-01-02")
    with pytest.raises(UsageError, match="driver 580 and of 590"):
        joined(old, {**new, "driver": "590"})


def test_merged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_tensor

    files = []
    for number, names in enumerate((["tf32/4096x4096x4096"], ["bfloat16/4096x4096x4096"])):
        cases = [entry(name) | failed(name) for name in names]
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps({**MACHINE, "device": "NVIDIA H200", "date": "2026", "cases": cases}))
    arguments = ["matmul_tensor.py", "--merge", *map(str, files), "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    matmul_tensor.main()
    found = json.loads((tmp_path / "matmul_tensor.json").read_text())
    assert [one["case"] for one in found["cases"]] == ["bfloat16/4096x4096x4096", "tf32/4096x4096x4096"]
    assert "4096×4096×4096 tf32 | failed" in capsys.readouterr().out


def failed(name: str) -> dict[str, Any]:
    from matmul_tensor import facts_of
    from matmul_tensor_cases import chosen

    return facts_of(chosen(name)[0]) | {"error": "no memory"}


# ---- the runs -------------------------------------------------------------------------------------------------------


def test_a_dry_run_names_the_kernel(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_tensor

    monkeypatch.setattr(sys, "argv", ["matmul_tensor.py", "--dry-run", "--cases", "*@mma,int8/*"])
    matmul_tensor.main()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("bfloat16/4096x4096x4096@mma (matmul_tensor m4096-n4096-k4096-bfloat16): 137 GFLOP")
    assert first.endswith("config matmul-portable; asked 0.52")
    assert "C in int32" in second


def test_what_is_asked_for_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    import matmul_tensor

    given = matmul_tensor.parsed(["measure", "--budget", "9m"])
    assert (given.stages, given.budget_s) == (["measure"], 540)
    assert matmul_tensor.parsed([]).stages == ["search", "measure"]
    for wrong in (["serch"], ["--budget", "soon"]):
        with pytest.raises(SystemExit):
            matmul_tensor.parsed(wrong)
    assert "there is no stage serch" in capsys.readouterr().err


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Searches and turns that need no GPU; cuBLAS takes 2 ms, autotile 1."""
    import matmul
    import matmul_tensor

    monkeypatch.setenv("AUTOTILE_HOME", "unused")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None)))
    tuned = SimpleNamespace(config={"tier": "wgmma"}, match="exact", problem=SimpleNamespace(kernel="matmul_tensor"))
    monkeypatch.setattr(matmul_tensor, "searched", lambda bench, case, given, store: {
        "seconds": 20.0, "trials": 160, "seed": given.seed,
    })  # fmt: skip
    monkeypatch.setattr(matmul_tensor, "loaded_from", lambda case, store, strict: tuned)
    monkeypatch.setattr(matmul_tensor, "make_operands", lambda case: None)
    monkeypatch.setattr(matmul_tensor, "tuned_call", lambda tuned, data: lambda number: None)
    monkeypatch.setattr(matmul_tensor, "peers", lambda case, data: {"cublas: mm": lambda number: None})
    monkeypatch.setattr(matmul_tensor, "errors_of", lambda case, calls, data: dict.fromkeys(calls, 1e-4))
    monkeypatch.setattr(matmul_tensor, "exported", lambda store, info, path: path.write_text(str(store.root.parent)))
    monkeypatch.setattr(matmul_tensor, "name_peers", lambda case, entry, ways: None)
    times = {"autotile": 1.0, "cublas: mm": 2.0, "search 1": 1.0, "search 2": 1.03}
    for module in (matmul, matmul_tensor):
        monkeypatch.setattr(module, "heat_up", lambda contestants, seconds: None)
        monkeypatch.setattr(
            module, "in_turns", lambda found, rounds, clock: {name: [times[name]] * rounds for name in found}
        )
    return SimpleNamespace(warm=False, device=SimpleNamespace(info=H200), builder=None, clock=None)


def test_a_run(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_tensor
    from matmul_tensor_cases import chosen

    cases = chosen("*@mma,tf32/*")
    given = matmul_tensor.parsed(["--output", str(tmp_path)])
    document = {**MACHINE, "date": "2026-01-01"}
    assert matmul_tensor.run(bench, cases, given, tmp_path / "home", document, 0.0) == (True, [])
    found = json.loads((tmp_path / "matmul_tensor.json").read_text())["cases"]
    assert [one["case"] for one in found] == [case.name for case in cases]
    assert found[0]["ratio"] == 2
    assert [one["met"] for one in found] == [True, False, True]
    assert found[0]["search"]["trials"] == 160
    assert {path.name for path in tmp_path.glob("*.json")} == {"matmul_tensor.json", "tuned.json", "tuned_mma.json"}

    def refuses(*anything: Any) -> Any:
        raise NotTuned("nothing is valid")

    monkeypatch.setattr(matmul_tensor, "loaded_from", refuses)
    given = matmul_tensor.parsed(["measure", "--output", str(tmp_path)])
    right, left = matmul_tensor.run(bench, cases[:1], given, tmp_path / "home", document, 0.0)
    assert (right, left) == (False, [])
    found = json.loads((tmp_path / "matmul_tensor.json").read_text())["cases"]
    assert (found[0]["error"], found[0]["search"]["trials"]) == ("NotTuned: nothing is valid", 160)
    assert found[1]["ratio"] == 2


def test_a_run_ends_with_its_budget(bench: Any, tmp_path: Path) -> None:
    import matmul_tensor
    from matmul_tensor_cases import chosen

    cases = chosen("tf32/*")
    given = matmul_tensor.parsed(["search", "--budget", "1s", "--output", str(tmp_path)])
    document = {**MACHINE, "date": "2026-01-01"}
    assert matmul_tensor.run(bench, cases, given, tmp_path, document, -1e9) == (True, cases)
    assert json.loads((tmp_path / "matmul_tensor.json").read_text())["cases"] == []


def test_the_same_search_again(bench: Any, tmp_path: Path) -> None:
    import matmul_tensor
    from matmul_tensor_cases import all_cases

    cases = [case for case in all_cases() if matmul_tensor.is_again(case)]
    assert [case.name for case in cases] == ["bfloat16/2048x2048x2048", "bfloat16/4096x4096x4096"]
    given = matmul_tensor.parsed(["again", "--again-seed", "7"])
    found = matmul_tensor.again(bench, cases[0], given, tmp_path)
    assert (found["search"]["seed"], found["met"]) == (7, False)
    assert found["apart"] == pytest.approx(0.03)
    assert os.environ["AUTOTILE_HOME"] == "unused"


def test_a_tier_has_a_home_of_its_own(tmp_path: Path) -> None:
    import matmul_tensor
    from matmul_tensor_cases import chosen

    (held,) = chosen("*@mma")
    (free,) = chosen("bfloat16/4096x4096x4096")
    assert matmul_tensor.store_of(tmp_path, held).root != matmul_tensor.store_of(tmp_path, free).root
    assert matmul_tensor.tuned_file(held) == "tuned_mma.json"


# ---- contestants ----------------------------------------------------------------------------------------------------


def test_a_tuned_kernel_gets_its_arrays() -> None:
    from matmul_contest import Operands
    from matmul_tensor_contest import tuned_call

    heard: list[Any] = []
    tuned: Any = lambda *arrays, out: heard.append((arrays, out))  # noqa: E731
    tuned_call(tuned, Operands("ab", "cd", "ef", ()))(1)
    tuned_call(tuned, Operands("ab", "cd", "ef", (), "gh"))(0)
    assert heard == [(("b", "d"), "f"), (("a", "c", "g"), "e")]


@pytest.mark.parametrize(
    ("dtype", "layout", "more"),
    [("bfloat16", "nn", ()), ("float16", "tt", ()), ("tf32", "nn", ()), ("float64", "tn", ()), ("int8", "nt", ()),
     ("bfloat16", "nn", ("bias", "gelu")), ("bfloat16", "nn", ("wide",)), ("float8_e4m3fn", "nt", ("wide",))],
)  # fmt: skip
def test_peers_multiply_what_is_stored(dtype: str, layout: str, more: tuple[str, ...]) -> None:
    pytest.importorskip("torch")
    from contest import without_those_that_fail
    from matmul_contest import make_operands
    from matmul_tensor_cases import TensorCase, judged
    from matmul_tensor_contest import errors_of, exact, peers

    case = TensorCase((32, 48, 64), dtype, layout, more)
    data = make_operands(case, "cpu")
    assert [str(array[0].dtype).removeprefix("torch.") for array in (data.a, data.c)] == [
        "float32" if dtype == "tf32" else dtype, case.result,
    ]  # fmt: skip
    notes: list[str] = []
    calls = without_those_that_fail(peers(case, data), notes)
    if not calls:
        pytest.skip(f"PyTorch has no such product on a CPU: {notes}")
    calls["autotile"] = lambda number: data.c[number].copy_(exact(case, data, number))
    calls["half"] = lambda number: (data.c[number][:16].copy_(exact(case, data, number)[:16]), data.c[number])[1]
    errors = errors_of(case, calls, data)
    for name in calls.keys() - {"half"}:
        assert judged(case, {"autotile": errors[name]})["right"], (name, errors)
    assert not judged(case, {"autotile": errors["half"]})["right"]
