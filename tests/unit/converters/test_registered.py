"""What converters with schemas of a Schema Registry do alike."""

from typing import Any

import pyarrow as pa
import pytest

from kbackup import converters
from kbackup.connect.registry.framing import head_of
from kbackup.connect.schema import ConnectSchema, Type
from kbackup.errors import ConfigurationError
from kbackup.testing import encoded
from tests.support.registry import FakeRegistry, converter_of
from tests.unit.converters.test_json_schema import ORDER

TEXT = ConnectSchema(Type.STRING, optional=True, default='"dd"')
SCHEMA = ConnectSchema(Type.STRUCT, name="R", fields=(("a", TEXT),))


NAMES = ["avro", "json_schema", "protobuf"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("ignores", "expected"), [("false", "dd"), ("true", None)])
def test_null_is_its_default_unless_nullables_ignore_theirs(
    registry: FakeRegistry, name: str, ignores: str, expected: str | None
) -> None:
    """``ignore.default.for.nullables`` keeps null in a field whose schema has a default."""
    converter = converter_of(name, registry, **{"ignore.default.for.nullables": ignores})
    values = pa.array([{"a": None}, {"a": "x"}], SCHEMA.arrow())

    found = encoded(converter, values, SCHEMA.of_column())

    assert [expected, "x"] == [text_of(body) for body in found.to_pylist()]


def text_of(body: bytes) -> str | None:
    """Return which of the texts a message holds, None if neither."""
    held = [text for text in ("dd", "x") if text.encode() in body[5:]]
    return held[0] if held else None


AVRO_NODE = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
PROTO = """
syntax = "proto3";
package x.y;
import "google/type/date.proto";
message Other { string a = 1; }
message Order { google.type.Date day = 1; }
"""
SCHEMAS: dict[str, list[tuple[Any, str]]] = {
    "avro": [('"string"', "AVRO"), ("{}", "JSON"), (AVRO_NODE, "AVRO")],
    "json_schema": [
        (ORDER, "JSON"), ('"string"', "AVRO"),
        ({"title": "Node", "properties": {"next": {"$ref": "#"}}}, "JSON"),
    ],
    "protobuf": [
        (PROTO, "PROTOBUF"), ('"string"', "AVRO"),
        ('syntax = "proto3"; message Node { Node next = 1; }', "PROTOBUF"),
        ("message {", "PROTOBUF"), ('syntax = "proto3"; import "away.proto";', "PROTOBUF"),
    ],
}  # fmt: skip
"""What each registry has, by the converter that is tried; the first one has good values."""
GOOD: dict[str, tuple[bytes, Any]] = {
    "avro": (head_of(1) + b"\2a", "a"),
    "json_schema": (head_of(1) + b'{"id":1}', {"id": 1, "note": None}),
    "protobuf": (head_of(1) + b"\0\x0a\x01a", {"a": "a"}),
}
UNFIT = "does not match schema 1"
BAD = [
    *(pytest.param(name, value, what, why, id=f"{name}: {title}")
      for name in NAMES for title, value, what, why in (
        ("empty", b"", "names no schema", "it is empty"),
        ("no head", b'{"id":1}', "names no schema", "7b 22 69 64"),
        ("unknown", head_of(9) + b"\0", "names schema 9, which", "no schema of"),
        ("recursive", head_of(3) + b"\0", "schema 3, which", "contains itself"),
    )),
    *(pytest.param(name, head_of(2) + b"\0", "schema 2, which", f"of type {kind}",
                   id=f"{name}: another kind")
      for name, kind in (("avro", "JSON"), ("json_schema", "AVRO"), ("protobuf", "AVRO"))),
    *(pytest.param(name, head_of(1) + value, what, why, id=f"{name}: {title}")
      for name, title, value, what, why in (
        ("avro", "cut short", b"\6ab", "not Avro under schema 1", ""),
        ("avro", "too long", b"\2abc", "not Avro under", "2 bytes are left"),
        ("json_schema", "nothing after the head", b"", UNFIT, "it is empty"),
        ("json_schema", "no JSON", b"{", UNFIT, ""),
        ("json_schema", "deep JSON", b"[" * 9999, UNFIT, ""),
        ("json_schema", "array", b"[]", UNFIT, "[] is not an object"),
        ("json_schema", "absent", b'{"note":"a"}', UNFIT, "field 'id': null"),
        ("json_schema", "too large", b'{"id":1e400}', UNFIT, "not an int64"),
        ("json_schema", "half", b'{"id":1,"note":"\\ud800"}', UNFIT, "surrog"),
        ("json_schema", "2^63", b'{"id":9223372036854775808}', UNFIT, "not an int64"),
        ("protobuf", "nothing after the head", b"", "names no message", "not indexes"),
        ("protobuf", "endless number", b"\xff" * 9, "names no message", ""),
        ("protobuf", "more than there are", b"\x7e\0", "names no message", ""),
        ("protobuf", "no such one", b"\x02\x12", "schema 1, which", "no message 9"),
        ("protobuf", "cut short", b"\0\x0a\x05a", "not a x.y.Other", ""),
        ("protobuf", "no UTF-8", b"\0\x0a\x01\xff", "not a x.y.Other", ""),
        ("protobuf", "no day", b"\x02\x02\x0a\0", "x.y.Order", "year 0"),
    )),
    pytest.param("protobuf", head_of(4) + b"\0", "schema 4, which", "line 1:", id="no .proto file"),
    pytest.param("protobuf", head_of(5) + b"\0", "schema 5, which", "away.proto", id="no import"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "what", "why"), BAD)
def test_one_bad_record_is_one_bad_record(
    registry: FakeRegistry, name: str, value: bytes, what: str, why: str
) -> None:
    """One bad record is reported with its reason, and its neighbours are read."""
    for number, (schema, kind) in enumerate(SCHEMAS[name], 1):
        assert number == registry.add(f"{number}-value", schema, kind)
    good, row = GOOD[name]

    found = converter_of(name, registry).decode(pa.array([good, value, good], pa.binary()))

    assert [row, None, row] == [each for part in found for each in part.values.to_pylist()]
    [bad] = [each for part in found for each in part.bad]
    assert (True, True) == (what in bad.what, why in bad.why), bad
    assert len(found) > 1 or bad.row == 1


@pytest.mark.parametrize("name", NAMES)
def test_without_a_registry_it_says_what_to_set(name: str) -> None:
    """Each converter that needs a registry names the property to set."""
    converter = converters.by_name(name, {}, topic="orders")
    with pytest.raises(ConfigurationError, match="no Schema Registry") as caught:
        converter.decode(pa.array([b"\0\0\0\0\1"], pa.binary()))

    assert "schema.registry.url" == caught.value.place["property"]
