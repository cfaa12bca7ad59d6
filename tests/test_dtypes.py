"""The table of element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autotile.dtypes import ELEMENT_TYPES, TENSOR_TYPES, ElementType, element_type, name_of
from autotile.errors import UsageError

ALL = {**ELEMENT_TYPES, **TENSOR_TYPES}
FLOATS = [row for row in ALL.values() if row.is_float and not row.is_complex]


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row.name)
def test_the_unit_roundoff_is_half_the_gap_above_one(row: ElementType) -> None:
    assert row.unit_roundoff == float(ml_dtypes.finfo(row.numpy).eps) / 2


@pytest.mark.parametrize("row", ALL.values(), ids=lambda row: row.name)
def test_a_result_is_no_shorter_and_a_whole_multiple(row: ElementType) -> None:
    """What keeps problem.alignment true: a result lies as many of its own elements off as an element of its."""
    for result in (
        element_type(row.result or row.name),
        *([element_type("float32")] if row.accumulator == "float" else []),
    ):
        assert result.itemsize % row.itemsize == 0
        assert result.is_float == row.is_float
        assert result.result in ("", result.name)


def test_what_a_sum_is_returned_in() -> None:
    assert {name: row.result for name, row in ALL.items() if row.result} == {"int8": "int32", "tf32": "float32"}


def test_tf32_is_stored_as_float32_and_multiplied_as_less() -> None:
    tf32 = element_type("tf32")
    assert (tf32.numpy, tf32.c_name, tf32.accumulator, tf32.stored) == (np.float32, "float", "float", "float32")
    assert (tf32.unit_roundoff, tf32.factor_roundoff) == (2.0**-24, 2.0**-10)
    bits = np.random.default_rng(0).standard_normal(10_000, np.float32)
    truncated = (bits.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)  # 10 of 23 bits of the mantissa are left
    lost = np.abs((bits - truncated) / bits).max()
    assert tf32.factor_roundoff / 2 < lost < tf32.factor_roundoff
    assert name_of(np.float32) == "float32"
    assert not any(row.factor_roundoff for row in ALL.values() if row is not tf32)


@pytest.mark.parametrize(
    ("name", "dtype", "c_name"),
    [
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "__nv_fp8_e4m3"),
        ("float8_e5m2", ml_dtypes.float8_e5m2, "__nv_fp8_e5m2"),
    ],
)
def test_floats_of_8_bits(name: str, dtype: type, c_name: str) -> None:
    row = element_type(name)
    assert (row.c_name, row.header, row.accumulator, row.itemsize) == (c_name, "cuda_fp8.h", "float", 1)
    assert name_of(dtype) == row.stored == name == row.numpy.name


@pytest.mark.parametrize("row", ALL.values(), ids=lambda row: row.name)
def test_names_come_back(row: ElementType) -> None:
    assert element_type(row.stored).numpy == row.numpy
    assert row.stored == row.name or row.name == "tf32"


def test_what_is_not_in_the_table() -> None:
    with pytest.raises(UsageError, match=r"unknown dtype 'float8'; known: .*tf32, float8_e4m3fn, float8_e5m2"):
        element_type("float8")
    with pytest.raises(UsageError, match="dtype float8_e3m4 is not supported"):
        name_of(ml_dtypes.float8_e3m4)
