"""Values passed over: those that fastavro takes, and others would not, and endless lists."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kbackup.connect import avro_columns, avro_reading, avro_walk
from kbackup.connect.avro_reading import long

NOTHING = {"type": "record", "name": "Nothing", "fields": []}
WITHOUT_BYTES = [
    pytest.param({"type": "fixed", "name": "F", "size": 0}, id="fixed of size 0"),
    pytest.param(NOTHING, id="an empty record"),
    pytest.param(
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": NOTHING}]},
        id="a record of empty records",
    ),
]
SCHEMA = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "E", "symbols": ["a", "b"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 3}},
        {"name": "at", "type": {"type": "map", "values": "double"}},
        {"name": "is", "type": {"type": "array", "items": "boolean"}},
        {"name": "nothing", "type": {"type": "array", "items": NOTHING}},
        {"name": "again", "type": {"type": "array", "items": "Nothing"}},
    ],
}


def lists(item: Any) -> str:
    return json.dumps({"type": "array", "items": item})


@pytest.mark.parametrize("item", WITHOUT_BYTES)
def test_a_short_value_with_endless_items_is_one_bad_value(item: Any) -> None:
    """A value of ten bytes that claims 2^62 items is bad, and its neighbours are read."""
    endless = [long(2**62) + b"\0", long(-(2**62)) + b"\0\0", (long(999) * 2) + b"\0"]
    datums = pa.array([long(3) + b"\0", *endless, None, b"\0"], pa.binary())

    values, bad = avro_reading.decode_each_avro(datums, lists(item))

    assert [3, None, None, None, None, 0] == [
        None if row is None else len(row) for row in values.to_pylist()
    ]
    assert dict.fromkeys((1, 2, 3), True) == {
        row: f"more than {avro_walk.MOST}" in why for row, why in bad.items()
    }


def test_items_are_counted_in_all_lists_of_a_value() -> None:
    """Lists within lists do not multiply what one value may claim."""
    inner = long(600) + b"\0"
    datums = pa.array([long(count) + inner * count + b"\0" for count in (1, 2)], pa.binary())

    _, bad = avro_reading.decode_each_avro(datums, lists({"type": "array", "items": NOTHING}))

    assert [1] == [*bad]


def test_items_without_bytes_are_counted_beside_values_of_any_kind() -> None:
    """Lists in lists that claim too many items are bad where all rows are read at once, too."""
    text = lists({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})
    endless = long(40) + (long(40) + b"\0") * 40 + b"\0"
    datums = pa.array([endless, *[b"\0"] * 2000], pa.binary())

    found = avro_columns.decode(datums, text)

    assert found is None
    assert [0] == [*avro_reading.decode_each_avro(datums, text)[1]]


def test_what_is_looked_through_ends_where_it_is_read_to() -> None:
    """A value of every type is passed over to the byte where fastavro stops."""
    parsed, file = fastavro.parse_schema(SCHEMA), io.BytesIO()
    rows = [
        {"n": -(2**60), "text": None, "kind": "b", "hash": b"abc", "at": {}, "is": [],
         "nothing": [], "again": [{}]},
        {"n": 1, "text": "x" * 90, "kind": "a", "hash": b"abc", "at": {"x": 0.5, "y": 1.0},
         "is": [True, False], "nothing": [{}] * 900, "again": [{}] * 100},
    ]  # fmt: skip
    ends = [fastavro.schemaless_writer(file, parsed, row) or file.tell() for row in rows]
    walk = avro_walk.walker(json.dumps(SCHEMA))

    first = walk(file.getvalue(), 0)

    assert ends == [first, walk(file.getvalue(), first)]
    for cut in range(first):
        with pytest.raises(ValueError, match="too early"):
            walk(file.getvalue()[:cut], 0)


def test_only_lists_of_items_without_bytes_are_counted() -> None:
    """An optional item takes a byte, and a value is no list."""
    schemas = [lists(["null", NOTHING]), json.dumps(NOTHING), lists(NOTHING), json.dumps(SCHEMA)]

    assert [False, False, True, True] == [avro_walk.empty_items(text) for text in schemas]


@pytest.mark.parametrize(
    ("schema", "good", "damaged", "why"),
    [
        pytest.param(["null", "int"], b"\2\2", b"\1\2", "branch or symbol -1", id="union"),
        pytest.param(
            {"type": "enum", "name": "E", "symbols": ["a", "b"]},
            b"\2",
            b"\1",
            "symbol -1",
            id="enum",
        ),
        pytest.param("boolean", b"\1", b"\2", "a boolean of 2", id="boolean"),
        pytest.param("long", b"\x80\1", b"\x80" * 10 + b"\0", "does not end", id="number"),
        pytest.param("long", b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\3", "64 bits", id="65 bits"),
        pytest.param(
            "int", b"\x82\x80\x80\x80\0", b"\x82" + b"\x80" * 4 + b"\0", "5 bytes", id="int"
        ),
        pytest.param("int", b"\2", b"\x80\x80\x80\x80\x20", "an int of", id="33 bits"),
        pytest.param(
            ["null", "int"], b"\x80\0", b"\x80" * 5 + b"\0", "5 bytes", id="a branch of six bytes"
        ),
    ],
)
def test_what_fastavro_takes_and_others_do_not_is_bad(
    schema: Any, good: bytes, damaged: bytes, why: str
) -> None:
    """A value that would damage an Avro file for its other readers is bad, with the reason."""
    text = json.dumps(schema)
    datums = pa.array([good, damaged, None, damaged, good], pa.binary())

    values, bad = avro_walk.wrong(datums, text), avro_reading.decode_each_avro(datums, text)[1]

    assert values == bad == avro_walk.wrong_by_python(datums, text)
    assert [(1, True), (3, True)] == [(row, why in each) for row, each in bad.items()]
