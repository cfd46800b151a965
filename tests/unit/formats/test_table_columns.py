"""The columns of a table follow from what its files hold."""

import io
import json
from typing import Any

import pyarrow as pa
import pytest

from kbackup.connect.tables import TableColumn
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions, avro, json_lines, parquet
from kbackup.naming import View


def words(columns: tuple[TableColumn, ...]) -> dict[str, str]:
    """Name to type."""
    return {one.name: one.type for one in columns}


def record(*fields: tuple[Any, Any]) -> dict[str, Any]:
    """An Avro record."""
    return {
        "type": "record",
        "name": "Order",
        "namespace": "com.example",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def test_each_type_of_parquet_has_its_word() -> None:
    """Columns get the engine's types, nested ones too, and backquotes where a name needs them."""
    schema = pa.schema(
        {
            "b": pa.bool_(),
            "i": pa.int8(),
            "l": pa.int64(),
            "f": pa.float32(),
            "s": pa.string(),
            "raw": pa.binary(),
            "day": pa.date32(),
            "at": pa.timestamp("ms", "UTC"),
            "amount": pa.decimal128(10, 2),
            "tags": pa.map_(pa.string(), pa.int32()),
            "lines": pa.list_(pa.struct({"a-b": pa.int32(), "c": pa.float64()})),
        }
    )

    assert {
        "b": "boolean",
        "i": "tinyint",
        "l": "bigint",
        "f": "float",
        "s": "string",
        "raw": "binary",
        "day": "date",
        "at": "timestamp",
        "amount": "decimal(10,2)",
        "tags": "map<string,int>",
        "lines": "array<struct<`a-b`:int,c:double>>",
    } == words(parquet.table_columns(schema))


def test_each_type_of_avro_has_its_word() -> None:
    """A named type that is used again is the type it was the first time."""
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "int"}]}
    schema = record(
        ("id", {"type": "long", "connect.type": "int64"}),
        ("note", ["null", "string"]),
        ("kind", {"type": "enum", "name": "Kind", "symbols": ["A"]}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
        ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("huge", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 0}),
        ("from", address),
        ("to", "com.example.Address"),
        ("tags", {"type": "map", "values": {"type": "array", "items": "double"}}),
    )
    address["namespace"] = "com.example"

    assert {
        "id": "bigint",
        "note": "string",
        "kind": "string",
        "day": "date",
        "at": "timestamp",
        "amount": "decimal(9,2)",
        "huge": "binary",
        "from": "struct<zip:int>",
        "to": "struct<zip:int>",
        "tags": "map<string,array<double>>",
    } == words(avro.table_columns(schema))


def test_a_type_is_found_from_where_its_name_stands() -> None:
    """A record's namespace is that of what is defined in it; the same name elsewhere is another."""
    place = {"type": "record", "name": "Place", "fields": [{"name": "zip", "type": "int"}]}
    own = {"name": "own", "type": {"type": "fixed", "name": "Id", "size": 2}}
    other = {**place, "namespace": "far", "fields": [own, {"name": "id", "type": "Id"}]}
    decimal = {"type": "fixed", "name": "Sum", "size": 8, "logicalType": "decimal", "precision": 9}
    inner = {"type": "record", "name": "near.Inner", "fields": [
        {"name": "place", "type": place},
        {"name": "far", "type": other},
        {"name": "again", "type": "Place"},
        {"name": "sum", "type": decimal},
        {"name": "sums", "type": {"type": "array", "items": "Sum"}},
    ]}  # fmt: skip
    schema = record(("inner", inner), ("near", "near.Place"), ("far", "far.Place"))
    near, far = "struct<zip:int>", "struct<own:binary,id:binary>"

    assert {
        "inner": f"struct<place:{near},far:{far},again:{near},"
        "sum:decimal(9,0),sums:array<decimal(9,0)>>",
        "near": near,
        "far": far,
    } == words(avro.table_columns(schema))


def growing(types: int, columns: int) -> dict[str, Any]:
    """A record of types that name the one before twice each, and columns of the last one."""
    inner: list[dict[str, Any]] = [{"type": "record", "name": "T0", "fields": []}]
    for at in range(1, types):
        both = [{"name": name, "type": f"T{at - 1}"} for name in "ab"]
        inner.append({"type": "record", "name": f"T{at}", "fields": both})
    last = [(f"c{at}", f"T{types - 1}") for at in range(columns)]
    return record(*((f"t{at}", one) for at, one in enumerate(inner)), *last)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(growing(2000, 0), id="a column that grows beyond all measure"),
        pytest.param(growing(13, 2000), id="many large columns"),
        pytest.param("string", id="no record"),
        pytest.param(record(("either", ["int", "string"])), id="one of several types"),
        pytest.param(record(("next", ["null", "Order"])), id="a type that contains itself"),
    ],
)
def test_avro_that_is_no_table_is_refused(schema: Any) -> None:
    """What has no columns, or columns that no engine knows, is said before anything is declared."""
    with pytest.raises(ConfigurationError, match="cannot be declared as a table"):
        avro.table_columns(schema)


def test_the_fields_of_json_are_those_of_all_lines() -> None:
    """Whole numbers and fractions are a double; what is of several kinds, or null, is text."""
    lines = [
        '{"id": 1, "amount": 2, "who": {"name": "a"}, "tags": [], "odd": 1, "none": null}',
        '{"id": 9223372036854775807, "amount": 2.5, "who": {"age": 3}, "tags": ["x"], "odd": "a"}',
        '{"ok": true, "who": null}',
    ]

    assert {
        "id": "bigint",
        "amount": "double",
        "who": "struct<name:string,age:bigint>",
        "tags": "array<string>",
        "odd": "string",
        "none": "string",
        "ok": "boolean",
    } == words(json_lines.table_columns(lines))


@pytest.mark.parametrize("lines", [["1"], [], ["{}"], ['{"a":1}', '"text"']])
def test_json_that_is_no_table_is_refused(lines: list[str]) -> None:
    """JSON that is not an object is refused: a table has columns."""
    with pytest.raises(ConfigurationError, match="cannot be declared as a table"):
        json_lines.table_columns(lines)


@pytest.mark.parametrize(
    ("precision", "scale"),
    [(-9, 2), (9, 2.5), (0, 0), (None, 0), (4, 5), (39, 2), (9, "2)); DROP TABLE orders; --")],
)
def test_a_decimal_that_is_none_is_bytes(precision: Any, scale: Any) -> None:
    """What anybody has written for its digits comes into no declaration."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    assert {"sum": "binary"} == words(avro.table_columns(record(("sum", kind))))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"type": "record", "name": "Order"}', id="no fields"),
        pytest.param(json.dumps(record(("lines", {"type": "array"}))), id="an array of nothing"),
        pytest.param(json.dumps(record(("id", 5))), id="a number for a type"),
        pytest.param(json.dumps(record((5, "int"))), id="a number for a name"),
        pytest.param(json.dumps(record(("to", "Nobody"))), id="a type that is not there"),
        pytest.param(
            json.dumps(record(("id", None))).replace("null", '{"type":' * 3000 + "5" + "}" * 3000),
            id="deeper than anything",
        ),
    ],
)
def test_a_file_whose_schema_is_none_is_corrupt(schema: str) -> None:
    """Whatever it holds, it is a fault of the file."""
    head = avro._head({"avro.schema": schema.encode(), "avro.codec": b"null"}) + bytes(16)

    with pytest.raises(CorruptObjectError, match="a schema that kbackup cannot read"):
        avro.AvroFormat().table(io.BytesIO(head), View.VALUE, ".avro", FormatOptions())
