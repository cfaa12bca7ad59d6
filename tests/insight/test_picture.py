"""The picture says what the numbers say: cells are counted, and nothing an explanation may hold breaks it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from xml.etree.ElementTree import Element, fromstring

import pytest

from autotile.insight import banks
from autotile.insight.explanation import Explanation, Occupancy, Pattern, Roofline, SharedUse, Traffic
from autotile.insight.patterns import SECTOR
from autotile.insight.picture import picture
from autotile.insight.picture_banks import serve

SVG = "{http://www.w3.org/2000/svg}"

GLOBAL = Pattern(
    entry="kernel", line=7, called_from=(), code="y[i] = x[i];", op="load", space="global", array="x", access_bytes=4,
    from_machine_code=False, requests=1.0, lanes=32.0, per_request=4.0, ideal_per_request=4.0, worst=4,
    passes=1.0, used_percent=100.0, percent_of_cost=50.0, shape="consecutive", words="neighbours", fix="",
    addresses=tuple(range(0, 128, 4)),
)  # fmt: skip
SHARED = replace(GLOBAL, space="shared", array="shared memory")


def explanation(*patterns: Pattern) -> Explanation:
    return Explanation(
        kernel="copy", problem="1024", configuration=(("tile", 32), ("spread", False)), device="a GPU", blocks=1,
        threads=32, traced_blocks=1, findings=(), units_ms=(), occupancy=Occupancy(1, 1, 64, (), (), None, 1.0),
        roofline=Roofline(0, 1, 0.0, 1.0, 1.0, "memory", 1.0, 1.0, True), traffic=Traffic(1.0, 1.0, None, None, 1.0),
        patterns=patterns, barriers=(), shared=SharedUse(0, 0, 1, 1, ""), instructions=(), changes=(), profile=(),
        notes=(),
    )  # fmt: skip


def drawn(*patterns: Pattern) -> Element:
    return fromstring(picture(explanation(*patterns)))


def at(pattern: Pattern, addresses: Iterable[int], access_bytes: int = 4) -> Pattern:
    return replace(pattern, addresses=tuple(addresses), access_bytes=access_bytes)


def of_class(element: Element, name: str) -> list[Element]:
    return [one for one in element.iter() if one.get("class") == name]


def words(element: Element) -> list[str]:
    return [one.text or "" for one in element.iter(f"{SVG}text")]


def cells(wavefront: Element) -> list[str]:
    """The lanes in a wavefront's cells; the first text is the row's number."""
    return words(wavefront)[1:]


@pytest.mark.parametrize(
    ("addresses", "access_bytes", "moved", "idle", "said"),
    [
        (range(0, 128, 4), 4, 4, 0, "4 sectors for 128 bytes: 100 % of what is moved is used"),
        (range(4, 132, 4), 4, 5, 3, "5 sectors for 128 bytes: 80 % of what is moved is used"),
        (range(0, 384, 12), 4, 12, 0, "12 sectors for 128 bytes: 33 % of what is moved is used"),
        (range(0, 32 * 4096, 4096), 4, 32, 96, "32 sectors for 128 bytes: 12 % of what is moved is used"),
        (range(0, 512, 16), 16, 16, 0, "16 sectors for 512 bytes: 100 % of what is moved is used"),
        ([640] * 32, 4, 1, 3, "1 sector for 4 bytes: 12 % of what is moved is used"),
        ([255], 1, 1, 3, "1 sector for 1 byte: 3 % of what is moved is used"),
    ],
)
def test_sectors_are_drawn_as_they_move(
    addresses: Iterable[int], access_bytes: int, moved: int, idle: int, said: str
) -> None:
    pattern = at(GLOBAL, addresses, access_bytes)
    root = drawn(pattern)
    assert len(of_class(root, "sector moved")) == moved
    assert len(of_class(root, "sector idle")) == idle
    assert [one.text for one in of_class(root, "caption")] == [said]
    assert len(of_class(root, "wire")) == len(of_class(root, "lane")) == len(pattern.addresses)
    assert len(of_class(root, "lane-idle")) == 32 - len(pattern.addresses)


def test_used_bytes_fill_their_part_of_a_sector() -> None:
    """Of a member of 4 bytes in 12, a third is filled; of neighbours, everything but the frames."""

    def width(name: str, root: Element) -> float:
        return sum(float(one.get("width", "")) for one in of_class(root, name))

    members, neighbours = drawn(at(GLOBAL, range(0, 384, 12))), drawn(GLOBAL)
    assert width("used", members) / width("sector moved", members) == pytest.approx(1 / 3, abs=0.03)
    assert width("used", neighbours) == pytest.approx(width("sector moved", neighbours))


def test_lines_apart_have_a_gap_and_an_address() -> None:
    root = drawn(at(GLOBAL, [*range(1024, 1088, 4), *range(8192, 8256, 4)]))
    first, second = (
        (float(one.get("x", "")), float(one.get("width", ""))) for one in root.iter() if one.get("class") == "line"
    )
    assert second[0] > first[0] + first[1] + 10
    assert {"1024", "8192"} <= set(words(root))


@pytest.mark.parametrize("apart", [128, 4096, 1 << 40])
@pytest.mark.parametrize("access_bytes", [4, 16])
def test_scattered_addresses_stay_inside_the_picture(apart: int, access_bytes: int) -> None:
    """Also where each lane straddles two lines, and where the array begins after the lanes' addresses."""
    places = random.Random(0).sample(range(-64, 64), 32)
    root = drawn(at(GLOBAL, [place * apart + 126 for place in places], access_bytes))
    boxes = list(root.iter(f"{SVG}rect"))
    assert max(float(box.get("x", "")) + float(box.get("width", "")) for box in boxes) <= 1000
    assert min(float(box.get("width", "")) for box in boxes) > 1.5
    assert root.get("width") == "1000"
    assert float(root.get("height", "")) < 600
    assert len(of_class(root, "sector moved")) == 64


@pytest.mark.parametrize(
    ("addresses", "access_bytes", "rows", "said"),
    [
        (range(12, 4096, 128), 4, 32, "column of a tile of 32 words a row: 32 wavefronts; with a pad of 1 word: 1"),
        (range(0, 4224, 132), 4, 1, "32 words for 32 lanes, none waits for a bank: 1 wavefront"),
        (range(0, 256, 8), 4, 2, "2 words from lane to lane: 2 wavefronts; with a pad of 1 word: 1"),
        (range(0, 8192, 256), 8, 32, "column of a tile of 64 words a row: 32 wavefronts; with a pad of 2 words: 2"),
        ([0, 4096, 128, 4224], 4, 4, "up to 4 words of one bank, given one after another: 4 wavefronts"),
        (range(0, 512, 16), 16, 4, "128 words for 32 lanes, none waits for a bank: 4 wavefronts"),
        (range(0, 256, 8), 8, 2, "64 words for 32 lanes, none waits for a bank: 2 wavefronts"),
        ([64] * 32, 4, 1, "32 lanes share 1 word: 1 wavefront"),
    ],
)
def test_each_wavefront_is_a_row(addresses: Iterable[int], access_bytes: int, rows: int, said: str) -> None:
    root = drawn(at(SHARED, addresses, access_bytes))
    (grid,) = of_class(root, "banks")
    assert len(of_class(grid, "wavefront")) == rows
    (caption,) = of_class(root, "caption")
    assert caption.text is not None
    assert caption.text.startswith(said)


def test_a_column_waits_in_its_bank_and_a_pad_spreads_it() -> None:
    root = drawn(at(SHARED, range(12, 4096, 128)))
    (grid,), (padded,) = of_class(root, "banks"), of_class(root, "padded")
    assert [cells(row) for row in of_class(grid, "wavefront")] == [[str(lane)] for lane in range(32)]
    assert len({cell.get("x") for cell in of_class(grid, "cell")}) == 1
    assert len({cell.get("fill") for cell in of_class(grid, "cell")}) == 6
    (row,) = of_class(padded, "wavefront")
    assert cells(row) == [str((lane - 3) % 32) for lane in range(32)]


def test_a_pad_keeps_wide_accesses_of_the_tile_aligned() -> None:
    wide = at(SHARED, range(0, 512, 16), 16)
    root = drawn(at(SHARED, range(0, 4096, 128)), wide)
    assert not any("with a pad" in said for said in words(root))
    alone = drawn(at(SHARED, range(0, 4096, 128)), replace(wide, entry="another"))
    assert any("with a pad of 1 word" in said for said in words(alone))


def test_lanes_of_one_word_share_a_cell() -> None:
    assert cells(of_class(drawn(at(SHARED, [64] * 32)), "wavefront")[0]) == ["0–31"]
    quarters = drawn(at(SHARED, [lane // 8 * 8 for lane in range(32)]))
    assert cells(of_class(quarters, "wavefront")[0]) == ["0–7", "8–15", "16–23", "24–31"]
    every_fourth = drawn(at(SHARED, [lane % 4 * 4 for lane in range(32)]))
    assert cells(of_class(every_fourth, "wavefront")[0]) == ["0+7", "1+7", "2+7", "3+7"]


@pytest.mark.parametrize("access_bytes", [1, 2, 4, 8, 16])
def test_wavefronts_are_as_many_as_are_counted(access_bytes: int) -> None:
    """Every lane is served, in a wavefront for each of its words or fewer, and no bank gives two words in one."""
    draw = random.Random(access_bytes)
    for span in (4, 32, 300):
        for order in ((0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 1)):
            fours = [[draw.randrange(span) * access_bytes for _ in range(4)] for _ in range(8)]
            addresses = [four[place] for four in fours for place in order]
            wavefronts = serve(addresses, access_bytes)
            assert len(wavefronts) == banks.wavefronts(addresses, access_bytes)
            served = {lane for one in wavefronts for lanes in one.lanes.values() for lane in lanes}
            assert served == set(range(len(addresses)))


def test_three_of_a_space_are_drawn_the_costliest_first() -> None:
    patterns = [replace(GLOBAL, line=cost, percent_of_cost=float(cost)) for cost in (5, 40, 20, 35)]
    root = drawn(*patterns, SHARED, replace(SHARED, line=99, percent_of_cost=90.0, addresses=()))
    titles = [said.partition(" · ")[0] for said in words(root) if said.startswith("Line ")]
    assert titles == ["Line 40", "Line 35", "Line 20", "Line 7"]
    assert len(of_class(root, "panel global")) == 3


def test_a_verdict_names_the_least() -> None:
    def verdicts(pattern: Pattern) -> list[str]:
        return [said for said in words(drawn(pattern)) if said.endswith(("would do", "as can be"))]

    assert verdicts(GLOBAL) == verdicts(SHARED) == ["as few as can be"]
    assert verdicts(at(GLOBAL, range(0, 4096, 128))) == ["4 sectors would do"]
    assert verdicts(at(SHARED, range(0, 4096, 128))) == ["1 wavefront would do"]


def test_stores_point_to_memory() -> None:
    assert "read ↑" in words(drawn(GLOBAL))
    assert "write ↓" in words(drawn(replace(GLOBAL, op="store")))


def test_without_accesses_it_says_so() -> None:
    assert "No access to global or shared memory was traced." in words(drawn())


def test_any_text_is_escaped_and_cut() -> None:
    """Also characters that XML does not know; a line of code that is too long is cut, a long sentence broken."""
    code = 'a<b> && "c"\x0c\ud800 ' + "+ x" * 100
    root = drawn(replace(GLOBAL, code=code, words="so it is " * 100, fix="<rearrange> & retry", line=None))
    (shown,) = [said for said in words(root) if said.startswith("a<b>")]
    assert shown.startswith('a<b> && "c"\ufffd\ufffd + x')
    assert shown.endswith("…")
    assert max(map(len, words(root))) < 140
    assert "To change: <rearrange> & retry." in words(root)
    assert any(said.startswith("An unknown line") for said in words(root))


def test_what_the_picture_explains_is_not_explained_again() -> None:
    pattern = replace(GLOBAL, words=f"in one sector{SECTOR}", percent_of_cost=0.2)
    root = drawn(pattern)
    assert "In one sector." in words(root)
    assert "under 1 % of all sectors of the launch" in words(root)


def test_notes_say_what_the_title_leaves_out() -> None:
    few = replace(GLOBAL, addresses=(0, 4), called_from=(40,), from_machine_code=True)
    said = " ".join(words(drawn(few, replace(SHARED, entry="pack_"))))
    assert "tile=32 spread=false" in said
    assert "Line 7 of kernel · load from x · 4 bytes a lane" in said
    assert "Line 7 of pack · load from shared memory" in said
    for note in ("called from line 40", "machine code", "2 of 32 lanes take part"):
        assert note in said


def test_it_needs_nothing_from_elsewhere() -> None:
    drawing = picture(explanation(GLOBAL, SHARED))
    assert drawing.count("http") == 1  # the namespace
    assert not {one.tag.removeprefix(SVG) for one in fromstring(drawing).iter()} - {
        "svg", "title", "desc", "rect", "text", "g", "path", "line",
    }  # fmt: skip
    background = fromstring(drawing).find(f"{SVG}rect")
    assert background is not None
    assert background.get("height") == fromstring(drawing).get("height")
