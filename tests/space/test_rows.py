"""Spaces that are given row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotile.errors import ConfigurationError
from autotile.space import numbering, space_of_rows

NAMES, DOMAINS = ("a", "mode", "b"), ((4, 1, 2), ("none", "tile"), (False, True))
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)), max_size=20)


@pytest.mark.parametrize("most", [2**62, 60, 2])
@given(rows=ROWS)
def test_rows_come_in_any_order_and_end_in_that_of_the_domains(most: int, rows: list[tuple[int, ...]]) -> None:
    """Also where numbers hold no more than a few digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbering, "MOST_NUMBERS", most)
        space = space_of_rows(NAMES, DOMAINS, np.asarray(rows, np.int64).reshape(-1, 3))
        assert [tuple(codes) for codes in space.codes.tolist()] == sorted(set(rows))
        assert (space.total, space.feasible, space.sampled, space.rejections) == (12, len(set(rows)), False, ())
        for row in range(len(space)):
            assert space.row_of(space.configuration(row)) == row
        every = np.asarray(np.unravel_index(np.arange(12), (3, 2, 2))).T
        expected = [sorted(set(rows)).index(key) if (key := tuple(codes)) in rows else -1 for codes in every.tolist()]
        assert space.rows_of(every).tolist() == expected


def test_values_are_looked_up_with_their_type() -> None:
    space = space_of_rows(NAMES, DOMAINS, np.array([[1, 1, 1]]))
    assert dict(space.configuration(0)) == {"a": 1, "mode": "tile", "b": True}
    assert space.row_of({"a": 1, "mode": "tile", "b": True}) == 0
    assert space.row_of({"a": 1, "mode": "tile", "b": 1}) is None
    assert space.row_of({"a": True, "mode": "tile", "b": True}) is None
    assert space.row_of({"a": 4, "mode": "tile", "b": True}) is None


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.array([[0, 0]]), r"int64 codes of shape \(1, 2\), 3 parameters"),
        (np.array([[0.0, 0.0, 0.0]]), "float64 codes"),
        (np.array([[0, 2, 0]]), "codes 2 to 2 for 'mode', whose domain has 2 values"),
        (np.array([[0, 0, 0], [-1, 0, 0]]), "codes -1 to 0 for 'a'"),
    ],
)
def test_what_is_no_table_of_the_domains_is_refused(codes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        space_of_rows(NAMES, DOMAINS, codes)
