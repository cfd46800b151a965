"""What a restore writes through a Schema Registry for null where a schema has a default."""

import pyarrow as pa
import pytest

from kbackup import converters
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.testing import encoded
from tests.support.registry import FakeRegistry

TEXT = ConnectSchema(Type.STRING, optional=True, default='"dd"')
SCHEMA = ConnectSchema(Type.STRUCT, name="R", fields=(("a", TEXT),))


@pytest.mark.parametrize("name", ["avro", "json_schema", "protobuf"])
@pytest.mark.parametrize(("ignores", "expected"), [("false", "dd"), ("true", None)])
def test_null_is_its_default_unless_nullables_ignore_theirs(
    registry: FakeRegistry, name: str, ignores: str, expected: str | None
) -> None:
    """``ignore.default.for.nullables`` keeps null in a field whose schema has a default."""
    properties = {"schema.registry.url": registry.url, "ignore.default.for.nullables": ignores}
    converter = converters.by_name(name, properties, topic="t")
    values = pa.array([{"a": None}, {"a": "x"}], SCHEMA.arrow())

    found = encoded(converter, values, SCHEMA.of_column())

    assert [expected, "x"] == [text_of(body) for body in found.to_pylist()]


def text_of(body: bytes) -> str | None:
    """Return which of the texts a message holds, None if neither."""
    held = [text for text in ("dd", "x") if text.encode() in body[5:]]
    return held[0] if held else None
