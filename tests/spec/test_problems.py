"""Problems: with options in a search file, and given from outside in place of the file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotile.errors import SpecError, UsageError
from autotile.kernels import load_kernel
from autotile.spec import load_specs
from autotile.spec.load import parse_problem

TOYS = Path(__file__).parents[1] / "data" / "kernels"
ASKED: dict[str, Any] = {"rows": 4, "cols": 6, "dtype": "float64"}


def keys_of(tmp_path: Path, problem: str, *problems: dict[str, Any]) -> list[list[str]]:
    """The keys of each document's problems."""
    file = tmp_path / "s.yaml"
    file.write_text("---\n".join(f"kernel: moved\nproblems:\n  - {{{text}}}\n" for text in problem.split("|")))
    return [[one.key for one in spec.problems] for spec in load_specs(file, (), [TOYS], problems)]


def test_a_file_states_options(tmp_path: Path) -> None:
    text = "rows: 4, cols: 6, pitch: 8, batch: 3, offset: 1, dtype: int64|rows: 4, cols: 6, in_place: true, pitch: 6"
    assert keys_of(tmp_path, text) == [
        ["rows4-cols6-batch3-pitch8-offset1-int64"],
        ["rows4-cols6-in_place1-float32"],
    ]


@pytest.mark.parametrize(
    ("problem", "place", "why"),
    [
        ("rows: 4, cols: 6, pitch: 5", "3:31", "pitch must be at least 6 here, not 5"),
        ("pitch: 5, rows: 4, cols: 6", "3:13", "pitch must be at least 6 here, not 5"),
        ("rows: 4, cols: 6, batch: 0", "3:31", "batch must be an integer from 1"),
        ("rows: 4, cols: 6, offset: -1", "3:32", "offset must be an integer from 0"),
        ("rows: 4, cols: 6, in_place: 3", "3:34", "in_place must be true or false"),
        ("rows: 4, cols: 6, pitch: 8, in_place: true", "3:44", "in place: out must lie as in does"),
        ("rows: 4, pitch: 8", "3:5", "also needs cols"),
    ],
)
def test_a_fault_has_the_place_of_its_value(tmp_path: Path, problem: str, place: str, why: str) -> None:
    with pytest.raises(SpecError, match=rf"s\.yaml:{place}: moved.*{why}"):
        keys_of(tmp_path, problem)


def test_given_problems_stand_in_place_of_every_documents_own(tmp_path: Path) -> None:
    asked = [ASKED, {**ASKED, "batch": 1}, {"rows": 1, "cols": 1, "batch": 2}]
    wanted = ["rows4-cols6-float64", "rows1-cols1-batch2-float32"]  # a batch of one is the same problem
    assert keys_of(tmp_path, "rows: 9, cols: 9|rows: 8, cols: 8", *asked) == [wanted, wanted]


def test_a_kernel_that_lacks_a_size_says_so() -> None:
    """The second search of the file is of matmul."""
    with pytest.raises(
        UsageError, match=r"the problem 'rows=4, cols=6, dtype=float64': matmul has no dimension 'rows'"
    ):
        load_specs("classics", (), (), [ASKED])


def test_a_problem_as_text() -> None:
    assert parse_problem("rows=4096, cols = 0x10,in_place=true , dtype=float16") == {
        "rows": 4096,
        "cols": 16,
        "in_place": True,
        "dtype": "float16",
    }


@pytest.mark.parametrize("text", ["", "rows", "rows=", "=4", "rows=4,", "rows=4,,cols=5", "rows 4"])
def test_what_is_no_problem(text: str) -> None:
    with pytest.raises(UsageError, match="--problem wants NAME=VALUE, NAME=VALUE"):
        parse_problem(text)


@pytest.mark.parametrize("text", ["rows=4 cols=5", "rows=4;cols=5, dtype=int8"])
def test_what_parts_one_value_from_the_next(text: str) -> None:
    with pytest.raises(UsageError, match="commas part one NAME=VALUE from the next"):
        parse_problem(text)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"rows": 4, "cols": 5}, "out must lie as in does: cols must be rows, 4, not 5; rows must be cols, 5, not 4"),
        ({"rows": 4, "cols": 4, "in_pitch": 8}, "out must lie as in does: out_pitch must be in_pitch, 8, not 4$"),
    ],
)
def test_what_must_be_equal_in_place_is_named(sizes: dict[str, int], why: str) -> None:
    with pytest.raises(UsageError, match=f"transpose in place: {why}"):
        load_kernel("transpose").problem({**sizes, "in_place": True})


def test_a_name_that_stands_twice() -> None:
    with pytest.raises(UsageError, match="rows stands twice"):
        parse_problem("rows=4, rows=4")
