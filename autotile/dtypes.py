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
    """

    name: str
    numpy: np.dtype[Any]
    c_name: str
    accumulator: str
    header: str = ""
    unit_roundoff: float = 0.0

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.numpy.itemsize)

    @property
    def is_float(self) -> bool:
        return self.unit_roundoff > 0

    @property
    def is_complex(self) -> bool:
        return self.numpy.kind == "c"

    @property
    def scalar(self) -> type[np.float32] | type[np.float64]:
        """What a scalar argument is passed as: a float or a double, as `accumulator` is."""
        return np.float64 if self.accumulator == "double" else np.float32


def _table() -> dict[str, ElementType]:
    rows = [
        ElementType("int8", np.dtype(np.int8), "signed char", "int"),
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
    ]
    return {row.name: row for row in rows}


ELEMENT_TYPES = _table()


def element_type(name: str) -> ElementType:
    """The row of the table. Raises UsageError for a name that is not in it."""
    try:
        return ELEMENT_TYPES[name]
    except KeyError:
        raise UsageError(f"unknown dtype {name!r}; known: {', '.join(ELEMENT_TYPES)}") from None


def name_of(dtype: Any) -> str:
    """The table's name of a numpy dtype. Raises UsageError for one that is not in it."""
    wanted = np.dtype(dtype)
    for row in ELEMENT_TYPES.values():
        if row.numpy == wanted:
            return row.name
    raise UsageError(f"dtype {wanted} is not supported; known: {', '.join(ELEMENT_TYPES)}")
