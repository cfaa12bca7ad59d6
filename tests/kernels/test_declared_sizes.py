"""Optional sizes, pitches and classes that cannot be meant are refused when the folder is read, with file and name."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.errors import KernelError
from autotile.kernels.loader import DEFINITION, TEMPLATE, read_folder

KERNEL_PY = """\
from autotile.kernels import Input, Kernel, LaunchPlan, OptionalSize, Output, Parameter, ShapeClass, Size

KERNEL = Kernel(
    name="gaps",
    doc="out = in",
    dimensions=("rows", "cols"),
    optional=(
        OptionalSize("batch", "1", ""),
        OptionalSize("pitch", "problem.cols", ""),
        OptionalSize("step", "problem.rows", ""),
    ),
    dtypes=("float32",),
    arguments=(
        Input("in", ("batch", "rows", "cols"), pitch="pitch", step="step"),
        Output("out", ("batch", "rows", "cols")),
        Size("rows"),
    ),
    parameters=(Parameter("width", (32, 64), 32, ""),),
    launch=LaunchPlan(grid=("problem.batch",), block=("width",)),
    classes=(ShapeClass("wide", "problem.cols > problem.rows"), ShapeClass("tall", "problem.rows > 0")),
    reference=lambda inputs, problem: {"out": inputs["in"]},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="8 * problem.rows * problem.cols",
    opaque=True,
)
"""


def read(root: Path, *edit: str) -> None:
    folder = root / "gaps"
    folder.mkdir()
    text = KERNEL_PY
    for old, new in zip(edit[::2], edit[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    (folder / DEFINITION).write_text(text)
    (folder / TEMPLATE).write_text("// {{ width }}\n")
    read_folder(folder)


def test_the_declaration_as_it_is_holds(tmp_path: Path) -> None:
    read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"pitch", "problem.cols"', '"pitch", "1"', "the default of its pitch 'pitch' is 1 .*'problem.cols' at least"),
        ('"step", "problem.rows"', '"step", "2"', "the default of its step 'step' is 2 .*'problem.rows' at least"),
        ('"batch", "1"', '"batch", "0"', "optional size 'batch': its default is 0"),
        ('"batch", "1"', '"batch", "1 - 2"', "optional size 'batch': its default is -1"),
        ('"batch", "1"', '"batch", 1', "default must be a text, not 1"),
        ('OptionalSize("batch"', 'OptionalSize("a batch"', "'a batch': the name must be an identifier"),
        ('OptionalSize("batch", "1", "")', '"batch"', r"optional holds OptionalSize\(…\)"),
        ('ShapeClass("tall", "problem.rows > 0")', '"tall"', r"classes holds ShapeClass\(…\)"),
        ('ShapeClass("tall", "problem.rows > 0")', 'ShapeClass("tall", True)', "expression must be a text, not True"),
        ('ShapeClass("tall"', 'ShapeClass("wide"', "classes wide: declared twice"),
        ('pitch="pitch"', 'pitch="cols"', "array 'in': its pitch 'cols' must be an optional size"),
        ('pitch="pitch"', 'pitch="step"', "its pitch and its step must be two sizes"),
        ('pitch="pitch", step', "step", "there must be a pitch too"),
        ('("batch", "rows", "cols"), pitch', '("rows", "cols"), pitch', "a step needs 3 dimensions, not 2"),
        ("opaque=True", 'opaque="no"', "opaque must be True or False, not 'no'"),
    ],
)
def test_one_that_cannot_be_meant_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    with pytest.raises(KernelError, match=f"(?s){DEFINITION}.*{says}"):
        read(tmp_path, old, new)
