"""Transforms that take values apart, put them together, hide or cast them."""

import base64
import json
from typing import Any

import pytest
from record_samples import batch_of
from transform_samples import applied, records, values, why

from kbackup import converters, plugins
from kbackup.transforms.data import Records

CONNECT = "org.apache.kafka.connect.data."
INNER = {
    "type": "struct", "optional": True, "field": "in",
    "fields": [
        {"field": "a.b", "type": "string", "optional": False},
        {"field": "n", "type": "int32", "optional": True},
    ],
}  # fmt: skip
SCHEMA = {
    "type": "struct", "name": "Order", "version": 2, "optional": False,
    "fields": [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "f", "type": "double", "optional": True},
        {"field": "ok", "type": "boolean", "optional": True},
        {"field": "text", "type": "string", "optional": True},
        {"field": "list", "type": "array", "optional": True,
         "items": {"type": "int32", "optional": False}},
        INNER,
    ],
}  # fmt: skip
IN = {"id": 300, "f": 2.5, "ok": True, "text": "7", "list": [1, 2], "in": {"a.b": "x", "n": 5}}


def without(*names: str) -> dict[str, Any]:
    """Return the value without some of its fields."""
    return {name: each for name, each in IN.items() if name not in names}


BOTH = [
    pytest.param("extract_field", {"field": "id"}, 300, id="a field"),
    pytest.param("extract_field", {"field": "in"}, IN["in"], id="an object"),
    pytest.param(
        "extract_field", {"field": "in.`a.b`", "field.syntax.version": "V2"}, "x", id="a path"
    ),
    pytest.param("hoist_field", {"field": "whole"}, {"whole": IN}, id="hoist"),
    pytest.param(
        "flatten", {}, without("in") | {"in.a.b": "x", "in.n": 5}, id="flatten"
    ),
    pytest.param(
        "flatten", {"delimiter": "_"}, without("in") | {"in_a.b": "x", "in_n": 5},
        id="flatten with another delimiter",
    ),
    pytest.param(
        "mask_field", {"fields": "id,f,ok,text,list"},
        {"id": 0, "f": 0.0, "ok": False, "text": "", "list": [], "in": IN["in"]}, id="mask",
    ),
    pytest.param(
        "mask_field", {"fields": "id,f,text", "replacement": "12"},
        IN | {"id": 12, "f": 12.0, "text": "12"}, id="mask with something",
    ),
    pytest.param(
        "cast", {"spec": "id:int8,f:int32,ok:string,text:int16"},
        IN | {"id": 44, "f": 2, "ok": "true", "text": 7}, id="cast",
    ),
    pytest.param(
        "cast", {"spec": "id:string,f:boolean,ok:int64,text:float64"},
        IN | {"id": "300", "f": True, "ok": 1, "text": 7.0}, id="cast to others",
    ),
    pytest.param(
        "header_from", {"fields": "id,in", "headers": "a,b", "operation": "move"},
        without("id", "in"), id="move to headers",
    ),
    pytest.param(
        "header_from", {"fields": "id", "headers": "a", "operation": "copy"}, IN,
        id="copy to a header",
    ),
]  # fmt: skip


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["struct", "map"])
@pytest.mark.parametrize(("name", "options", "expected"), BOTH)
def test_a_value_becomes_what_kafka_makes_of_it(
    name: str, options: dict[str, str], expected: Any, schema: dict[str, Any] | None
) -> None:
    """With a schema and without one the same comes out."""
    found = applied(name, options, records([IN], schema))

    assert [] == why(found)
    assert [expected] == values(found)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["struct", "map"])
def test_headers_get_the_text_of_fields(schema: dict[str, Any] | None) -> None:
    """Text as it is, numbers in digits, objects as JSON, behind the headers that were there."""
    fields = "id,f,ok,text,list,in"
    found = applied(
        "header_from",
        {"fields": fields, "headers": fields, "operation": "copy"},
        records([IN, IN | {"text": None}], schema),
    )

    one, two = found.headers.to_pylist()
    assert [b"300", b"2.5", b"true", b"7", b"[1,2]", b'{"a.b":"x","n":5}'] == [
        each["value"] for each in one
    ]
    assert None is two[3]["value"]
    assert fields.split(",") == [each["key"] for each in one]


LOGICAL = {
    "type": "struct", "optional": False,
    "fields": [
        {"field": "day", "type": "int32", "optional": True, "version": 1, "name": f"{CONNECT}Date"},
        {"field": "time", "type": "int32", "optional": True, "version": 1,
         "name": f"{CONNECT}Time"},
        {"field": "at", "type": "int64", "optional": True, "version": 1,
         "name": f"{CONNECT}Timestamp"},
        {"field": "sum", "type": "bytes", "optional": True, "version": 1,
         "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}},
        {"field": "raw", "type": "bytes", "optional": True},
    ],
}  # fmt: skip
TYPED = {
    "day": 19_675, "time": 3_600_001, "at": 1_700_000_000_123,
    "sum": base64.b64encode((12_345).to_bytes(2, "big")).decode(),
    "raw": base64.b64encode(b"\xff\0").decode(),
}  # fmt: skip


def test_logical_types_have_texts() -> None:
    """As Connect writes them into headers, and as Cast makes text of them."""
    fields = "day,time,at,sum,raw"
    options = {"fields": fields, "headers": fields, "operation": "copy"}
    found = applied("header_from", options, records([TYPED], LOGICAL))
    cast = applied("cast", {"spec": "sum:string,at:string"}, records([TYPED], LOGICAL))

    assert [
        b"2023-11-14", b"01:00:00.001Z", b"2023-11-14T22:13:20.123Z", b"123.45", b"/wA=",
    ] == [each["value"] for each in found.headers.to_pylist()[0]]  # fmt: skip
    assert TYPED | {"sum": "123.45", "at": "2023-11-14T22:13:20.123Z"} == values(cast)[0]


def test_logical_types_cast_to_their_numbers_and_are_masked() -> None:
    """A day is a number of days, a Decimal loses its fraction; masked they are zero."""
    cast = applied("cast", {"spec": "day:int64,sum:int32,at:int32"}, records([TYPED], LOGICAL))
    masked = applied("mask_field", {"fields": "day,time,at,sum"}, records([TYPED], LOGICAL))

    (one,) = values(cast)
    assert (19_675, 123, 1_700_000_000_123 % 2**32 - 2**32) == (one["day"], one["sum"], one["at"])
    assert {"day": 0, "time": 0, "at": 0, "sum": "AA==", "raw": TYPED["raw"]} == values(masked)[0]


def test_a_decimal_that_masks_has_no_byte_too_many() -> None:
    """Its bytes are those of Java's BigInteger."""
    options = {"fields": "sum", "replacement": "-1.28"}

    (one,) = values(applied("mask_field", options, records([TYPED], LOGICAL)))

    assert b"\x80" == base64.b64decode(one["sum"])


NULLS = [
    pytest.param("extract_field", {"field": "id"}, True, id="extract"),
    pytest.param("flatten", {}, True, id="flatten"),
    pytest.param("cast", {"spec": "id:string"}, True, id="cast"),
    pytest.param("cast", {"spec": "string"}, True, id="cast the whole"),
    pytest.param("mask_field", {"fields": "id"}, False, id="mask"),
    pytest.param("value_to_key", {"fields": "id"}, False, id="value to key"),
    pytest.param(
        "header_from", {"fields": "id", "headers": "h", "operation": "copy"}, False, id="header"
    ),
]


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["struct", "map"])
@pytest.mark.parametrize(("name", "options", "passes"), NULLS)
def test_null_values_pass_or_are_refused_as_in_kafka(
    name: str, options: dict[str, str], passes: bool, schema: dict[str, Any] | None
) -> None:
    """A tombstone goes through what does not need a value, and no further."""
    given = records([IN, None], schema)
    if name == "cast" and options["spec"] == "string":
        given = records([7, None], {"type": "int32", "optional": True} if schema else None)

    found = applied(name, options, given)

    assert ([] if passes else [(41, "its value is null")]) == why(found)
    assert passes == (len(found) == 2 and values(found)[1] is None)


def test_a_null_is_hoisted_too() -> None:
    """An object with a field that is null is something else than null."""
    assert [{"a": None}] == values(applied("hoist_field", {"field": "a"}, records([None], None)))


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        pytest.param("int8", 200, -56, id="an integer is cut to its bits"),
        pytest.param("int32", 1e20, 2**31 - 1, id="a large number is the largest"),
        pytest.param("int8", 300.7, 44, id="a fraction is cut off first"),
        pytest.param("boolean", 0.9, False, id="less than one is false"),
        pytest.param("boolean", "TRUE", True, id="text that says true"),
        pytest.param("boolean", "yes", False, id="text that says something else"),
        pytest.param("float32", 0.1, 0.1, id="a float has few digits"),
        pytest.param("float64", " 1e3f ", 1000.0, id="Java's way to write it"),
        pytest.param("string", 12345678.0, "1.2345678E7", id="Java's way to show it"),
        pytest.param("int64", "-5", -5, id="text"),
    ],
)
def test_the_whole_value_is_cast(spec: str, value: Any, expected: Any) -> None:
    """A whole value is cast as Java casts it."""
    assert [expected] == values(applied("cast", {"spec": spec}, records([value], None)))


@pytest.mark.parametrize(
    ("name", "options", "value", "reason"),
    [
        pytest.param("cast", {"spec": "text:int8"}, IN | {"text": "200"}, "is not an int8", id="8"),
        pytest.param("cast", {"spec": "text:float64"}, IN | {"text": "1_0"}, "is not a number",
                     id="no number"),
        pytest.param("mask_field", {"fields": "id", "replacement": "x"}, IN, "is not an int64",
                     id="a mask that is no number"),
        pytest.param("mask_field", {"fields": "ok", "replacement": "1"}, IN, "have this mask",
                     id="a boolean has no such mask"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["struct", "map"])
def test_what_does_not_fit_is_refused(
    name: str, options: dict[str, str], value: Any, reason: str, schema: dict[str, Any] | None
) -> None:
    """A record that cannot be changed is reported with its offset and the reason."""
    ((offset, text),) = why(applied(name, options, records([value], schema)))

    assert 40 == offset
    assert reason in text


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        pytest.param("extract_field", {"field": "nope"}, "has no field 'nope'", id="extract"),
        pytest.param("value_to_key", {"fields": "nope"}, "has no field 'nope'", id="to key"),
        pytest.param("cast", {"spec": "list:string"}, "of type array cannot be cast", id="a list"),
        pytest.param("header_from", {"fields": "x", "headers": "h", "operation": "copy"},
                     "has no field 'x'", id="header"),
    ],
)  # fmt: skip
def test_a_field_that_a_schema_does_not_have_is_refused(
    name: str, options: dict[str, str], reason: str
) -> None:
    """Of a map it is null, of a struct an error, as in Kafka."""
    ((_, text),) = why(applied(name, options, records([IN], SCHEMA)))

    assert reason in text


def test_a_flat_field_may_be_null_where_its_parent_may() -> None:
    """A flattened field is optional if its parent is."""
    found = applied("flatten", {}, records([IN, IN | {"in": None}], SCHEMA))
    schema = found.side("value").schema

    assert schema is not None
    assert [False, True, True, True, True, True, True] == [at.optional for _, at in schema.fields]
    assert None is values(found)[1]["in.a.b"]


def test_a_default_is_cast_with_its_field() -> None:
    """What stands for null is of the field's type."""
    field = {"field": "n", "type": "int32", "optional": True, "default": 5}
    schema = {"type": "struct", "optional": False, "fields": [field]}
    found = applied("cast", {"spec": "n:string"}, records([{"n": 1}], schema)).side("value").schema

    assert found is not None
    assert '"5"' == found.fields[0][1].default


def test_a_schema_gets_another_name_and_version() -> None:
    """Values stay as they are; those without a schema are refused."""
    options = {"schema.name": "com.example.Sale", "schema.version": "7"}
    found = applied("set_schema_metadata", options, records([IN, None], SCHEMA))
    plain = applied("set_schema_metadata", options, records([IN, None], None))

    schema = found.side("value").schema
    assert schema is not None
    assert ("com.example.Sale", 7) == (schema.name, schema.version)
    assert [IN, None] == values(found)
    assert [(40, "its value has no schema")] == why(plain)
    assert [None] == values(plain)


@pytest.mark.parametrize("schemas", [True, False])
def test_fields_of_the_value_become_the_key(schemas: bool) -> None:
    """ValueToKey makes a key of the named fields and leaves the value as it is."""
    value: Any = {"schema": SCHEMA, "payload": IN} if schemas else IN
    batch = batch_of([{"offset": 1, "key": b'"old"', "value": json.dumps(value).encode()}])
    (key,) = converters.by_name("json", {"schemas.enable": False}).decode(batch["key"])
    (column,) = converters.by_name("json", {"schemas.enable": schemas}).decode(batch["value"])
    transform = plugins.load("transforms", "value_to_key")()
    transform.configure({"fields": ("text", "id")}, "")

    found = transform.apply(Records.of(batch, "orders", 0, key, column))

    (made,) = found.side("key").values.to_pylist()
    assert {"text": "7", "id": 300} == (made if schemas else json.loads(made))
    assert [IN] == values(found)
