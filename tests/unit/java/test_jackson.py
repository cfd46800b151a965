import json

import pyarrow as pa
import pytest

from kbackup.java import jackson


def canonical(*texts: bytes | None) -> list[str | None]:
    found: list[str | None] = jackson.canonical(pa.array(texts, pa.binary()))[0].to_pylist()
    return found


def bad_rows(*texts: bytes | None) -> list[int]:
    return [bad.row for bad in jackson.canonical(pa.array(texts, pa.binary()))[1]]


def test_an_empty_value_is_called_empty() -> None:
    """The reason is not a parser's word for a missing character."""
    [bad] = jackson.canonical(pa.array([b"1", b""], pa.binary()))[1]

    assert (1, "it is empty") == (bad.row, bad.why)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        pytest.param(0.0, "0.0", id="zero"),
        pytest.param(-0.0, "-0.0", id="negative zero"),
        pytest.param(100.0, "100.0", id="whole"),
        pytest.param(3.14, "3.14", id="plain"),
        pytest.param(0.001, "0.001", id="smallest plain"),
        pytest.param(0.000999, "9.99E-4", id="below it"),
        pytest.param(9999999.0, "9999999.0", id="largest plain"),
        pytest.param(1e7, "1.0E7", id="above it"),
        pytest.param(-12345678.9, "-1.23456789E7", id="negative, exponent"),
        pytest.param(2e23, "2.0E23", id="shortest, where Java 18 had 1.9999999999999998E23"),
        pytest.param(5e-324, "4.9E-324", id="least of all has two digits"),
        pytest.param(1.7976931348623157e308, "1.7976931348623157E308", id="greatest of all"),
    ],
)
def test_a_double_is_written_as_java_does(number: float, text: str) -> None:
    """Floating-point numbers are written as in the connectors' files."""
    assert text == jackson.java_double(number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b' { "b" : 1 ,\n"a":[ ] } ', '{"b":1,"a":[]}', id="compact, in its order"),
        pytest.param(b'{"a":1,"b":2,"a":3}', '{"a":3,"b":2}', id="of two keys the last, first"),
        pytest.param(b"123456789012345678901234567890", "123456789012345678901234567890", id="big"),
        pytest.param(
            b'{"a":1e-5,"b":98765432109876543210}',
            '{"a":1.0E-5,"b":98765432109876543210}',
            id="big beside a double",
        ),
        pytest.param(b"1e400000000", None, id="beyond double"),
        pytest.param(b'"\\u00e9\\u2028/\\/"', '"é\u2028//"', id="non-ASCII and slash as they are"),
        pytest.param("😀".join('""').encode(), '"\\uD83D\\uDE00"', id="surrogate pair escaped"),
        pytest.param(b'"\\ud83dx"', '"\\uD83Dx"', id="half a pair kept"),
        pytest.param(b'"\\u0000\\u001f\\b\\\\u001f"', '"\\u0000\\u001F\\b\\\\u001f"', id="control"),
        pytest.param(b'"1e5, 0.0001, 12345678.9]"', '"1e5, 0.0001, 12345678.9]"', id="not numbers"),
        pytest.param(b'{"0.0001":"1e9"}', '{"0.0001":"1e9"}', id="numbers in names"),
        pytest.param(b"[" * 500 + b"1e9" + b"]" * 500, "[" * 500 + "1.0E9" + "]" * 500, id="deep"),
        pytest.param(b"[" * 100_000 + b"]" * 100_000, None, id="too deep"),
        pytest.param(b"9" * 5000, None, id="number of 5,000 digits"),
        pytest.param(b'"\xff"', None, id="not UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', None, id="a surrogate in UTF-8"),
        pytest.param(b"\xef\xbb\xbf1", None, id="byte order mark"),
        pytest.param("1".encode("utf-16"), None, id="UTF-16"),
        pytest.param(b"", None, id="empty"),
    ],
)
def test_json_is_written_as_jackson_does(text: bytes, expected: str | None) -> None:
    """A record keeps its meaning, in the connectors' spelling; anything but JSON is refused."""
    assert [expected] == canonical(text)
    assert (expected is None) == bool(bad_rows(text))


@pytest.mark.parametrize(
    "bad", [pytest.param(b"{", id="not JSON"), pytest.param(b"[1e999]", id="no double")]
)
def test_every_bad_value_is_named_and_null(bad: bytes) -> None:
    """Of many records those that failed can be found, and the others are what they are."""
    texts = b"1", None, b'"\xf0\x9f\x98\x80"', bad, b"1e9", bad

    assert ["1", None, '"\\uD83D\\uDE00"', None, "1.0E9", None] == canonical(*texts)
    assert [3, 5] == bad_rows(*texts)


def test_null_stays_null_and_is_not_the_word() -> None:
    """A record without a value and one whose value is the JSON null are two things."""
    assert [None, "null"] == canonical(None, b"null")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"1e400", id="decimal beyond double"),
        pytest.param(b"9" * 5000, id="long integer"),
        pytest.param(b'"\\ud800"', id="half a pair"),
        pytest.param(b"null", id="null"),
    ],
)
def test_a_line_is_checked_as_json_of_any_size(text: bytes) -> None:
    """Another writer's numbers are not judged by what we could write."""
    jackson.check(text)


@pytest.mark.parametrize(
    "text", [pytest.param(t, id=repr(t)) for t in (b"", b"NaN", b"1 2", b"{'a':1}", b'"\xff"')]
)
def test_a_line_that_is_not_json_is_noticed(text: bytes) -> None:
    """A damaged line is not passed on as text."""
    with pytest.raises(ValueError, match=r"."):
        jackson.check(text)


def test_text_is_quoted_as_jackson_does() -> None:
    """Any text becomes the JSON string that Jackson writes."""
    texts = pa.array(["a", None, "", '"\\\n', "é😀", "\x01\x7f\u2028/", "\\u001f"])
    expected = ['"a"', None, '""', '"\\"\\\\\\n"', '"é\\uD83D\\uDE00"', '"\\u0001\x7f\u2028/"']

    assert [*expected, '"\\\\u001f"'] == jackson.quote(texts).to_pylist()
    common = pa.array(['{"a": "b\\\\"}', "1\t2\r3\n", None, "\b\f"])
    assert [
        '"{\\"a\\": \\"b\\\\\\\\\\"}"', '"1\\t2\\r3\\n"', None, '"\\b\\f"',
    ] == jackson.quote(common).to_pylist()  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param('"a\\n\\uD83D\\uDE00"', "a\n😀", id="string"),
        pytest.param('""', "", id="empty string"),
        pytest.param('{"a":"b"}', None, id="object"),
        pytest.param("12", None, id="number"),
    ],
)
def test_what_a_json_string_says(text: str, value: str | None) -> None:
    """A JSON string is read as its text, and other JSON is not taken for one."""
    assert value == jackson.string_value(text)


def test_half_a_surrogate_pair_is_no_text() -> None:
    """Nothing is put in the place of what UTF-8 cannot hold."""
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        jackson.string_value('"\\uD800"')


def test_what_was_parsed_is_written_as_what_was_read() -> None:
    """A value that passed through Python has the text that it would have had without that."""
    texts = [
        b'{"a":1.0,"b":[1e16,0.0001,12345678.5],"c":null}', b'{"big":123456789012345678901234567}',
        '{"text":"\U0001f600 \u00e9 \\u0001 \\" \\\\"}'.encode(), b"[]", b"true", b'"x"', b"-0.0",
    ]  # fmt: skip
    expected, bad = jackson.canonical(pa.array(texts, pa.binary()))
    parsed = [json.loads(text) for text in texts]

    assert () == bad
    assert expected.to_pylist() == jackson.write(parsed).to_pylist()
    assert [None, '{"half":"\\uD83D"}'] == jackson.write([None, {"half": "\ud83d"}]).to_pylist()
