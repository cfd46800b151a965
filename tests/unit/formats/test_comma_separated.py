"""CSV files, as restores of objects of any name read them."""

import gzip
import io
from typing import Any

import pytest

from kbackup.config import loading
from kbackup.errors import ConfigurationError, CorruptObjectError
from kbackup.formats import FormatOptions
from kbackup.formats.comma_separated import CsvFormat
from kbackup.naming import View


def values(data: bytes, extension: str = ".csv", **options: Any) -> list[str]:
    """Return the JSON text of each row."""
    given = {f"csv.{name.replace('_', '.')}": value for name, value in options.items()}
    batches = CsvFormat().read(io.BytesIO(data), View.VALUE, extension, FormatOptions(given))
    return [text for batch in batches for text in batch["value"].storage.to_pylist()]


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        pytest.param(b"a,b\n1,x\n2,y", {}, ['{"a":"1","b":"x"}', '{"a":"2","b":"y"}'], id="rows"),
        pytest.param(
            b'a,b\r\n"1,2","say ""hi""\nthere"\r\n', {},
            [r'{"a":"1,2","b":"say \"hi\"\nthere"}'], id="quotes",
        ),
        pytest.param(b"a,b\n,\"\"\n", {}, ['{"a":"","b":""}'], id="empty is not null"),
        pytest.param(
            b"a,b\n,\"\"\n", {"null_field_indicator": "EMPTY_SEPARATORS"},
            ['{"a":null,"b":""}'], id="empty without quotes is null",
        ),
        pytest.param(
            b"a,b\n,\"\"\n", {"null_field_indicator": "BOTH"},
            ['{"a":null,"b":null}'], id="empty is null",
        ),
        pytest.param(
            b"# by hand\na;'b'\n'1;2';x\n",
            {"skip_lines": 1, "separator_char": 59, "quote_char": 39},
            ['{"a":"1;2","b":"x"}'], id="other characters",
        ),
        pytest.param(
            b"1,x\n", {"first_row_as_header": False}, ['{"column01":"1","column02":"x"}'],
            id="no header",
        ),
        pytest.param(
            "a\nä\n".encode("latin-1"), {"file_charset": "ISO-8859-1"}, ['{"a":"ä"}'], id="latin-1"
        ),
        pytest.param(b"a,b\n", {}, [], id="a header alone"),
        pytest.param(b"a,b", {}, [], id="a header alone, cut"),
        pytest.param(b"\r\n\na,b\n1,x\n", {}, ['{"a":"1","b":"x"}'], id="lines before the header"),
        pytest.param(
            b"a\0,b\n1,x\n2,y\n", {},
            [r'{"a\u0000":"1","b":"x"}', r'{"a\u0000":"2","b":"y"}'], id="NUL in a name",
        ),
        pytest.param(
            b'a,b\n5" pipe,"x\n"', {}, [r'{"a":"5\" pipe","b":"x\n"}'], id="a quote within text",
        ),
        pytest.param(
            "a,b\nä,x".encode("utf-16"), {"file_charset": "UTF-16"}, ['{"a":"ä","b":"x"}'],
            id="utf-16",
        ),
        pytest.param(b"a\n007\n1e3\ntrue\n", {}, ['{"a":"007"}', '{"a":"1e3"}', '{"a":"true"}'],
                     id="no type is guessed"),
    ],
)  # fmt: skip
def test_a_row_becomes_an_object(data: bytes, options: dict[str, Any], expected: list[str]) -> None:
    """Fields are text, named as in the first row; each property does what it says."""
    assert expected == values(data, **options)


def test_a_compressed_file_is_read() -> None:
    """A compressed file is read, as exports deliver it."""
    data = gzip.compress(b"a\n" + b"1\n" * 100_000)

    assert ['{"a":"1"}'] * 100_000 == values(data, ".csv.gz")


def test_a_store_may_deliver_a_file_in_small_pieces() -> None:
    """How many bytes a read returns has no effect, even within a name or a character."""

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 1, 1))

    given = FormatOptions({"csv.file.charset": "UTF-16"})
    batches = CsvFormat().read(Slow("name\nä\n".encode("utf-16")), View.VALUE, ".csv", given)

    assert ['{"name":"ä"}'] == [
        text for one in batches for text in one["value"].storage.to_pylist()
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"a,b\n1\n", id="a field is missing"),
        pytest.param(b"a,a\n1,2\n", id="two fields of one name"),
        pytest.param(b"a\n\xff\n", id="not in its character set"),
        pytest.param(b"", id="nothing"),
        pytest.param(b'a,b\n1,"x\n2,y\n3,z\n', id="a quote that is not closed"),
        pytest.param(b'a,b\n1,"x', id="cut short within quotes"),
        pytest.param(b'a\n1\n"', id="a quote at the end"),
    ],
)
def test_a_file_that_is_no_table_is_refused(data: bytes) -> None:
    """No field is put under another's name by guess."""
    with pytest.raises(CorruptObjectError):
        values(data)


def test_a_sink_cannot_write_it() -> None:
    """A sink with this format is refused before a run."""
    options = {"bootstrap_servers": "-", "s3_bucket_name": "b", "topics": ("t",)}

    with pytest.raises(ConfigurationError, match="it can be read, but not written"):
        loading.load("sink", options=options, files=(), environ={}, extra=["format.class=csv"])
