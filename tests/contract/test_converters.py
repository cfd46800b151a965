"""Every converter that is registered keeps the promises of `kbackup.converters.Converter`."""

import json
import struct

import pyarrow as pa
import pytest

from tests.contract.product import (
    VALUES,
    Converter,
    ConverterContract,
    JsonConverter,
    RequestedSchemas,
    connect,
    converters,
    encoded,
    json_values,
    planned,
    plugins,
)
from tests.support.registry import FakeRegistry

PROPERTIES = {"json with schemas": {"schemas.enable": "true", "decimal.format": "NUMERIC"}}
CONVERTERS = [plugin.name for plugin in plugins.installed("converters")]
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


class TestConverters(ConverterContract):
    @pytest.fixture(params=[*CONVERTERS, *PROPERTIES])
    def converter(self, request: pytest.FixtureRequest, registry: FakeRegistry) -> Converter:
        properties = PROPERTIES.get(request.param)
        if request.param in REGISTERED:
            kind, text, _ = REGISTERED[request.param]
            assert 1 == registry.add("orders-value", text, kind)
            properties = {"schema.registry.url": registry.url}
        return converters.by_name(request.param.partition(" ")[0], properties, topic="orders")

    @pytest.fixture
    def values(self, request: pytest.FixtureRequest) -> pa.Array:
        name = request.node.callspec.params["converter"]
        if name in REGISTERED:
            first, *rest = [b"\0\0\0\0\1" + value for value in REGISTERED[name][2]]
            return pa.array([first, None, *rest], pa.binary())
        return pa.array(OWN[name], pa.binary()) if name in OWN else VALUES

    def test_only_types_that_formats_take(self, converter: Converter, values: pa.Array) -> None:
        """A column that its schema describes has that schema's type."""
        for column in converter.decode(values):
            schema = connect.of(column.schema)
            assert schema is None or schema.arrow() == column.values.type

    def test_json_null_of_a_file_is_a_tombstone(self, converter: Converter) -> None:
        """A JSON file has ``null`` where the record had no value."""
        column = pa.array(["null", None], pa.json_())

        assert [None, None] == encoded(converter, column).to_pylist()

    def test_what_a_json_file_holds_of_it_comes_back(
        self, converter: Converter, values: pa.Array
    ) -> None:
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
            values = pa.array([None, None, b"", b"\x00\xff\n"], pa.binary())
        else:
            lines = typed.storage.to_pylist()

        assert values.equals(encoded(converter, pa.array(lines, pa.json_())))


@pytest.mark.parametrize("name", CONVERTERS)
def test_a_workers_class_name_stands_for_it(name: str) -> None:
    """A worker's configuration names converters by their Java classes."""
    simple = plugins.load("converters", name).traits.class_names

    assert simple
    for each in simple:
        assert name == plugins.by_class_name("converters", f"org.apache.kafka.connect.{each}")
