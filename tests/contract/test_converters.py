"""Every converter that is registered keeps the promises of `kbackup.converters.Converter`."""

import json
import struct

import pyarrow as pa
import pytest

from tests.contract.product import (
    Converter,
    JsonConverter,
    RequestedSchemas,
    connect,
    converters,
    decoded,
    encoded,
    json_values,
    planned,
    plugins,
)
from tests.support.registry import FakeRegistry

PROPERTIES = {
    "json": {"schemas.enable": "false"},
    "json with schemas": {"schemas.enable": "true", "decimal.format": "NUMERIC"},
}
CONVERTERS = [plugin.name for plugin in plugins.installed("converters")]
EACH = [*CONVERTERS, "json with schemas"]
TEXTS = [b'"a"', None, b"12", b'{"a":[1,null]}', '"é"'.encode()]
_INT8 = b'{"schema":{"type":"struct","fields":[{"type":"int8","optional":true,"field":"a"}],'
OWN: dict[str, list[bytes | None]] = {
    "json with schemas": [
        _INT8 + b'"optional":false},"payload":%s}' % payload if payload else None
        for payload in (b'{"a":1}', b"", b'{"a":null}', b'{"a":-128}', b'{"a":0}')
    ],
    "boolean": [b"\0", None, b"\1", b"\0", b"\1"],
} | {
    name: [struct.pack(f">{code}", number) if number else None for number in (1, 0, 2, -3, 127)]
    for name, code in {
        "short": "h", "integer": "i", "long": "q", "float": "f", "double": "d",
    }.items()
}  # fmt: skip
"""Values of the converters that do not take any JSON; the second one is null in each."""

AVRO = '{"type": "string", "connect.version": 1}'
JSON_SCHEMA = '{"type": "string", "connect.version": 1}'
PROTOBUF = planned(connect.ConnectSchema(connect.Type.STRING)).text()
REGISTERED = {
    "avro": ("AVRO", AVRO, [b"\x02a", b"\0", b"\x04bc", "\x04é".encode()]),
    "json_schema": ("JSON", JSON_SCHEMA, [b'"a"', b'""', b'"bc"', '"é"'.encode()]),
    "protobuf": ("PROTOBUF", PROTOBUF, [b"\0\x0a\1a", b"\0", b"\0\x0a\2bc", b"\0\x0a\2\xc3\xa9"]),
}
"""Kind and text of a schema, and values under it without what names it."""


@pytest.fixture(params=EACH)
def converter(request: pytest.FixtureRequest, registry: FakeRegistry) -> Converter:
    name, properties = request.param, PROPERTIES.get(request.param, {})
    if name in REGISTERED:
        kind, text, _ = REGISTERED[name]
        assert 1 == registry.add("orders-value", text, kind)
        properties = {"schema.registry.url": registry.url}
    return converters.by_name(name.partition(" ")[0], properties, topic="orders")


@pytest.fixture
def values(request: pytest.FixtureRequest, converter: Converter) -> pa.Array:
    name = request.node.callspec.params["converter"]
    if name in REGISTERED:
        first, *rest = [b"\0\0\0\0\1" + value for value in REGISTERED[name][2]]
        return pa.array([first, None, *rest], pa.binary())
    return pa.array(OWN.get(name, TEXTS), pa.binary())


def back(converter: Converter, column: pa.Array) -> pa.Array:
    """Return the bytes of what the converter makes of *column*."""
    return pa.concat_arrays(
        [encoded(converter, each.values, each.schema) for each in converter.decode(column)]
    )


def test_bytes_come_back(converter: Converter, values: pa.Array) -> None:
    """Bytes read from Kafka are written back unchanged, and null stays null."""
    assert values.equals(back(converter, values))


def test_null_stays_null(converter: Converter) -> None:
    """A tombstone stays a tombstone through every converter."""
    nulls = pa.nulls(3, pa.binary())
    typed = decoded(converter, nulls)

    assert (3, 3) == (typed.null_count, encoded(converter, typed).null_count)


def test_a_part_of_a_column_is_like_a_column(converter: Converter, values: pa.Array) -> None:
    """A slice of a batch converts like a batch of its own."""
    part = values.slice(2, 3)
    [whole] = converter.decode(values)

    assert part.equals(back(converter, part))
    assert part.equals(encoded(converter, whole.values.slice(2, 3), whole.schema))


def test_a_column_of_no_rows_converts(converter: Converter) -> None:
    """An empty batch converts to an empty column."""
    none = pa.array([], pa.binary())

    assert none.equals(encoded(converter, decoded(converter, none)))


def test_only_types_that_formats_take(converter: Converter, values: pa.Array) -> None:
    """A converter yields types that every format can write, or a schema that describes them."""
    for column in converter.decode(values):
        schema = connect.of(column.schema)
        plain = (pa.binary(), pa.string(), pa.json_())
        expected = plain if schema is None else (schema.arrow(),)
        assert column.values.type in expected


def test_json_null_of_a_file_is_a_tombstone(converter: Converter) -> None:
    """A JSON file has ``null`` where the record had no value."""
    column = pa.array(["null", None], pa.json_())

    assert [None, None] == encoded(converter, column).to_pylist()


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_workers_class_name_stands_for_it(name: str) -> None:
    """A worker's configuration names converters by their Java classes."""
    simple = plugins.load("converters", name).traits.class_names

    assert simple
    for each in simple:
        assert name == plugins.by_class_name("converters", f"org.apache.kafka.connect.{each}")


def test_what_a_json_file_holds_of_it_comes_back(converter: Converter, values: pa.Array) -> None:
    """Each converter reads back the JSON that a file holds of its values."""
    [column] = converter.decode(values)
    typed, schema = column.values, connect.of(column.schema)
    is_registered = isinstance(getattr(converter, "asked", None), RequestedSchemas)
    if is_registered or (isinstance(converter, JsonConverter) and schema is not None):
        return  # the file has the payload, and its schema nowhere
    if schema is not None:
        lines = json_values.encode_json(typed, schema).to_pylist()
    elif typed.type == pa.string():
        lines = [None if text is None else json.dumps(text) for text in typed.to_pylist()]
    elif typed.type == pa.binary():
        lines = [None, "null", '""', '"AP8K"']
        assert [None, None, b"", b"\x00\xff\n"] == encoded(
            converter, pa.array(lines, pa.json_())
        ).to_pylist()
        return
    else:
        lines = typed.storage.to_pylist()

    assert values.equals(encoded(converter, pa.array(lines, pa.json_())))
