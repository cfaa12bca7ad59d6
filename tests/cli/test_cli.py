"""The command line: exit codes, what goes to stdout and what to stderr, and one clear message for each mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pytest
from fakes import write_kernel

from autotile import __version__
from autotile.cli import autotile, main
from autotile.codegen import template_digest
from autotile.kernels import Kernel
from autotile.kernels.loader import read_folder
from autotile.store import Store
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Record

ROOT = Path(__file__).resolve().parents[2]

SEARCH = """\
kernel: walk
problems:
  - {n: 5000, dtype: float32}
parameters:
  width: [32, 64]
  steps: [1, 2]
  mode: [plain]
  hint: [false]
search: {sampler: grid, trials: 2}
"""


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """A command in this process."""

    def command(*arguments: object) -> Ran:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, written.out, written.err)

    return command


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kernel(tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "walk.yaml"
    path.write_text(SEARCH)
    return path


@pytest.fixture
def home() -> Path:
    return Path(os.environ["AUTOTILE_HOME"])


@pytest.fixture
def walk(kernels: Path) -> Kernel:
    return read_folder(kernels / "walk")


@pytest.fixture
def saved(walk: Kernel) -> Record:
    """One result in the store, as if a GPU had been here."""
    from autotile.codegen import render

    problem, configuration = walk.problem({"n": 5000}), walk.configuration({"width": 64})
    record = Record(
        problem,
        configuration,
        Identity("NVIDIA H200", "sm_90", "570", "nvcc 13.0", template_digest(walk), SCHEMA_VERSION, False),
        "ok",
        measurement=Measurement(0.25, 0.24, 0.01, 15),
        launch=walk.launch_of(problem, configuration),
        source_digest=render(walk, problem, configuration).digest,
        created="2025-06-01T12:00:00+00:00",
        extra=(PROVEN,),
    )
    Store().append(record)
    Store().save_best(record)
    return record


def start(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """`python -m autotile` in a process of its own, from a folder that is not the checkout."""
    return subprocess.Popen(
        [sys.executable, "-m", "autotile", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def finished(process: subprocess.Popen[str]) -> Ran:
    out, err = process.communicate(timeout=60)
    return Ran(process.returncode, out, err)


def assert_one_message(ran: Ran, code: int, *parts: str) -> None:
    """Nothing but one message, on stderr, with all the parts."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert ran.err.startswith("autotile: ")
    assert ran.err.count("\n") == 1
    for part in parts:
        assert part in ran.err


# ---- help ----------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, click.Command]]:
    yield "autotile", autotile
    yield from autotile.commands.items()


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_all_is_explained(name: str, command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
        else:
            assert parameter.name.upper() in command.help, f"{name} does not say what {parameter.name} is"


def test_help_and_version(run: Any) -> None:
    for flag in ("-h", "--help"):
        shown = run(flag)
        assert (shown.code, shown.err) == (0, "")
        assert all(name in shown.out for name in ("search", "list", "show", "render", "export", "import", "doctor"))
    assert run("--version").out == f"autotile, version {__version__}\n"
    assert run("search", "--help").code == 0


def test_without_arguments_it_shows_the_help(run: Any) -> None:
    shown = run()
    assert "Commands:" in shown.out + shown.err
    assert "Traceback" not in shown.err


def test_help_needs_no_heavy_package() -> None:
    """With pycuda, optuna and jinja2 out of reach, as on a machine that has just the package."""
    block = "import sys; sys.modules.update(dict.fromkeys(['pycuda', 'optuna', 'jinja2', 'numpy']))"
    code = f"{block}\nfrom autotile.cli import main\nmain(['--help'])"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_from_another_folder() -> None:
    assert finished(start("--version")).out == f"autotile, version {__version__}\n"
    shown = finished(start("render", "transpose", "--preset", "tile33"))
    assert (shown.code, shown.err) == (0, "")


# ---- bad input -----------------------------------------------------------------------------------------------------

FAULTY = {
    "empty file": ("", "1: the file is empty"),
    "comments only": ("# nothing\n", "1: the file is empty"),
    "a list": ("- walk\n", "1:1: the search file must be a mapping"),
    "a word": ("walk\n", "1:1: the search file must be a mapping"),
    "tab": (SEARCH.replace("  width", "\twidth"), "5:1: a tab"),
    "duplicate key": (SEARCH + "kernel: walk\n", "10:1: 'kernel' stands twice, first in line 1"),
    "duplicate parameter": (SEARCH.replace("  mode:", "  width:"), "7:3: 'width' stands twice, first in line 5"),
    "unknown key": (SEARCH.replace("parameters:", "paramters:"), "4:1: unknown key 'paramters'", "'parameters'"),
    "unknown kernel": (SEARCH.replace("walk", "wlak"), "1:9: no kernel 'wlak' (did you mean 'walk'?)"),
    "no problems": ("kernel: walk\n", "1:1: 'problems' is missing"),
    "no problem": ("kernel: walk\nproblems: []\n", "2:11: problems must be a list"),
    "size zero": (SEARCH.replace("5000", "0"), "3:9: walk: n must be an integer from 1"),
    "size below zero": (SEARCH.replace("5000", "-1"), "3:9: walk: n must be an integer from 1"),
    "size a fraction": (SEARCH.replace("5000", "1e-3"), "3:9: walk: n must be an integer from 1", "0.001"),
    "size a word": (SEARCH.replace("5000", "many"), "3:9: walk: n must be an integer", "'many'"),
    "missing size": (SEARCH.replace("n: 5000, ", ""), "3:5: walk also needs n"),
    "unknown dimension": (SEARCH.replace("n: 5000", "m: 5000"), "3:6: unknown key 'm' in a problem"),
    "unknown dtype": (SEARCH.replace("float32", "flaot32"), "3:5: walk has no dtype 'flaot32' (did you mean 'float32'"),
    "unknown parameter": (
        SEARCH.replace("width", "wdith"),
        "5:3: walk has no parameter 'wdith' (did you mean 'width'?)",
    ),
    "a parameter named on": (SEARCH.replace("width", "on"), "5:3: walk has no parameter 'on'"),
    "wrong type": (SEARCH.replace("[32, 64]", "[32, wide]"), "5:15: parameter width takes an integer, not 'wide'"),
    "no boolean": (SEARCH.replace("[false]", "[off]"), "8:10: parameter hint takes true or false, not 'off'"),
    "unknown name": (SEARCH.replace("[plain]", "[plian]"), "7:10: parameter mode has no value 'plian'", "'plain'"),
    "value twice": (SEARCH.replace("[32, 64]", "[32, 32]"), "5:15: width lists 32 twice"),
    "unknown sampler": (SEARCH.replace("grid", "grdi"), "9:19: unknown sampler 'grdi' (did you mean 'grid'?)"),
    "no trials": (SEARCH.replace("trials: 2", "trials: 0"), "9:33: search.trials must be an integer of at least 1"),
    "no time": (SEARCH.replace("trials: 2", "time: soon"), "9:31: search.time: 'soon' is not a duration"),
    "unknown option": (SEARCH.replace("trials:", "trails:"), "9:25: unknown key 'trails'", "'trials'"),
    "unknown variable": (SEARCH + "rules: [widht > 4]\n", "10:9: unknown name 'widht' (did you mean 'width'?)"),
    "no expression": (SEARCH + "rules: [width >]\n", "10:9: "),
    "a call": (SEARCH + "rules: [open('x') == 1]\n", "10:9: "),
    "rejects everything": (SEARCH + "rules: [width > 999]\n", "no configuration of walk is feasible", "10:9"),
    "unknown preset": (SEARCH + "points: [wde]\n", "10:10: walk has no preset 'wde' (did you mean 'wide'?)"),
    "a tag": (SEARCH.replace("walk", "!!python/name:os.system ''"), "1:9: the tag"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_a_faulty_file(run: Any, kernels: Path, tmp_path: Path, home: Path, case: str) -> None:
    text, *parts = FAULTY[case]
    path = tmp_path / "faulty.yaml"
    path.write_text(text)
    ran = run("search", path, "--device", "emulator", "--templates", kernels)
    assert_one_message(ran, 2, str(path), *parts)
    assert not list(home.glob("devices/**/*"))


def test_a_file_that_is_no_text(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert_one_message(run("search", path), 2, str(path), "cannot be read")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["search", "matmal"], ["no search file 'matmal' (did you mean 'matmul'?)", "shipped:"]),
        (["search", "matmul", "--device", "emulater"], ["unknown device 'emulater' (did you mean 'emulator'?)"]),
        (["search", "matmul", "--device", "cuda:99x"], ["device 'cuda:99x'", "such as cuda:0"]),
        (["search", "matmul", "--device", "replay:x"], ["x: cannot be read"]),
        (["search", "matmul", "--device", "auto:1"], ["unknown device 'auto:1'"]),
        (["search", "matmul", "--set", "search.trials=many"], ["search.trials must be an integer", "'many'"]),
        (["search", "matmul", "--set", "search.trails=3"], ["unknown key (did you mean 'trials'?)"]),
        (["search", "matmul", "--set", "parameters.blok_m=[64]"], ["--set", "'blok_m' (did you mean 'block_m'?)"]),
        (["search", "matmul", "--set", "blok_m"], ["blok_m"]),
        (["search", "matmul", "--time", "soon"], ["'soon' is not a duration such as 90s"]),
        (["search", "matmul", "--sampler", "tp"], ["unknown sampler 'tp' (did you mean 'tpe'?)"]),
        (["show", "matmull"], ["no kernel 'matmull' (did you mean 'matmul'?)"]),
        (["render", "matmull"], ["no kernel 'matmull' (did you mean 'matmul'?)"]),
        (["render", "matmul", "--preset", "tile3"], ["no preset 'tile3' (did you mean 'tile32'?)"]),
        (["render", "matmul", "--set", "stagng=static"], ["no parameter 'stagng' (did you mean 'staging'?)"]),
        (["render", "matmul", "--set", "staging=statc"], ["no value 'statc' (did you mean 'static'?)"]),
        (["render", "matmul", "--set", "block_m=-1"], ["block_m", "-1"]),
        (["render", "matmul", "--dtype", "flot32"], ["no dtype 'flot32' (did you mean 'float32'?)"]),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) and value[0].isalpha() else "",
)
def test_a_mistake_on_the_line(run: Any, arguments: list[str], parts: list[str]) -> None:
    assert_one_message(run(*arguments), 2, *parts)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["serch"], "Did you mean 'search'"),
        (["search"], "Missing argument 'CONFIG'"),
        (["search", "matmul", "--trials", "0"], "'--trials': 0"),
        (["search", "matmul", "--trials", "many"], "'--trials': 'many'"),
        (["search", "matmul", "--trails", "3"], "No such option"),
        (["list", "--templates", "/nowhere"], "'/nowhere' does not exist"),
        (["export", "--format", "xml"], "'xml' is not one of"),
        (["export", "--format", "cuda"], "-o"),
        (["import", "/nowhere.json"], "'/nowhere.json' does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_in_the_usage(run: Any, saved: Record, arguments: list[str], part: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert part in ran.err
    assert ran.err.startswith("Usage: autotile")


@pytest.mark.parametrize(
    ("variable", "part"),
    [("AUTOTILE_SAMPLER", "AUTOTILE_SAMPLER"), ("AUTOTILE_TIME", "AUTOTILE_TIME"), ("AUTOTILE_DEVICE", "'nonsense'")],
)
def test_a_mistake_in_a_variable(run: Any, monkeypatch: pytest.MonkeyPatch, variable: str, part: str) -> None:
    monkeypatch.setenv(variable, "nonsense")
    assert_one_message(run("search", "matmul-quick"), 2, part)


@pytest.mark.parametrize("place", [0, -1])
def test_debug_shows_the_traceback(run: Any, place: int) -> None:
    arguments = ["search", "nothing"]
    arguments.insert(place if place == 0 else len(arguments), "--debug")
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("Traceback")
    assert "autotile: no search file" in ran.err


# ---- what the machine lacks ----------------------------------------------------------------------------------------


def test_no_pycuda(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    assert_one_message(run("search", "matmul-quick", "--device", "cuda"), 3, "pycuda is not installed", "pip install")
    for arguments in (["list"], ["show", "matmul"], ["render", "matmul"], ["doctor"]):
        assert run(*arguments).code == 0
    shown = run("search", "matmul-quick", "--dry-run")  # `auto` falls back to the emulator and says so
    assert shown.code == 0
    assert "no usable GPU (pycuda is not installed" in shown.err
    assert "estimates" in shown.err


def test_a_broken_compiler(run: Any, config: Path, kernels: Path, monkeypatch: Any, home: Path) -> None:
    monkeypatch.setenv("AUTOTILE_CXX", "/nonexistent")
    ran = run("search", config, "--device", "emulator", "--templates", kernels)
    assert_one_message(ran, 3, "AUTOTILE_CXX names '/nonexistent'")
    assert not list(home.glob("devices/**/*"))


def test_no_compiler(run: Any, config: Path, kernels: Path, monkeypatch: Any, tmp_path: Path) -> None:
    for name in ("AUTOTILE_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("search", config, "--device", "emulator", "--templates", kernels)
    assert_one_message(ran, 3, "found no C++ compiler", "Install one: ", "AUTOTILE_CXX")


def test_an_unknown_gpu(run: Any) -> None:
    ran = run("search", "matmul", "--device", "emulator:h20")
    assert_one_message(ran, 3, "GPU 'h20' is not in the table (did you mean 'h200'?)")


def test_reading_where_there_is_no_store(
    run: Any, config: Path, kernels: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    """A file where the folder should be is left as it is."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("AUTOTILE_HOME", str(blocked))
    assert run("list").code == 0
    ran = run("search", config, "--device", "emulator", "--templates", kernels, "--dry-run")
    assert (ran.code, ran.err) == (0, "")
    assert blocked.read_text() == "in the way"


# ---- reading -------------------------------------------------------------------------------------------------------


def test_list(run: Any, saved: Record, kernels: Path) -> None:
    shown = run("list", "--templates", kernels)
    assert (shown.code, shown.err) == (0, "")
    for part in (
        "matmul",
        "transpose",
        "walk",
        "autotile search matmul-quick",
        "NVIDIA H200",
        "5000 float32",
        "0.25 ms",
    ):
        assert part in shown.out


def test_list_of_nothing(run: Any) -> None:
    assert "nothing yet: autotile search matmul-quick" in run("list").out


def test_show(run: Any, saved: Record, kernels: Path) -> None:
    shown = run("show", "walk", "--templates", kernels)
    assert (shown.code, shown.err) == (0, "")
    for part in (
        "width",
        "threads a block",
        "mode == 'plain' or steps > 1",
        "narrow",
        "NVIDIA H200",
        "1 ok",
        "0.25 ms",
    ):
        assert part in shown.out


def test_show_failed(run: Any, saved: Record, kernels: Path) -> None:
    from dataclasses import replace

    from autotile.kernels import load_kernel

    other = load_kernel("walk", kernels).configuration({"width": 128})
    failed = replace(saved, configuration=other, outcome="launch_error", message="too many resources", measurement=None)
    Store().append(failed)
    assert "too many resources" not in run("show", "walk", "--templates", kernels).out
    shown = run("show", "walk", "--failed", "--templates", kernels).out
    assert "1 ok, 1 launch_error" in shown
    assert "launch_error: too many resources" in shown


def test_show_counts_the_last_word_on_each_configuration(run: Any, saved: Record, kernels: Path) -> None:
    """A proof may refute what a trial had found right; and what is shown as best is what is served."""
    from dataclasses import replace

    from autotile.kernels import load_kernel
    from autotile.types import Measurement

    other = load_kernel("walk", kernels).configuration({"width": 128})
    flattered = replace(saved, configuration=other, measurement=Measurement(0.001, 0.001, 0.0, 3), extra=())
    Store().extend([flattered, replace(flattered, outcome="wrong_result", message="off by one", measurement=None)])
    shown = run("show", "walk", "--templates", kernels).out
    assert "1 ok, 1 wrong_result; best 0.25 ms" in shown


@pytest.mark.parametrize("arguments", [["list"], ["show", "walk"], ["doctor"]])
def test_json_of_what_is_there(run: Any, saved: Record, kernels: Path, tmp_path: Path, arguments: list[str]) -> None:
    more = [] if arguments == ["doctor"] else ["--templates", kernels]
    shown = run(*arguments, *more, "--json", "-")
    assert shown.code == 0
    document = json.loads(shown.out)
    assert document["schema_version"] == 1
    path = tmp_path / "out.json"
    assert run(*arguments, *more, "--json", path).out  # and the text as well
    assert json.loads(path.read_text()).keys() == document.keys()


def test_doctor(run: Any) -> None:
    shown = run("doctor")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert any(re.match(r"ok +Python +3\.", line) for line in lines)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert not line.startswith("FAIL") or following.startswith("     fix: "), line


# ---- render --------------------------------------------------------------------------------------------------------


def test_render_of_the_classics(run: Any) -> None:
    padded, plain = (run("render", "transpose", "--preset", preset).out for preset in ("tile33", "tile32"))
    assert "PITCH = TILE_COLS + 1;" in padded
    assert re.search(r"PITCH = TILE_COLS(?: \+ 0)?;", plain)
    textbook = run("render", "matmul", "--preset", "tile32").out
    assert textbook.count("__syncthreads();") == 2
    assert "// block (32, 32, 1), 0 bytes of dynamic shared memory" in textbook
    assert "__shared__" not in run("render", "matmul", "--preset", "one_element").out


def test_render_sets_and_types(run: Any, kernels: Path) -> None:
    shown = run("render", "walk", "--set", "width=128", "--set", "hint=true", "--templates", kernels)
    assert (shown.code, shown.err) == (0, "")
    text, _, facts = shown.out.partition("// walk: width=128 steps=1 mode=plain hint=true\n")
    assert facts == "// block (128, 1, 1), 0 bytes of dynamic shared memory\n"
    assert text.startswith("// walk width=128")  # the source's first line is the first: lines are told by its numbers
    assert "const float* in" in shown.out
    assert "const double* in" in run("render", "walk", "--dtype", "float64", "--templates", kernels).out
    assert "__half" in run("render", "matmul", "--dtype", "float16").out


def test_render_of_what_does_not_fit(run: Any, kernels: Path) -> None:
    shown = run("render", "walk", "--set", "mode=staged", "--templates", kernels)
    assert shown.code == 0
    assert shown.err == "not a feasible configuration: staging 1 element a thread is of no use\n"


def test_render_unaligned(run: Any) -> None:
    aligned, unaligned = (run("render", "matmul", *more).out for more in ([], ["--unaligned"]))
    assert aligned != unaligned


# ---- search --------------------------------------------------------------------------------------------------------


def test_dry_run(run: Any, config: Path, kernels: Path, home: Path) -> None:
    config.write_text(SEARCH.replace("mode: [plain]", "mode: [plain, staged]") + "rules: [width < 64]\n")
    shown = run("search", config, "--device", "emulator", "--templates", kernels, "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    assert "walk 5000 float32 on emulated NVIDIA H200" in shown.out
    assert "3 of 8 configurations are feasible" in shown.out
    assert f"4 rejected by `width < 64` ({config}:10:9)" in shown.out
    assert "1 rejected by `mode == 'plain' or steps > 1` (kernel.py): staging 1 element" in shown.out
    assert "// the first source: width=32 steps=1 mode=plain hint=false\n" in shown.out
    assert 'extern "C" __global__ void walk(' in shown.out
    assert not home.exists() or not list(home.rglob("*.*"))


def test_dry_run_as_json(run: Any, config: Path, kernels: Path) -> None:
    shown = run("search", config, "--device", "emulator", "--templates", kernels, "--dry-run", "--json", "-")
    (space,) = json.loads(shown.out)["spaces"]
    assert (space["total"], space["feasible"], space["rejections"]) == (4, 4, [])
    assert "4 of 4 configurations are feasible" in shown.err


def test_dry_run_of_nothing(run: Any, config: Path, kernels: Path) -> None:
    config.write_text(SEARCH + "rules: [width > 999]\n")
    shown = run("search", config, "--device", "emulator", "--templates", kernels, "--dry-run")
    assert shown.code == 2
    assert "0 of 4 configurations are feasible" in shown.out


def test_a_search_and_the_same_again(run: Any, config: Path, kernels: Path, tmp_path: Path) -> None:
    """Text first, then as JSON on stdout, then to a file: the later ones measure nothing anew."""
    command = ["search", config, "--device", "emulator", "--templates", kernels]
    first = run(*command)
    assert first.code == 0
    assert "2 trials on record (2 ok); 2 new. the number of trials is reached." in first.out
    assert re.search(r"best: ≈\S+ ms \(estimate\), \d+ GB/s", first.out)
    assert "An estimate from the emulator" in first.out
    options = f'device="emulator", templates=["{kernels}"]'
    assert f'walk = autotile.load("walk", n=5000, dtype="float32", {options})' in first.out
    assert "4 feasible configurations of 4; 0 on record, up to 2 to try" in first.err
    assert re.search(r"trial 1: best ≈\S+ ms \(estimate\)", first.err)
    assert not re.search(r"\d ms(?! \(estimate\))", first.out + first.err)  # no estimate looks like a measurement

    second = run(*command, "--json", "-")
    assert second.code == 0
    document = json.loads(second.out)
    (found,) = document["searches"]
    assert document["schema_version"] == 1
    assert (found["trials"], found["new_trials"], found["stopped_by"], found["estimated"]) == (2, 0, "trials", True)
    assert "2 on record, none left to try" in second.err
    assert found["outcomes"] == {"ok": 2}
    assert found["best"]["gbs"] > 0
    assert "2 trials on record (2 ok); 0 new" in second.err

    path = tmp_path / "result.json"
    third = run(*command, "--trials", 500, "--json", path)
    assert (third.code, json.loads(path.read_text())["searches"][0]["stopped_by"]) == (0, "exhausted")
    assert "4 trials on record (4 ok); 2 new. the space is exhausted" in third.out
    assert "emulated NVIDIA H200" in run("list", "--templates", kernels).out


def test_a_json_path_that_cannot_be_written(run: Any, config: Path, kernels: Path, home: Path) -> None:
    command = ["search", config, "--device", "emulator", "--templates", kernels, "--json", "/nowhere/x.json"]
    ran = run(*command, "--set", "parameters.width=[32]", "--trials", 1)
    assert ran.code == 2
    assert not list(home.glob("devices/**/*"))


def test_nothing_valid_is_exit_1(run: Any, config: Path, tmp_path: Path, home: Path) -> None:
    from fakes import TEMPLATE

    broken = write_kernel(tmp_path / "broken", template=TEMPLATE.replace("= in[i]", "= in[i] + 1"))
    ran = run("search", config, "--device", "emulator", "--templates", broken, "--trials", 1)
    assert ran.code == 1
    assert "1 trials on record (1 wrong_result)" in ran.out
    assert "no valid variant: nothing is saved" in ran.out
    assert not list(home.rglob("*.best.json"))
    assert "elements are wrong" in run("show", "walk", "--failed", "--templates", broken).out


def test_search_without_a_store_goes_on_in_memory(config: Path, kernels: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    command = ["search", config, "--device", "emulator", "--templates", kernels, "--trials", "1"]
    ran = finished(start(*command, AUTOTILE_HOME=str(blocked)))
    assert "Traceback" not in ran.err
    assert "results are kept in memory" in ran.err
    assert ran.code == 0
    assert "best: ≈" in ran.out


def test_the_first_search_of_the_readme() -> None:
    """In a process of its own; again, it measures nothing anew."""
    command = ["search", "matmul-quick", "--device", "emulator", "--trials", "4"]
    first = finished(start(*command))
    assert first.code == 0, first.err
    assert "4 trials on record (4 ok); 4 new" in first.out
    assert "(estimate)" in first.out
    assert 'autotile.load("matmul", m=1024, n=1024, k=1024, dtype="float32", device="emulator")' in first.out
    second = finished(start(*command, NO_COLOR="1", FORCE_COLOR="1"))
    assert second.code == 0
    assert "4 trials on record (4 ok); 0 new" in second.out
    assert "\x1b[3" not in second.out + second.err  # NO_COLOR wins


def test_an_interrupt(home: Path) -> None:
    """SIGINT after the first trial: exit 130, a word, records kept, and the same command goes on."""
    command = ["search", "matmul-quick", "--device", "emulator", "--trials", "40", "--set", "search.sampler=random"]
    process = start(*command)
    journal = None
    until = time.monotonic() + 40
    while time.monotonic() < until and journal is None and process.poll() is None:
        records = (home / "devices").rglob("*.records.jsonl")  # beside it, folders of compilers come and go
        journal = next((path for path in records if path.stat().st_size), None)
        time.sleep(0.05)
    assert journal is not None
    process.send_signal(signal.SIGINT)
    ran = finished(process)
    assert ran.code == 130, ran.err
    assert "Traceback" not in ran.err
    assert "interrupted; run the same command to go on" in ran.err
    kept = len(journal.read_bytes().splitlines())
    assert 0 < kept < 40
    assert list(home.rglob("*.best.json"))
    again = finished(start(*command[:-4], "--trials", str(kept)))
    assert again.code == 0
    assert f"{kept} trials on record ({kept} ok); 0 new" in again.out


def test_an_interrupt_anywhere_says_so(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotile.tuner import replayed

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replayed, "open_device", stop)
    ran = run("search", "matmul-quick")
    assert ran.code == 130
    assert "interrupted" in ran.err


def test_an_interrupt_anywhere_is_130(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotile.tuner import replayed

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replayed, "open_device", stop)
    ran = run("search", "matmul-quick")
    assert (ran.code, ran.out) == (130, "")
    assert "Traceback" not in ran.err


# ---- export and import ---------------------------------------------------------------------------------------------


def test_export_of_nothing(run: Any) -> None:
    assert_one_message(run("export"), 1, "nothing saved matches", "autotile list")


@pytest.mark.parametrize(("format_", "part"), [("json", '"devices"'), ("csv", "NVIDIA H200"), ("markdown", "| ")])
def test_export_to_stdout_and_to_a_file(
    run: Any, saved: Record, kernels: Path, tmp_path: Path, format_: str, part: str
) -> None:
    shown = run("export", "--format", format_, "--templates", kernels)
    assert (shown.code, shown.err) == (0, "")
    assert part in shown.out
    path = tmp_path / "deep" / "out"
    written = run("export", "--format", format_, "--templates", kernels, "-o", path)
    assert (written.code, written.out, written.err) == (0, "", f"wrote {path}\n")
    assert path.read_text(encoding="utf-8").splitlines() == shown.out.splitlines()


def test_export_selects(run: Any, saved: Record, kernels: Path) -> None:
    more = ("--templates", kernels)
    assert run("export", "--device", "h200", "--kernel", "walk", *more).code == 0
    assert run("export", "--device", "a100", *more).code == 1
    assert run("export", "--kernel", "matmul", *more).code == 1


def test_export_cuda(run: Any, saved: Record, kernels: Path, tmp_path: Path) -> None:
    written = run("export", "--format", "cuda", "--templates", kernels, "-o", tmp_path / "cuda")
    assert (written.code, written.out) == (0, "")
    (source,) = (tmp_path / "cuda").rglob("*.cu")
    assert f"wrote {source}" in written.err
    assert 'extern "C" __global__ void walk(' in source.read_text()


def test_export_where_the_disk_refuses(run: Any, saved: Record, kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = run("export", "--templates", kernels, "-o", tmp_path / "file" / "out.json")
    assert_one_message(ran, 1, "cannot write", "name another path")


def test_there_and_back(run: Any, saved: Record, kernels: Path, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "results.json"
    run("export", "--templates", kernels, "-o", path)
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "elsewhere"))
    taken = run("import", path, "--templates", kernels)
    assert taken.code == 0, taken.err
    assert taken.out.startswith("1 imported")
    assert Store().bests() == [saved]


def test_a_best_that_comes_in_beside_another_is_no_trial(
    run: Any, saved: Record, kernels: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "results.json"
    run("export", "--templates", kernels, "-o", path)
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "elsewhere"))
    Store().save_best(replace(saved, created="2020-01-01T00:00:00+00:00"))
    taken = run("import", path, "--templates", kernels)
    assert taken.out.startswith("1 imported")
    assert "autotile search" not in taken.err


def test_an_import_from_other_templates_is_refused(
    run: Any, saved: Record, kernels: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    from fakes import TEMPLATE

    path = tmp_path / "results.json"
    run("export", "--templates", kernels, "-o", path)
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path / "elsewhere"))
    others = write_kernel(tmp_path / "others", template=TEMPLATE.replace("i < n", "i < n && true"))
    ran = run("import", path, "--templates", others)
    assert_one_message(ran, 1, str(path), "another source than the one that was measured")
    assert Store().bests() == []


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"schema_version": 99, "devices": []}'])
def test_an_import_of_something_else(run: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    assert_one_message(run("import", path), 1, str(path))
