"""The T4 exchange format: out with every field, back as the very same trials, never as a winner."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.cli import main
from autotile.devices.replay.recording import Recording, read_recording
from autotile.errors import ImportRefused, UsageError
from autotile.kernels import Kernel
from autotile.report import ImportSummary, export, import_results
from autotile.store import MemoryStore, Store
from autotile.types import OF_TRIALS, PROVEN, Record

Kernels = Callable[[str], Kernel]
Make = Callable[..., Record]
PUBLIC = Path(__file__).parents[1] / "data" / "replay" / "convolution_A100.T4.json"

FAILURES = ("compile_error", "launch_error", "wrong_result", "implausible", "timeout", "crashed")
COST: dict[str, Any] = {"build_s": 1.7, "check_s": 0.31, "measure_s": 0.123, "extra": ()}


@pytest.fixture
def trials(measured: Make) -> list[Record]:
    """One problem's trials: three that went well, one of them tried again, and one of each failure."""
    good = [
        measured(time_ms=time_ms, width=width, changes=COST) for time_ms, width in ((2.0, 32), (1.0, 64), (1.9, 32))
    ]
    bad = [
        measured(
            buffers=64, width=32 * number, changes={**COST, "outcome": outcome, "measurement": None, "message": "why"}
        )
        for number, outcome in enumerate(FAILURES, 1)
    ]
    return [*good, *bad]


def text_of(records: list[Record], kernels: Kernels) -> str:
    text = export(records, "t4", None, kernels)
    assert isinstance(text, str)
    return text


def same(one: Recording, other: Recording) -> bool:
    arrays = ("codes", "time_ms", "compile_ms", "other_ms")
    plain = (
        "kernel",
        "device",
        "problem",
        "sizes",
        "names",
        "domains",
        "outcomes",
        "messages",
        "own",
        "arch",
        "estimated",
    )
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in arrays
    )


def test_every_field_of_the_public_files_is_there(trials: list[Record], kernels: Kernels) -> None:
    ours, public = json.loads(text_of(trials, kernels)), json.loads(PUBLIC.read_text())
    assert list(ours) == list(public)
    assert ours["schema_version"] == public["schema_version"]
    assert ours["metadata"]["timeunit"] == "milliseconds"
    for kind in (0, 1):  # of a failure, and of a variant that went well
        found, wanted = (
            next(result for result in document["results"] if result["correctness"] == kind)
            for document in (ours, public)
        )
        assert list(found) == list(wanted)
        assert list(found["times"]) == list(wanted["times"])
        assert found["measurements"][0].keys() == wanted["measurements"][0].keys()
    good = ours["results"][0]
    assert good["times"].pop("runtimes") == [2.0]
    assert good["times"] == pytest.approx(
        {"compilation": 1700, "framework": 121, "search_algorithm": 0, "validation": 310}
    )
    assert (good["invalidity"], good["objectives"], good["timestamp"]) == ("correct", ["time"], trials[0].created)
    words = [result["invalidity"] for result in ours["results"][3:]]
    assert words == ["compile", "runtime", "correctness", "correctness", "timeout", "runtime"]
    assert ours["results"][3]["measurements"][0]["value"] == "CompilationFailedConfig"


def test_another_reader_finds_the_same_times_and_costs(trials: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    """Without autotile's own part of the metadata, as any program for T4 reads it."""
    document = json.loads(text_of(trials, kernels))
    own, plain = tmp_path / "own.json", tmp_path / "plain.json"
    own.write_text(json.dumps(document))
    del document["metadata"]["autotile"]
    plain.write_text(json.dumps(document))
    mine, theirs = read_recording(own), read_recording(plain)

    def told(recording: Recording) -> list[tuple[Any, ...]]:
        rows = [
            (recording.configuration(row), recording.time_ms[row], recording.cost_ms[row])
            for row in range(len(recording))
        ]
        return sorted(
            ((c.key, np.nan_to_num(t), pytest.approx(cost)) for c, t, cost in rows), key=lambda row: str(row[0])
        )

    assert told(mine) == told(theirs)


def test_out_in_and_out_again_is_the_same(trials: list[Record], kernels: Kernels, tmp_path: Path) -> None:
    home = Store(tmp_path / "here")
    older = dataclasses.replace(trials[1], identity=dataclasses.replace(trials[1].identity, driver="550"))
    trials = [older, *trials]
    home.extend(trials)
    text = text_of(home.records(), kernels)
    path = tmp_path / "out.T4.json"
    path.write_text(text)
    there = Store(tmp_path / "there")
    assert import_results(path, there, kernels) == ImportSummary(len(trials), [])
    assert there.records() == trials
    assert text_of(there.records(), kernels) == text
    assert import_results(path, there, kernels) == ImportSummary(0, [], known=len(trials))
    (journal,) = (tmp_path / "here").rglob("*.records.jsonl")
    assert same(read_recording(path), read_recording(journal))
    assert len(read_recording(path)) == 8


def test_a_winner_comes_back_as_a_trial(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    winner = measured(changes={"extra": (("clocks", "1980"), PROVEN, (OF_TRIALS, "9"))})
    document = json.loads(text_of([winner], kernels))
    assert document["metadata"]["autotile"]["records"][0]["extra"] == [["clocks", "1980"]]
    document["metadata"]["autotile"]["records"][0]["extra"].append(list(PROVEN))
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    store = MemoryStore()
    assert import_results(path, store, kernels) == ImportSummary(1, [])
    assert not store.bests()
    assert not any(record.proven for record in store.records())


def edited(document: dict[str, Any], how: str) -> None:
    result, own = document["results"][0], document["metadata"]["autotile"]
    if how == "time":
        result["measurements"][0]["value"] = 0.001
    elif how == "outcome":
        result["invalidity"] = "timeout"
    elif how == "fewer":
        own["records"].pop()
    elif how == "identity":
        own["records"][0]["identity"] = 7
    elif how == "template":
        own["identities"][0]["template"] = "0" * 16
    elif how == "source":
        own["records"][0]["source_digest"] = "0" * 64
    elif how == "configuration":
        result["configuration"]["width"] = 128
    elif how == "parts":
        del own["identities"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("time", "result 1 says another time"),
        ("outcome", "result 1 says another time or outcome"),
        ("fewer", "1 results, and autotile's metadata 0"),
        ("identity", "result 1 has no identity"),
        ("template", "the folder of toy here is another one than was searched"),
        ("source", "gives another source"),
        ("configuration", "gives another source|launched in another way"),
        ("parts", "not the parts of autotile's records"),
    ],
)
def test_what_was_edited_or_is_of_another_template_is_refused(
    measured: Make, kernels: Kernels, tmp_path: Path, how: str, why: str
) -> None:
    document = json.loads(text_of([measured(width=64)], kernels))
    edited(document, how)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    store = MemoryStore()
    with pytest.raises(ImportRefused, match=why):
        import_results(path, store, kernels)
    assert not store.records()


def test_another_tuners_file_is_to_be_replayed(kernels: Kernels, tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=r"another tuner.* --device replay:"):
        import_results(PUBLIC, MemoryStore(), kernels)
    packed = tmp_path / "x.T4.json.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(ImportRefused, match=r"gzipped.* --device replay:"):
        import_results(packed, MemoryStore(), kernels)


def test_each_search_has_a_file_of_its_own(
    trials: list[Record], measured: Make, kernels: Kernels, tmp_path: Path
) -> None:
    records = [
        *trials,
        measured(sizes={"n": 7}),
        measured(device="Tesla V100-SXM2-16GB", arch="sm_70"),
        measured(estimated=True, device="emulated NVIDIA H200"),
    ]
    with pytest.raises(UsageError, match="4 match: name a folder"):
        export(records, "t4", None, kernels)
    with pytest.raises(UsageError, match="4 match: name a folder"):
        export(records, "t4", tmp_path / "one.json", kernels)
    paths = export(records, "t4", tmp_path / "all", kernels)
    assert not isinstance(paths, str)
    assert len(set(paths)) == 4
    assert sorted((tmp_path / "all").iterdir()) == sorted(paths)
    store = MemoryStore()
    for path in paths:
        import_results(path, store, kernels)
    kept = [dataclasses.replace(record, extra=()) for record in records]
    assert sorted(map(repr, store.records())) == sorted(map(repr, kept))
    assert export(trials, "t4", tmp_path / "one.json", kernels) == [tmp_path / "one.json"]
    with pytest.raises(UsageError, match="writes a folder"):
        export(trials, "t4", written(tmp_path / "file"), kernels)


def written(path: Path) -> Path:
    path.write_text("")
    return path


def test_the_commands_write_every_trial_and_take_it_in(
    trials: list[Record],
    kernels: Kernels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    toys = kernels("toy").folder.parent
    Store().extend(trials)
    with pytest.raises(SystemExit) as left:
        main(["export", "--format", "t4", "-o", str(tmp_path / "all")])
    assert left.value.code == 0
    (path,) = (tmp_path / "all").iterdir()
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "elsewhere"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(["import", str(path), "--templates", str(toys)])
    assert left.value.code == 0
    said = capsys.readouterr()
    assert said.out == f"{len(trials)} imported, 0 already there, 0 refused\n"
    assert "`autotile search` proves the best" in said.err
    assert Store().records() == trials
