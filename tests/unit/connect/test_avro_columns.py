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


@in_c
@pytest.mark.parametrize(
    ("datums", "is_read"),
    [
        pytest.param([GOOD, GOOD], True, id="good ones"),
        pytest.param([GOOD, GOOD[:-1]], False, id="cut short"),
        pytest.param([GOOD + b"\0", GOOD], False, id="too long"),
        pytest.param([GOOD + b"\0", GOOD[1:]], False, id="one short by what another has too much"),
        pytest.param(
            [GOOD, GOOD.replace(b"y\0", b"y\x03")], False, id="one whose list does not end"
        ),
        pytest.param([b""], False, id="empty"),
        pytest.param([], False, id="no row"),
    ],
)
def test_only_rows_that_are_whole_are_read_together(datums: list[bytes], is_read: bool) -> None:
    """What is not exactly one value a row is left to the reader that names the row."""
    column = pa.array(datums, pa.binary())

    found = avro_columns.decode(column, json.dumps(ORDER))

    assert is_read == (found is not None)
    if found is not None:
        assert found.equals(avro_reading.decode_each_avro(column, json.dumps(ORDER))[0])


@in_c
@pytest.mark.parametrize(
    ("datums", "is_read"),
    [
        pytest.param([PLAIN_GOOD, PLAIN_GOOD], True, id="good ones"),
        pytest.param([b"\2" + b"\2\4\xc3\xa9" + bytes(10) + b"\2\xff\xff"], True, id="others"),
        pytest.param([PLAIN_GOOD, PLAIN_GOOD[:-1]], False, id="cut short"),
        pytest.param([PLAIN_GOOD[:1], PLAIN_GOOD], False, id="cut after a field"),
        pytest.param([PLAIN_GOOD + b"\0", PLAIN_GOOD[1:]], False, id="one too long"),
        pytest.param([PLAIN_GOOD.replace(b"\2\0", b"\2\4")], False, id="a third branch"),
        pytest.param([PLAIN_GOOD.replace(b"\2ab", b"\4ab")], False, id="a third symbol"),
        pytest.param([b"\x80" * 10 + PLAIN_GOOD], False, id="a number that does not end"),
        pytest.param([b"\x80" * 9 + b"\2" + PLAIN_GOOD[1:]], False, id="a number of 65 bits"),
        pytest.param([b"\xff" * 9 + b"\1" + PLAIN_GOOD[1:]], True, id="a number of 64 bits"),
        pytest.param(
            [PLAIN_GOOD[:1] + b"\x80" * 5 + PLAIN_GOOD[1:]], False, id="a branch of six bytes"
        ),
        pytest.param(
            [PLAIN_GOOD, PLAIN_GOOD[:1] + b"\x80" * 5 + PLAIN_GOOD[1:]],
            False,
            id="a branch of six bytes beside one",
        ),
        pytest.param([b"\2\2\xff\xff\xff\xff\x0f" + PLAIN_GOOD], False, id="a negative size"),
        pytest.param([b""], False, id="empty"),
        pytest.param([], False, id="no row"),
    ],
)
def test_plain_values_are_read_by_both_ways(datums: list[bytes], is_read: bool) -> None:
    """Records of plain values are read in C as by fastavro, and damaged ones by neither."""
    column = pa.array(datums, pa.binary())

    found = avro_columns.decode(column, json.dumps(PLAIN))

    assert is_read == (found is not None)
    if found is not None:
        found.validate(full=True)
        assert found.equals(avro_reading.decode_each_avro(column, json.dumps(PLAIN))[0])


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


@in_c
@pytest.mark.parametrize(
    ("datum", "is_read"),
    [
        pytest.param(b"\0\0", True, id="no item and null"),
        pytest.param(b"\2" + LINE + b"\0\2" + LINE, True, id="a record in a list and alone"),
        pytest.param(b"\2\0\0\0\2" + LINE, True, id="null in a list"),
        pytest.param(b"\2" + LINE + b"\4" + LINE * 2 + b"\0\0", True, id="two blocks"),
        pytest.param(b"\1\x12" + LINE + b"\0\0", True, id="a block with its size"),
        pytest.param(b"\1\x7e" + LINE + b"\0\0", True, id="a block with another size"),
        pytest.param(b"\2\0\2\2\2x\1\4\2y\0\0\0", True, id="two blocks within an item"),
        pytest.param(long(900) + LINE * 900 + b"\0\0", True, id="many items"),
        pytest.param(b"\2\0\2" + long(900) + b"\2x" * 900 + b"\0\0\0", True, id="many in one"),
        pytest.param(long(2**62) + LINE * 9 + b"\0\0", False, id="endless"),
        pytest.param(b"\2\0\2" + long(2**62) + b"\0" * 99, False, id="endless in one"),
        pytest.param(long(-(2**63)) + b"\2" + LINE + b"\0\0", False, id="no number is as negative"),
        pytest.param(b"\1" + LINE + b"\0\0", False, id="a block without its size"),
        pytest.param(b"\2" + LINE + b"\0", False, id="cut after a list"),
        pytest.param(b"\2" + LINE, False, id="cut before its end"),
        pytest.param(b"\2" + LINE[:-1] + b"\0", False, id="cut within an item"),
    ],
)
def test_lists_are_read_by_both_ways(datum: bytes, is_read: bool) -> None:
    """Lists in blocks of any form are read in C as by fastavro, and damaged ones by neither."""
    good = b"\2" + LINE + b"\0\0"
    column = pa.array([b"", good, datum, good], pa.binary()).slice(1)

    found = avro_columns.decode(column, json.dumps(LISTS))

    expected, bad = avro_reading.decode_each_avro(column, json.dumps(LISTS))
    assert (is_read, is_read) == (found is not None, not bad)
    if found is not None:
        found.validate(full=True)
        assert found.equals(expected)


def entries(*keys: bytes) -> bytes:
    """Return a block of a map of the number 1 under each key."""
    return long(len(keys)) + b"".join(long(len(key)) + key + b"\2\2" for key in keys)


@in_c
@pytest.mark.parametrize(
    ("datum", "is_read"),
    [
        pytest.param(b"\0", True, id="null"),
        pytest.param(b"\2\0", True, id="empty"),
        pytest.param(b"\2" + entries(b"", b"b", b"a") + b"\0", True, id="in their order"),
        pytest.param(b"\2" + entries(b"a") + entries(b"b") + b"\0", True, id="two blocks"),
        pytest.param(b"\2\4\2a\0\2b\2\1\0", True, id="a value that is null"),
        pytest.param(b"\2" + entries(b"a", b"a") + b"\0", False, id="a key twice"),
        pytest.param(b"\2" + entries(b"a") * 2 + b"\0", False, id="a key in both blocks"),
        pytest.param(
            b"\2" + entries(*(b"%d" % at for at in range(64))) + b"\0", True, id="many keys"
        ),
        pytest.param(
            b"\2" + entries(*(b"%d" % at for at in range(65))) + b"\0", False, id="too many"
        ),
    ],
)
def test_maps_are_read_by_both_ways(datum: bytes, is_read: bool) -> None:
    """Maps are read in C as by fastavro, where none has a key twice."""
    text = json.dumps(["null", {"type": "map", "values": ["null", "long"]}])
    column = pa.array([datum, b"\0", b"\2" + entries(b"a") + b"\0"], pa.binary())

    found = avro_columns.decode(column, text)

    expected, bad = avro_reading.decode_each_avro(column, text)
    assert (is_read, {}) == (found is not None, bad)
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


@in_c
@pytest.mark.parametrize(
    ("texts", "is_read"),
    [
        pytest.param([b"abc", b"", b"d"], True, id="ASCII"),
        pytest.param([b"a", "\u00e9\U0001f600".encode(), b""], True, id="UTF-8"),
        pytest.param([b"\xc3", b"\xa9"], False, id="a character in two rows"),
        pytest.param([b"a", b"\xff"], False, id="no text"),
    ],
)
def test_text_is_valid_in_each_row(texts: list[bytes], is_read: bool) -> None:
    """Bytes that are not UTF-8 are never passed on as text, whatever stands beside them."""
    column = pa.array([bytes([2 * len(text)]) + text for text in texts], pa.binary())

    found = avro_columns.decode(column, '"string"')

    assert is_read == (found is not None)
    if found is not None:
        assert [text.decode() for text in texts] == found.to_pylist()
        found.validate(full=True)


def test_a_number_too_large_for_its_type_is_one_bad_row() -> None:
    """A number too large for its type makes one bad record; its neighbours are read."""
    column = pa.array([b"\x02", b"\xfe\xff\xff\xff\xff\x0f", b"\x04"], pa.binary())

    assert avro_columns.decode(column, '"int"') is None
    values, bad = avro_reading.decode_each_avro(column, '"int"')
    assert ([1, None, 2], [1]) == (values.to_pylist(), [*bad])


def test_an_int_of_more_than_five_bytes_is_one_bad_row() -> None:
    """An int that Java's reader does not take, for its length, is one bad record."""
    column = pa.array([b"\x02", b"\x82\x80\x80\x80\x00", b"\x82\x80\x80\x80\x80\x00"], pa.binary())

    assert avro_columns.decode(column, '"int"') is None
    values, bad = avro_reading.decode_each_avro(column, '"int"')
    assert ([1, 1, None], [2]) == (values.to_pylist(), [*bad])


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
