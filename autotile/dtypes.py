"""Element types: how numpy, C and the problem's key name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from autotile.errors import UsageError


@dataclass(frozen=True)
class ElementType:
    """`c_name` is the CUDA C++ type, `header` what declares it, `accumulator` the type that keeps sums of products.

    `unit_roundoff` is the largest relative error of rounding to the type (0 for integers): half the gap above 1.
    `factor_roundoff` is that of what a factor of a product keeps of an element, by truncation at worst; 0 where factors
    are multiplied as they are stored. `result` names the type in which a sum of products is returned where nothing is
    said; empty is the type itself.
    """

    name: str
    numpy: np.dtype[Any]
    c_name: str
    accumulator: str
    header: str = ""
    unit_roundoff: float = 0.0
    factor_roundoff: float = 0.0
    result: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.numpy.itemsize)

    @property
    def stored(self) -> str:
        """The name of the type that arrays have: `float32` for tf32, its own for all others."""
        return name_of(self.numpy)

    @property
    def is_float(self) -> bool:
        return self.unit_roundoff > 0

    @property
    def is_complex(self) -> bool:
        return self.numpy.kind == "c"

    @property
    def scalar(self) -> type[np.float32] | type[np.float64]:
        """What a scalar argument is passed as: a double where `accumulator` is one, else a float."""
        return np.float64 if self.accumulator == "double" else np.float32


def _float8(name: str, dtype: Any, c_name: str, unit_roundoff: float) -> ElementType:
    return ElementType(name, np.dtype(dtype), c_name, "float", "cuda_fp8.h", unit_roundoff)


def _by_name(*rows: ElementType) -> dict[str, ElementType]:
    return {row.name: row for row in rows}


ELEMENT_TYPES = _by_name(
    ElementType("int8", np.dtype(np.int8), "signed char", "int", result="int32"),
    ElementType("uint8", np.dtype(np.uint8), "unsigned char", "unsigned"),
    ElementType("int16", np.dtype(np.int16), "short", "int"),
    ElementType("int32", np.dtype(np.int32), "int", "int"),
    ElementType("int64", np.dtype(np.int64), "long long", "long long"),
    ElementType("float16", np.dtype(np.float16), "__half", "float", "cuda_fp16.h", 2.0**-11),
    ElementType("bfloat16", np.dtype(ml_dtypes.bfloat16), "__nv_bfloat16", "float", "cuda_bf16.h", 2.0**-8),
    ElementType("float32", np.dtype(np.float32), "float", "float", "", 2.0**-24),
    ElementType("float64", np.dtype(np.float64), "double", "double", "", 2.0**-53),
    ElementType("complex64", np.dtype(np.complex64), "float2", "float2", "", 2.0**-24),
    ElementType("complex128", np.dtype(np.complex128), "double2", "double2", "", 2.0**-53),
)
"""By name, the types in which any kernel may compute."""

TENSOR_TYPES = _by_name(
    ElementType("tf32", np.dtype(np.float32), "float", "float", "", 2.0**-24, 2.0**-10, "float32"),
    _float8("float8_e4m3fn", ml_dtypes.float8_e4m3fn, "__nv_fp8_e4m3", 2.0**-4),
    _float8("float8_e5m2", ml_dtypes.float8_e5m2, "__nv_fp8_e5m2", 2.0**-3),
)
"""Those that are there for tensor cores alone, which multiply in them."""

_ALL = ELEMENT_TYPES | TENSOR_TYPES


def element_type(name: str) -> ElementType:
    """The row of the table. Raises UsageError for a name that is not in it."""
    try:
        return _ALL[name]
    except KeyError:
        raise UsageError(f"unknown dtype {name!r}; known: {', '.join(_ALL)}") from None


def name_of(dtype: Any) -> str:
    """The table's name of a numpy dtype; float32, not tf32, whose arrays it has too.

    Raises UsageError for one that is not in the table.
    """
    wanted = np.dtype(dtype)
    for row in _ALL.values():
        if row.numpy == wanted:
            return row.name
    raise UsageError(f"dtype {wanted} is not supported; known: {', '.join(_ALL)}")
