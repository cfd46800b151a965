"""What Avro's schemas keep on their way through Kafka Connect and back, as the connector has it."""

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kbackup import formats
from kbackup.connect import avro_reading, avro_writing, json_values
from kbackup.connect import schema as connect
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_walk import AVRO
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.formats import FormatOptions
from kbackup.naming import View
from kbackup.records import ENCODED, Schema, schema_of

HASH = {"type": "fixed", "name": "Hash", "namespace": "x", "size": 4}
DOCUMENTED = {
    "type": "record", "name": "Order", "namespace": "x", "doc": "What was ordered.",
    "fields": [
        {"name": "id", "type": {"type": "string", "avro.java.string": "String"}, "doc": "Unique."},
        {"name": "state", "doc": "Now.", "type": {
            "type": "enum", "name": "State", "doc": "Of an order.", "symbols": ["NEW", "OLD"],
            "default": "OLD",
        }},
        {"name": "before", "type": ["null", "x.State"], "default": None},
        {"name": "hash", "type": HASH},
        {"name": "last", "type": ["null", "x.Hash"], "default": None},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "price", "type": {
            "type": "fixed", "name": "Price", "size": 8, "logicalType": "decimal", "precision": 9,
            "scale": 2,
        }},
    ],
}  # fmt: skip
ROW = {
    "id": "a", "state": "NEW", "before": None, "hash": b"\0\1\2\3", "last": b"\xff" * 4,
    "raw": b"", "price": bytes(7) + b"\x07",
}  # fmt: skip


def without(found: Any, prefix: str) -> Any:
    """Return a schema without the attributes that begin with *prefix*."""
    if isinstance(found, list):
        return [without(each, prefix) for each in found]
    if isinstance(found, dict):
        return {
            name: without(value, prefix)
            for name, value in found.items()
            if not name.startswith(prefix)
        }
    return found


def with_full_names(found: Any) -> Any:
    """Return a schema whose every named type says its namespace."""
    plain = without(found, "logical")
    return fastavro.schema.expand_schema(fastavro.parse_schema(plain))


def datum(schema: Any, row: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(without(schema, "logical")), row)
    return file.getvalue()


def field(kind: Any, default: Any) -> dict[str, Any]:
    """Return a record of one field."""
    one = {"name": "a", "type": kind, "default": default}
    return {"type": "record", "name": "R", "fields": [one]}


def stored(name: str, schema: dict[str, Any], datums: list[bytes]) -> list[Any]:
    """Return the rows of a file of what a producer sent, as they came beside their columns."""
    text, column = json.dumps(schema), pa.array(datums, pa.binary())
    under = avro_reading.connect_schema(text).of_column()
    values, _ = avro_reading.decode_each_avro(column, text)
    names = [under.on(pa.field("value", values.type))]
    names.append(Schema(text, encoding=AVRO).on(pa.field(ENCODED, pa.binary())))
    file, options = io.BytesIO(), FormatOptions()
    found = formats.by_name(name)
    writer = found.writer(file, View.VALUE, options, under)
    writer.write(pa.RecordBatch.from_arrays([values, column], schema=pa.schema(names)))
    writer.close({})
    file.seek(0)
    read = found.read(file, View.VALUE, found.extension(options), options)
    rows = [row for batch in read for row in batch["value"].to_pylist()]
    return [json.loads(row) if isinstance(row, str) else row for row in rows]


@pytest.mark.parametrize("name", ["avro", "json", "parquet"])
def test_null_stays_null_where_only_the_field_has_a_default(name: str) -> None:
    """The default of a field in Avro stands for a field that is not there, not for null."""
    schema = field(["string", "null"], "dd")
    datums = [datum(schema, {"a": None}), datum(schema, {"a": "x"})]

    found = stored(name, schema, datums)

    assert [{"a": None}, {"a": "x"}] == found


@pytest.mark.parametrize("name", ["avro", "json", "parquet"])
def test_null_becomes_the_default_that_connect_gave_the_type(name: str) -> None:
    """``connect.default`` is a default of Kafka Connect's, which the connector writes for null."""
    kind = [{"type": "string", "connect.default": "dd"}, "null"]
    schema = field(kind, "dd")
    datums = [datum(schema, {"a": None}), datum(schema, {"a": "x"})]

    found = stored(name, schema, datums)

    assert [{"a": "dd"}, {"a": "x"}] == found


@pytest.mark.parametrize("meta", [True, False])
def test_a_schema_keeps_what_its_consumers_read(meta: bool) -> None:
    """Documentation, defaults, enums, fixed types and Java's hints are what they were."""
    made = to_avro(from_avro(DOCUMENTED), AvroStyle(connect_meta=meta))

    assert with_full_names(DOCUMENTED) == with_full_names(without(made, "connect."))


def test_what_avro_documents_has_the_names_of_the_connector() -> None:
    """A record keeps its documentation and its fields' in parameters, an enum its own."""
    found = from_avro(DOCUMENTED)

    prefix = "io.confluent.connect.avro"
    assert found.doc is None
    assert {
        f"{prefix}.record.doc": "What was ordered.",
        f"{prefix}.field.doc.id": "Unique.",
        f"{prefix}.field.doc.state": "Now.",
    } == dict(found.parameters)
    fields = dict(found.fields)
    assert {"avro.java.string": "String"} == dict(fields["id"].parameters)
    assert {
        f"{prefix}.enum.doc.State": "Of an order.", f"{prefix}.enum.default.State": "OLD",
        f"{prefix}.Enum": "x.State", f"{prefix}.Enum.NEW": "NEW", f"{prefix}.Enum.OLD": "OLD",
    } == dict(fields["state"].parameters)  # fmt: skip
    assert ("x.Hash", {"connect.fixed.size": "4"}) == (
        fields["hash"].name, dict(fields["hash"].parameters),
    )  # fmt: skip


def test_values_of_fixed_types_are_the_bytes_that_came() -> None:
    """Datums that are decoded and encoded again, decimals in fixed types too, are the same."""
    text = json.dumps(DOCUMENTED)
    schema, body = avro_reading.connect_schema(text), datum(DOCUMENTED, ROW)

    values, bad = avro_reading.decode_each_avro(pa.array([body], pa.binary()), text)
    again = avro_writing.encode_avro(values, schema, AvroStyle())

    assert ({}, [body]) == (bad, again.to_pylist())


def test_parquet_has_fixed_types_of_their_length() -> None:
    """``fixed`` is FIXED_LEN_BYTE_ARRAY in Parquet, and comes back."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "h", "type": HASH}]}
    under = avro_reading.connect_schema(json.dumps(schema))
    file, parquet = io.BytesIO(), formats.by_name("parquet")
    writer = parquet.writer(file, View.VALUE, FormatOptions(), under.of_column())
    values = pa.array([{"h": b"abcd"}], under.arrow())
    writer.write(pa.RecordBatch.from_arrays([values], ["value"]))

    writer.close({})

    column = pq.ParquetFile(file).schema.column(0)
    assert ("FIXED_LEN_BYTE_ARRAY", 4) == (column.physical_type, column.length)
    [batch] = parquet.read(file, View.VALUE, ".parquet", FormatOptions())
    found = connect.of(schema_of(batch.schema.field("value")))
    assert (values.to_pylist(), under) == (batch["value"].to_pylist(), found)


UNION: Any = [
    "null", "string", "int", "long", "double",
    {"type": "record", "name": "Inner", "fields": [
        {"name": "n", "type": ["int", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]}
    ]},
    {"type": "array", "items": "string"}, {"type": "map", "values": "long"},
    {"type": "fixed", "name": "F", "size": 2}, "bytes",
]  # fmt: skip
SEVERAL = {
    "type": "record", "name": "R", "namespace": "x",
    "fields": [
        {"name": "a", "type": UNION, "default": None},
        {"name": "b", "type": ["string", "x.Inner"], "default": "dd"},
    ],
}  # fmt: skip
BRANCHES = [
    None, "text", ("int", 1), ("long", 1), 1.5, ("x.Inner", {"n": "B"}), ("x.Inner", {"n": 3}),
    ["a", "b"], {"k": 2**40}, b"\0\1", b"abc",
]  # fmt: skip


def test_a_union_of_several_types_is_a_struct_of_which_one_field_is_set() -> None:
    """Its fields are called as the connector calls them; each value is in that of its own type."""
    text = json.dumps(SEVERAL)
    rows = [{"a": value, "b": "x"} for value in BRANCHES]
    datums = pa.array([datum(SEVERAL, row) for row in rows], pa.binary())

    values, bad = avro_reading.decode_each_avro(datums, text)

    found = [
        row["a"] and {name: each for name, each in row["a"].items() if each is not None}
        for row in values.to_pylist()
    ]
    schema = dict(from_avro(SEVERAL).fields)
    assert ({}, "io.confluent.connect.avro.Union") == (bad, schema["a"].name)
    assert ["string", "int", "long", "double", "Inner", "array", "map", "F", "bytes"] == [
        name for name, _ in schema["a"].fields
    ]
    assert [
        None, {"string": "text"}, {"int": 1}, {"long": 1}, {"double": 1.5},
        {"Inner": {"n": {"int": None, "E": "B"}}}, {"Inner": {"n": {"int": 3, "E": None}}},
        {"array": ["a", "b"]}, {"map": [("k", 2**40)]}, {"F": b"\0\1"}, {"bytes": b"abc"},
    ] == found  # fmt: skip


@pytest.mark.parametrize("name", ["avro", "json", "parquet"])
def test_unions_of_several_types_are_stored_and_come_back(name: str) -> None:
    """Avro files hold the producers' datums; others a field for each type."""
    text = json.dumps(SEVERAL)
    datums = [datum(SEVERAL, {"a": value, "b": "x"}) for value in BRANCHES]
    values, _ = avro_reading.decode_each_avro(pa.array(datums, pa.binary()), text)
    schema = from_avro(SEVERAL)

    found = stored(name, SEVERAL, datums)

    assert with_full_names(SEVERAL) == with_full_names(to_avro(schema, AvroStyle(False)))
    assert datums == avro_writing.encode_avro(values, schema, AvroStyle()).to_pylist()
    if name != "json":
        assert values.to_pylist() == found
    else:
        assert [None, "text"] == [row["a"] and row["a"]["string"] for row in found[:2]]


@pytest.mark.parametrize("name", ["avro", "parquet"])
def test_a_fixed_type_in_a_struct_that_is_null_is_nothing(name: str) -> None:
    """A struct that is null needs no bytes of the size of its fields."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "h", "type": HASH}]}
    schema = field(["null", inner], None)
    datums = [datum(schema, {"a": None}), datum(schema, {"a": {"h": b"abcd"}})]

    found = stored(name, schema, datums)

    assert [{"a": None}, {"a": {"h": b"abcd"}}] == found


@pytest.mark.parametrize(
    ("module", "name"), [(fastavro, "schemaless_reader"), (json_values, "pa.array")]
)
def test_a_record_is_not_bad_because_memory_is_short(
    module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be left out, though nothing is wrong with it."""
    reading = pa.array([b"\x02"], pa.binary())

    def short(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 4096 failed")

    monkeypatch.setattr(f"{module.__name__}.{name}", short)

    with pytest.raises(MemoryError):
        avro_reading.decode_each_avro(reading, '"int"')
