import pyarrow as pa
import pytest

from kbackup.converters.primitives import StringConverter
from kbackup.errors import ConfigurationError
from kbackup.testing import decoded, encoded


def test_what_is_not_utf8_is_refused_not_replaced() -> None:
    """Bytes that are not text are reported as bad, where a worker would write U+FFFD."""
    column = pa.array([b"a", None, b"ab\xff", b"\xfe"], pa.binary())

    [found] = StringConverter().decode(column)

    assert [(2, "byte 2 of 3: invalid start byte"), (3, "byte 0 of 1: invalid start byte")] == [
        (bad.row, bad.why) for bad in found.bad
    ]
    assert ["a", None, None, None] == found.values.to_pylist()


def test_a_slice_is_judged_by_its_own_rows() -> None:
    """Bytes of another batch do not spoil this one, and rows are counted from its start."""
    column = pa.array([b"\xff", b"a", b"\xff"], pa.binary())

    [rest] = StringConverter().decode(column.slice(1))

    assert ["a"] == decoded(StringConverter(), column.slice(1, 1)).to_pylist()
    assert [1] == [bad.row for bad in rest.bad]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('"a"', b"a", id="string"),
        pytest.param('""', b"", id="empty string"),
        pytest.param('"\\"\\u00e9\\uD83D\\uDE00"', '"é😀'.encode(), id="escapes"),
        pytest.param('"null"', b"null", id="the word null"),
        pytest.param("null", None, id="null"),
        pytest.param('{"a":1}', b'{"a":1}', id="an object is its text"),
        pytest.param("1.0E10", b"1.0E10", id="a number is its text"),
    ],
)
def test_json_becomes_text(text: str, expected: bytes | None) -> None:
    """A string of a JSON file is what it says; other JSON is its text, as toString in Connect."""
    alone = encoded(StringConverter(), pa.array([text], pa.json_()))
    beside = encoded(StringConverter(), pa.array([text, '"\\n"'], pa.json_()))

    assert ([expected], expected) == (alone.to_pylist(), beside[0].as_py())


def test_half_a_surrogate_pair_is_bad() -> None:
    """Half a surrogate pair is reported as bad, where Java would write a question mark."""
    made = StringConverter().encode(pa.array(['"\\uD800"', '"a"', '"\\uDC00"'], pa.json_()))

    assert [None, b"a", None] == made.values.to_pylist()
    assert [(0, "it holds half of a surrogate pair"), (2, "it holds half of a surrogate pair")] == [
        (bad.row, bad.why) for bad in made.bad
    ]


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8", "UTF8"])
def test_utf8_can_be_named(encoding: str) -> None:
    """A worker's property that says what we do is accepted."""
    StringConverter().configure({"converter.encoding": encoding})


def test_another_encoding_is_refused_by_name() -> None:
    """An encoding other than UTF-8 is refused by name."""
    with pytest.raises(ConfigurationError, match=r"converter\.encoding=ISO"):
        StringConverter().configure({"converter.encoding": "ISO-8859-1"})
