"""Arrays of the result's type, as a kernel declares them: which type that is, and what expressions and texts see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotile.cli.definition import definition_lines, kernel_document
from autotile.codegen import render
from autotile.dtypes import ELEMENT_TYPES, TENSOR_TYPES
from autotile.errors import KernelError
from autotile.kernels import Input, Kernel, Output, Parameter, Scalar, Trait, load_kernel
from autotile.kernels.validation import validate
from autotile.types import Problem

KERNELS = Path(__file__).resolve().parents[1] / "data" / "kernels"
DOTS = load_kernel("dots", KERNELS)
NARROW, WIDE = {"m": 4, "n": 6, "k": 5}, {"m": 4, "n": 6, "k": 5, "wide": True}
RESULTS = {
    "int8": ("int32", "int32"),
    "bfloat16": ("bfloat16", "float32"),
    "float16": ("float16", "float32"),
    "float32": ("float32", "float32"),
    "float64": ("float64", "float64"),
    "tf32": ("float32", "float32"),
    "float8_e4m3fn": ("float8_e4m3fn", "float32"),
    "float8_e5m2": ("float8_e5m2", "float32"),
}


def problem(dtype: str, **stated: Any) -> Problem:
    return DOTS.problem({**NARROW, **stated}, dtype)


@pytest.mark.parametrize("dtype", RESULTS)
def test_the_result_type(dtype: str) -> None:
    plain, wide = problem(dtype), problem(dtype, wide=True)
    assert (DOTS.result_type(plain).name, DOTS.result_type(wide).name) == RESULTS[dtype]
    for asked in (plain, wide):
        for array in DOTS.arrays:
            expected = dtype if array.name in ("x", "y") else DOTS.result_type(asked).name
            assert DOTS.element_of(array, asked).name == expected
        scope = DOTS.problem_scope(asked)
        assert scope["problem.result_itemsize"] == DOTS.result_type(asked).itemsize
        assert scope["problem.itemsize"] == ({**ELEMENT_TYPES, **TENSOR_TYPES}[dtype]).itemsize


@pytest.mark.parametrize("dtype", RESULTS)
def test_the_text_sees_the_type(dtype: str) -> None:
    for asked, result in zip((problem(dtype), problem(dtype, wide=True)), RESULTS[dtype], strict=True):
        text = render(DOTS, asked, DOTS.configuration()).text
        row = {**ELEMENT_TYPES, **TENSOR_TYPES}[result]
        assert f"using result = {row.c_name};  // {result} of {dtype}\n" in text
        assert f"struct alignas(2 * {row.itemsize}) Pair" in text
        headers = {f"#include <{h}>" for h in (row.header, DOTS.element_of(DOTS.inputs[0], asked).header) if h}
        assert {line for line in text.splitlines() if line.startswith("#include")} == headers


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 8, 64])
@pytest.mark.parametrize("dtype", RESULTS)
def test_the_alignment_holds_for_every_array(dtype: str, offset: int) -> None:
    asked = problem(dtype, wide=True, offset=offset)
    alignment = DOTS.problem_scope(asked)["problem.alignment"]
    for array in DOTS.arrays:
        assert offset * DOTS.element_of(array, asked).itemsize % alignment == 0


def test_a_kernel_that_says_nothing_has_arrays_of_its_dtype() -> None:
    transpose = load_kernel("transpose")
    asked = transpose.problem({"rows": 4, "cols": 4}, "int8")
    assert [transpose.element_of(array, asked).name for array in transpose.arrays] == ["int8", "int8"]
    assert set(transpose.dtypes) == set(ELEMENT_TYPES), "what is for tensor cores alone is for kernels that name it"


def arguments(**changed: Any) -> tuple[Any, ...]:
    """The toy's, some of them otherwise."""
    return tuple(replace(a, **changed[a.name]) if a.name in changed else a for a in DOTS.arguments)


OPAQUE: dict[str, Any] = {"arguments": tuple(a for a in DOTS.arguments if not isinstance(a, Scalar)), "opaque": True}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wide": "broad"}, "wide names a switch of the kernel, which 'broad' is not"),
        ({"arguments": arguments(out={"of": "sum"})}, "array 'out': of must be 'element' or 'result', not 'sum'"),
        ({"arguments": arguments(out={"of": "element"})}, "'addend' is of 'result', 'out' of 'element'"),
        ({"in_place": ("x", "out")}, "in_place: 'x' is of 'element', 'out' of 'result'"),
        (OPAQUE, "an opaque kernel moves elements as they are"),
        ({"dtypes": ("uint8",)}, "scalars are float or double; sums of uint8 are neither$"),
        (
            {
                "arguments": arguments(**{n: {"of": "element"} for n in ("out", "addend", "bias")}),
                "dtypes": ("float32",),
            },
            "wide is 'wide', but no array is of 'result'",
        ),
        (
            {"arguments": arguments(**{n: {"of": "element"} for n in ("out", "addend", "bias")}), "wide": ""},
            "sums of int8 are neither; beside an output of 'result', integers",
        ),
        ({"traits": (Trait("result", "True", ""),)}, "'result' cannot be the name of a derived value or a trait"),
        ({"flops": "problem.result_size"}, "did you mean 'problem.result_itemsize'"),
    ],
)
def test_what_a_declaration_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(KernelError, match=words):
        validate(replace(DOTS, **changes))


@pytest.mark.parametrize("name", ["result", "result_itemsize", "result_header", "result_dtype"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(KernelError, match="the name is reserved"):
        Parameter(name, (1,), 1, "")


def test_what_show_says() -> None:
    lines = [line.strip() for line in definition_lines(DOTS)]
    assert (
        "of the results' type, int32, bfloat16, float16, float32, float64, float8_e4m3fn, float8_e5m2, or "
        "float32 where `wide` is on: addend, bias, out" in lines
    )
    document = kernel_document(DOTS)
    assert (document["results"]["int8"], document["wide"]) == ("int32", "wide")
    assert not any("results' type" in line for line in definition_lines(load_kernel("transpose")))


def test_a_kernel_may_name_an_input_alone() -> None:
    plain: tuple[Any, ...] = (Input("x", ("m",)), Input("y", ("m",), of="result"), Output("out", ("m",)))
    made = Kernel(
        "few", "", ("m",), ("int8",), plain, DOTS.parameters, replace(DOTS.launch, grid=("1",)), DOTS.reference,
        DOTS.error_bound, "0", "1",
    )  # fmt: skip
    validate(made)
    asked = made.problem({"m": 3})
    assert [made.element_of(array, asked).name for array in made.arrays] == ["int8", "int32", "int8"]
