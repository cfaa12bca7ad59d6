"""One name for two kernel folders: which of them serves a dtype on a device, and what is wrong otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autotile.devices.gpus import find_gpu
from autotile.devices.info import DeviceInfo
from autotile.errors import KernelError, UsageError
from autotile.kernels import Instead, kernel_for, load_kernel
from autotile.kernels.instead import folders_of, resolve, served_dtypes
from autotile.types import Problem

PUBLIC = Path(__file__).resolve().parents[1] / "data" / "public"
COPIED = load_kernel("copied", PUBLIC)


def nowhere() -> DeviceInfo:
    raise AssertionError("nobody needs the device")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The toys, to be changed."""
    return Path(shutil.copytree(PUBLIC, tmp_path / "public"))


def change(folder: Path, kernel: str, old: str, new: str) -> None:
    file = folder / kernel / "kernel.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("name", "dtype", "gpu", "wanted"),
    [
        ("copied", "float64", "a100", "copied_fast"),
        ("copied", "int32", "h200", "copied_fast"),
        ("copied", "float64", "t4", "copied"),
        ("copied", "float32", "a100", "copied"),  # the other has it, but not under this name
        ("copied", None, "a100", "copied"),
        ("copied_fast", "float32", "t4", "copied_fast"),
    ],
)
def test_dtype_and_device_decide(name: str, dtype: str | None, gpu: str, wanted: str) -> None:
    assert kernel_for(name, dtype, lambda: find_gpu(gpu), PUBLIC).name == wanted


def test_a_dtype_that_is_left_out_is_the_public_kernels_first(folder: Path) -> None:
    change(folder, "copied", "('int32', 'float64')", "('int32', 'float32')")
    public = load_kernel("copied", folder)
    kernel, dtype = resolve(public, None, lambda: find_gpu("h200"), folder)
    assert (kernel.name, dtype) == ("copied_fast", "float32")


def test_the_first_that_fits_serves_and_one_without_the_dtype_does_not(folder: Path) -> None:
    shutil.copytree(folder / "copied_fast", folder / "copied_first")
    change(folder, "copied_first", 'name="copied_fast"', 'name="copied_first"')
    change(folder, "copied_first", '"int32", "float64", "float32"', '"int32",')
    change(folder, "copied", "instead=(", 'instead=(\n        Instead("copied_first", "True"),')
    served = {
        dtype: kernel_for("copied", dtype, lambda: find_gpu("h200"), folder).name for dtype in ("int32", "float64")
    }
    assert served == {"int32": "copied_first", "float64": "copied_fast"}


def test_a_kernel_that_serves_alone_needs_no_device() -> None:
    assert kernel_for("copied_fast", "no such dtype", nowhere, PUBLIC).name == "copied_fast"
    assert kernel_for("transpose", None, nowhere).name == "transpose"


def test_a_dtype_that_none_has() -> None:
    with pytest.raises(
        UsageError,
        match=r"copied has no dtype 'int23' \(did you mean 'int32'\?\); it has float32, float64 \(kernel copied\); "
        r"int32, float64 \(kernel copied_fast\)",
    ):
        kernel_for("copied", "int23", lambda: find_gpu("h200"), PUBLIC)


def test_a_dtype_for_which_the_gpu_is_lacking() -> None:
    with pytest.raises(UsageError) as raised:
        kernel_for("copied", "int32", lambda: find_gpu("t4"), PUBLIC)
    said = str(raised.value)
    assert "copied int32 is served by the kernel copied_fast, where problem.dtype in" in said
    assert "Tesla T4 (compute capability 75) is no such GPU; these are: h200, h100, a100" in said
    assert "v100" not in said


def test_what_is_served_and_whose_records_count() -> None:
    assert served_dtypes(COPIED, COPIED.instead[0], load_kernel("copied_fast", PUBLIC)) == ("int32", "float64")
    assert folders_of("copied", PUBLIC) == ("copied", "copied_fast")
    assert folders_of("copied_fast", PUBLIC) == ("copied_fast",)
    assert folders_of("gone", PUBLIC) == ("gone",)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("device.compute_capability", "device.capability", "instead copied_fast: unknown name 'device.capability'"),
        ("device.compute_capability", "problem.n", "unknown name 'problem.n'"),
        ("problem.dtype in ('int32', 'float64') and", "width >", "unknown name 'width'"),
        ("problem.dtype in ('int32', 'float64') and device.compute_capability >= 80", "problem.dtype", "yes or no"),
        ('"copied_fast"', '"copied"', "instead names the kernel 'copied' itself"),
        ('"copied_fast"', "7", "kernel must be a text, not 7"),
        ("instead=(", 'instead=("copied_fast",', r"instead holds Instead\(…\), not"),
    ],
)
def test_what_a_declaration_cannot_say(folder: Path, old: str, new: str, why: str) -> None:
    change(folder, "copied", old, new)
    with pytest.raises(KernelError, match=why):
        load_kernel("copied", folder)


def test_the_folder_must_be_there_when_it_is_needed(folder: Path) -> None:
    change(folder, "copied", '"copied_fast"', '"copied_fats"')
    assert kernel_for("copied", "float64", lambda: find_gpu("t4"), folder).name == "copied"
    with pytest.raises(
        KernelError, match=r"copied, instead copied_fats: no kernel 'copied_fats' \(did you mean 'copied_fast'\?\)"
    ):
        kernel_for("copied", "float64", lambda: find_gpu("h200"), folder)


def test_who_serves_for_another_serves_alone(folder: Path) -> None:
    change(folder, "copied_fast", "import Input,", "import Input, Instead,")
    change(folder, "copied_fast", 'flops="0",', 'flops="0",\n    instead=(Instead("copied", "True"),),')
    with pytest.raises(KernelError, match="that kernel has `instead` itself"):
        kernel_for("copied", "float64", lambda: find_gpu("h200"), folder)


def test_the_kernel_itself_is_asked_for_the_problem() -> None:
    kernel = kernel_for("copied", "float64", lambda: find_gpu("h200"), PUBLIC)
    assert kernel.problem({"n": 5}, "float64") == Problem("copied_fast", (("n", 5),), "float64")
    assert Instead("a", "True") == Instead("a", "True", "")
