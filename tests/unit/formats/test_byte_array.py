import io
import logging

import pyarrow as pa
import pytest
from record_samples import OPTIONS, read, write

from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.formats.byte_array import ByteArrayFormat
from kbackup.naming import View

BYTES = ByteArrayFormat()
REFUSE = "format.bytearray.refuse.separator"


def batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], ["value"])


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\x00", "--", "\u00ff\u00fe"])
def test_values_stand_between_separators(separator: str) -> None:
    """Each value is followed by the separator, and comes back, empty ones too."""
    options = FormatOptions({"format.bytearray.separator": separator})
    values = [b"", b"a", b"", b"\x01\x80", b""]

    data = write(BYTES, View.VALUE, [batch(*values)], options)

    assert b"".join(value + separator.encode() for value in values) == data
    assert values == [row["value"] for row in read(BYTES, View.VALUE, data, options)]


def test_a_separator_of_many_bytes_is_found_wherever_reading_stops() -> None:
    """A separator that spans two reads still ends its value."""
    options = FormatOptions({"format.bytearray.separator": "<end of the value>"})
    values = [bytes([65 + at % 26]) * (at * 37 % 5000) for at in range(500)]

    data = write(BYTES, View.VALUE, [batch(*values)], options)

    assert values == [row["value"] for row in read(BYTES, View.VALUE, data, options)]


def test_a_value_that_holds_the_separator_is_written_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connector's bytes are kept, with one warning a file that this is no safe backup."""
    with caplog.at_level(logging.WARNING):
        data = write(BYTES, View.VALUE, [batch(b"x"), batch(b"a\nb"), batch(b"\n")])

        write(BYTES, View.VALUE, [batch(b"x")])

    assert b"x\na\nb\n\n\n" == data
    assert 1 == len(caplog.messages)
    assert "contains the separator" in caplog.messages[0]


@pytest.mark.parametrize(("asked", "expected"), [({}, [2]), ({REFUSE: True}, [1, 2, 3])])
def test_what_holds_the_separator_is_refused_where_asked(
    asked: dict[str, bool], expected: list[int]
) -> None:
    """Each value that contains the separator is refused, beside null; two together contain none."""
    options = FormatOptions({"format.bytearray.separator": "--", **asked})
    values = pa.array([b"a-", b"-b--", None, b"--", b"-"], pa.binary())

    found = BYTES.refuses(View.VALUE, values, options)

    assert expected == [bad.row for bad in found]


def test_values_that_only_meet_like_a_separator_are_not_blamed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two values that only together look like a separator cause no warning."""
    with caplog.at_level(logging.WARNING):
        write(
            BYTES,
            View.VALUE,
            [batch(b"a-", b"-b")],
            FormatOptions({"format.bytearray.separator": "--"}),
        )

    assert [] == caplog.messages


def test_null_is_not_written_as_empty() -> None:
    """A tombstone must not come back as an empty value."""
    [bad] = BYTES.refuses(View.VALUE, pa.array([b"", None], pa.binary()), OPTIONS)

    assert 1 == bad.row
    assert "null value" in bad.what


@pytest.mark.parametrize("kind", [pa.string(), pa.json_()], ids=str)
def test_text_is_for_another_format(kind: pa.DataType) -> None:
    """As with the connector, only what a converter leaves as bytes can be written."""
    column = pa.array(["1"], kind)

    with pytest.raises(ConfigurationError, match="value"):
        write(BYTES, View.VALUE, [pa.record_batch([column], ["value"])])


def test_without_a_separator_nothing_is_written_or_read() -> None:
    """Without a separator nothing is written, since values could never be told apart again."""
    options = FormatOptions({"format.bytearray.separator": ""})

    with pytest.raises(ConfigurationError, match="separator"):
        BYTES.writer(io.BytesIO(), View.VALUE, options)
    with pytest.raises(ConfigurationError, match="separator"):
        BYTES.read(io.BytesIO(b"a"), View.VALUE, ".bin", options)


def test_the_extension_is_the_configured_one() -> None:
    """Files of bytes are written under format.bytearray.extension; earlier ones are found too."""
    options = FormatOptions({"format.bytearray.extension": ".raw", "s3.compression.type": "gzip"})

    assert ".raw.gz" == BYTES.extension(options)
    assert [True, True, True, True, False] == [
        BYTES.reads(text, options) for text in (".raw", ".raw.gz", ".bin", ".bin.gz", ".dat")
    ]


def test_another_compression_is_refused() -> None:
    """A compression that the connectors cannot write for bytes is refused."""
    with pytest.raises(ConfigurationError, match=r"s3\.compression\.type=zip"):
        BYTES.extension(FormatOptions({"s3.compression.type": "zip"}))


@pytest.mark.parametrize(
    "data", [pytest.param(b"", id="empty"), pytest.param(b"a\nb", id="no separator at the end")]
)
def test_a_file_that_was_cut_short_is_noticed(data: bytes) -> None:
    """A file whose last value lacks its separator is reported as damaged."""
    with pytest.raises(CorruptObjectError, match="cut short"):
        read(BYTES, View.VALUE, data)
