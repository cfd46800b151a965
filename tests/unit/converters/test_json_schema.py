import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from kbackup.connect import schema as connect
from kbackup.connect.registry.framing import head_of
from kbackup.connect.schema import DECIMAL, ConnectSchema, Type
from kbackup.testing import encoded
from tests.support.registry import FakeRegistry, converter_of

made = partial(converter_of, "json_schema")

ORDER = {
    "title": "x.Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
    },
}


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def framed(schema_id: int, value: Any) -> bytes:
    """Return a value as a producer sends it."""
    return head_of(schema_id) + json.dumps(value).encode()


def test_values_come_as_columns_of_connect(registry: FakeRegistry) -> None:
    """Null and absent are null; the schema has its title for a name and its registry's version."""
    registry.add("orders-value", {"type": "string"}, "JSON")
    schema_id = registry.add("orders-value", ORDER, "JSON")
    rows = [{"id": 1, "note": "a", "more": 1}, {"id": 2, "note": None}, {"id": 3}]

    [found] = made(registry).decode(column(*(framed(schema_id, row) for row in rows), None))

    assert [
        {"id": 1, "note": "a"}, {"id": 2, "note": None}, {"id": 3, "note": None}, None
    ] == found.values.to_pylist()  # fmt: skip
    schema = connect.of(found.schema)
    assert schema is not None
    assert ("x.Order", 2, ()) == (schema.name, schema.version, found.bad)


def test_properties_that_are_not_required_may_be_absent_where_asked_for(
    registry: FakeRegistry,
) -> None:
    """The connector's option, with its default, decides whether properties are optional."""
    schema_id = registry.add("orders-value", {**ORDER, "required": ["note"]}, "JSON")
    values = column(framed(schema_id, {"note": "a"}))

    [strict] = made(registry).decode(values)
    [lenient] = made(registry, **{"use.optional.for.nonrequired": "true"}).decode(values)

    assert ([0], []) == ([bad.row for bad in strict.bad], [*lenient.bad])
    assert "use.optional.for.nonrequired=true" in strict.bad[0].do
    assert [{"id": None, "note": "a"}] == lenient.values.to_pylist()


def test_types_of_other_schemas_are_found(registry: FakeRegistry) -> None:
    """A schema may refer to others, which are registered under subjects of their own."""
    registry.add("order", ORDER, "JSON")
    refers = {"references": [{"name": "order.json", "subject": "order", "version": 1}]}
    schema = {"type": "array", "items": {"$ref": "order.json"}}
    schema_id = registry.add("orders-value", schema, "JSON", **refers)

    [found] = made(registry).decode(column(framed(schema_id, [{"id": 1}])))

    assert [[{"id": 1, "note": None}]] == found.values.to_pylist()


@pytest.mark.parametrize(("form", "text"), [("BASE64", b'"fQ=="'), ("NUMERIC", b"1.25")])
def test_values_go_back_under_their_schema(registry: FakeRegistry, form: str, text: bytes) -> None:
    """A restore registers the schema with the target's registry; null stays a tombstone."""
    price = ConnectSchema(Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", "2"),))
    schema = ConnectSchema(Type.STRUCT, name="x.Order", fields=(("price", price),))
    values = pa.array([{"price": b"\x7d"}, None], schema.arrow())
    converter = made(
        registry, **{"decimal.format": form, "object.additional.properties": "false"}
    )  # fmt: skip

    found = encoded(converter, values, schema.of_column())

    assert [head_of(1) + b'{"price":' + text + b"}", None] == found.to_pylist()
    assert {"orders-value": [1]} == registry.subjects()
    written = registry.schema(1)
    assert ("x.Order", False) == (written["title"], written["additionalProperties"])
    [again] = converter.decode(found)
    assert values.equals(again.values)


def test_json_without_a_schema_is_not_written(registry: FakeRegistry) -> None:
    """JSON without a schema is refused row by row, and nothing is registered."""
    found = made(registry).encode(pa.array(["null", '{"a":1}', None, "2"], pa.json_()))

    what = "JSON without a schema cannot be written as JSON Schema"
    assert [(1, what), (3, what)] == [(bad.row, bad.what) for bad in found.bad]
    assert (4, {}) == (found.values.null_count, registry.subjects())
