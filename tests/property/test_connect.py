"""Columns under any schema of Connect, through Avro and JSON and back."""

import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kbackup.connect import (
    avro_columns,
    avro_reading,
    avro_walk,
    avro_writing,
    json_values,
    protobuf_reading,
    protobuf_writing,
)
from kbackup.connect.avro_reading import from_avro
from kbackup.connect.avro_walk import AVRO
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.json_schema import FORM, from_json_schema, to_json_schema
from kbackup.connect.json_values import JsonStyle
from kbackup.connect.protobuf_reading import ProtobufStyle, from_message
from kbackup.connect.schema import DATE, DECIMAL, ENUM, TIMESTAMP, UNION, ConnectSchema, Type
from kbackup.formats import FormatOptions
from kbackup.formats.avro import AvroFormat
from kbackup.naming import View
from kbackup.records import ENCODED, Schema

NAMES = st.text("abcXYZ_", min_size=1, max_size=4)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS = {Type.FLOAT32: 32, Type.FLOAT64: 64}
STYLE = AvroStyle()

CHOICE = tuple(
    (name, ConnectSchema(kind, True))
    for name, kind in (("string", Type.STRING), ("int", Type.INT32), ("long", Type.INT64))
)

SYMBOLS = ((ENUM, "E"), (f"{ENUM}.a", "a"), (f"{ENUM}.b", "b"))

plain = st.builds(
    ConnectSchema,
    st.sampled_from([kind for kind in Type if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)]),
    st.booleans(),
)
logical = st.sampled_from(
    [
        ConnectSchema(Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", "3"),)),
        ConnectSchema(Type.INT32, True, DATE, 1),
        ConnectSchema(Type.INT64, name=TIMESTAMP, version=1),
        ConnectSchema(Type.INT16, True, default="7"),
        ConnectSchema(Type.STRING, doc="prose", default='"é"'),
        ConnectSchema(Type.STRING, True, "E", parameters=SYMBOLS),
        ConnectSchema(Type.BYTES, name="F", parameters=(("connect.fixed.size", "3"),)),
        ConnectSchema(Type.BYTES, default='"/w=="'),
        ConnectSchema(Type.STRUCT, True, UNION, fields=CHOICE),
        ConnectSchema(Type.STRUCT, False, UNION, fields=CHOICE[::-1]),
    ]
)


def nested(inner: st.SearchStrategy[ConnectSchema]) -> st.SearchStrategy[ConnectSchema]:
    fields = st.lists(st.tuples(NAMES, inner), max_size=4, unique_by=lambda each: each[0])
    return st.one_of(
        st.builds(ConnectSchema, st.just(Type.ARRAY), st.booleans(), value=inner),
        st.builds(ConnectSchema, st.just(Type.MAP), st.booleans(), key=plain, value=inner),
        st.builds(ConnectSchema, st.just(Type.STRUCT), st.booleans(), fields=fields.map(tuple)),
    )


schemas = st.recursive(plain | logical, nested, max_leaves=6)


def values(schema: ConnectSchema) -> st.SearchStrategy[Any]:
    """What Arrow takes for a value of *schema*."""
    found = _plain(schema)
    return st.none() | found if schema.optional and schema.default is None else found


def _plain(schema: ConnectSchema) -> st.SearchStrategy[Any]:  # noqa: PLR0911
    if schema.bits is not None:
        return st.integers(-(2 ** (schema.bits - 1)), 2 ** (schema.bits - 1) - 1)
    if schema.type in FLOATS:
        return st.floats(width=cast("Any", FLOATS[schema.type]), allow_nan=False)
    match schema.type:
        case Type.BOOLEAN:
            return st.booleans()
        case Type.STRING:
            return st.sampled_from("ab") if schema.parameters else TEXTS
        case Type.BYTES:
            if schema.fixed_size is not None:
                return st.binary(min_size=schema.fixed_size, max_size=schema.fixed_size)
            number = st.integers(-(10**40), 10**40).map(json_values.unscaled)
            return number if schema.logical else st.binary(max_size=5)
        case Type.ARRAY:
            return st.lists(values(schema.items), max_size=3)
        case Type.MAP:
            pair = st.tuples(_plain(schema.keys), values(schema.items))
            return st.lists(pair, max_size=3, unique_by=lambda each: repr(each[0]))
    if schema.name == UNION:
        chosen = [st.fixed_dictionaries({name: _plain(field)}) for name, field in schema.fields]
        return st.one_of(chosen)
    return st.fixed_dictionaries({name: values(field) for name, field in schema.fields})


@st.composite
def columns(draw: st.DrawFn) -> tuple[ConnectSchema, pa.Array]:
    schema = draw(schemas)
    rows = draw(st.lists(values(schema), max_size=4))
    start = draw(st.integers(0, len(rows)))
    return schema, pa.array(rows, schema.arrow()).slice(start)


@given(columns())
def test_avro_comes_back(case: tuple[ConnectSchema, pa.Array]) -> None:
    """Datums are read by another library and by ours, and give the same column and schema."""
    schema, column = case
    avro = to_avro(schema, STYLE)
    stored = json.loads(json.dumps(avro).replace('"logicalType"', '"no.logicalType"'))
    parsed = fastavro.parse_schema(stored)  # Python has no date before the year 1

    datums = avro_writing.encode_avro(column, schema, STYLE)

    assert not datums.null_count
    for datum in datums.to_pylist():
        file = io.BytesIO(datum)
        fastavro.schemaless_reader(file, parsed, None)
        assert not file.read()
    again = avro_reading.decode_avro(b"".join(datums.to_pylist()), len(datums), json.dumps(avro))
    assert column.equals(again)
    assert schema == from_avro(avro)


def is_read_in_c(schema: ConnectSchema) -> bool:
    """Whether no part of it is left to Python: no union, key that is no text, or empty struct."""
    if schema.type is Type.STRUCT and (schema.name == UNION or not schema.fields):
        return False
    if schema.type is Type.MAP and schema.keys != ConnectSchema(Type.STRING):
        return False
    parts = [schema.value, *(field for _, field in schema.fields)]
    return all(is_read_in_c(part) for part in parts if part is not None)


@given(columns(), st.data())
def test_all_rows_at_once_are_read_as_one_by_one(
    case: tuple[ConnectSchema, pa.Array], data: st.DataObject
) -> None:
    """Both ways give the same, or the slow one is asked; what is no value is none to either."""
    schema, column = case
    text = json.dumps(to_avro(schema, STYLE))
    datums = avro_writing.encode_avro(column, schema, STYLE).to_pylist()
    is_damaged = bool(datums) and data.draw(st.booleans(), "damage")
    if is_damaged:
        at = data.draw(st.integers(0, len(datums) - 1), "row")
        start = data.draw(st.integers(0, len(datums[at])), "from")
        put = data.draw(st.binary(max_size=3), "put")
        cut = data.draw(st.integers(0, 3), "cut")
        datums[at] = datums[at][:start] + put + datums[at][start + cut :]
    rows = pa.array([b"before", *datums], pa.binary()).slice(1)

    found = avro_columns.decode(rows, text)

    expected, bad = avro_reading.decode_each_avro(rows, text)
    assert avro_walk.wrong(rows, text) == avro_walk.wrong_by_python(rows, text)
    if found is not None:
        found.validate(full=True)
        assert (expected.type, {}) == (found.type, bad)
        assert repr(expected.to_pylist()) == repr(found.to_pylist())
    is_for_c = avro_walk.library() is not None and bool(datums) and is_read_in_c(schema)
    assert found is not None or is_damaged or not is_for_c


@given(columns(), st.booleans(), st.booleans())
def test_datums_are_kept_where_their_file_reads_them_so(
    case: tuple[ConnectSchema, pa.Array], enhanced: bool, optional_keys: bool
) -> None:
    """Producers' bytes put into a file as they came give what decoding and encoding would give."""
    schema, column = case
    theirs = AvroStyle(False, enhanced, optional_keys)
    datums = avro_writing.encode_avro(column, schema, theirs)
    text = json.dumps(to_avro(schema, theirs))
    under = avro_reading.connect_schema(text)
    values, _ = avro_reading.decode_each_avro(datums, text)
    plain = pa.record_batch([values], ["value"])
    field = Schema(text, encoding=AVRO).on(pa.field(ENCODED, pa.binary()))

    files = [
        written(under, batch) for batch in (plain, plain.append_column(field, datums))
    ]  # fmt: skip

    assert repr(files[0]) == repr(files[1])


def written(schema: ConnectSchema, batch: pa.RecordBatch) -> list[Any]:
    """Return what an Avro file holds that was given one batch."""
    file = io.BytesIO()
    writer = AvroFormat().writer(file, View.VALUE, FormatOptions(), schema.of_column())
    writer.write(batch)
    writer.close({})
    file.seek(0)
    batches = AvroFormat().read(file, View.VALUE, ".avro", FormatOptions())
    return [row for each in batches for row in each.to_pylist()]


@given(columns(), st.booleans())
def test_json_comes_back(case: tuple[ConnectSchema, pa.Array], numeric: bool) -> None:
    """JSON has every value, decimals in both spellings; its schema is JSON too."""
    schema, column = case
    texts = json_values.encode_json(column, schema, JsonStyle(numeric_decimals=numeric)).to_pylist()

    read = json_values.reader(schema)
    found = [read(json.loads(text, parse_float=Decimal if numeric else float)) for text in texts]

    assert column.equals(pa.array(found, schema.arrow()))
    assert schema == ConnectSchema.from_json(json.loads(schema.text()))


@given(columns(), st.booleans())
def test_json_under_a_json_schema_comes_back(
    case: tuple[ConnectSchema, pa.Array], numeric: bool
) -> None:
    """A schema that was registered reads the values that were written under it."""
    schema, column = case
    style = JsonStyle(numeric_decimals=numeric, form=FORM)
    texts = json_values.encode_json(column, schema, style).to_pylist()

    found = from_json_schema(json.dumps(to_json_schema(schema)))

    read = json_values.reader(found, FORM)
    rows = [read(json.loads(text, parse_float=Decimal)) for text in texts]
    assert column.equals(pa.array(rows, found.arrow()))
    assert schema == found


INNER = ConnectSchema(
    Type.STRUCT,
    name="Inner",
    fields=(("a", ConnectSchema(Type.STRING)), ("a_", ConnectSchema(Type.INT64, optional=True))),
)
KINDS = ("sint32", "sfixed32", "uint64", "sint64", "fixed64", "sfixed64")
OUTER = ConnectSchema(
    Type.STRUCT,
    name="x.Outer",
    fields=(
        *(
            (f"{kind}_{'n' if optional else 'r'}", ConnectSchema(kind, optional))
            for kind in Type
            if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)
            for optional in (False, True)
        ),
        *(
            (
                kind,
                ConnectSchema(
                    Type.INT32 if kind.endswith("32") else Type.INT64,
                    parameters=(("io.confluent.connect.protobuf.Type", kind),),
                ),
            )
            for kind in KINDS
        ),
        ("decimal", ConnectSchema(Type.BYTES, True, DECIMAL, 1, parameters=(("scale", "3"),))),
        ("timestamp", ConnectSchema(Type.INT64, True, TIMESTAMP, 1)),
        ("longs", ConnectSchema(Type.ARRAY, value=ConnectSchema(Type.INT64))),
        ("doubles", ConnectSchema(Type.ARRAY, value=ConnectSchema(Type.FLOAT64))),
        ("texts", ConnectSchema(Type.ARRAY, value=ConnectSchema(Type.STRING))),
        ("inner", replace(INNER, optional=True)),
        ("inners", ConnectSchema(Type.ARRAY, value=INNER)),
        ("by_text", ConnectSchema(Type.MAP, key=ConnectSchema(Type.STRING), value=INNER)),
        (
            "by_number",
            ConnectSchema(
                Type.MAP, key=ConnectSchema(Type.INT32), value=ConnectSchema(Type.BOOLEAN)
            ),
        ),
        (
            "choice_0",
            ConnectSchema(
                Type.STRUCT,
                True,
                "io.confluent.connect.protobuf.Union.choice",
                fields=(("one", ConnectSchema(Type.INT32, True)),),
            ),
        ),
    ),
)
MESSAGE = protobuf_writing.planned(OUTER)


def distinct(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a message has it: of a choice one is set, a key stands once."""
    if row["choice_0"] == {"one": None}:
        row["choice_0"] = None
    return row


@settings(max_examples=30)  # of 40 fields each
@given(st.lists(values(OUTER).map(distinct), max_size=3))
def test_messages_are_those_of_protobufs_own_library(rows: list[dict[str, Any]]) -> None:
    """Bytes made column by column are read by Protobuf, under the file that was made for them."""
    column = pa.array(rows, OUTER.arrow())
    style = ProtobufStyle(optional_by_keyword=True)
    descriptor = protobuf_reading.compiled(MESSAGE.text()).message_types_by_name["Outer"]
    read = protobuf_reading.reader(descriptor, from_message(descriptor, style), style)

    found = protobuf_writing.encode_protobuf(column, MESSAGE)

    assert not found.null_count
    again = pa.array([read(body) for body in found.to_pylist()], OUTER.arrow())
    assert ordered(column) == ordered(again)


def ordered(column: pa.Array) -> list[str]:
    """Return rows as text, the entries of maps in the order of their keys."""
    rows = column.to_pylist()
    for row in rows:
        for name in ("by_text", "by_number"):
            row[name].sort(key=repr)
    return [repr(row) for row in rows]
