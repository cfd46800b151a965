import json
from typing import Any

import pyarrow as pa
import pytest

from kbackup import native_build
from kbackup.connect import avro_columns, avro_reading, avro_walk
from kbackup.connect.avro_reading import long

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": ["double", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "again", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    ],
}
PLAIN = {**ORDER, "fields": [each for each in ORDER["fields"] if each["name"] != "tags"]}
GOOD = b"\x02\0\x04\x02x\x02y\0\0" + bytes(8) + b"\0\x02ab"
PLAIN_GOOD = GOOD.replace(b"\x04\x02x\x02y\0", b"")


in_c = pytest.mark.skipif(
    native_build.compiler() is None and avro_walk.library() is None, reason="there is no C compiler"
)


LISTS: dict[str, Any] = {
    "type": "record",
    "name": "Lists",
    "fields": [
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "ok", "type": ["null", "boolean"]},
                        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
                    ],
                },
            },
        },
        {"name": "last", "type": ["null", "Line"]},
    ],
}
LINE = b"\2\1\2\4\2x\2y\0"
"""``{"ok": true, "tags": ["x", "y"]}``."""


def entries(*keys: bytes) -> bytes:
    """Return a block of a map of the number 1 under each key."""
    return long(len(keys)) + b"".join(long(len(key)) + key + b"\2\2" for key in keys)


MAPS = ["null", {"type": "map", "values": ["null", "long"]}]


RECORDS: list[tuple[str, list[bytes], bool | None]] = [
    ("good ones", [GOOD, GOOD], True),
    ("cut short", [GOOD, GOOD[:-1]], False),
    ("too long", [GOOD + b"\0", GOOD], False),
    ("one short by what another has too much", [GOOD + b"\0", GOOD[1:]], False),
    ("one whose list does not end", [GOOD, GOOD.replace(b"y\0", b"y\x03")], False),
    ("empty", [b""], False),
    ("no row", [], None),
]
PLAINS: list[tuple[str, list[bytes], bool | None]] = [
    ("good ones", [PLAIN_GOOD, PLAIN_GOOD], True),
    ("others", [b"\2" + b"\2\4\xc3\xa9" + bytes(10) + b"\2\xff\xff"], True),
    ("cut short", [PLAIN_GOOD, PLAIN_GOOD[:-1]], False),
    ("cut after a field", [PLAIN_GOOD[:1], PLAIN_GOOD], False),
    ("one too long", [PLAIN_GOOD + b"\0", PLAIN_GOOD[1:]], False),
    ("a third branch", [PLAIN_GOOD.replace(b"\2\0", b"\2\4")], False),
    ("a third symbol", [PLAIN_GOOD.replace(b"\2ab", b"\4ab")], False),
    ("a number that does not end", [b"\x80" * 10 + PLAIN_GOOD], False),
    ("a number of 65 bits", [b"\x80" * 9 + b"\2" + PLAIN_GOOD[1:]], False),
    ("a number of 64 bits", [b"\xff" * 9 + b"\1" + PLAIN_GOOD[1:]], True),
    ("a branch of six bytes", [PLAIN_GOOD[:1] + b"\x80" * 5 + PLAIN_GOOD[1:]], False),
    ("one beside it", [PLAIN_GOOD, PLAIN_GOOD[:1] + b"\x80" * 5 + PLAIN_GOOD[1:]], False),
    ("a negative size", [b"\2\2\xff\xff\xff\xff\x0f" + PLAIN_GOOD], False),
    ("empty", [b""], False),
    ("no row", [], None),
]
IN_LISTS: list[tuple[str, bytes, bool | None]] = [
    ("no item and null", b"\0\0", True),
    ("a record in a list and alone", b"\2" + LINE + b"\0\2" + LINE, True),
    ("null in a list", b"\2\0\0\0\2" + LINE, True),
    ("two blocks", b"\2" + LINE + b"\4" + LINE * 2 + b"\0\0", True),
    ("a block with its size", b"\1\x12" + LINE + b"\0\0", True),
    ("a block with another size", b"\1\x7e" + LINE + b"\0\0", True),
    ("two blocks within an item", b"\2\0\2\2\2x\1\4\2y\0\0\0", True),
    ("many items", long(900) + LINE * 900 + b"\0\0", True),
    ("many in one", b"\2\0\2" + long(900) + b"\2x" * 900 + b"\0\0\0", True),
    ("endless", long(2**62) + LINE * 9 + b"\0\0", False),
    ("endless in one", b"\2\0\2" + long(2**62) + b"\0" * 99, False),
    ("no number is as negative", long(-(2**63)) + b"\2" + LINE + b"\0\0", False),
    ("a block without its size", b"\1" + LINE + b"\0\0", False),
    ("cut after a list", b"\2" + LINE + b"\0", False),
    ("cut before its end", b"\2" + LINE, False),
    ("cut within an item", b"\2" + LINE[:-1] + b"\0", False),
]
IN_MAPS: list[tuple[str, bytes, bool | None]] = [
    ("null", b"\0", True),
    ("empty", b"\2\0", True),
    ("in their order", b"\2" + entries(b"", b"b", b"a") + b"\0", True),
    ("two blocks", b"\2" + entries(b"a") + entries(b"b") + b"\0", True),
    ("a value that is null", b"\2\4\2a\0\2b\2\1\0", True),
    ("a key twice", b"\2" + entries(b"a", b"a") + b"\0", None),
    ("a key in both blocks", b"\2" + entries(b"a") * 2 + b"\0", None),
    ("many keys", b"\2" + entries(*(b"%d" % at for at in range(64))) + b"\0", True),
    ("too many", b"\2" + entries(*(b"%d" % at for at in range(65))) + b"\0", None),
]
TEXTS: list[tuple[str, list[bytes], bool | None]] = [
    ("ASCII", [b"abc", b"", b"d"], True),
    ("UTF-8", [b"a", "\u00e9\U0001f600".encode(), b""], True),
    ("a character in two rows", [b"\xc3", b"\xa9"], False),
    ("no text", [b"a", b"\xff"], False),
]
GOOD_LIST, GOOD_MAP = b"\2" + LINE + b"\0\0", b"\2" + entries(b"a") + b"\0"
CASES = [
    pytest.param(schema, datums, is_read, id=f"{kind}: {what}")
    for kind, schema, cases in (
        ("record", ORDER, RECORDS),
        ("plain", PLAIN, PLAINS),
        ("list", LISTS, [(what, [GOOD_LIST, one, GOOD_LIST], is_) for what, one, is_ in IN_LISTS]),
        ("map", MAPS, [(what, [one, b"\0", GOOD_MAP], is_) for what, one, is_ in IN_MAPS]),
        ("text", "string", [(what, [long(len(one)) + one for one in each], is_)
                            for what, each, is_ in TEXTS]),
        ("int", "int", [("too large", [b"\2", b"\xfe\xff\xff\xff\xff\x0f"], False),
                        ("of six bytes", [b"\2", b"\x82\x80\x80\x80\x80\0"], False)]),
    )
    for what, datums, is_read in cases
]  # fmt: skip


@in_c
@pytest.mark.parametrize(("schema", "datums", "is_read"), CASES)
def test_whole_rows_are_read_in_c_as_in_python(
    schema: Any, datums: list[bytes], is_read: bool | None
) -> None:
    """Damaged rows are read by neither, and named by Python; some sound ones it reads alone."""
    column = pa.array([b"before", *datums], pa.binary()).slice(1)

    found = avro_columns.decode(column, json.dumps(schema))

    expected, bad = avro_reading.decode_each_avro(column, json.dumps(schema))
    assert (is_read is True, is_read is False) == (found is not None, bool(bad))
    if found is not None:
        found.validate(full=True)
        assert found.equals(expected)


@in_c
@pytest.mark.parametrize("kind", ["string", "bytes", "double", "long", "boolean"])
def test_nulls_are_where_they_were(kind: str) -> None:
    """Values and nulls stay in their rows, whatever the type and wherever the column begins."""
    some = {
        "string": b"\x04\xc3\xa9",
        "bytes": b"\x02\xff",
        "double": bytes(8),
        "long": b"\x80\x01",
        "boolean": b"\x01",
    }
    text = json.dumps(["null", kind])
    rows = [b"\0" if at % 3 else b"\x02" + some[kind] for at in range(20)]
    column = pa.array([b"\x02", *rows], pa.binary()).slice(1)

    for datums in (column, column.slice(1, 2), column.slice(3, 7)):
        found = avro_columns.decode(datums, text)

        assert found is not None
        found.validate(full=True)
        assert found.equals(avro_reading.decode_each_avro(datums, text)[0])


@pytest.mark.parametrize("size", ["2", 2.0, -1, True])
def test_a_fixed_without_a_size_is_no_schema(size: object) -> None:
    """A schema whose size is no number of bytes is refused as a schema, however it is read."""
    text = json.dumps({"type": "fixed", "name": "F", "size": size})
    column = pa.array([b"ab"], pa.binary())

    assert avro_columns.decode(column, text) is None
    with pytest.raises(ValueError, match=f"F has a size of {size!r}"):
        avro_reading.decode_each_avro(column, text)


@in_c
def test_only_an_int_is_a_smaller_one() -> None:
    """``connect.type`` says which integer an int stands for, and nothing about other types."""
    text = json.dumps({"type": "enum", "name": "E", "symbols": ["a"], "connect.type": "int8"})

    found = avro_columns.decode(pa.array([b"\0"], pa.binary()), text)

    assert found is not None
    assert (["a"], avro_reading.connect_schema(text).arrow()) == (found.to_pylist(), found.type)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        pytest.param('"int"', '{"type":"int","logicalType":"date"}', True, id="a logical type"),
        pytest.param('["null","int"]', '["int","null"]', False, id="the order of branches"),
        pytest.param('"int"', '"long"', False, id="another width"),
        pytest.param('{"type":"enum","name":"E","symbols":["a"]}', '"string"', False, id="an enum"),
        pytest.param(
            json.dumps(ORDER), json.dumps({**ORDER, "name": "Other", "doc": "x"}), True, id="names"
        ),
        pytest.param("{", "{", False, id="no JSON"),
    ],
)
def test_bytes_are_kept_only_where_they_mean_the_same(one: str, other: str, is_same: bool) -> None:
    """Bytes are passed on undecoded only if the file's schema gives them the same meaning."""
    assert is_same == avro_walk.is_same_on_the_wire(one, other)
