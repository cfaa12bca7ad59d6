"""One name for two kernel folders, on the command line and from Python: the device and the dtype decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.cli import main
from autotile.codegen import template_digest
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import SpecError, UsageError
from autotile.insight.machine import Machine
from autotile.kernels import Kernel, load_kernel
from autotile.report import export
from autotile.runtime.notes import AutotileWarning
from autotile.spec import load_specs
from autotile.store import MemoryStore, Store
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Record

PUBLIC = Path(__file__).parents[1] / "data" / "public"
COPIED, FAST = load_kernel("copied", PUBLIC), load_kernel("copied_fast", PUBLIC)
A100, T4 = "emulator:a100", "emulator:t4"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit code, and what it wrote to stdout and to stderr; it knows the toys."""

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([*map(str, arguments), "--templates", str(PUBLIC)])
        found = capsys.readouterr()
        return int(left.value.code or 0), found.out, found.err

    return command


def search_file(tmp_path: Path, *dtypes: str, more: str = "", kernel: str = "copied") -> Path:
    problems = "\n".join(f"  - {{n: 70, dtype: {dtype}}}" for dtype in dtypes)
    path = tmp_path / "s.yaml"
    path.write_text(f"kernel: {kernel}\nproblems:\n{problems}\nsearch: {{sampler: grid, trials: 1}}\n{more}")
    return path


def tuned(kernel: Kernel, dtype: str, n: int = 70, gpu: str = "a100-40gb") -> Record:
    """Proven on the emulator."""
    info = EmulatorDevice(gpu).info
    return Record(
        kernel.problem({"n": n}, dtype),
        kernel.configuration(),
        Identity(info.name, info.arch, info.driver, "g++ 13", template_digest(kernel), SCHEMA_VERSION, True),
        "ok",
        measurement=Measurement(0.25, 0.24, 0.01, 15, estimated=True),
        created="2025-06-01T12:00:00+00:00",
        extra=(PROVEN,),
    )


# ---- search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "device", "wanted"),
    [("float64", A100, "copied_fast"), ("float64", T4, "copied"), ("float32", A100, "copied")],
)
def test_dry_run(run: Run, tmp_path: Path, dtype: str, device: str, wanted: str) -> None:
    code, out, err = run("search", search_file(tmp_path, dtype), "--device", device, "--dry-run")
    assert (code, err) == (0, "")
    assert out.startswith(f"{wanted} 70 {dtype} on emulated ")
    assert f"{wanted}(" in out


def test_auto_decides_too(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotile.devices import cuda
    from autotile.errors import DeviceNotFound

    def none(number: int) -> None:
        raise DeviceNotFound("no GPU today")

    monkeypatch.setattr(cuda, "open_cuda", none)
    code, out, err = run("search", search_file(tmp_path, "float64"), "--dry-run")
    assert (code, err.count("no GPU today")) == (0, 1)
    assert out.startswith("copied_fast 70 float64 on emulated NVIDIA H200")


def test_problems_and_parameters_given_on_the_line_are_of_the_kernel_that_serves(run: Run, tmp_path: Path) -> None:
    command = ["search", search_file(tmp_path, "float32"), "--dry-run", "--device", A100]
    code, out, _ = run(*command, "--problem", "n=9, dtype=int32", "--set", "parameters.each=[2]")
    assert code == 0
    assert out.startswith("copied_fast 9 int32 on emulated NVIDIA A100")
    assert "1 of 1 configurations" in out
    code, _, err = run(*command, "--problem", "n=9, dtype=int32", "--set", "parameters.width=[32]")
    assert code == 2
    assert "copied_fast has no parameter 'width'" in err
    assert "copied int32 is the kernel copied_fast, whose parameters count)" in err


def test_points_and_presets_are_of_the_kernel_that_serves(tmp_path: Path) -> None:
    def info() -> Any:
        return EmulatorDevice("a100-40gb").info

    (spec,) = load_specs(search_file(tmp_path, "float64", more="points: [two]\n"), (), PUBLIC, (), info)
    assert (spec.kernel.name, dict(spec.points["two"]), spec.asked_as) == ("copied_fast", {"each": 2}, "copied")
    with pytest.raises(SpecError, match=r"s\.yaml:5:10: copied_fast has no preset 'narrow'.*it has two \(on emulated"):
        load_specs(search_file(tmp_path, "float64", more="points: [narrow]\n"), (), PUBLIC, (), info)
    (spec,) = load_specs(search_file(tmp_path, "float64", more="points: [narrow]\n"), (), PUBLIC)
    assert spec.kernel.name == "copied"  # without a device, a name means its folder


def test_a_search_is_of_one_kernel(run: Run, tmp_path: Path) -> None:
    file = search_file(tmp_path, "float32", "float64")
    code, out, err = run("search", file, "--device", A100, "--dry-run")
    assert (code, out) == (2, "")
    assert "s.yaml:4:5: a search is of one kernel, and on emulated NVIDIA A100" in err
    assert "copied float32 is the kernel copied, copied float64 the kernel copied_fast: give each" in err
    assert run("search", file, "--device", T4, "--dry-run")[0] == 0
    problems = ["--problem", "n=1", "--problem", "n=1, dtype=int32"]
    assert "on the command line, a run for each" in run("search", file, "--device", A100, *problems)[2]


def test_a_file_of_both_as_two_documents(run: Run, tmp_path: Path) -> None:
    file = search_file(tmp_path, "float32")
    file.write_text(f"{file.read_text()}---\n{file.read_text().replace('float32', 'int32')}")
    code, out, _ = run("search", file, "--device", A100, "--dry-run", "--json", "-")
    assert code == 0
    assert [space["kernel"] for space in json.loads(out)["spaces"]] == ["copied", "copied_fast"]


def test_what_no_folder_serves_there(run: Run, tmp_path: Path) -> None:
    code, _, err = run("search", search_file(tmp_path, "int32"), "--device", T4, "--dry-run")
    assert code == 2
    assert "s.yaml:3:20: copied int32 is served by the kernel copied_fast, where" in err
    code, _, err = run("search", search_file(tmp_path, "float16"), "--device", T4, "--dry-run")
    assert "copied has no dtype 'float16'" in err
    assert "; it has float32, float64 (kernel copied); int32, float64 (kernel copied_fast)" in err


def test_a_fault_of_the_file_comes_before_the_device(run: Run, tmp_path: Path) -> None:
    code, _, err = run("search", search_file(tmp_path, "float32", kernel="copies"), "--device", "cuda:99")
    assert code == 2
    assert "did you mean 'copied'?" in err


def test_from_the_search_to_the_loaded_kernel(run: Run, tmp_path: Path) -> None:
    """The printed line has the public name; the record is the other folder's."""
    code, out, err = run("search", search_file(tmp_path, "int32"), "--device", A100)
    assert code == 0, err
    (line,) = (line.strip() for line in out.splitlines() if "autotile.load(" in line)
    assert line.startswith('copied = autotile.load("copied", n=70, dtype="int32", device="emulator:a100"')
    assert [record.problem.kernel for record in Store().bests()] == ["copied_fast"]
    names: dict[str, Any] = {"autotile": autotile}
    exec(line, names)
    assert names["copied"].match == "exact"
    given = np.arange(70, dtype=np.int32)
    np.testing.assert_array_equal(names["copied"](given), given)
    code, out, err = run("verify", "--device", A100, "--kernel", "copied")
    assert (code, out.split()[:2]) == (0, ["ok", "copied_fast"]), err


def test_a_file_that_names_the_other_folder_outright(run: Run, tmp_path: Path) -> None:
    code, out, err = run("search", search_file(tmp_path, "float32", kernel="copied_fast"), "--device", T4)
    assert code == 0, err
    assert 'copied_fast = autotile.load("copied_fast", n=70, dtype="float32"' in out


# ---- load -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning")
@pytest.mark.parametrize(
    ("name", "dtype", "device", "wanted"),
    [
        ("copied", np.int32, A100, "copied_fast"),
        ("copied", None, A100, "copied"),
        ("copied", "float64", T4, "copied"),
        ("copied_fast", "float32", T4, "copied_fast"),
    ],
)
def test_load(name: str, dtype: Any, device: str, wanted: str) -> None:
    loaded = autotile.load(name, n=70, dtype=dtype, device=device, templates=PUBLIC, store=MemoryStore())
    assert loaded.problem.kernel == wanted


def test_load_of_what_no_folder_serves_there() -> None:
    with pytest.raises(UsageError, match="copied int32 is served by the kernel copied_fast, where"):
        autotile.load("copied", n=70, dtype="int32", device=T4, templates=PUBLIC)


def test_records_are_found_for_the_kernel_that_serves(shipped: Path) -> None:
    export([tuned(FAST, "float64")], "json", shipped / "a100.json", lambda name: FAST)
    Store().save_best(tuned(COPIED, "float64"))
    loaded = autotile.load("copied", n=70, dtype="float64", device=A100, templates=PUBLIC)
    assert (loaded.match, loaded.problem.kernel) == ("exact", "copied_fast")


def test_what_was_tuned_for_the_public_kernel_before_is_told_of() -> None:
    store = MemoryStore()
    store.save_best(tuned(COPIED, "float64", n=71))
    with pytest.warns(AutotileWarning, match="what was tuned for the kernel copied does not serve here any more"):
        loaded = autotile.load("copied", n=71, dtype="float64", device=A100, templates=PUBLIC, store=store)
    assert loaded.match == "default"
    with pytest.warns(AutotileWarning) as said:
        autotile.load("copied", n=72, dtype="float64", device=A100, templates=PUBLIC, store=store)
    assert not any("any more" in str(one.message) for one in said)


# ---- what there is --------------------------------------------------------------------------------------------------


def test_render(run: Run) -> None:
    def first(*more: str) -> str:
        code, out, _ = run("render", "copied", "--problem", "n=70", *more)
        assert code == 0
        return out.splitlines()[0]

    assert "copied_fast(const int*" in first("--dtype", "int32", "--preset", "two")
    assert "copied(const double*" in first("--dtype", "float64", "--device", "t4")
    assert "copied(const float*" in first("--device", A100)
    code, _, err = run("render", "copied", "--dtype", "int32", "--device", "v100")
    assert code == 2
    assert "Tesla V100-SXM2-16GB (compute capability 70) is no such GPU" in err


def test_explain(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotile.insight.explain.read_machine", lambda *given: Machine())
    command = ["explain", "copied", "--problem", "n=640, dtype=float64", "--no-changes", "--device"]
    for device, wanted in (("a100-40gb", "copied_fast"), ("t4", "copied")):
        code, out, err = run(*command, device)
        assert code == 0, err
        assert out.startswith(f"{wanted} 640 float64 on ")
    why = autotile.explain("copied", n=640, dtype="int32", preset="two", device="h200", changes=False, templates=PUBLIC)
    assert str(why).startswith("copied_fast 640 int32")


def test_show_and_list(run: Run) -> None:
    for record in (tuned(COPIED, "float32"), tuned(FAST, "float64")):
        Store().append(record)
        Store().save_best(record)
    code, out, _ = run("show", "copied")
    words = " ".join(out.split())
    assert code == 0
    assert "copied_fast int32 float64 where problem.dtype in ('int32', 'float64') and" in words
    assert "80 several elements a thread" in words
    assert "of copied records" in words
    assert "of copied_fast records emulated NVIDIA A100-SXM4-40GB, 70 float64: 1 ok; best" in words
    assert "of copied" not in " ".join(run("show", "copied_fast")[1].split())
    found = json.loads(run("show", "copied", "--json", "-")[1])
    assert [record["kernel"] for record in found["records"]] == ["copied", "copied_fast"]
    assert [(one["kernel"], one["dtypes"]) for one in found["instead"]] == [("copied_fast", ["int32", "float64"])]
    assert "copied_fast serves in its place where problem.dtype in" in run("list")[1]
    assert list(json.loads(run("list", "--json", "-")[1])["instead"]) == ["matmul", "copied"]


def test_export_and_import(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotile.codegen import render

    for kernel in (COPIED, FAST, load_kernel("transpose")):
        problem = kernel.problem(dict.fromkeys(kernel.dimensions, 70))
        template = template_digest(kernel)
        record = replace(tuned(COPIED, "float32"), problem=problem, configuration=kernel.configuration())
        digest = render(kernel, problem, kernel.configuration()).digest
        record = replace(record, identity=replace(record.identity, template=template), source_digest=digest)
        Store().append(record)
        Store().save_best(record)
    file = tmp_path / "out.json"
    assert run("export", "--kernel", "copied", "-o", file)[0] == 0
    kernels = {one["kernel"] for device in json.loads(file.read_text())["devices"] for one in device["records"]}
    assert kernels == {"copied", "copied_fast"}
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "home"))
    code, out, err = run("import", file)
    assert (code, out) == (0, "2 imported, 0 already there, 0 refused\n"), err
    assert [record.problem.kernel for record in Store().bests()] == ["copied", "copied_fast"]
    assert run("export", "--kernel", "copied_fast", "--format", "csv")[1].count("copied_fast") == 1
