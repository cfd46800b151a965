"""Avro of all but unions of several types, read in C: the same verdicts and values as in Python."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbackup import native_build
from kbackup.connect import avro_columns, avro_reading, avro_walk, avro_writing
from kbackup.connect.avro_writing import AvroStyle, to_avro
from kbackup.connect.schema import ENUM, ConnectSchema, Type

pytestmark = pytest.mark.skipif(
    native_build.compiler() is None and avro_walk.library() is None, reason="there is no C compiler"
)
STYLE = AvroStyle()
INTEGERS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
KEY = ConnectSchema(Type.STRING)
KIND = ConnectSchema(
    Type.STRING, name="E", parameters=((ENUM, "E"), (f"{ENUM}.a", "a"), (f"{ENUM}.b", "b"))
)

leaves = st.builds(
    ConnectSchema,
    st.sampled_from([kind for kind in Type if kind not in (Type.ARRAY, Type.MAP, Type.STRUCT)]),
    st.booleans(),
) | st.sampled_from([KIND, KIND.as_optional()])


def nested(inner: st.SearchStrategy[ConnectSchema]) -> st.SearchStrategy[ConnectSchema]:
    names = st.lists(st.tuples(st.sampled_from("abcdef"), inner), min_size=1, max_size=4)
    fields = names.map(lambda each: tuple(dict(each).items()))
    return st.one_of(
        st.builds(ConnectSchema, st.just(Type.STRUCT), st.booleans(), fields=fields),
        st.builds(ConnectSchema, st.just(Type.ARRAY), st.booleans(), value=inner),
        st.builds(ConnectSchema, st.just(Type.MAP), st.booleans(), key=st.just(KEY), value=inner),
    )


def values(schema: ConnectSchema) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any]
    if schema.type is Type.STRUCT:
        found = st.fixed_dictionaries({name: values(field) for name, field in schema.fields})
    elif schema.type is Type.ARRAY:
        found = st.lists(values(schema.items), max_size=9)
    elif schema.type is Type.MAP:
        found = st.dictionaries(values(schema.keys), values(schema.items), max_size=9).map(
            lambda each: [*each.items()]
        )
    elif schema.type in INTEGERS:
        most = 2 ** (INTEGERS[schema.type] - 1)
        found = st.integers(-most, most - 1)
    else:
        found = {
            Type.FLOAT32: st.floats(width=32, allow_nan=False),
            Type.FLOAT64: st.floats(allow_nan=False),
            Type.BOOLEAN: st.booleans(),
            Type.BYTES: st.binary(max_size=90),
            Type.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
            if not schema.parameters
            else st.sampled_from("ab"),
        }[schema.type]
    return st.none() | found if schema.optional else found


@st.composite
def columns(draw: st.DrawFn) -> tuple[ConnectSchema, pa.Array]:
    schema = draw(st.recursive(leaves, nested, max_leaves=8))
    return schema, pa.array(draw(st.lists(values(schema), min_size=1, max_size=9)), schema.arrow())


@given(columns(), st.data())
def test_both_ways_find_the_same(case: tuple[ConnectSchema, pa.Array], data: st.DataObject) -> None:
    """Whatever bytes records hold, C reads what Python reads, and nothing that Python refuses."""
    schema, column = case
    text = json.dumps(to_avro(schema, STYLE))
    datums = avro_writing.encode_avro(column, schema, STYLE).to_pylist()
    is_damaged = data.draw(st.booleans(), "damage")
    if is_damaged:
        at = data.draw(st.integers(0, len(datums) - 1), "row")
        start = data.draw(st.integers(0, len(datums[at])), "from")
        put = data.draw(st.binary(max_size=3), "put")
        cut = data.draw(st.integers(0, 3), "cut")
        datums[at] = datums[at][:start] + put + datums[at][start + cut :]
    start = data.draw(st.integers(0, len(datums) - 1), "slice")
    rows = pa.array(datums, pa.binary()).slice(start)

    found = avro_columns.decode(rows, text)

    expected, bad = avro_reading.decode_each_avro(rows, text)
    if found is not None:
        found.validate(full=True)
        assert ({}, expected.type) == (bad, found.type)
        assert repr(expected.to_pylist()) == repr(found.to_pylist())
    assert is_damaged or found is not None
