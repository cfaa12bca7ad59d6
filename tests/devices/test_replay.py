"""A replay answers what was recorded, whoever recorded it, and leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.cli import main
from autotile.codegen import render, template_digest
from autotile.devices.replay.device import ReplayDevice, open_replay
from autotile.devices.replay.recording import Recording, read_recording
from autotile.devices.select import open_device
from autotile.errors import ConfigurationError, EnvironmentalError, ToolchainMissing, UsageError
from autotile.kernels import load_kernel
from autotile.measure.replayed import ReplayBench
from autotile.spec import load_specs
from autotile.store import MemoryStore, Store
from autotile.tuner import SearchResult, search_all
from autotile.tuner.replayed import recorded_spec
from autotile.types import OK, Identity, Measurement, Record

DATA = Path(__file__).parents[1] / "data"
CACHE, T4 = DATA / "replay" / "convolution_A100.json", DATA / "replay" / "convolution_A100.T4.json"
TOYS = DATA / "kernels"

Run = Callable[..., tuple[int, str, str]]


def entry(time: Any, compile_ms: float = 100.0, **values: Any) -> dict[str, Any]:
    """One evaluation as a cache file has it; it cost 1 ms, 2 ms, … in each phase beside compiling."""
    phases = ("verification_time", "benchmark_time", "strategy_time", "framework_time")
    costs = {phase: float(number) for number, phase in enumerate(phases, 1)}
    return {**values, "time": time, "compile_time": compile_ms, **costs}


def cache(entries: list[dict[str, Any]], **domains: list[Any]) -> dict[str, Any]:
    return {
        "device_name": "NVIDIA GeForce RTX 3090",
        "kernel_name": "fold",
        "problem_size": [64, 32],
        "tune_params_keys": list(domains),
        "tune_params": domains,
        "cache": {",".join(str(found[name]) for name in domains): found for found in entries},
    }


TINY = cache(
    [
        entry(2.0, a=1, b=4),
        entry(4.0, a=1, b=2),
        entry("CompilationFailedConfig", a=2, b=2),
        entry("RuntimeFailedConfig", a=2, b=4),
        entry(1.5, a=4, b=2),
        entry("InvalidConfig", a=4, b=4),
    ],
    a=[1, 2, 4, 8],
    b=[2, 4],
)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return written(tmp_path / "tiny.json", TINY)


def written(path: Path, document: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def replayed(path: Path, *overrides: str) -> SearchResult:
    device = open_replay(path)
    (result,) = search_all([recorded_spec(device.recording, overrides)], device, MemoryStore())
    return result


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        found = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, found.out, found.err

    return command


def home_is_empty() -> bool:
    return not any(Path(os.environ["AUTOTILE_HOME"]).iterdir())


# ---- recordings ----------------------------------------------------------------------------------------------------


def test_a_cache_file_says_what_each_evaluation_gave_and_cost(tiny: Path) -> None:
    recording = read_recording(tiny)
    assert (recording.kernel, recording.device, recording.problem) == ("fold", "NVIDIA GeForce RTX 3090", "64×32")
    assert recording.names == ("a", "b")
    assert recording.domains == ((1, 2, 4, 8), (2, 4))
    assert recording.codes.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert recording.outcomes == (OK, OK, "compile_error", "launch_error", OK, "launch_error")
    assert np.array_equal(recording.time_ms, [4.0, 2.0, np.nan, np.nan, 1.5, np.nan], equal_nan=True)
    assert recording.compile_ms.tolist() == [100.0] * 6
    assert recording.other_ms.tolist() == [1.0 + 2 + 3 + 4] * 6
    assert recording.row_of({"b": 2, "a": 4}) == 4
    assert recording.row_of({"a": 8, "b": 2}) is None
    assert recording.row_of({"a": True, "b": 2}) is None  # true is no 1


def test_one_search_as_cache_file_and_as_t4_is_one_recording() -> None:
    """Beside what T4 does not say: kernel, device, problem, and what timing cost apart from the launches."""
    one, other = read_recording(CACHE), read_recording(T4)
    assert len(one) == len(other) == 60
    assert one.names == other.names
    assert [one.configuration(row) for row in range(60)] == [other.configuration(row) for row in range(60)]
    assert one.outcomes == other.outcomes
    assert {"compile_error", "launch_error"} < set(one.outcomes)
    assert np.array_equal(one.time_ms, other.time_ms, equal_nan=True)
    assert np.array_equal(one.compile_ms, other.compile_ms)
    assert (other.other_ms > 0).all()
    assert (other.other_ms <= one.other_ms).all()


def test_a_gzipped_file_is_read_whatever_its_name(tiny: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(tiny.read_bytes()))
    assert read_recording(packed).outcomes == read_recording(tiny).outcomes


@pytest.mark.parametrize(("cut", "rows"), [("}}", 6), ("}", 6), (', "framework_time": 4.0}}}', 5)])
def test_a_cache_file_without_its_end_is_mended(tmp_path: Path, cut: str, rows: int) -> None:
    text = json.dumps(TINY)
    assert text.endswith(cut)
    for ending in ("", ",", ",\n"):
        if ending and cut != "}}":
            continue  # a file under way ends in a comma after an entry
        recording = read_recording(written(tmp_path / "torn.json", text.removesuffix(cut) + ending))
        assert len(recording) == rows
        assert bool(recording.torn) == (rows < 6)


def test_values_become_what_a_parameter_can_hold(tmp_path: Path) -> None:
    entries = [
        entry(1.0, whole=16.0, share=0.5, order="row", flag=True, offset=-1),
        entry(2.0, whole=32.0, share=1.0, order="col", flag=False, offset=1),
    ]
    document = cache(entries, whole=[16, 32], share=[], order=["row", "col"], flag=[False, True], offset=[-1, 1])
    recording = read_recording(written(tmp_path / "values.json", document))
    assert recording.domains == ((16, 32), ("0.5", "1"), ("row", "col"), (False, True), ("-1", "1"))
    assert replayed(recording.path).best is not None


def test_of_a_configuration_evaluated_twice_the_last_counts(tmp_path: Path) -> None:
    document = cache([entry(1.0, a=1), entry(3.0, a=2)], a=[1, 2])
    document["cache"]["again"] = entry(2.0, a=1)
    assert read_recording(written(tmp_path / "twice.json", document)).time_ms.tolist() == [2.0, 3.0]


def test_t4_times_come_in_the_unit_that_the_file_names(tmp_path: Path) -> None:
    document = json.loads(T4.read_text())
    document["metadata"]["timeunit"] = "seconds"
    in_s = read_recording(written(tmp_path / "s.json", document))
    assert np.allclose(in_s.time_ms, read_recording(T4).time_ms * 1e3, equal_nan=True)
    assert np.allclose(in_s.cost_ms, read_recording(T4).cost_ms * 1e3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "looked for a Kernel Tuner cache file"),
        ("kernel: matmul", "looked for a Kernel Tuner cache file"),
        ("[1, 2]", "looked for a Kernel Tuner cache file"),
        ('{"results": [], "schema_version": "2.0.0"}', "T4 file of version 2.0.0"),
        ('{"results": [], "schema_version": "1.0.0", "metadata": {"timeunit": "fortnights"}}', "'fortnights' is unkn"),
        ('{"results": [{"times": {}}], "schema_version": "1.0.0", "metadata": {}}', "result 1 lacks configuration"),
        ('{"tune_params_keys": ["a"], "cache": {}}', "no evaluation"),
        ('{"tune_params_keys": ["a"], "cache": {"1": {"a": 1}}}', "'1' lacks time"),
        ('{"tune_params_keys": ["a"], "cache": {"1": {"a"', "torn beyond its last entry"),
        ('{"devices": []}', "no records"),
    ],
)
def test_a_file_of_no_known_form_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = written(tmp_path / "file.json", text)
    with pytest.raises(UsageError, match=why) as refused:
        read_recording(path)
    assert str(path) in str(refused.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_recording(tmp_path / "missing.json")
    torn = tmp_path / "torn.json.gz"
    torn.write_bytes(gzip.compress(tiny.read_bytes())[:-20])
    with pytest.raises(UsageError, match="gzip file is damaged"):
        read_recording(torn)
    torn.write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(UsageError, match="not text"):
        read_recording(torn)


# ---- the device, and searches on it ---------------------------------------------------------------------------------


def test_the_device_has_the_recorded_gpus_name_and_limits_and_runs_nothing(tiny: Path, tmp_path: Path) -> None:
    device = open_device(f"replay:{tiny}")
    assert isinstance(device, ReplayDevice)
    info = device.info
    assert info.name == "replayed NVIDIA GeForce RTX 3090"
    assert info.kind == "replay"
    assert info.estimated
    assert (info.arch, info.sm_count) == ("sm_86", 82)
    with pytest.raises(EnvironmentalError, match="runs nothing"):
        device.call(None, None, [])  # type: ignore[arg-type]
    unnamed = open_replay(written(tmp_path / "u.json", {**TINY, "device_name": ""})).info
    assert unnamed.name == "replayed unnamed GPU"
    assert unnamed.shared_bytes_optin >= info.shared_bytes_optin
    for name in ("replay", "replay:"):
        with pytest.raises(UsageError, match="comes a file of recorded times"):
            open_device(name)


@pytest.mark.parametrize("sampler", ["model", "tpe", "random", "grid"])
def test_an_exhausted_search_finds_the_optimum_and_records_failures(tiny: Path, sampler: str) -> None:
    result = replayed(tiny, f"search.sampler={sampler}")
    assert result.stopped_by == "exhausted"
    assert (result.space_size, result.space_total) == (6, 8)
    assert result.outcomes == {OK: 3, "compile_error": 1, "launch_error": 2}
    assert result.best is not None
    assert dict(result.best.configuration) == {"a": 4, "b": 2}
    assert result.best.time_ms == 1.5
    assert not result.best.proven
    assert {record.message for record in result.records if not record.ok} == {
        "CompilationFailedConfig",
        "RuntimeFailedConfig",
        "InvalidConfig",
    }
    assert result.phases.total_s == pytest.approx(6 * 0.110)
    assert home_is_empty()


def test_one_seed_gives_one_search() -> None:
    def tried() -> list[tuple[Any, float]]:
        records = replayed(CACHE, "search.trials=25", "search.seed=3").records
        return [(record.configuration, record.time_ms) for record in records]

    assert len(tried()) == 25
    assert tried() == tried()


def test_a_failure_costs_what_it_cost_when_it_was_recorded() -> None:
    recording = read_recording(CACHE)
    records = replayed(CACHE).records
    failed = [record for record in records if not record.ok]
    assert failed
    for record in failed:
        row = recording.row_with(record.configuration.values())
        assert row is not None
        assert record.check_s == pytest.approx(recording.cost_ms[row] / 1e3)


def test_a_limit_of_time_is_of_the_recorded_time(tiny: Path) -> None:
    result = replayed(tiny, "search.time=200ms", "search.sampler=grid")
    assert result.stopped_by == "time"
    assert len(result.records) >= 2
    assert len(result.records) < 6


def test_nothing_reaches_the_callers_store(tiny: Path) -> None:
    device, store = open_replay(tiny), MemoryStore()
    search_all([recorded_spec(device.recording)], device, store)
    assert not store.records()
    assert not store.bests()


def test_names_that_a_template_cannot_have_are_changed(tmp_path: Path) -> None:
    names = {"for": [1, 2], "threads": [1], "a-b": [1], "a_b": [1]}
    document = cache([entry(1.0, **{"for": 1, "threads": 1, "a-b": 1, "a_b": 1})], **names)
    result = replayed(written(tmp_path / "names.json", {**document, "problem_size": "n"}))
    assert result.best is not None
    assert len(set(result.best.configuration)) == 4


def test_a_recording_is_searched_by_its_name(tiny: Path, run: Run) -> None:
    code, out, err = run("search", tiny, "--set", "parameters.a=[1,2]")
    assert code == 0
    assert home_is_empty()
    assert "6 evaluations (3 failed), recorded on NVIDIA GeForce RTX 3090" in err
    assert "best: 2 ms" in out
    assert "1.333 times the best of the recording, 1.5 ms" in out
    assert "Nothing was run, and nothing is saved" in out
    assert "took 0.4 s when they were recorded" in out
    assert "autotile.load" not in out
    assert run("search", tiny, "--device", f"replay:{tiny}")[0] == 0
    code, _, err = run("search", tiny, "--device", "emulator")
    assert code == 2
    assert "leave the device 'emulator' out" in err
    code, out, _ = run("search", tiny, "--dry-run")
    assert code == 0
    assert "6 of 8 configurations are feasible" in out
    assert "was not evaluated then" in out
    assert run("search", written(tiny.with_name("x.json.gz"), "{}"))[0] == 2


def test_an_interrupted_replay_does_not_say_that_it_goes_on(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was kept."""

    def stop(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReplayBench, "trial", stop)
    code, _, err = run("search", tiny)
    assert code == 130
    assert err.splitlines()[-1] == "interrupted"


# ---- autotile's own records -----------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A store's journal of the toy kernel: three configurations, one a failure, and one of an older template."""
    kernel = load_kernel("toy", [TOYS])
    problem = kernel.problem({"n": 1000})
    identity = Identity("NVIDIA H200", "sm_90", "580", "nvcc 13.0", template_digest(kernel), 1, False)
    records = []
    for width, time_ms in ((32, 9.0), (32, 3.0), (64, 2.0), (256, None)):
        configuration = kernel.configuration({"width": width})
        records.append(
            Record(
                problem,
                configuration,
                identity,
                "timeout" if time_ms is None else OK,
                "" if time_ms is not None else "no end",
                None if time_ms is None else Measurement(time_ms, time_ms, 0.0, 3),
                kernel.launch_of(problem, configuration),
                render(kernel, problem, configuration).digest,
                build_s=1.0,
                check_s=0.25,
                measure_s=0.5,
            )
        )
    store = Store(tmp_path / "records")
    store.extend([replace_template(records[0]), *records])
    (path,) = (tmp_path / "records").rglob("*.records.jsonl")
    return path


def replace_template(record: Record) -> Record:
    from dataclasses import replace

    other = replace(record.configuration, items_=(("width", 128), *record.configuration.items_[1:]))
    return replace(record, configuration=other, identity=replace(record.identity, template="another"))


def of_toy(tmp_path: Path, size: int, rules: str = "") -> Path:
    text = f"kernel: toy\nproblems:\n  - {{n: {size}}}\nparameters: {{width: [32, 64, 128]}}\n{rules}"
    return written(tmp_path / f"toy{size}.yaml", text)


def test_a_journal_is_a_recording_of_the_last_searchs_kind(journal: Path) -> None:
    recording: Recording = read_recording(journal)
    assert recording.own is not None
    assert recording.problem == "1000 float32"
    assert recording.arch == "sm_90"
    assert [recording.configuration(row)["width"] for row in range(3)] == [32, 64, 256]
    assert recording.time_ms[:2].tolist() == [3.0, 2.0]
    assert recording.outcomes[2] == "timeout"
    assert recording.compile_ms.tolist() == [1000.0] * 3
    assert recording.other_ms.tolist() == [750.0] * 3
    torn = written(journal.with_name("torn.records.jsonl"), journal.read_text()[:-30])
    assert len(read_recording(torn)) == 2
    assert "1 unreadable" in read_recording(torn).torn


def test_a_configs_search_is_confined_to_what_was_recorded(journal: Path, tmp_path: Path) -> None:
    device = open_replay(journal)
    (result,) = search_all(load_specs(of_toy(tmp_path, 1000), (), [TOYS]), device, MemoryStore())
    assert [record.configuration["width"] for record in result.records] in ([32, 64], [64, 32])
    assert result.best is not None
    assert result.best.time_ms == 2.0
    assert result.best.identity.device == "replayed NVIDIA H200"
    assert result.best.identity.estimated


def test_a_configs_rules_hold_in_a_replay_too(journal: Path, tmp_path: Path) -> None:
    config = of_toy(tmp_path, 1000, "rules: [threads > 32]\n")
    (result,) = search_all(load_specs(config, (), [TOYS]), open_replay(journal), MemoryStore())
    assert [record.configuration["width"] for record in result.records] == [64]
    config = of_toy(tmp_path, 1000, "rules: [threads > 64]\n")
    with pytest.raises(ConfigurationError, match="of its 3 configurations none is in the space"):
        search_all(load_specs(config, (), [TOYS]), open_replay(journal), MemoryStore())


def test_a_journal_of_another_problem_is_refused(journal: Path, tmp_path: Path) -> None:
    device = open_replay(journal)
    with pytest.raises(ConfigurationError, match="holds toy 1000 float32 on NVIDIA H200, not toy 2000 float32"):
        search_all(load_specs(of_toy(tmp_path, 2000), (), [TOYS]), device, MemoryStore())


def test_a_foreign_recording_is_of_no_kernel_here(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="parameters a, b; kernel toy has width"):
        search_all(load_specs(of_toy(tmp_path, 1000), (), [TOYS]), open_replay(tiny), MemoryStore())


def test_a_journal_alone_is_searched_whole(journal: Path, run: Run) -> None:
    code, out, _ = run("search", journal, "--templates", TOYS)
    assert code == 0
    assert "3 trials (2 ok, 1 timeout) of 3" in out
    assert "best: 2 ms" in out


def test_records_of_several_searches_are_refused(journal: Path) -> None:
    lines = journal.read_text().splitlines()
    other = json.loads(lines[-1]) | {"sizes": {"n": 7}}
    path = written(journal.with_name("two.records.jsonl"), "\n".join([*lines, json.dumps(other)]))
    with pytest.raises(UsageError, match=r"several searches \(toy 1000 float32 on NVIDIA H200; toy 7 float32"):
        read_recording(path)


def test_nothing_is_compiled_for_a_replay(tiny: Path) -> None:
    from autotile.build import Builder

    with pytest.raises(ToolchainMissing, match="builds and runs nothing"):
        Builder(open_replay(tiny).target)


def test_no_kernel_is_loaded_for_what_runs_nothing() -> None:
    with pytest.raises(UsageError, match="runs nothing"):
        autotile.load("matmul", m=8, n=8, k=8, device="replay:anything.json")


def test_nothing_is_made_up_about_another_tuners_launch() -> None:
    recording = read_recording(CACHE)
    (result,) = search_all([recorded_spec(recording)], ReplayDevice(recording), MemoryStore())
    assert {record.launch for record in result.records} == {None}
