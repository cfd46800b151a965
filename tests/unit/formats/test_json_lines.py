import gzip
import io
from typing import Any

import pyarrow as pa
import pytest
from record_samples import OPTIONS, read, write

from kbackup.errors import CorruptObjectError
from kbackup.formats import HEADERS, FormatOptions
from kbackup.formats.json_lines import JsonFormat
from kbackup.naming import View
from kbackup.records import Bad

JSON = JsonFormat()


def written(view: View, name: str, column: pa.Array) -> bytes:
    return write(JSON, view, [pa.record_batch([column], [name])])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        pytest.param(
            pa.array(['{"a":1}', "12", None], pa.json_()), b'{"a":1}\n12\nnull\n', id="json"
        ),
        pytest.param(pa.array(["a", "", '"', None]), b'"a"\n""\n"\\""\nnull\n', id="text"),
        pytest.param(
            pa.array([b"\x00\xff\n", b"", None], pa.binary()), b'"AP8K"\n""\nnull\n', id="bytes"
        ),
        pytest.param(pa.array(["x", "y", "z"]).slice(1, 1), b'"y"\n', id="part of a column"),
    ],
)
def test_a_line_for_each_record(column: pa.Array, expected: bytes) -> None:
    """JSON goes out as it is, text quoted, bytes as base64, null as null."""
    assert expected == written(View.VALUE, "value", column)


def test_headers_stand_in_one_line() -> None:
    """Order and repeated names of headers are kept; a record may have none."""
    column = pa.array(
        [[{"key": "b", "value": "1"}, {"key": "b", "value": 'é"'}], [], [{"key": "", "value": ""}]],
        HEADERS,
    )
    expected = (
        '{"headers":[{"key":"b","value":"1"},{"key":"b","value":"é\\""}]}\n'
        '{"headers":[]}\n{"headers":[{"key":"","value":""}]}\n'
    )

    assert expected.encode() == written(View.HEADERS, "headers", column)
    assert expected.encode().splitlines(keepends=True)[2] == written(
        View.HEADERS, "headers", column.slice(2)
    )
    assert [{"headers": row} for row in column.to_pylist()] == read(
        JSON, View.HEADERS, expected.encode()
    )


def test_the_header_without_a_value_is_named() -> None:
    """Which header of which record cannot be stored is said."""
    pairs = [[], [{"key": "a", "value": "1"}, {"key": "b", "value": None}]]

    [bad] = JSON.refuses(View.HEADERS, pa.array(pairs, HEADERS), OPTIONS)

    assert 1 == bad.row
    assert "header 'b' is null" in bad.what


def test_a_line_break_within_json_is_refused() -> None:
    """A line break inside JSON from another converter is refused."""
    [bad] = JSON.refuses(View.VALUE, pa.array(["1", "[\n]"], pa.json_()), OPTIONS)

    assert 1 == bad.row
    assert "line break" in bad.what


def test_text_of_a_line_is_kept_as_it_stands() -> None:
    """Spaces, repeated keys and long numbers of another writer survive."""
    lines = [' {"a" : 1, "a": 2}', "123456789012345678901234567890", "1e400", '"\\ud800"']

    found = read(JSON, View.VALUE, "".join(line + "\n" for line in lines).encode())

    assert [{"value": line} for line in lines] == found


def test_null_is_null() -> None:
    """A line that says null stands for no value."""
    assert [{"value": None}, {"value": '"null"'}] == read(JSON, View.VALUE, b'null\n"null"\n')


@pytest.mark.parametrize(
    ("view", "data", "reason"),
    [
        pytest.param(View.VALUE, b"", "it is empty", id="empty"),
        pytest.param(View.VALUE, b"1\n2", "after record 2", id="no newline at the end"),
        pytest.param(View.VALUE, b'1\n{"a":\n', "line 2", id="half a value"),
        pytest.param(View.VALUE, b"1\n\n", "line 2", id="empty line"),
        pytest.param(View.VALUE, b"1 2\n", "line 1", id="two values in a line"),
        pytest.param(View.VALUE, b"\xff\n", "line 1", id="not UTF-8"),
        pytest.param(View.VALUE, b"\x1f\x8b\x08\n", "line 1", id="gzip under another name"),
        pytest.param(View.HEADERS, b"[]\n", "line 1", id="headers, not an object"),
        pytest.param(View.HEADERS, b"{}\n", "line 1", id="headers, no headers"),
        pytest.param(View.HEADERS, b'{"headers":[{"key":"a"}]}\n', "line 1", id="no value"),
        pytest.param(View.HEADERS, b'{"headers":[{"key":1,"value":""}]}\n', "line 1", id="no text"),
        pytest.param(
            View.HEADERS,
            b'{"headers":[{"key":"\\ud800","value":""}]}\n',
            "line 1",
            id="half a pair",
        ),
    ],
)
def test_a_damaged_line_is_named(view: View, data: bytes, reason: str) -> None:
    """What is wrong with a file is said, with the line."""
    with pytest.raises(CorruptObjectError, match=reason):
        read(JSON, view, data)


def test_lines_are_counted_over_the_whole_file() -> None:
    """The number of a damaged line does not depend on how the file was read."""
    data = b'"%s"\n' % (b"x" * 96) * 20_000 + b"{\n"

    with pytest.raises(CorruptObjectError, match="line 20001 "):
        read(JSON, View.VALUE, data)


def test_a_line_longer_than_allowed_is_refused() -> None:
    """A file without newlines does not fill the memory."""
    options = FormatOptions(max_record_bytes=10**6)

    with pytest.raises(CorruptObjectError, match="longer than 1000000 bytes") as caught:
        read(JSON, View.VALUE, b"1\n" + b"9" * 5 * 10**6, options)

    assert "--max-record-bytes" in caught.value.do


def test_a_long_line_is_read_whole() -> None:
    """A record may be larger than what is read at a time."""
    long = '"' + "x" * 3 * 10**6 + '"'

    found = read(JSON, View.VALUE, f"1\n{long}\n2\n".encode())

    assert ["1", long, "2"] == [row["value"] for row in found]


def test_compressed_or_not_is_said_by_the_extension() -> None:
    """A file named .json.gz is gzip, one named .json is not."""
    options = FormatOptions({"s3.compression.type": "gzip", "s3.compression.level": 9})
    data = write(
        JSON, View.VALUE, [pa.record_batch([pa.array(["1"], pa.json_())], ["value"])], options
    )
    found: list[Any] = []

    for batch in JSON.read(io.BytesIO(data), View.VALUE, ".json.gz", OPTIONS):
        found += batch.to_pylist()

    assert [{"value": "1"}] == found
    with pytest.raises(CorruptObjectError):
        list(JSON.read(io.BytesIO(data), View.VALUE, ".json", OPTIONS))


@pytest.mark.parametrize(
    ("extension", "is_read_on"),
    [
        pytest.param(".json", True, id="not compressed"),
        pytest.param(".json.gz", True, id="its checksum holds"),
        pytest.param(".json.zst", False, id="no checksum"),
    ],
)
def test_a_damaged_line_is_left_out_only_where_the_rest_is_sure(
    extension: str, is_read_on: bool
) -> None:
    """In a compressed file without a checksum one damaged line makes what precedes it doubtful."""
    lines = b"1\n{\n3\n"
    compress = {".json.gz": gzip.compress, ".json.zst": zstd}.get(extension, bytes)
    file = io.BytesIO(compress(lines))

    rows = JSON.salvage(file, View.VALUE, extension, OPTIONS)

    if is_read_on:
        found = [each.what if isinstance(each, Bad) else each["value"].to_pylist() for each in rows]
        assert ["1"] == found[0]
        assert "line 2" in found[1]
        assert ["3"] == found[2]
    else:
        with pytest.raises(CorruptObjectError, match="line 2") as caught:
            list(rows)
        assert caught.value.is_doubtful


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd"))
