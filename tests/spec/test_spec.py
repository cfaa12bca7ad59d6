"""Search files: what they may say, and one message with its place for what they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.assets import configs_dir
from autotile.errors import EXIT_USAGE, AutotileError, SpecError, UsageError
from autotile.spec import load_specs
from autotile.spec.load import parse_duration

GOOD = """\
kernel: transpose
problems:
  - {rows: 64, cols: 32, dtype: int8}
parameters:
  tile_rows: [32, 64]
rules:
  - tile_rows <= tile_cols
search: {sampler: random, trials: 5, time: 2m, seed: 7}
"""


def spec_of(tmp_path: Path, text: str, *overrides: str):  # type: ignore[no-untyped-def]
    file = tmp_path / "s.yaml"
    file.write_text(text)
    return load_specs(file, overrides)


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    (spec,) = spec_of(tmp_path, GOOD)
    assert spec.kernel.name == "transpose"
    assert [problem.key for problem in spec.problems] == ["rows64-cols32-int8"]
    assert spec.parameters == {"tile_rows": (32, 64)}
    assert spec.rules[0].where.endswith("s.yaml:7:5")
    assert (spec.search.sampler, spec.search.trials, spec.search.time_s, spec.search.seed) == ("random", 5, 120.0, 7)


@pytest.mark.parametrize("file", sorted(configs_dir().glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_configs_load_by_their_bare_names(file: Path) -> None:
    assert load_specs(file.stem)
    assert load_specs(f"configs/{file.name}")


BAD = {
    "unknown key": (GOOD + "tunner: 1\n", r"s\.yaml:9:1: unknown key 'tunner'"),
    "close key": (
        GOOD.replace("problems:", "problem:"),
        r"s\.yaml:2:1: unknown key 'problem'.*did you mean 'problems'",
    ),
    "key twice": (GOOD + "kernel: matmul\n", r"s\.yaml:9:1: 'kernel' stands twice, first in line 1"),
    "tab": ("kernel: transpose\nproblems:\n\t- {rows: 1, cols: 1}\n", r"s\.yaml:3:1: .*tab"),
    "empty": ("", r"s\.yaml:1: the file is empty"),
    "only a comment": ("# nothing\n", r"s\.yaml:1: the file is empty"),
    "a list": ("- kernel\n", r"s\.yaml:1:1: the search file must be a mapping"),
    "no kernel": ("problems: []\n", r"s\.yaml:1:1: 'kernel' is missing"),
    "unknown kernel": (GOOD.replace("transpose", "transpos"), r"s\.yaml:1:9: no kernel 'transpos' \(did you mean"),
    "no problems": ("kernel: transpose\nproblems: []\n", r"s\.yaml:2:11: problems must be a list with at least one"),
    "size of zero": (GOOD.replace("64, cols", "0, cols"), r"s\.yaml:3:12: .*rows must be an integer from 1"),
    "negative size": (GOOD.replace("64, cols", "-3, cols"), r"s\.yaml:3:12: .*not -3"),
    "fractional size": (GOOD.replace("64, cols", "1.5, cols"), r"s\.yaml:3:12: .*not 1\.5"),
    "size that is text": (GOOD.replace("64, cols", "big, cols"), r"s\.yaml:3:12: .*not 'big'"),
    "size that is true": (GOOD.replace("64, cols", "true, cols"), r"s\.yaml:3:12: .*not True"),
    "missing dimension": (GOOD.replace("cols: 32, ", ""), r"s\.yaml:3:5: transpose also needs cols"),
    "unknown dimension": (GOOD.replace("cols: 32", "colums: 32"), r"s\.yaml:3:16: unknown key 'colums'"),
    "unknown dtype": (GOOD.replace("int8", "int9"), r"s\.yaml:3:5: .*no dtype 'int9' \(did you mean"),
    "unknown parameter": (GOOD.replace("tile_rows: [", "tile_row: ["), r"s\.yaml:5:3: .*did you mean 'tile_rows'"),
    "parameter of another type": (
        GOOD.replace("[32, 64]", "[32, wide]"),
        r"s\.yaml:5:19: .*takes an integer, not 'wide'",
    ),
    "parameter as text": (GOOD.replace("[32, 64]", "['32']"), r"s\.yaml:5:15: .*takes an integer, not '32'"),
    "value twice": (GOOD.replace("[32, 64]", "[32, 32]"), r"s\.yaml:5:19: tile_rows lists 32 twice"),
    "empty domain": (GOOD.replace("[32, 64]", "[]"), r"s\.yaml:5:14: tile_rows must be a list with at least one"),
    "rule that does not parse": (GOOD.replace("<= tile_cols", "<="), r"s\.yaml:7:5: .*is not an expression"),
    "rule that calls": (GOOD.replace("tile_rows <= tile_cols", "open('x')"), r"s\.yaml:7:5: .*is not allowed"),
    "rule that is a number": (GOOD.replace("- tile_rows <= tile_cols", "- 3"), r"s\.yaml:7:5: a rule must be"),
    "sampler typo": (
        GOOD.replace("random", "randon"),
        r"s\.yaml:8:19: unknown sampler 'randon' \(did you mean 'random'",
    ),
    "trials of zero": (
        GOOD.replace("trials: 5", "trials: 0"),
        r"s\.yaml:8:35: search\.trials must be an integer of at",
    ),
    "trials as text": (GOOD.replace("trials: 5", "trials: many"), r"s\.yaml:8:35: .*not 'many'"),
    "bad time": (GOOD.replace("2m", "soon"), r"s\.yaml:8:44: search\.time: 'soon' is not a duration"),
    "search as a list": (
        GOOD.replace("{sampler: random, trials: 5, time: 2m, seed: 7}", "[1]"),
        r"s\.yaml:8:9: search must",
    ),
    "a key that is a number": (GOOD + "3: x\n", r"s\.yaml:9:1: the key 3 is not a name; put it in quotes"),
    "not YAML": ("kernel: [\n", r"s\.yaml:\d"),
    "an object tag": ("kernel: !!python/object/apply:os.system ['true']\n", r"s\.yaml:1:9: the tag .* is not allowed"),
    "points of no preset": (
        GOOD + "points: [tile_33]\n",
        r"s\.yaml:9:10: transpose has no preset 'tile_33'.*did you mean",
    ),
    "a point with a typo": (GOOD + "points: [{tile_row: 32}]\n", r"s\.yaml:9:10: .*did you mean 'tile_rows'"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_each_fault_is_one_message_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AutotileError, match=message) as caught:
        spec_of(tmp_path, text)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)


def test_scientific_numbers_are_numbers(tmp_path: Path) -> None:
    for text in ("1e3", "1.0e3", "1E+3", "1000.0"):
        assert parse_duration_of(tmp_path, text) == 1000.0
    assert parse_duration_of(tmp_path, "1e-1") == 0.1


def parse_duration_of(tmp_path: Path, text: str) -> float | None:
    (spec,) = spec_of(tmp_path, GOOD.replace("2m", text))
    time_s: float | None = spec.search.time_s
    return time_s


def test_numbers_keep_their_value_with_a_leading_zero(tmp_path: Path) -> None:
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5", "trials: 010"))
    assert spec.search.trials == 10


def test_on_and_off_are_no_booleans(tmp_path: Path) -> None:
    file, toys = tmp_path / "s.yaml", Path(__file__).parents[1] / "data" / "kernels"
    file.write_text("kernel: toy\nproblems: [{n: 64}]\nparameters: {staged: [on, off]}\n")
    with pytest.raises(SpecError, match=r"staged takes true or false, not 'on'"):
        load_specs(file, (), toys)
    file.write_text(file.read_text().replace("on, off", "true, false"))
    (spec,) = load_specs(file, (), toys)
    assert spec.parameters == {"staged": (True, False)}


def test_a_scalar_narrows_a_domain_to_one_value(tmp_path: Path) -> None:
    (spec,) = spec_of(tmp_path, GOOD.replace("[32, 64]", "64"))
    assert spec.parameters == {"tile_rows": (64,)}


def test_overrides_beat_variables_and_variables_beat_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_TRIALS", "9")
    monkeypatch.setenv("AUTOTILE_SEED", "3")
    (spec,) = spec_of(tmp_path, GOOD, "search.trials=11", "parameters.tile_cols=[64]")
    assert (spec.search.trials, spec.search.seed) == (11, 3)
    assert spec.parameters == {"tile_rows": (32, 64), "tile_cols": (64,)}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trials=3", "wants parameters.NAME=VALUE or search.NAME=VALUE"),
        ("search.trials", "wants parameters.NAME=VALUE"),
        ("search.trial=3", "did you mean 'trials'"),
        ("search.trials=three", "must be an integer"),
        ("parameters.tile_row=[32]", "did you mean 'tile_rows'"),
        ("parameters.tile_rows=[32", "is not a value"),
        ("parameters.tile_rows=", "takes an integer, not None"),
    ],
)
def test_a_bad_override_is_a_usage_error(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_of(tmp_path, GOOD, override)


def test_a_bad_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_TRIALS", "lots")
    with pytest.raises(UsageError, match=r"AUTOTILE_TRIALS: search\.trials must be an integer"):
        spec_of(tmp_path, GOOD)


def test_several_documents_are_several_searches(tmp_path: Path) -> None:
    specs = spec_of(tmp_path, GOOD + "---\n" + GOOD.replace("int8", "float32"))
    assert [spec.problems[0].dtype for spec in specs] == ["int8", "float32"]


def test_a_missing_file_lists_the_shipped_ones() -> None:
    with pytest.raises(UsageError, match=r"no search file 'matmull' \(did you mean 'matmul'\?\); shipped: .*classics"):
        load_specs("matmull")


@pytest.mark.parametrize(
    ("value", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (5, 5.0), ("250ms", 0.25)]
)
def test_durations(value: object, seconds: float) -> None:
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["0", "-1s", "", "ten", "inf", "1e999", True, None, [], "5 weeks"])
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(value)


def test_limits_of_one_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = "compile_limit: 90s, launch_limit: 500ms, trial_limit: 1m"
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5", f"trials: 5, {limits}"))
    options = spec.search
    assert (options.compile_limit_s, options.launch_limit_s, options.trial_limit_s) == (90.0, 0.5, 60.0)
    with pytest.raises(SpecError, match=r"search\.launch_limit: 'soon' is not a duration"):
        spec_of(tmp_path, GOOD.replace("trials: 5", "trials: 5, launch_limit: soon"))
    monkeypatch.setenv("AUTOTILE_LAUNCH_LIMIT", "3s")
    (spec,) = spec_of(tmp_path, GOOD)
    assert spec.search.launch_limit_s == 3.0


# ---- effort, runs, storage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("effort", "trials"), [("quick", 2), ("normal", 5), ("full", 20)])
@pytest.mark.parametrize("where", ["file", "override", "variable"])
def test_effort_scales_the_files_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, effort: str, trials: int
) -> None:
    if where == "variable":
        monkeypatch.setenv("AUTOTILE_EFFORT", effort)
    text = GOOD.replace("trials: 5", f"trials: 5, effort: {effort}") if where == "file" else GOOD
    (spec,) = spec_of(tmp_path, text, *([f"search.effort={effort}"] if where == "override" else []))
    assert (spec.search.effort, spec.search.trials) == (effort, trials)


@pytest.mark.parametrize("effort", ["quick", "full"])
def test_effort_leaves_a_number_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, effort: str
) -> None:
    text = GOOD.replace("trials: 5", f"trials: 5, effort: {effort}")
    (spec,) = spec_of(tmp_path, text, "search.trials=11")
    assert spec.search.trials == 11
    monkeypatch.setenv("AUTOTILE_TRIALS", "9")
    (spec,) = spec_of(tmp_path, text)
    assert spec.search.trials == 9


def test_effort_scales_the_files_number_where_the_variable_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTILE_TRIALS", "")
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5", "trials: 5, effort: full"))
    assert spec.search.trials == 20


def test_effort_scales_the_usual_number_where_the_file_has_none(tmp_path: Path) -> None:
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5, ", ""), "search.effort=quick")
    assert spec.search.trials == 50


def test_effort_scales_each_document_by_itself(tmp_path: Path) -> None:
    specs = spec_of(tmp_path, GOOD.replace("trials: 5", "trials: 5, effort: full") + "---\n" + GOOD)
    assert [spec.search.trials for spec in specs] == [20, 5]


def test_an_unknown_effort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = r"unknown effort 'quik' \(did you mean 'quick'\?\); known: quick, normal, full"
    with pytest.raises(SpecError, match=rf"s\.yaml:8:46: {words}"):
        spec_of(tmp_path, GOOD.replace("trials: 5", "trials: 5, effort: quik"))
    with pytest.raises(UsageError, match=words):
        spec_of(tmp_path, GOOD, "search.effort=quik")
    monkeypatch.setenv("AUTOTILE_EFFORT", "quik")
    with pytest.raises(UsageError, match=f"AUTOTILE_EFFORT: {words}"):
        spec_of(tmp_path, GOOD)


@pytest.mark.parametrize(("value", "runs"), [("7", 7), ("1", 1), ("null", None)])
def test_runs(tmp_path: Path, value: str, runs: int | None) -> None:
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5", f"trials: 5, runs: {value}"))
    assert spec.search.runs == runs
    (spec,) = spec_of(tmp_path, GOOD, f"search.runs={value}")
    assert spec.search.runs == runs


@pytest.mark.parametrize("value", ["0", "-1", "2.5", "many", "true", "[7]"])
def test_what_is_no_number_of_runs(tmp_path: Path, value: str) -> None:
    with pytest.raises(SpecError, match=r"s\.yaml:8:44: search\.runs must be an integer of at least 1"):
        spec_of(tmp_path, GOOD.replace("trials: 5", f"trials: 5, runs: {value}"))


@pytest.mark.parametrize(
    ("value", "storage"), [("sqlite:///a.db", "sqlite:///a.db"), ("null", None), ("''", None), ('""', None)]
)
def test_storage(tmp_path: Path, value: str, storage: str | None) -> None:
    (spec,) = spec_of(tmp_path, GOOD.replace("trials: 5", f"trials: 5, storage: {value}"))
    assert spec.search.storage == storage


@pytest.mark.parametrize("value", ["5", "[a]", "true"])
def test_what_is_no_storage(tmp_path: Path, value: str) -> None:
    with pytest.raises(SpecError, match=r"s\.yaml:8:47: search\.storage must be an address such as sqlite:///tuning"):
        spec_of(tmp_path, GOOD.replace("trials: 5", f"trials: 5, storage: {value}"))
