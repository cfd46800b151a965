"""What transforms make of values with fields: tables of records in and records out."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from record_samples import batch_of
from transform_samples import STRUCT, T, applied, records, values, why

from kbackup import converters
from kbackup.transforms.data import Records

IN = {"id": 7, "note": "x", "at": T, "day": "2024-02-29"}

BOTH = [
    pytest.param(
        "insert_field",
        {"topic.field": "t", "partition.field": "p", "offset.field": "o!", "timestamp.field": "ts",
         "static.field": "s", "static.value": 'a "b"'},
        IN | {"t": "orders", "p": 3, "o": 40, "ts": T, "s": 'a "b"'},
        id="insert everything",
    ),
    pytest.param("replace_field", {"exclude": "note,at"}, {"id": 7, "day": "2024-02-29"},
                 id="leave fields out"),
    pytest.param("replace_field", {"include": "id,day", "renames": "id:number"},
                 {"number": 7, "day": "2024-02-29"}, id="keep and rename"),
    pytest.param("replace_field", {"include": "nope"}, {}, id="keep nothing"),
    pytest.param(
        "timestamp_converter",
        {"field": "at", "target.type": "string", "format": "yyyy-MM-dd HH:mm:ss:SSS"},
        IN | {"at": "2023-11-14 22:13:20:123"}, id="a time to text",
    ),
    pytest.param(
        "timestamp_converter",
        {"field": "at", "target.type": "unix", "unix.precision": "milliseconds"},
        IN, id="a time to ms",
    ),
    pytest.param(
        "timestamp_converter",
        {"field": "day", "target.type": "Timestamp", "format": "yyyy-MM-dd"},
        IN | {"day": 1_709_164_800_000}, id="text to a time",
    ),
]  # fmt: skip


@pytest.mark.parametrize("schema", [STRUCT, None], ids=["struct", "map"])
@pytest.mark.parametrize(("name", "options", "expected"), BOTH)
def test_a_value_becomes_what_kafka_makes_of_it(
    name: str, options: dict[str, str], expected: Any, schema: dict[str, Any] | None
) -> None:
    """With a schema and without one the same fields come out, and null stays null."""
    found = applied(name, options, records([IN, None], schema))

    assert [] == why(found)
    assert [expected, None] == values(found)


def test_fields_that_are_inserted_come_last_in_their_order_and_replace_their_like() -> None:
    """The text of JSON says which of two ways it was written by; both write the same."""
    given = records([{"a": {"ts": 1}}, {}, {"ts": 1, "b": 2}, {"ts ": 1}], None)
    some = records([{"a": 1}, {}, {"b": 2}], None)

    found = applied("insert_field", {"timestamp.field": "ts", "offset.field": "o"}, given)
    fast = applied("insert_field", {"timestamp.field": "ts", "offset.field": "o"}, some)

    assert [
        f'{{"a":{{"ts":1}},"o":40,"ts":{T}}}', f'{{"o":41,"ts":{T + 1}}}',
        f'{{"ts":{T + 2},"b":2,"o":42}}', f'{{"ts ":1,"o":43,"ts":{T + 3}}}',
    ] == found.side("value").values.to_pylist()  # fmt: skip
    assert [
        f'{{"a":1,"o":40,"ts":{T}}}', f'{{"o":41,"ts":{T + 1}}}', f'{{"b":2,"o":42,"ts":{T + 2}}}'
    ] == fast.side("value").values.to_pylist()  # fmt: skip


def test_a_record_without_a_timestamp_gets_none() -> None:
    """A map has no such field then, a struct has null, and one that is required is refused."""
    row = {"offset": 1, "timestamp": -1, "value": b'{"a":1}'}
    batch = batch_of([row])
    (column,) = converters.by_name("json", {"schemas.enable": False}).decode(batch["value"])
    given = Records.of(batch, "orders", 0, None, column)

    found = applied("insert_field", {"timestamp.field": "ts", "partition.field": "p"}, given)

    assert [{"a": 1, "p": 0}] == values(found)


def test_a_required_field_is_never_null() -> None:
    """A record without a timestamp is refused where its field has to be there."""
    given = records([{"id": 7}], STRUCT)
    at = given.batch.schema.get_field_index("timestamp")
    none = given.batch.set_column(at, given.batch.schema.field(at), pa.array([-1], pa.int64()))

    found = applied("insert_field", {"timestamp.field": "ts!"}, replace(given, batch=none))

    assert (0, [(40, "it has no timestamp, and 'ts' is required")]) == (len(found), why(found))


@pytest.mark.parametrize("schema", [STRUCT, None], ids=["struct", "map"])
def test_a_time_without_a_text_is_refused(schema: dict[str, Any] | None) -> None:
    """A time after the year 9999 has no text: its record is refused, and does not become null."""
    options = {"field": "at", "target.type": "string", "format": "yyyy"}

    found = applied("timestamp_converter", options, records([{"id": 1, "at": 2**60}], schema))

    assert (0, 1) == (len(found), len(why(found)))


def test_numbers_of_any_size_stay_as_they_are() -> None:
    """A field beside the one that changes keeps all its digits."""
    big = 123456789012345678901234567890
    found = applied("replace_field", {"exclude": "b"}, records([{"a": big, "b": 1}], None))

    assert [f'{{"a":{big}}}'] == found.side("value").values.to_pylist()


@pytest.mark.parametrize(
    ("name", "options", "value", "reason"),
    [
        pytest.param("insert_field", {"offset.field": "o"}, 3, "no fields: it is a number",
                     id="a number"),
        pytest.param("replace_field", {"exclude": "o"}, [1], "no fields: it is an array",
                     id="an array"),
        pytest.param("timestamp_converter", {"field": "a", "target.type": "unix"}, {"a": 1.5},
                     "cannot be a number", id="a fraction is no time"),
        pytest.param("timestamp_converter", {"field": "a", "target.type": "unix"}, {"a": "x"},
                     "no format is given", id="text without a pattern"),
        pytest.param("timestamp_converter",
                     {"field": "a", "target.type": "unix", "format": "yyyy"}, {"a": "x"},
                     "'x' does not fit the pattern 'yyyy'", id="text that does not fit"),
    ],
)  # fmt: skip
def test_a_record_that_a_transform_cannot_take_is_refused_alone(
    name: str, options: dict[str, str], value: Any, reason: str
) -> None:
    """A record that a transform cannot be applied to is refused, and those beside it go on."""
    found = applied(name, options, records([{"a": 1}, value, {"a": 2}], None))

    assert [41] == [offset for offset, _ in why(found)]
    assert reason in why(found)[0][1]
    assert 2 == len(found)


def test_two_fields_of_one_name_are_refused() -> None:
    """Two fields of one name are refused, as Connect's builder refuses them."""
    found = applied("insert_field", {"offset.field": "note"}, records([IN, None], STRUCT))

    assert [(40, "there would be two fields named 'note'")] == why(found)
    assert [None] == values(found)


def test_a_schema_keeps_its_name_and_version() -> None:
    """Name and version distinguish files of old and new records."""
    found = applied("insert_field", {"offset.field": "o"}, records([IN], STRUCT))
    schema = found.side("value").schema

    assert schema is not None
    assert ("Order", 2, False) == (schema.name, schema.version, schema.optional)
    assert pa.int64() == found.side("value").values.type.field("o").type
