"""What is saved answers another process, from another folder, as it answered the first; and where it lies is said."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import write_kernel

import autotile
from autotile.kernels.loader import read_folder
from autotile.report import export
from autotile.runtime import notes
from autotile.types import SCHEMA_VERSION, Identity, Measurement, Record

ROOT = Path(__file__).resolve().parents[2]
SEARCH = """\
kernel: matmul
problems: [{m: 64, n: 64, k: 64}]
parameters: {block_m: 32, block_n: 32, block_k: 8, thread_m: 4, thread_n: 4, staging: static}
search: {trials: 1}
"""
CALLS = """
import sys
import numpy as np, autotile
given = np.load(sys.argv[1])
matmul = autotile.load("matmul", m=64, n=64, k=64, device="emulator", strict=True)
np.savez(sys.argv[2], **{f"c{i}": matmul(given[f"a{i}"], given[f"b{i}"]) for i in range(3)})
"""
SHAPES = ((64, 64, 64), (33, 65, 17), (1, 100, 40))


def ran(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, which finds autotile wherever it runs."""
    kept = {name: value for name, value in os.environ.items() if environment.get(name, value)}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), **{name: value for name, value in environment.items() if value}},
        timeout=120,
    )


def test_another_process_gets_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IBM/triton-dejavu#1: the second run, from the cache, gave others."""
    file = tmp_path / "matmul.yaml"
    file.write_text(SEARCH)
    (result,) = autotile.search(file, device="emulator")
    assert result.best is not None
    monkeypatch.setattr(notes, "_said", set())
    matmul = autotile.load("matmul", m=64, n=64, k=64, device="emulator", strict=True)
    random, given = np.random.default_rng(3), {}
    for i, (m, n, k) in enumerate(SHAPES):
        given[f"a{i}"] = random.standard_normal((m, k), dtype=np.float32)
        given[f"b{i}"] = random.standard_normal((k, n), dtype=np.float32)
    np.savez(tmp_path / "given.npz", **given)
    done = ran("-c", CALLS, tmp_path / "given.npz", tmp_path / "found.npz", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(tmp_path / "found.npz") as found:
        for i in range(3):
            a, b = given[f"a{i}"], given[f"b{i}"]
            assert np.array_equal(found[f"c{i}"], matmul(a, b))
            assert np.allclose(found[f"c{i}"], a @ b, atol=1e-4)


def test_a_home_below_a_folder_that_takes_nothing(tmp_path: Path) -> None:
    """NVIDIA/cudf#4973: a home that cannot be written; here it is the platform's own choice, not AUTOTILE_HOME."""
    file, kernels = tmp_path / "walk.yaml", write_kernel(tmp_path / "kernels")
    file.write_text("kernel: walk\nproblems: [{n: 64}]\nsearch: {trials: 1}\n")
    arguments = ("-m", "autotile", "search", file, "--device", "emulator", "--templates", kernels)
    done = ran(*arguments, cwd=tmp_path, HOME="/proc", AUTOTILE_HOME="", XDG_DATA_HOME="")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("/proc/") <= 2, done.stderr  # one word for the records, one for the binaries
    assert "/proc/" in done.stderr
    assert "1 trials on record (1 ok)" in done.stdout


def test_a_relative_home_is_told_in_full(tmp_path: Path) -> None:
    """optuna/optuna#2972: from another folder it is another place; nothing is made there by reading."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        listed = ran("-m", "autotile", "list", cwd=tmp_path / folder, AUTOTILE_HOME="records")
        assert f"tuned, in {tmp_path / folder / 'records'} or shipped\n" in listed.stdout
        exported = ran("-m", "autotile", "export", cwd=tmp_path / folder, AUTOTILE_HOME="records")
        assert exported.returncode == 1
        assert str(tmp_path / folder / "records") in exported.stderr
        assert list((tmp_path / folder).iterdir()) == []


def test_the_users_own_compiler_flags_are_told_wherever_a_result_is(tmp_path: Path) -> None:
    """triton-lang/triton#1242: a time that was got with other options is another result."""
    kernel = read_folder(write_kernel(tmp_path) / "walk")
    plain = Identity("NVIDIA H200", "sm_90", "570", "nvcc 13.0", "0" * 16, SCHEMA_VERSION, False)
    records = [
        Record(kernel.problem({"n": 64}), kernel.configuration(), identity, "ok", measurement=Measurement(1, 1, 0, 9))
        for identity in (plain, replace(plain, flags="NVCC_APPEND_FLAGS=-use_fast_math"))
    ]
    rows = list(csv.DictReader(str(export(records, "csv", None, lambda name: kernel)).splitlines()))
    assert [row["flags"] for row in rows] == ["", "NVCC_APPEND_FLAGS=-use_fast_math"]
    page = str(export(records, "markdown", None, lambda name: kernel))
    assert page.count("driver 570, nvcc 13.0 |") == 1
    assert page.count("driver 570, nvcc 13.0, NVCC_APPEND_FLAGS=-use_fast_math |") == 1


# ---- output and input that have no room, or no end ------------------------------------------------------------------

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@full
@pytest.mark.parametrize("command", ["list", "show matmul", "show matmul --json -", "render transpose"])
def test_a_full_disk_behind_stdout_is_one_message(command: str, tmp_path: Path) -> None:
    with open("/dev/full", "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "autotile", *command.split()],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr == "autotile: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_import_without_an_end_is_refused_at_its_beginning(tmp_path: Path) -> None:
    done = ran("-m", "autotile", "import", "/dev/zero", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("autotile: /dev/zero: not text; name a file that")
    assert done.stderr.count("\n") == 1
