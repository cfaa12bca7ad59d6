"""Lanes' addresses in, a word, a sentence and a remedy out; and padding that is worked out, not guessed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autotile.devices.emulator.report import Access, Op, Space
from autotile.insight import banks
from autotile.insight.patterns import Shape, describe

Lane = Callable[[int], int]


def shape_of(
    lane: Lane,
    space: Space,
    access_bytes: int = 4,
    op: Op = "load",
    *,
    row_unit_bytes: int = 4,
    offset_bytes: int = 0,
    itemsize: int = 4,
) -> Shape:
    """Of a request in which lane n of 32 accesses address `lane(n)`."""
    example = tuple(map(lane, range(32)))
    placed = [address + (offset_bytes if space == "global" else 0) for address in example]
    counts = {
        "global": (banks.sectors, banks.least_sectors),
        "shared": (banks.wavefronts, banks.least_wavefronts),
    }
    cost, least = (count(placed, access_bytes) for count in counts[space])
    access = Access(1, op, space, access_bytes, 1, 32.0, cost, least, cost, cost, example=example)
    return describe(access, itemsize, row_unit_bytes=row_unit_bytes, offset_bytes=offset_bytes)


@pytest.mark.parametrize(
    ("lane", "access_bytes", "name", "words", "fix"),
    [
        (lambda n: 64, 4, "same", "one address", ""),
        (lambda n: 4096 * (n // 16), 4, "same", "only 2 addresses, in 2 sectors", ""),
        (lambda n: 4 * n, 4, "consecutive", "4 sectors", ""),
        (lambda n: 4 * (31 - n), 4, "consecutive", "4 sectors", ""),
        (lambda n: 16 * n, 16, "consecutive", "16 sectors", ""),
        (lambda n: 4 * n + 4, 4, "misaligned", "4 bytes behind a boundary of 32: 5 sectors where 4", "of 8 elements"),
        (lambda n: 12 * n, 4, "structure", "4 bytes of every 12", "each member in an array of its own"),
        (lambda n: 4096 * n, 4, "strided", "4096 bytes apart", "through shared memory"),
        (lambda n: -4096 * n + 2**20, 4, "strided", "32 sectors where 4 would do", "through shared memory"),
        (lambda n: 4096 * (n // 8) + 4 * (n % 8), 4, "rows", "4 rows of 8 lanes (32 bytes each; all begin", ""),
        (lambda n: 4096 * (n // 4) + 4 * (n % 4), 4, "rows", "8 sectors where 4", "8 of them fill a sector"),
        (lambda n: 4100 * (n // 8) + 4 * (n % 8), 4, "rows", "3 of them begin inside", "multiples of 32 bytes"),
        (lambda n: 52 * n * n * n // 4 * 4, 4, "scattered", "32 sectors where 4", "neighbouring elements"),
    ],
)
def test_shapes_of_global_memory(lane: Lane, access_bytes: int, name: str, words: str, fix: str) -> None:
    shape = shape_of(lane, "global", access_bytes)
    assert shape.name == name
    assert words in shape.words
    assert fix in shape.fix
    assert bool(shape.fix) == bool(fix)


@pytest.mark.parametrize(
    ("lane", "access_bytes", "name", "words", "fix"),
    [
        (lambda n: 8, 4, "same", "one address", ""),
        (lambda n: 4 * n, 4, "spread", "1 wavefront", ""),
        (lambda n: 16 * n, 16, "spread", "4 wavefronts", ""),
        (lambda n: 16 * (n // 4), 16, "wide", "go in 2 parts", ""),  # pairs share their addresses
        (lambda n: 16 * (n % 8), 16, "wide", "go in 4 parts", ""),
        (lambda n: 128 * n, 4, "column", "a row of 32 elements", "from 32 elements to 33 elements: 1 wavefront"),
        (lambda n: 144 * n, 4, "column", "holds 4 of them", "from 36 elements to 37 elements"),
        (lambda n: 256 * n, 8, "column", "32 wavefronts where 2", "from 64 elements to 66 elements: 2 wavefronts"),
        (lambda n: 8 * n, 4, "conflict", "2 of them meet in one bank", "read neighbouring words, or pad"),
        (lambda n: 256 * (n % 8) + 4 * (n // 8), 4, "conflict", "rows 64 elements long", "to 68 elements: 1 wavefront"),
    ],
)
def test_shapes_of_shared_memory(lane: Lane, access_bytes: int, name: str, words: str, fix: str) -> None:
    shape = shape_of(lane, "shared", access_bytes)
    assert shape.name == name
    assert words in shape.words
    assert fix in shape.fix
    assert bool(shape.fix) == bool(fix)


def test_padding_that_would_move_rows_off_wide_words_gives_way_to_a_swizzle() -> None:
    shape = shape_of(lambda n: 128 * n, "shared", row_unit_bytes=16)
    assert "swizzle" in shape.fix
    assert "multiple of 16 bytes" in shape.fix
    assert "at best 4, with 16 bytes more" in shape.fix


@pytest.mark.parametrize(
    ("access_bytes", "itemsize", "row"),
    [(2, 2, "a row of 64 elements"), (8, 4, "a row of 32 elements"), (8, 8, "a row of 16 elements"),
     (4, 2, "a row of 128 bytes"), (4, 1, "a row of 128 bytes"), (4, 8, "a row of 128 bytes")],
)  # fmt: skip
def test_rows_are_counted_in_elements_only_where_the_tile_is_known_to_hold_them(
    access_bytes: int, itemsize: int, row: str
) -> None:
    """A tile of float32 may stand beside matrices of float16."""
    assert row in shape_of(lambda n: 128 * n, "shared", access_bytes, itemsize=itemsize).words


@pytest.mark.parametrize("space", ["global", "shared"])
def test_a_lone_lane_is_not_all_lanes(space: Space) -> None:
    found = describe(Access(1, "store", space, 4, 1, 1.0, 1.0, 1.0, 1, 1, example=(64,)), 4)
    assert (found.name, found.fix) == ("single", "")
    assert "one lane takes part and writes 4 bytes" in found.words


def test_stores_and_loads_have_words_of_their_own() -> None:
    stored = shape_of(lambda n: 4096 * n, "global", op="store")
    assert "written in pieces" in stored.words
    assert "lanes write" in stored.fix


def test_an_offset_counts_for_global_memory_alone() -> None:
    assert shape_of(lambda n: 4 * n, "global", offset_bytes=4).name == "misaligned"
    assert shape_of(lambda n: 4 * n, "shared", offset_bytes=4).name == "spread"


def test_terms_are_explained_to_who_has_never_heard_of_them() -> None:
    assert "a sector is 32 bytes" in shape_of(lambda n: 4096 * n, "global").words
    assert "32 banks of 4 bytes" in shape_of(lambda n: 128 * n, "shared").words


def test_without_addresses_there_are_only_numbers() -> None:
    shape = describe(Access(1, "load", "global", 4, 10, 32.0, 7.5, 4.0, 8, 75), 4)
    assert (shape.name, shape.fix) == ("unknown", "")
    assert "7.5 sectors" in shape.words


def test_the_costliest_request_is_not_taken_for_all() -> None:
    example = tuple(4096 * n for n in range(32))
    assert (
        "the mean is 5.0"
        in describe(Access(1, "load", "global", 4, 9, 32.0, 5.0, 4.0, 32, 45, example=example), 4).words
    )


def test_half_warps_that_share_addresses_in_pairs_go_together() -> None:
    apart, paired = [8 * (n % 16) for n in range(32)], [8 * (n // 2) for n in range(32)]
    assert (banks.wavefronts(apart, 8), banks.wavefronts(paired, 8)) == (2, 1)


def test_a_padding_found_is_the_least_that_helps_most() -> None:
    found = banks.best_padding([128 * n for n in range(32)], 4)
    assert found == banks.Padding(pitch_bytes=128, pad_bytes=4, wavefronts=1)
    assert banks.best_padding([4 * n for n in range(32)], 4) is None
    assert banks.best_padding([0] * 32, 4) is None


def test_what_hardly_ever_costs_more_is_let_be() -> None:
    example = tuple(4 * n + 4 for n in range(32))
    assert not describe(Access(1, "load", "global", 4, 99, 32.0, 4.01, 4.0, 5, 397, example=example), 4).fix
