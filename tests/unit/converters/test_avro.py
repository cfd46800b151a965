import io
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kbackup import converters
from kbackup.connect import schema as connect
from kbackup.connect.registry.framing import head_of
from kbackup.errors import RegistryError
from tests.support.registry import FakeRegistry, converter_of

made = partial(converter_of, "avro")

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "x",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """Return a value as a producer sends it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return head_of(schema_id) + body.getvalue()


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_values_come_as_columns_of_connect(registry: FakeRegistry) -> None:
    """Values are typed, and their schema has its name and its version in the registry."""
    registry.add("orders-value", '"string"')
    schema_id = registry.add("orders-value", ORDER)
    rows = [{"id": 1, "note": "a"}, {"id": 2, "note": None}]

    [found] = made(registry).decode(column(*(framed(schema_id, ORDER, row) for row in rows)))

    schema = connect.of(found.schema)
    assert schema is not None
    assert (rows, "x.Order", 2) == (found.values.to_pylist(), schema.name, schema.version)


def test_each_run_of_a_schema_is_a_column(registry: FakeRegistry) -> None:
    """Schemas that alternate keep the order of records; null stays where it is."""
    first, second = registry.add("orders-value", '"int"'), registry.add("orders-value", '"string"')
    one, two, text = framed(first, "int", 1), framed(first, "int", 2), framed(second, "string", "a")

    found = made(registry).decode(column(None, one, None, text, text, None, two))

    assert [[None, 1, None], ["a", "a", None], [2]] == [each.values.to_pylist() for each in found]
    assert 2 == sum(path.endswith("/versions") for path in registry.asked)


def test_only_bad_records_are_a_column_too(registry: FakeRegistry) -> None:
    """A batch without a single usable record still has its rows."""
    [found] = made(registry).decode(column(b"x", None, b"y"))

    assert ([0, 2], [None] * 3) == ([bad.row for bad in found.bad], found.values.to_pylist())


def test_a_registry_that_is_away_names_the_row(registry: FakeRegistry) -> None:
    """If the registry is away, the record whose schema was wanted is named, and none is bad."""
    registry.add("orders-value", '"string"')
    converter = made(registry, **{"max.retries": "0"})
    registry.script = [503]
    with pytest.raises(RegistryError, match="refused when asked for schema 1") as caught:
        converter.decode(column(None, framed(1, "string", "a")))

    assert 1 == caught.value.row


def test_types_of_other_schemas_are_found(registry: FakeRegistry) -> None:
    """A schema may refer to types that are registered under other subjects."""
    registry.add("x.Order", ORDER)
    refers: dict[str, Any] = {
        "references": [{"name": "x.Order", "subject": "x.Order", "version": 1}]
    }
    schema = {"type": "array", "items": "x.Order"}
    schema_id = registry.add("orders-value", schema, **refers)
    value = framed(schema_id, {"type": "array", "items": ORDER}, [{"id": 1, "note": None}])

    [found] = made(registry).decode(column(value))

    assert [[{"id": 1, "note": None}]] == found.values.to_pylist()


def test_values_that_do_not_match_their_schema_are_named_beside_those_that_do(
    registry: FakeRegistry,
) -> None:
    """Values that do not match their schema are named, and one that none matches is not kept."""
    number = connect.ConnectSchema(connect.Type.INT64)
    schema = connect.ConnectSchema(connect.Type.STRUCT, name="x.Order", fields=(("id", number),))
    values = pa.array([{"id": None}, {"id": 7}, None, {"id": None}], schema.arrow())
    converter = made(registry)

    none = converter.encode(values.slice(2), schema.of_column())
    before = registry.subjects()
    found = converter.encode(values, schema.of_column())

    assert ([1], {}) == ([bad.row for bad in none.bad], before)
    assert [0, 3] == [bad.row for bad in found.bad]
    assert [None, head_of(1) + b"\x0e", None, None] == found.values.to_pylist()


def test_a_configuration_is_checked_without_asking(registry: FakeRegistry) -> None:
    """``config check`` accepts an Avro configuration without asking the registry."""
    converters.by_name("avro", {"schema.registry.url": registry.url})

    assert [] == registry.asked
