"""Results out: every format, read back."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autotile.codegen import render
from autotile.errors import NotTuned, StoreError, UsageError
from autotile.kernels import Kernel, kernel_folders, load_kernel
from autotile.report import FORMATS, ExportWarning, export
from autotile.store.names import device_folder
from autotile.store.serial import from_object
from autotile.types import Record

Kernels = Callable[[str], Kernel]
Make = Callable[..., Record]


def test_json_holds_every_record_grouped_by_device(measured: Make, kernels: Kernels) -> None:
    records = [
        measured(),
        measured(width=64, changes={"outcome": "launch_error", "measurement": None}),
        measured(device="NVIDIA A100", arch="sm_80"),
        measured(device="emulated NVIDIA H200", estimated=True),
    ]
    text = export(records, "json", None, kernels)
    assert isinstance(text, str)
    found = json.loads(text)
    assert found["schema_version"] == 1
    assert [(group["device"], group["estimated"], len(group["records"])) for group in found["devices"]] == [
        ("NVIDIA A100", False, 1),
        ("NVIDIA H200", False, 2),
        ("emulated NVIDIA H200", True, 1),
    ]
    one = found["devices"][1]["records"][0]
    assert one["measurement"]["time_ms"] == 0.5
    assert one["launch"]["shared_bytes"] == 0
    back = [from_object(record) for group in found["devices"] for record in group["records"]]
    assert back == [records[2], records[0], records[1], records[3]]


def test_csv_has_a_row_a_record_and_a_column_a_parameter(measured: Make, kernels: Kernels) -> None:
    matmul = measured("matmul", {"m": 64, "n": 32, "k": 16})
    awkward = 'a "quoted", message\nof two lines'
    records = [
        measured(staged=True, buffers=64),
        matmul,
        measured(changes={"outcome": "failed", "measurement": None, "message": awkward, "launch": None}),
    ]
    text = export(records, "csv", None, kernels)
    assert isinstance(text, str)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 3
    assert [row["param_width"] for row in rows] == ["128", "", "128"]
    assert [row["param_staged"] for row in rows] == ["true", "", "false"]
    assert [row["size_n"] for row in rows] == ["1000000", "32", "1000000"]
    assert [row["size_m"] for row in rows] == ["", "64", ""]
    assert [row["time_ms"] for row in rows] == ["0.5", "0.5", ""]
    assert rows[0]["shared_bytes"] == str(128 * 64 * 4)
    assert (rows[0]["grid_x"], rows[0]["block_x"], rows[2]["grid_x"]) == ("7813", "128", "")
    assert rows[2]["message"] == awkward
    assert rows[0].keys() >= {"device", "arch", "estimated", "kernel", "dtype", "outcome", "driver", "source_digest"}


def test_markdown_never_mixes_estimates_with_measurements(measured: Make, kernels: Kernels) -> None:
    records = [
        measured(time_ms=0.01),
        measured("matmul", {"m": 1000, "n": 1000, "k": 1000}, time_ms=1.0),
        measured(estimated=True, time_ms=0.001),  # under the very same name
        measured(changes={"outcome": "wrong_result", "measurement": None}),
    ]
    text = export(records, "markdown", None, kernels)
    assert isinstance(text, str)
    real, guessed = text.split("## ")[1:]
    assert real.startswith("NVIDIA H200 (sm_90)\n")
    assert "estimate" not in real
    assert "| toy | 1000000 float32 | 0.01 | 800 GB/s | width=128 staged=false buffers=1 |" in real
    assert "2.00 TFLOP/s" in real
    assert "1 failed trials are not shown" in real
    assert guessed.startswith("NVIDIA H200 (sm_90, estimated)\n")
    assert "| estimated time_ms |" in guessed
    assert "0.001" in guessed
    assert "0.001" not in real


def test_markdown_of_a_kernel_that_is_gone_and_of_an_awkward_name(measured: Make, kernels: Kernels) -> None:
    def none(name: str) -> Kernel:
        return load_kernel("no such kernel")

    text = export([measured(device="A|B\n# <b>")], "markdown", None, none)
    assert isinstance(text, str)
    assert "## A\\|B # &lt;b> (sm_90)" in text
    assert "| – |" in text
    assert export([], "markdown", None, kernels) == "No records.\n"


def test_cuda_files_say_how_to_build_and_launch_them(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    big = measured(sizes={"n": 4096}, staged=True, buffers=100, width=256)
    records = [
        measured(time_ms=2.0, width=64),
        measured(time_ms=1.0),
        big,
        measured(device="NVIDIA A100", arch="sm_80"),
    ]
    paths = export(records, "cuda", tmp_path / "out", kernels)
    assert isinstance(paths, list)
    folder = tmp_path / "out" / device_folder("NVIDIA H200", "sm_90")
    assert set(paths) == {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert len(paths) == 5
    winner = (folder / "toy-n1000000-float32.cu").read_text()
    header, _, source = winner.partition("\n\n")
    assert source == render(kernels("toy"), records[1].problem, records[1].configuration).text
    assert all(line.startswith("//") for line in header.splitlines())
    for piece in (
        "NVIDIA H200 (sm_90), driver 570.86, nvcc 12.8",
        "time:    1 ms".replace("    ", " "),
        "grid (7813, 1, 1), block (128, 1, 1), shared_bytes 0",
        "nvcc -std=c++17 -arch=sm_90 -cubin -o toy-n1000000-float32.cubin toy-n1000000-float32.cu",
    ):
        assert piece in header
    assert "cudaFuncSetAttribute" not in header
    opted = (folder / "toy-n4096-float32.cu").read_text()
    assert "cudaFuncSetAttribute(toy, cudaFuncAttributeMaxDynamicSharedMemorySize, 102400);" in opted
    launches = json.loads((folder / "launch.json").read_text())
    assert launches["schema_version"] == 1
    assert launches["device"] == "NVIDIA H200"
    assert [
        (one["file"], one["grid"], one["block"], one["shared_bytes"], one["time_ms"]) for one in launches["kernels"]
    ] == [
        ("toy-n4096-float32.cu", [16, 1, 1], [256, 1, 1], 102400, 0.5),
        ("toy-n1000000-float32.cu", [7813, 1, 1], [128, 1, 1], 0, 1.0),
    ]


def test_estimated_winners_have_a_folder_of_their_own_and_say_so(
    measured: Make, kernels: Kernels, tmp_path: Path
) -> None:
    paths = export([measured(), measured(estimated=True, time_ms=0.1)], "cuda", tmp_path, kernels)
    assert len(paths) == 4
    real, guessed = sorted(tmp_path.iterdir())
    assert guessed.name == real.name + "-estimated"
    assert "estimated by a model, not measured: 0.1 ms" in next(guessed.glob("*.cu")).read_text()
    assert "estimated" not in next(real.glob("*.cu")).read_text().split("\n\n")[0]


def test_a_device_name_cannot_break_out_of_the_comment_or_the_folder(
    measured: Make, kernels: Kernels, tmp_path: Path
) -> None:
    record = measured(device="../../x\n#error */ \\", arch="sm_90; rm -rf /")
    record = dataclasses.replace(record, identity=dataclasses.replace(record.identity, compiler="nvcc\n#error \\"))
    export([record], "cuda", tmp_path / "out", kernels)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (file,) = (tmp_path / "out").glob("*/*.cu")
    header = file.read_text().split("\n\n")[0].splitlines()
    assert all(line.startswith("// ") and not line.endswith("\\") for line in header)
    assert "-arch=native" in header[4]


def test_a_winner_whose_template_changed_is_left_out(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    stale = measured(sizes={"n": 77}, changes={"source_digest": "0" * 64})
    with pytest.warns(ExportWarning, match="toy 77 float32 on NVIDIA H200 left out: its template has changed"):
        paths = export([measured(), stale], "cuda", tmp_path, kernels)
    assert len(paths) == 2
    with pytest.warns(ExportWarning), pytest.raises(NotTuned, match="autotile search"):
        export([stale], "cuda", tmp_path, kernels)


@pytest.mark.parametrize("format_", FORMATS)
def test_files_are_written_where_they_are_asked_for(
    measured: Make, kernels: Kernels, tmp_path: Path, format_: str
) -> None:
    path = tmp_path / "deep" / "out"
    written = export([measured()], format_, path, kernels)
    assert isinstance(written, list)
    assert all(file.is_file() for file in written)
    if format_ not in ("cuda", "t4"):
        assert path.read_text(encoding="utf-8") == export([measured()], format_, None, kernels)


def test_what_cannot_be_is_said(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match=r"unknown format 'jsn' .*json"):
        export([], "jsn", None, kernels)
    for path in (None, file):
        with pytest.raises(UsageError, match="writes a folder"):
            export([measured()], "cuda", path, kernels)
    with pytest.raises(UsageError, match="name a file in it"):
        export([measured()], "json", tmp_path, kernels)
    for format_ in ("csv", "cuda"):
        with pytest.raises(StoreError, match="cannot write"):
            export([measured()], format_, file / "below", kernels)


def shipped_records(measured: Make) -> list[Record]:
    sizes = {"matmul": {"m": 128, "n": 64, "k": 32}, "transpose": {"rows": 100, "cols": 60}}
    return [measured(kernel, sizes[kernel]) for kernel in kernel_folders() if kernel in sizes]


def test_the_shipped_kernels_export_in_every_format(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    records = shipped_records(measured)
    assert len(records) == 2
    for format_ in FORMATS:
        assert export(records, format_, tmp_path / format_, kernels)


@pytest.mark.nvcc
def test_exported_files_compile_as_their_header_says(measured: Make, kernels: Kernels, tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    export([*shipped_records(measured), measured(staged=True)], "cuda", tmp_path, kernels)
    (launches,) = tmp_path.glob("*/launch.json")
    for one in json.loads(launches.read_text())["kernels"]:
        subprocess.run(one["compile"].split(), cwd=launches.parent, check=True)
        assert (launches.parent / one["file"]).with_suffix(".cubin").stat().st_size
