import base64
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from kbackup.connect import protobuf_reading
from kbackup.connect import schema as connect
from kbackup.connect.registry.framing import head_of
from kbackup.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, Type
from kbackup.testing import encoded
from tests.support.registry import FakeRegistry, converter_of

made = partial(converter_of, "protobuf")

ORDER = """
syntax = "proto3";
package x.y;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message Other { string a = 1; message Inner { int32 b = 1; } }
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated int32 counts = 3;
  map<string, Item> items = 4;
  Item item = 5;
  oneof payment { string card = 6; Item voucher = 7; }
  Kind kind = 8;
  google.protobuf.Timestamp at = 9;
  google.type.Date day = 10;
  google.type.TimeOfDay time = 11;
  confluent.type.Decimal price = 12
    [(confluent.field_meta) = { params: [ { key: "scale", value: "2" } ] }];
  google.protobuf.Int64Value wrapped = 13;
  uint64 large = 14;
  sint32 zigzag = 15;
  fixed32 four = 16;
  bytes raw = 17;
  repeated Item more = 18;
  int32 small = 19
    [(confluent.field_meta) = { params: [ { key: "connect.type", value: "int8" } ] }];
  bool ok = 20;
  float f = 21;
  double d = 22;
  repeated string tags = 23;
  repeated Kind kinds = 24;
}
message Item { string name = 1; uint32 count = 2; }
enum Kind { NONE = 0; GOOD = 1; BAD = -1; }
"""
FULL: dict[str, Any] = {
    "id": -5,
    "note": "",
    "counts": [1, -2, 300],
    "item": {"name": "é", "count": 4294967295},
    "voucher": {"name": "v"},
    "kind": -1,
    "at": {"seconds": -1, "nanos": 999_000_000},
    "day": {"year": 1969, "month": 12, "day": 31},
    "time": {"hours": 23, "minutes": 59, "seconds": 59, "nanos": 1_000_000},
    "price": {"value": b"\x7d", "scale": 2},
    "wrapped": {"value": 0},
    "large": 2**64 - 1,
    "zigzag": -7,
    "four": 2**32 - 1,
    "raw": b"\xff\0",
    "more": [{"name": "a"}, {"count": 2}],
    "small": -128,
    "ok": True,
    "f": 1.5,
    "d": -0.0,
    "tags": ["a", ""],
    "kinds": [1, 0, 7],
}
ROW = {
    "payment_0": {"card": None, "voucher": {"name": "v", "count": 0}},
    "id": -5,
    "note": "",
    "counts": [1, -2, 300],
    "items": [("k", {"name": "i", "count": 0})],
    "item": {"name": "é", "count": 4294967295},
    "kind": "BAD",
    "at": -1,
    "day": -1,
    "time": 86_399_001,
    "price": b"\x7d",
    "wrapped": {"value": 0},
    "large": -1,
    "zigzag": -7,
    "four": 2**32 - 1,
    "raw": b"\xff\0",
    "more": [{"name": "a", "count": 0}, {"name": "", "count": 2}],
    "small": -128,
    "ok": True,
    "f": 1.5,
    "d": -0.0,
    "tags": ["a", ""],
    "kinds": ["GOOD", "NONE", "UNKNOWN_ENUM_VALUE_Kind_7"],
}
EMPTY = ROW | {
    "payment_0": None, "id": 0, "note": None, "counts": [], "items": [], "item": None,
    "kind": "NONE", "at": None, "day": None, "time": None, "price": None, "wrapped": None,
    "large": 0, "zigzag": 0, "four": 0, "raw": b"", "more": [], "small": 0, "ok": False, "f": 0.0,
    "d": 0.0, "tags": [], "kinds": [],
}  # fmt: skip


def column(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def order() -> bytes:
    """Return the bytes of an order, as its producer has them."""
    found = protobuf_reading.compiled(ORDER).message_types_by_name["Order"]
    message = message_factory.GetMessageClass(found)(**FULL)
    message.items["k"].name = "i"
    return bytes(message.SerializeToString())


def test_values_come_as_columns_of_connect(registry: FakeRegistry) -> None:
    """Every type that the connector maps, at its extremes, in the second message of its file."""
    registry.add("orders-value", 'syntax = "proto3";', "PROTOBUF")
    schema_id = registry.add("orders-value", ORDER, "PROTOBUF")
    head = head_of(schema_id) + b"\x02\x02"

    [found] = made(registry).decode(column(head + order(), None, head))

    assert ((), [ROW, None, EMPTY]) == (found.bad, found.values.to_pylist())
    schema = connect.of(found.schema)
    assert schema is not None
    assert ("Order", 2, False) == (schema.name, schema.version, schema.optional)
    fields = dict(schema.fields)
    assert [DECIMAL, DATE, TIME, TIMESTAMP] == [
        fields[name].logical for name in ("price", "day", "time", "at")
    ]
    assert ("io.confluent.connect.protobuf.Union.payment", "Kind", "items", Type.INT8) == (
        fields["payment_0"].name, fields["kind"].name, fields["items"].name, fields["small"].type
    )  # fmt: skip
    assert all(field.optional for field in fields.values())
    assert "24" == fields["kinds"].parameter("io.confluent.connect.protobuf.Tag")
    assert fields["price"].scale == 2


def test_options_change_what_columns_there_are(registry: FakeRegistry) -> None:
    """Each option has the connector's name and effect."""
    schema_id = registry.add("orders-value", ORDER, "PROTOBUF")
    value = column(head_of(schema_id) + b"\x02\x02" + order())

    def found(**more: str) -> tuple[ConnectSchema, dict[str, Any]]:
        options = {name.replace("_", "."): text for name, text in more.items()}
        [decoded] = made(registry, **options).decode(value)
        assert not decoded.bad
        return connect.of(decoded.schema), decoded.values.to_pylist()[0]  # type: ignore[return-value]

    enhanced, _ = found(enhanced_protobuf_schema_support="true")
    assert ("x.y.Order", "x.y.Kind") == (enhanced.name, dict(enhanced.fields)["kind"].name)
    ints, row = found(int_for_enums="true")
    assert (-1, [1, 0, 7], Type.INT32) == (
        row["kind"],
        row["kinds"],
        dict(ints.fields)["kind"].type,
    )
    keyword, _ = found(optional_for_nullables="true")
    assert (True, False) == tuple(dict(keyword.fields)[name].optional for name in ("note", "id"))
    wrapped, row = found(wrapper_for_nullables="true")
    assert (0, Type.INT64) == (row["wrapped"], dict(wrapped.fields)["wrapped"].type)
    plain, _ = found(generate_index_for_unions="false")
    assert "payment" == plain.fields[0][0]


def test_messages_of_one_schema_are_columns_of_their_own(registry: FakeRegistry) -> None:
    """A schema may have several messages, one in the other, and records say which they are."""
    schema_id = registry.add("orders-value", ORDER, "PROTOBUF")
    head = head_of(schema_id)
    outer, inner = head + b"\0\x0a\x01a", head + b"\x04\0\0\x08\x05"

    found = made(registry).decode(column(outer, inner, inner, outer))

    assert [[{"a": "a"}], [{"b": 5}, {"b": 5}], [{"a": "a"}]] == [
        each.values.to_pylist() for each in found
    ]


@pytest.mark.parametrize("is_packed", [False, True])
def test_files_are_found_that_a_schema_imports(registry: FakeRegistry, is_packed: bool) -> None:
    """Imported files are found under their own subjects, also where schemas come as base64."""
    registry.add("item", 'syntax = "proto3"; message Item { string name = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; import "a/item.proto"; message Order { Item item = 1; }'
    if is_packed:
        from google.protobuf import descriptor_pb2

        item = 'syntax = "proto3"; message Item { string name = 1; }'
        file = descriptor_pb2.FileDescriptorProto()
        protobuf_reading.compiled(text, (("a/item.proto", item),)).CopyToProto(file)
        text = base64.b64encode(file.SerializeToString()).decode()
    refers = {"references": [{"name": "a/item.proto", "subject": "item", "version": 1}]}
    schema_id = registry.add("orders-value", text, "PROTOBUF", **refers)

    [found] = made(registry).decode(column(head_of(schema_id) + b"\0\x0a\x03\x0a\x01a"))

    assert [{"item": {"name": "a"}}] == found.values.to_pylist()


def test_no_file_is_written_outside(registry: FakeRegistry) -> None:
    """The name of an import cannot make a file be written elsewhere."""
    registry.add("item", 'syntax = "proto3";', "PROTOBUF")
    refers = {"references": [{"name": "../../item.proto", "subject": "item", "version": 1}]}
    schema_id = registry.add("orders-value", ORDER, "PROTOBUF", **refers)

    [found] = made(registry).decode(column(head_of(schema_id) + b"\0"))

    assert "'../../item.proto'" in found.bad[0].why


def test_values_go_back_under_their_schema(registry: FakeRegistry) -> None:
    """A restore registers a message with the same numbers, which reads as the same columns."""
    schema_id = registry.add("orders-value", ORDER, "PROTOBUF")
    head = head_of(schema_id) + b"\x02\x02"
    converter = made(registry, **{"enhanced.protobuf.schema.support": "true"})
    [column_] = converter.decode(column(head + order(), None, head))

    found = encoded(converter, column_.values, column_.schema)

    [again] = converter.decode(found)
    assert ((), column_.values) == (again.bad, again.values)
    assert [None] == found.to_pylist()[1:2]
    written = registry.text(2)
    assert "package x.y;" in written
    assert "oneof payment {\n    string card = 6;" in written


def test_null_is_not_zero_when_it_is_read_again(registry: FakeRegistry) -> None:
    """A field that may be null is declared optional, where the connector writes 0 for null."""
    number = ConnectSchema(Type.INT32, optional=True)
    schema = ConnectSchema(Type.STRUCT, name="x.Order", fields=(("n", number),))
    values = pa.array([{"n": None}, {"n": 0}, {"n": 1}], schema.arrow())
    converter = made(registry)

    [found] = converter.decode(encoded(converter, values, schema.of_column()))

    assert values.to_pylist() == found.values.to_pylist()


TEXT = ConnectSchema(Type.STRING)
LIST = ConnectSchema(Type.ARRAY, optional=True, value=TEXT)


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        pytest.param(LIST, None, "null", id="a list that is null"),
        pytest.param(
            ConnectSchema(Type.ARRAY, value=TEXT.as_optional()), [None], "null", id="null in a list"
        ),
        pytest.param(ConnectSchema(Type.ARRAY, value=LIST), [["a"]], "is in a list", id="lists"),
        pytest.param(
            ConnectSchema(Type.MAP, key=ConnectSchema(Type.FLOAT64), value=TEXT),
            [(1.0, "a")],
            "keys of the type double",
            id="keys that are no keys",
        ),
    ],
)
def test_what_no_message_holds_is_named(
    registry: FakeRegistry, kind: ConnectSchema, value: Any, why: str
) -> None:
    """A value that no message can hold is reported, and nothing is registered."""
    schema = ConnectSchema(Type.STRUCT, name="x.Order", fields=(("n", kind),))
    found = made(registry).encode(
        pa.array([{"n": value}, None], schema.arrow()), schema.of_column()
    )

    assert [(0, True)] == [(bad.row, why in bad.why) for bad in found.bad]
    assert (2, {}) == (found.values.null_count, registry.subjects())
