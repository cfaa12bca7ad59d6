"""`autotile explain`: what goes to stdout, to files, and to whoever mistook a name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autotile.cli import main
from autotile.insight.machine import Machine

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], build_home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in this process; where no compiler for GPUs is at hand."""
    monkeypatch.setenv("AUTOTILE_HOME", str(build_home))
    monkeypatch.setattr("autotile.insight.explain.read_machine", lambda *given: Machine())
    monkeypatch.setattr("autotile.insight.explain.TRACE_S", 0.01)

    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["explain", *map(str, arguments)])
        written = capsys.readouterr()
        return int(left.value.code or 0), written.out, written.err

    return command


POINT = ("transpose", "--preset", "tile32", "--problem", "rows=256, cols=256", "--device", "h200")


def test_text_json_and_picture(run: Run, tmp_path: Path) -> None:
    written, drawn = tmp_path / "why.json", tmp_path / "why.svg"
    code, out, err = run(*POINT, "--no-changes", "--json", written, "--svg", drawn)
    assert code == 0, err
    assert out.startswith("transpose 256×256 float32 on NVIDIA H200: ≈")
    assert "pad the row from 32 elements to 33" in " ".join(out.split())
    assert len(out.splitlines()) < 60
    document = json.loads(written.read_text(encoding="utf-8"))
    assert document["schema_version"] == 1
    first = document["explanation"]["findings"][0]
    assert first["words"].startswith(f"Line {first['line']} (called from line ")
    assert first["cure"] == "pad the row from 32 elements to 33 elements: 1 wavefront"
    assert first["weight_ms"] > 0
    assert first["wasteful"] is True
    assert "<svg" in drawn.read_text(encoding="utf-8")


def test_json_alone_and_other_points(run: Run) -> None:
    code, out, _ = run(
        "transpose", "--set", "layout=swizzled", "--set", "block_threads=512", "--dtype", "float64", "--problem",
        "rows=256, cols=256", "--device", "emulator:rtx4090", "--no-changes", "--json", "-",
    )  # fmt: skip
    found = json.loads(out)["explanation"]
    assert code == 0
    assert found["device"] == "NVIDIA GeForce RTX 4090"
    assert (found["configuration"]["layout"], found["threads"]) == ("swizzled", 512)
    assert found["problem"].endswith("float64")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (("--preset", "tile3"), 2, "did you mean 'tile33'"),
        (("--set", "tile_rows=512", "--set", "tile_cols=512"), 2, "not a feasible configuration"),
        (("--device", "emulator:h300"), 3, "not in the table"),
        (("--svg", "/nowhere/at/all.svg"), 2, "there is no folder"),
        (("--json", "/nowhere/at/all.json"), 2, "there is no folder"),
    ],
)
def test_mistakes(run: Run, more: tuple[str, ...], code: int, said: str) -> None:
    left, out, err = run(*POINT, *more)
    assert (left, out) == (code, "")
    assert said in err


def test_a_wrong_kernel_has_faults_and_no_time(run: Run) -> None:
    code, out, _ = run(
        "product", "--templates", EXAMPLES, "--problem", "n=64", "--set", "barriers=first_missing", "--device", "h200",
        "--no-changes",
    )  # fmt: skip
    assert code == 1
    assert out.startswith("product 64 float32 on NVIDIA H200: WRONG\n")
    assert out.count("It is wrong: shared-memory race") == 2  # one for each tile
    assert "What bounds it" not in out


def test_lines_are_those_that_render_prints(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(*POINT, "--no-changes", "--json", "-")[1])["explanation"]
    with pytest.raises(SystemExit):
        main(["render", *POINT[:-2]])
    lines = capsys.readouterr().out.splitlines()
    assert all(pattern["code"] in lines[pattern["line"] - 1] for pattern in found["patterns"])
