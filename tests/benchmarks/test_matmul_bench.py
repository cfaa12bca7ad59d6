"""The matmul's benchmark as far as it needs no GPU: cases, ratios, runs that fail, what serves when left out."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotile.assets import config_path
from autotile.codegen import template_digest
from autotile.devices.cuda import Pointer
from autotile.devices.gpus import find_gpu
from autotile.errors import NotTuned, UsageError
from autotile.kernels import Input, Kernel, Output, Scalar, Scratch, Size, load_kernel
from autotile.report import export
from autotile.runtime.choose import DEFAULT, NEAR_PROBLEM, Choice
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Problem, Record

# ---- cases ----------------------------------------------------------------------------------------------------------


def test_what_is_asked_of_the_default_cases() -> None:
    from matmul_cases import MEAN_OF, cases_of

    cases = {case.label.removesuffix(" float32"): case.asked for case in cases_of("default", "")}
    assert len(cases) == 20
    assert len(MEAN_OF) == 16
    assert None not in cases.values()
    assert (cases["256x256x256"], cases["16x4096x4096"], cases["65536x128x128"]) == (1.6, 3.2, 1.15)
    assert [cases[f"4096x4096x4096{layout}"] for layout in ("", ":nt", ":tn", ":tt")] == [1.02, 1, 1, 1]
    assert {case.asked for case in cases_of("default", "float64")} == {None}


def test_shapes_layouts_and_types_that_are_asked_for() -> None:
    from matmul_cases import cases_of

    cases = cases_of("5x6x7:tn, 3x5x6x7:nt,1x5x6x7,5x6x7:nn", "float32,float64")
    assert [case.label for case in cases] == [
        "5x6x7:tn float32", "5x6x7:tn float64", "3x5x6x7:nt float32", "3x5x6x7:nt float64", "5x6x7 float32",
        "5x6x7 float64",
    ]  # fmt: skip
    turned, batched = cases[0], cases[3]
    assert turned.sizes == {"m": 5, "n": 6, "k": 7, "a_turned": True}
    assert turned.stored_shapes == ((7, 5), (7, 6), (5, 6))
    assert batched.sizes == {"m": 5, "n": 6, "k": 7, "batch": 3, "b_turned": True}
    assert batched.stored_shapes == ((3, 5, 7), (3, 6, 7), (3, 5, 6))
    assert batched.flops == 2 * 3 * 5 * 6 * 7
    assert batched.moved_bytes == 8 * 3 * (5 * 7 + 7 * 6 + 5 * 6)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [("64x64", "no shape"), ("4x4x4x4x4", "no shape"), ("0x4x4", "no shape"), ("", "no shape"), ("4x4x4nt", "no shape"),
     ("4x4x4:", "no layout ''"), ("4x4x4:ntn", "no layout 'ntn'"), ("4x4x4:TT", "no layout")],
)  # fmt: skip
def test_what_is_no_shape(shapes: str, said: str) -> None:
    from matmul_cases import cases_of

    with pytest.raises(UsageError, match=said):
        cases_of(shapes, "float32")
    with pytest.raises(UsageError, match="float23"):
        cases_of("4x4x4", "float23")


def test_rounds_are_fewer_where_launches_are_long() -> None:
    from matmul_cases import Case

    rounds = [Case((side, side, side), "float32").rounds for side in (256, 4096, 8192, 16384)]
    assert rounds == [101, 99, 21, 21]
    assert Case((4096, 11008, 4096), "float32").rounds % 2 == 1


def test_each_case_has_a_config() -> None:
    from matmul_cases import CONFIGS, Case, cases_of

    served: dict[str, set[str]] = {}
    for case in cases_of("default", ""):
        served.setdefault(case.config, set()).add(case.label.removesuffix(" float32"))
    assert set(served) == {name for name, _ in CONFIGS}
    assert served["matmul-skinny"] == {"8192x32x8192", "16x4096x4096", "1x4096x4096"}
    assert served["matmul-deep"] == {"128x128x65536"}
    assert served["matmul-small"] == {"256x256x256", "512x512x512", "1000x1000x1000", "1024x1024x1024", "511x513x1025"}
    assert config_path(Case((4096, 4096, 4096), "float32").config) is not None


def test_a_problem_is_a_case_again() -> None:
    from matmul_cases import Case, case_of

    problem = Problem("matmul", (("m", 5), ("n", 6), ("k", 7)), "float64", (("batch", 3),))
    assert case_of(problem) == Case((3, 5, 6, 7), "float64")
    assert case_of(replace(problem, options=())) == Case((5, 6, 7), "float64")
    with pytest.raises(UsageError, match="no plain product: a_pitch, offset"):
        case_of(replace(problem, options=(("a_pitch", 9), ("offset", 1))))

    class Turned(Problem):
        @property
        def asked(self) -> dict[str, int]:
            return {"m": 5, "n": 6, "k": 7, "b_turned": True}

    assert case_of(Turned("matmul", (), "float32")) == Case((5, 6, 7), "float32", "nt")


# ---- figures --------------------------------------------------------------------------------------------------------


def test_ratios_by_hand() -> None:
    """2·256³ FLOP and 3·256 KiB; autotile takes 2 µs and cuBLAS 3.2: just what is asked."""
    from matmul_cases import Case, compared

    case = Case((256, 256, 256), "float32")
    found = compared(case, {"autotile": 2e-3, "cublas": 3.2e-3, "cupy": 4e-3})
    assert found["ratio"] == pytest.approx(1.6)
    assert found["met"] is True
    assert found["times_as_fast_as"] == pytest.approx({"cublas": 1.6, "cupy": 2})
    assert found["tflops"]["autotile"] == pytest.approx(2 * 256**3 / 2e-6 / 1e12)
    assert found["gbs"]["cupy"] == pytest.approx(3 * 256 * 1024 / 4e-6 / 1e9)
    assert compared(case, {"autotile": 2e-3, "cublas": 3.1e-3})["met"] is False
    lonely = compared(case, {"autotile": 2e-3})
    assert (lonely["ratio"], lonely["met"]) == (None, False)
    assert compared(Case((5, 5, 5), "float32"), {"autotile": 1.0, "cublas": 9.0})["met"] is None


def entry_of(shape: tuple[int, ...], ratio: float | None, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", "layout": "nn", "ratio": ratio, "right": True, **more}


def test_the_geometric_mean_is_of_all_plain_cases() -> None:
    from matmul_cases import MEAN_OF, geometric_mean, mean_of

    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    entries = [entry_of(shape, 1.3) for shape in MEAN_OF]
    entries += [entry_of((4096, 4096, 4096), 99.0, layout="nt"), entry_of((256, 256, 256), 99.0, dtype="float64")]
    entries.append(entry_of((16, 512, 512, 512), 99.0))
    assert mean_of(entries) == {"cases": 16, "of": 16, "ratio": pytest.approx(1.3), "asked": 1.25, "met": True}
    entries[0] |= {"ratio": 1.3 / 2**16}
    assert mean_of(entries)["ratio"] == pytest.approx(0.65)
    assert mean_of(entries)["met"] is False
    for broken in ({"ratio": None}, {"right": False, "ratio": 1.3}, {"error": "no memory", "right": None}):
        found = mean_of([entries[0] | broken, *entries[1:]])
        assert (found["cases"], found["met"]) == (15, False)
    assert mean_of([])["ratio"] is None


def test_how_far_a_right_product_may_be_off() -> None:
    from matmul_cases import Case, error_limit

    assert error_limit(Case((9, 9, 4096), "float32")) == pytest.approx(4096 * 2.0**-24, rel=1e-3)
    assert error_limit(Case((9, 9, 4096), "float64")) == pytest.approx(2 * 4096 * 2.0**-53)
    assert error_limit(Case((9, 9, 64), "float16")) == pytest.approx(2.0**-11 + 64 * 2.0**-24, rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("layout", "batch"), [("nn", 1), ("nt", 1), ("tn", 1), ("tt", 3)])
def test_peers_multiply_what_is_stored(layout: str, batch: int, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from matmul_cases import cases_of, error_limit
    from matmul_contest import cublas_calls, errors_of, make_operands

    (case,) = cases_of(f"{batch}x5x6x7:{layout}", dtype)
    data = make_operands(case, "cpu")
    before = [array.clone() for array in (*data.a, *data.b)]
    assert [tuple(array[0].shape) for array in (data.a, data.b, data.c)] == list(case.stored_shapes)
    calls = cublas_calls(case, data)
    errors = errors_of(calls, data)
    assert all(off is not None and off <= error_limit(case) for off in errors.values())
    calls["half"] = lambda number: data.c[number][..., :3].copy_(torch.matmul(*data.factors[number])[..., :3])
    calls["off"] = lambda number: torch.add(torch.matmul(*data.factors[number]), number == 2, out=data.c[number])
    errors = errors_of(calls, data)
    assert errors["half"] is None
    assert errors["off"] is not None
    assert errors["off"] > error_limit(case)
    assert all(map(torch.equal, before, (*data.a, *data.b)))


class Array:
    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


@pytest.mark.parametrize("scratch", [None, Array(512)])
def test_a_variant_gets_its_arguments(monkeypatch: pytest.MonkeyPatch, scratch: Array | None) -> None:
    """Arrays by name, null for one that is not there, sizes, scalars in the sums' type, memory to work in."""
    import contest
    from matmul_contest import Operands, call_of

    arguments = (Scratch("work"), Input("a", ("m",)), Input("bias", ("m",)), Input("b", ("m",)), Output("c", ("m",)),
                 Size("m"), Scalar("alpha", 1.5))  # fmt: skip
    kernel = SimpleNamespace(arguments=arguments, sizes_of=lambda problem: {"m": 7})
    launch = SimpleNamespace(scratch_bytes=24)
    asked: list[int] = []
    monkeypatch.setattr(contest, "load_kernel", lambda name: kernel)
    monkeypatch.setattr(contest, "make_variant", lambda *of: SimpleNamespace(source="text", launch=launch))

    def memory(nbytes: int) -> Any:
        asked.append(nbytes)
        return scratch

    monkeypatch.setattr(contest, "scratch_memory", memory)
    given: list[Any] = []
    device = SimpleNamespace(load=lambda binary: binary, call=lambda *of: given.append(of))
    builder: Any = SimpleNamespace(build=lambda source: f"binary of {source}")
    a, b, c = ([Array(base + number) for number in range(3)] for base in (10, 20, 30))
    data = Operands(a, b, c, factors=())
    problem, configuration = Problem("matmul", (("m", 7),), "float64"), MATMUL.configuration()
    call_of(device, builder, problem, configuration, data)(2)
    ((program, how, passed, stream),) = given
    assert (program, how, stream, asked) == ("binary of text", launch, 0, [24])
    assert passed == [scratch, Pointer(12), None, Pointer(22), Pointer(32), 7, np.float64(1.5)]
    assert type(passed[-1]) is np.float64


# ---- the runs -------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_each_case(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul
    from matmul_cases import cases_of

    monkeypatch.setattr(sys, "argv", ["matmul.py", "--dry-run", "--shapes", "4096x4096x4096,64x64x64", "--dtypes", ""])
    matmul.main()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("4096x4096x4096 float32 (m4096-n4096-k4096-float32): 137 GFLOP, 683 a byte, 0.56 GiB")
    assert first.endswith("99 launches each; config matmul; asked 1.02")
    assert second.endswith("nothing asked")
    (refused,) = matmul.planned([replace(cases_of("8x8x8", "float32")[0], dtype="int8")])
    assert refused.startswith("8x8x8 int8: the kernel does not take it: ")


def test_a_case_that_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import matmul
    from matmul_cases import cases_of

    (case,) = cases_of("8x8x8", "float32")
    freed: list[bool] = []
    torch = SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: freed.append(True)))
    monkeypatch.setitem(sys.modules, "torch", torch)

    def raising(fault: Exception) -> Any:
        raise fault

    for fault in (RuntimeError("CUDA out of memory"), NotTuned("nothing fits"), ValueError("no such stream")):
        monkeypatch.setattr(matmul, "load", lambda case, fault=fault: raising(fault))
        bench: Any = None
        entry = matmul.about(case) | matmul.guarded(bench, case, argparse.Namespace(search=False), tmp_path)
        assert entry["error"] == f"{type(fault).__name__}: {fault}"
        assert matmul.said(entry) == f"failed: {entry['error']}"
    assert freed == [True] * 3


def test_a_run_without_a_gpus_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster way to cuBLAS counts, and a peer that refuses is noted."""
    import matmul
    from matmul_cases import cases_of

    (case,) = cases_of("256x256x256", "float32")
    times = {"autotile": 2.0, "cublas: mm": 5.0, "cublas: addmm": 4.0}

    def refuses(number: int) -> None:
        raise ValueError("no such dtype")

    made = {name: (lambda number: None) for name in times} | {"cupy": refuses}
    monkeypatch.setattr(matmul, "make_operands", lambda case: None)
    monkeypatch.setattr(matmul, "call_of", lambda *anything: made["autotile"])
    monkeypatch.setattr(matmul, "peers", lambda case, data: {name: made[name] for name in made if name != "autotile"})
    monkeypatch.setattr(matmul, "heat_up", lambda contestants, seconds: None)
    monkeypatch.setattr(
        matmul, "in_turns", lambda found, rounds, clock: {name: [times[name]] * rounds for name in found}
    )
    monkeypatch.setattr(matmul, "errors_of", lambda calls, data: dict.fromkeys(calls, 1e-6))
    tuned: Any = SimpleNamespace(config={"block_m": 64}, problem=None)
    bench: Any = SimpleNamespace(warm=False, device=None, builder=None, clock=None)
    entry = matmul.contested(bench, case, tuned)
    assert entry["times_ms"] == {"autotile": 2, "cublas": 4}
    assert (entry["ratio"], entry["cublas_way"], entry["right"], entry["met"]) == (2, "addmm", True, True)
    assert set(entry["errors"]) == {"autotile", "cublas"}
    assert entry["notes"] == ["cupy does not take this case: ValueError: no such dtype"]
    assert entry["figures"]["cublas: mm"]["runs"] == case.rounds
    json.dumps(entry, allow_nan=False)
    monkeypatch.setattr(matmul, "errors_of", lambda calls, data: {"autotile": None, "cublas": 1e-6})
    assert matmul.contested(bench, case, tuned)["right"] is False
    monkeypatch.setattr(matmul, "errors_of", lambda calls, data: {"autotile": 1e-4, "cublas": 1e-6})
    assert matmul.contested(bench, case, tuned)["right"] is False  # 256 terms: 1.5e-5 at most


# ---- nearness -------------------------------------------------------------------------------------------------------

MOVED = load_kernel("moved", [Path(__file__).parents[1] / "data" / "kernels"])
MATMUL = load_kernel("matmul")
GPU = replace(find_gpu("h200"), driver="570", estimated=False)


def tuned(
    kernel: Kernel, sizes: dict[str, int], device: str = GPU.name, extra: Any = (PROVEN,), time_ms: float = 1.0,
    **parameters: int,
) -> Record:  # fmt: skip
    """A proven best on a GPU."""
    return Record(
        kernel.problem(sizes, "float32"),
        kernel.configuration(parameters),
        Identity(device, "sm_90", "570", "nvcc 13.0", template_digest(kernel), SCHEMA_VERSION, False),
        "ok",
        measurement=Measurement(time_ms, time_ms, 0.0, 9),
        created="2025-06-01T12:00:00+00:00",
        extra=extra,
    )


def moved(side: int, width: int, **more: Any) -> Record:
    return tuned(MOVED, {"rows": side, "cols": side}, width=width, **more)


def multiplied(side: int, **more: Any) -> Record:
    return tuned(MATMUL, {"m": side, "n": side, "k": side}, **more)


def test_what_serves_a_problem_whose_record_is_taken_away() -> None:
    """The nearest of the others, never its own; the kernel's default where there is no other."""
    from matmul_nearness import about, left_out_each, tuned_on

    records = [moved(1024, 32), moved(2048, 64), moved(8192, 256), moved(8192, 32, device="Other GPU")]
    records += [moved(1024, 256, extra=()), moved(8192, 64, time_ms=2.0)]  # not proven; slower than the other
    here = tuned_on(records, GPU.name)
    assert [record.configuration["width"] for record in here] == [32, 64, 256]
    template = template_digest(MOVED)
    found = left_out_each(MOVED, here, GPU, template)
    assert [choice and choice.configuration["width"] for _, choice in found] == [64, 32, 64]
    assert {choice.match for _, choice in found if choice} == {NEAR_PROBLEM}
    entry = about(*found[2])
    assert (entry["problem"], entry["served_by"]) == ("8192×8192 float32", "2048×2048 float32")
    assert entry["same"] is False
    ((record, choice),) = left_out_each(MOVED, here[:1], GPU, template)
    assert choice is not None
    assert (choice.match, choice.configuration) == (DEFAULT, MOVED.configuration())
    assert about(record, choice)["served_by"] == "the kernel's default"
    assert about(record, None)["served"] is None


def test_only_plain_products_are_timed() -> None:
    from matmul_nearness import plain

    record = multiplied(64)
    odd = replace(record, problem=replace(record.problem, options=(("offset", 1),)))
    assert plain([(odd, None), (record, None)]) == [(record, None)]


def test_how_much_slower_in_the_mean() -> None:
    from matmul_nearness import totals

    entries: list[dict[str, Any]] = [
        {"slower": 0.2, "match": NEAR_PROBLEM},
        {"slower": -0.1, "match": DEFAULT},
        {"match": None},
    ]
    found = totals(entries)
    assert (found["counted"], found["mean_slower"], found["most_slower"]) == (2, 0.1, 0.2)
    assert (found["met"], found["by_default"]) == (True, 1)
    assert totals([{"slower": 0.21, "match": None}, {"slower": 0.0, "match": None}])["met"] is False
    assert totals([])["met"] is False


def test_nearness_goes_on_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    import matmul_nearness

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None)))
    monkeypatch.setattr(matmul_nearness, "make_operands", lambda case: math.sqrt(-1))
    record, faults = multiplied(1024), dict[str, str]()
    bench: Any = SimpleNamespace()
    assert matmul_nearness.guarded(bench, record.problem, {"own": record.configuration}, faults) == {}
    assert faults[record.problem.key].startswith("ValueError")


def test_what_a_choice_costs_by_the_table_of_times() -> None:
    from matmul_nearness import BY_DEFAULT, judged

    record, other = multiplied(1024), multiplied(512)
    key = record.problem.key
    document = {
        "times_ms": {key: {key: 2.0, other.problem.key: 3.0, BY_DEFAULT: 5.0}},
        "faults": {f"{key} {multiplied(64).problem.key}": "the error is 1"},
    }
    near = Choice(other.configuration, NEAR_PROBLEM, other)
    assert judged(document, record, near) == {
        "times_ms": {"own": 2.0, "left_out": 3.0}, "slower": 0.5, "right": True,
    }  # fmt: skip
    assert judged(document, record, Choice(record.configuration, DEFAULT, None))["slower"] == 1.5
    assert "nothing serves" in judged(document, record, None)["error"]
    wrong = Choice(other.configuration, NEAR_PROBLEM, multiplied(64))
    assert judged(document, record, wrong) == {"error": "the error is 1"}
    assert judged({"times_ms": {}, "faults": {}}, record, near) == {"error": "it was not timed"}


def test_a_dry_run_of_nearness(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import matmul_nearness

    path = tmp_path / "tuned.json"
    records = [multiplied(1024), multiplied(2048), multiplied(64, device="Unheard-of GPU")]
    records.append(tuned(load_kernel("transpose"), {"rows": 64, "cols": 64}))
    export(records, "json", path, load_kernel)
    monkeypatch.setenv("AUTOTILE_HOME", "unused")  # main sets it, and this puts it back
    monkeypatch.setattr(
        sys, "argv", ["matmul_nearness.py", "--dry-run", "--records", str(path), "--home", str(tmp_path)]
    )
    matmul_nearness.main()
    lines = capsys.readouterr().out.splitlines()
    assert f"{GPU.name}: 1024×1024×1024 float32 is served by 2048×2048×2048 float32" in lines
    assert f"{GPU.name}: 2048×2048×2048 float32 is served by 1024×1024×1024 float32" in lines
    assert any(line.startswith("Unheard-of GPU: ") and "not in the table" in line for line in lines)
    assert len(lines) == 3
