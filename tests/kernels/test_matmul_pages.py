"""What the matmul's pages name is there, and what is there is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autotile.kernels import load_kernel

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "templates" / "matmul"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
STORY = (ROOT / "docs" / "matmul.md").read_text(encoding="utf-8")
KERNEL = load_kernel("matmul")


TENSOR = load_kernel("matmul_tensor")
TENSOR_README = (TENSOR.folder / "README.md").read_text(encoding="utf-8")
PYTORCH = {"mm", "addmm", "bmm", "baddbmm", "_int_mm", "_scaled_mm", "allow_tf32"}
INSTRUCTIONS = {"ldmatrix", "griddepcontrol"}
CASES = {"nt", "tn", "tt", "wide"}


def rows_of(heading: str, page: str = README) -> list[str]:
    """The names in the first column of the table below a heading."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_parameter_has_a_row_and_no_other() -> None:
    assert sorted(rows_of("The parameters")) == sorted(parameter.name for parameter in KERNEL.parameters)


def test_every_parameter_on_tensor_cores_has_a_row_and_no_other() -> None:
    assert rows_of("The parameters", TENSOR_README) == [parameter.name for parameter in TENSOR.parameters]


def test_everything_that_a_problem_may_say_has_a_row() -> None:
    declared = [*(switch.name for switch in KERNEL.switches), *(size.name for size in KERNEL.optional)]
    assert sorted(rows_of("What a problem may say")) == sorted(declared)


def test_every_preset_is_named() -> None:
    assert [name for name in KERNEL.presets if f"`{name}`" not in README] == []


def test_every_file_is_named() -> None:
    names = {path.name.partition(".")[0] if path.suffix == ".j2" else path.name for path in FOLDER.rglob("*.[pj]*")}
    told = {name.rpartition("/")[2] for name in re.findall(r"`([\w./]+)`", README)}
    assert names - told - {"kernel"} == set()


@pytest.mark.parametrize("page", [README, STORY], ids=["README", "story"])
def test_what_the_pages_tell_to_run_is_there(page: str) -> None:
    searches = re.findall(r"autotile search ([\w-]+)", page)
    assert searches
    assert [name for name in searches if not (ROOT / "configs" / f"{name}.yaml").is_file()] == []
    assert [name for name in re.findall(r"python (benchmarks/\w+\.py)", page) if not (ROOT / name).is_file()] == []
    assert [
        name for name in re.findall(r"--preset (\w+)", page) if name not in {**KERNEL.presets, **TENSOR.presets}
    ] == []


def test_names_in_the_story_are_those_of_the_kernel() -> None:
    """What is renamed is renamed here too."""
    parameters = (*KERNEL.parameters, *TENSOR.parameters)
    values = {str(value) for parameter in parameters for value in parameter.values}
    declared = (*parameters, *KERNEL.traits, *KERNEL.switches)
    known = {*(each.name for each in declared), *KERNEL.presets, *values, "winner"} | PYTORCH | CASES | INSTRUCTIONS
    quoted = set(re.findall(r"`(\w*[a-z]\w*)`", STORY))
    assert quoted - known == set()
    assert {"early_barrier", "large", "fits_m", "addend", "k_major"} <= quoted
