"""Records to JSON and back: exactly, strictly, and by schema version."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotile.store import Unreadable
from autotile.store.bulk import from_lines
from autotile.store.serial import from_line, from_object, to_line, to_object
from autotile.types import Configuration, Identity, Launch, LaunchStep, Measurement, Problem, Record

text = st.text(st.characters(), max_size=20)  # lone surrogates too
number = st.floats(allow_nan=False, allow_infinity=False)
integer = st.integers(-(2**70), 2**70)
side = st.integers(1, 2**31 - 1)
optional = st.none() | integer
sides = st.tuples(side, side, side)
names = st.lists(text, max_size=3).map(tuple)
steps = st.lists(st.builds(LaunchStep, text, sides, sides), max_size=2).map(tuple)


def pairs(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(text, values, max_size=5).map(lambda found: tuple(found.items()))


records = st.builds(
    Record,
    problem=st.builds(Problem, text, pairs(integer), text, pairs(integer), names),
    configuration=st.builds(Configuration, pairs(st.booleans() | integer | text)),
    identity=st.builds(Identity, text, text, text, text, text, integer, st.booleans(), text),
    outcome=text,
    message=text,
    measurement=st.none() | st.builds(Measurement, number, number, number, integer, st.booleans(), st.booleans()),
    launch=st.none()
    | st.builds(Launch, sides, sides, st.integers(0, 2**20))
    | st.builds(Launch, sides, sides, st.integers(0, 2**20), st.integers(0, 2**40), steps, steps),
    source_digest=text,
    binary_digest=text,
    registers=optional,
    spill_bytes=optional,
    static_shared_bytes=optional,
    max_error=st.none() | number,
    build_s=number,
    check_s=number,
    measure_s=number,
    seed=optional,
    created=text,
    autotile_version=text,
    extra=st.lists(st.tuples(text, text), max_size=3).map(tuple),
)


@settings(max_examples=150)
@given(st.lists(records, max_size=4))
def test_records_round_trip_exactly_one_by_one_and_in_bulk(some: list[Record]) -> None:
    lines = [to_line(record) for record in some]
    assert all(line.count(b"\n") == 1 and line.isascii() for line in lines)
    one_by_one = [from_line(line) for line in lines]
    in_bulk = from_lines([line[:-1] for line in lines])
    # repr tells True from 1 and 1 from 1.0, which == does not
    assert repr(one_by_one) == repr(some)
    assert repr(in_bulk) == repr(some)


def test_the_order_of_parameters_is_kept(make_record: Any) -> None:
    configuration = Configuration((("zeta", 1), ("alpha", True), ("mid", "row")))
    back = from_line(to_line(make_record(configuration=configuration)))
    assert list(back.configuration) == ["zeta", "alpha", "mid"]
    assert back.configuration["alpha"] is True


def test_numpy_scalars_become_plain_numbers(make_record: Any) -> None:
    record = make_record(
        configuration=Configuration((("block_m", np.int64(64)), ("pad", np.bool_(True)), ("x", np.float32(0.5)))),  # type: ignore[arg-type]
        measurement=Measurement(np.float32(1.5), np.float64(1.25), 0.0, np.int32(7)),  # type: ignore[arg-type]
    )
    for back in (from_line(to_line(record)), from_lines([to_line(record)])[0]):
        assert isinstance(back, Record)
        assert [type(value) for value in back.configuration.values()] == [int, bool, float]
        assert back.measurement == Measurement(1.5, 1.25, 0.0, 7)
        assert type(back.measurement.runs) is int


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_number_is_no_measurement(make_record: Any, bad: float) -> None:
    record = make_record(measurement=Measurement(bad, 1.0, 0.0, 3), max_error=bad, build_s=bad)
    line = to_line(record)
    assert b"NaN" not in line
    assert b"Infinity" not in line
    back = from_line(line)
    assert back.measurement is None
    assert not back.ok
    assert back.max_error is None
    assert back.build_s == 0.0


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_schema_is_refused_by_name(make_record: Any, version: int) -> None:
    found = to_object(make_record()) | {"schema_version": version}
    with pytest.raises(Unreadable, match=f"written by record schema {version}; this autotile reads 1") as refusal:
        from_object(found)
    assert refusal.value.version == version
    bulk = from_lines([json.dumps(found, separators=(",", ":")).encode()])
    assert isinstance(bulk[0], Unreadable)


HOSTILE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b"\x00\x00\x00",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"schema_version":' + b"9" * 5000 + b"}",
    b'{"schema_version":true}',
    b'{"schema_version":1}',
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(Unreadable):
        from_line(line)
    assert not isinstance(from_lines([line])[0], Record)


WRONG: list[tuple[str, str]] = [
    ("kernel", "7"),
    ("sizes", '{"m":1.5}'),
    ("sizes", '{"m":true}'),
    ("sizes", "[]"),
    ("dtype", "null"),
    ("configuration", '{"a":null}'),
    ("configuration", '{"a":[1]}'),
    ("configuration", '{"a":1e999}'),
    ("identity", "null"),
    ("identity", '{"device":"x"}'),
    ("outcome", "1"),
    ("message", "{}"),
    ("measurement", "[]"),
    ("measurement", '{"time_ms":"1"}'),
    (
        "measurement",
        '{"time_ms":1e999,"min_ms":1.0,"spread_ms":0.0,"runs":1,"stopped_early":false,"estimated":false}',
    ),
    ("measurement", '{"time_ms":NaN,"min_ms":1.0,"spread_ms":0.0,"runs":1,"stopped_early":false,"estimated":false}'),
    ("measurement", '{"time_ms":1.0,"min_ms":1.0,"spread_ms":0.0,"runs":true,"stopped_early":false,"estimated":false}'),
    ("launch", '{"grid":[1,1],"block":[1,1,1],"shared_bytes":0}'),
    ("launch", '{"grid":[1,1,true],"block":[1,1,1],"shared_bytes":0}'),
    ("launch", '{"grid":"abc","block":[1,1,1],"shared_bytes":0}'),
    ("launch", '{"grid":[1,1,1],"block":[1,1,1],"shared_bytes":0,"scratch_bytes":true}'),
    ("launch", '{"grid":[1,1,1],"block":[1,1,1],"shared_bytes":0,"scratch_bytes":null}'),
    ("launch", '{"grid":[1,1,1],"block":[1,1,1],"shared_bytes":0,"before":{}}'),
    ("launch", '{"grid":[1,1,1],"block":[1,1,1],"shared_bytes":0,"after":["_pack"]}'),
    ("launch", '{"grid":[1,1,1],"block":[1,1,1],"shared_bytes":0,"after":[{"entry_suffix":"_p","grid":[1,1,1]}]}'),
    ("switches", '{"bias":true}'),
    ("switches", '"bias"'),
    ("switches", "[1]"),
    ("registers", "1.5"),
    ("registers", "false"),
    ("build_s", "1" + "0" * 400),
    ("build_s", "-1e999"),
    ("max_error", '"0"'),
    ("seed", "[]"),
    ("extra", "[1]"),
    ("extra", '{"a":"b"}'),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_field_of_the_wrong_type_is_refused(make_record: Any, key: str, value: str) -> None:
    found = to_object(make_record())
    line = json.dumps(found | {key: "@@"}, separators=(",", ":")).replace('"@@"', value).encode()
    with pytest.raises(Unreadable):
        from_line(line)
    good = to_line(make_record())[:-1]
    kinds = [type(each) for each in from_lines([good, line, good])]
    assert kinds == [Record, Unreadable, Record]


def test_unknown_fields_are_passed_over_and_whole_numbers_serve_as_durations(make_record: Any) -> None:
    record = make_record()
    found = to_object(record) | {"colour": "green", "build_s": 2}
    line = json.dumps(found, separators=(",", ":")).encode()
    for back in (from_line(line), from_lines([line])[0]):
        assert back == dataclasses.replace(record, build_s=2.0)
        assert isinstance(back, Record)
        assert type(back.build_s) is float


def test_what_most_records_lack_is_not_written(make_record: Any) -> None:
    found = to_object(make_record())
    assert not {"options", "switches"} & found.keys()
    assert found["launch"].keys() == {"grid", "block", "shared_bytes"}


def test_an_object_that_no_record_can_hold_is_a_bug(make_record: Any) -> None:
    with pytest.raises(TypeError, match="a record cannot hold"):
        to_line(make_record(message=object()))
